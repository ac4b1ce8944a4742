"""Messages that a program decides about itself: what each decision does, and what comes too late."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.group.group_world import GroupWorld, Member

from rocketwire.core.effects import Op
from rocketwire.core.group.deliveries import HandedOut, check_deliveries
from rocketwire.errors import ClientClosedError, ConfigError, InvalidMessageError
from rocketwire.message import MessageQueue

ONE = MessageQueue("T", "broker-a", 0)


class Program(Member):
    """A member whose messages wait until the test takes them."""

    def _work(self) -> Op[None]:
        yield from self.ready.wait(self.world.clock() + 1e6)

    def take(self) -> HandedOut | None:
        with self.workload.lock:
            work = self.workload.next_open()
        return None if work is None else HandedOut(self.group, work)

    def get(self) -> HandedOut:
        found = self.take()
        assert found is not None
        return found


def running(count: int = 3, **options: Any) -> tuple[GroupWorld, Program]:
    world = GroupWorld(brokers=1, queues=1)
    # What is handled is the program's affair here.
    world.check_commit = lambda *_: None  # type: ignore[method-assign]
    world.send(count, ("broker-a", 0))
    member = Program(world, "program", **options)
    member.begin()
    world.run(1.0)
    return world, member


def floor(member: Member) -> int:
    return member.group.floors(member.group.queues.values())[ONE]


def test_only_single_messages_are_delivered() -> None:
    _, member = running()
    check_deliveries(member.config)
    lists = GroupWorld().member(batch=2)
    with pytest.raises(ConfigError, match="batch is 2"):
        check_deliveries(lists.config)


def test_an_acknowledged_message_is_handled_and_the_offset_goes_on() -> None:
    _, member = running()
    first, second = member.get(), member.get()
    assert second.acknowledge()
    assert floor(member) == 0
    assert first.acknowledge()
    assert floor(member) == 2
    assert member.workload.handled == 2
    assert first.acknowledge()  # the same again is harmless
    assert member.workload.handled == 2


@pytest.mark.parametrize("ordered", [False, True])
def test_who_waits_for_the_next_of_an_ordered_queue_is_woken_by_the_decision(ordered: bool) -> None:
    _, member = running(ordered=ordered)
    woken: list[None] = []
    first = member.get()
    assert (member.take() is None) is ordered
    member.workload.on_ready = lambda: woken.append(None)
    assert first.acknowledge()
    assert bool(woken) is ordered
    assert member.get().message.offset == (1 if ordered else 2)


def test_a_message_that_is_given_back_comes_again_later() -> None:
    world, member = running(1)
    delivery = member.get()
    operation = delivery.retry(10.0)
    assert operation is not None
    delivery.run(operation)
    world.run(0.1)
    assert world.sent_back == [(delivery.message.text, 3)]
    assert delivery.retry(10.0) is None
    assert floor(member) == 1


def test_a_time_that_makes_no_sense_is_refused_before_anything_is_decided() -> None:
    _, member = running(1)
    delivery = member.get()
    with pytest.raises(ConfigError):
        delivery.retry(-1)
    assert delivery.acknowledge()


def test_a_dead_letter_is_moved_with_its_reason() -> None:
    world, member = running(1)
    delivery = member.get()
    with pytest.raises(InvalidMessageError):
        delivery.dead_letter(" ")
    operation = delivery.dead_letter("no such order")
    assert operation is not None
    delivery.run(operation)
    world.run(0.1)
    assert [letter["ROCKETWIRE_ERROR"] for letter in world.brokers["broker-a"].told] == [
        "no such order"
    ]
    assert delivery.dead_letter("no such order") is None


def test_a_broadcasting_program_has_no_dead_letters() -> None:
    _, member = running(1, broadcast=True)
    with pytest.raises(ConfigError, match="has no dead letters"):
        member.get().dead_letter("no such order")


def test_another_decision_is_refused() -> None:
    _, member = running(2)
    first, second = member.get(), member.get()
    first.acknowledge()
    with pytest.raises(ConfigError, match="was acknowledged: it can't be given back for a retry"):
        first.retry(None)
    assert second.retry(None) is not None
    with pytest.raises(ConfigError, match="was given back for a retry: it can't be acknowledged"):
        second.acknowledge()


def test_who_waits_is_called_when_what_was_decided_is_done() -> None:
    world, member = running(1)
    delivery = member.get()
    done: list[float] = []
    delivery.when_seen_to(lambda: done.append(world.clock()))
    operation = delivery.retry(None)
    assert operation is not None
    assert done == []
    delivery.run(operation)
    world.run(0.1)
    assert len(done) == 1


@pytest.mark.parametrize("word", ["acknowledge", "retry", "dead_letter"])
def test_what_is_decided_after_the_queue_went_elsewhere_does_nothing(word: str) -> None:
    world, member = running(2)
    delivery = member.get()
    held = member.group.queues[ONE]
    member.workload.restart(held, 0)
    given: tuple[Any, ...] = {"retry": (None,), "dead_letter": ("why",)}.get(word, ())
    for _ in range(2):
        assert not getattr(delivery, word)(*given)
        assert not delivery.counts
    assert member.workload.in_hand == 0
    world.run(1.0)
    assert world.sent_back == []
    assert floor(member) == 0


@pytest.mark.parametrize("word", ["acknowledge", "retry", "dead_letter"])
def test_what_is_decided_after_the_consumer_left_is_an_error(word: str) -> None:
    world, member = running(2)
    delivery = member.get()
    assert member.leave().done or world.run(1.0) is None
    given: tuple[Any, ...] = {"retry": (None,), "dead_letter": ("why",)}.get(word, ())
    for _ in range(2):
        with pytest.raises(ClientClosedError, match=r"has left its group: .* comes again"):
            getattr(delivery, word)(*given)


@pytest.mark.parametrize(("request_timeout", "limit"), [(1.0, 11.0), (8.0, 17.0)])
def test_giving_a_message_back_takes_two_requests_at_most(
    request_timeout: float, limit: float
) -> None:
    _, member = running(1, request_timeout=request_timeout)
    assert member.get().limit == limit
