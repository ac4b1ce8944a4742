from __future__ import annotations

import random
from collections.abc import Callable
from threading import RLock

import pytest
from tests.unit.core.world import World, decoded

from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.order import KeyOrder, KeySlot
from rocketwire.errors import Outcome, SendFailedError, SendTimeoutError
from rocketwire.message import Message
from rocketwire.testing.simulated_network import Hang, with_pauses
from rocketwire.testing.simulation import OperationRuleError, SimulatedLock


def keyed(number: int, key: str = "k") -> Message:
    return Message("T", b"%d" % number, sharding_key=key)


def submit(world: World, message: Message, **how):
    attempt = world.sender.start(message, SendMode.ASYNC, is_accepted=True, **how)
    return world.driver.spawn(attempt.operation())


def test_two_messages_of_one_key_are_never_in_flight_together() -> None:
    pauses = with_pauses(0.002, share=0.3, shortest=0.01, longest=0.1)
    world = World(3, latency=pauses)
    together: list[list[str]] = []

    def key_of(request) -> str:
        text = decoded(request).ext["i"]
        return text.split("__SHARDINGKEY\x01")[1].split("\x02")[0]

    def arrived(request, now) -> None:
        calls = [c for b in world.brokers.values() for c in b.under_way]
        together.append([key_of(c.request) for c in calls])

    for broker in world.brokers.values():
        broker.on_arrival = arrived
    rng = random.Random(5)
    tasks = []
    for number in range(200):
        key = f"k{rng.randrange(8)}"
        tasks.append((key, number, submit(world, keyed(number, key))))
    world.clock.advance(60.0)
    assert all(task.result() for _, _, task in tasks)
    assert len(together) == 200
    assert all(len(keys) == len(set(keys)) for keys in together)
    assert max(len(keys) for keys in together) > 3
    order: dict[str, list[int]] = {}
    for _, _, command in world.stored:
        text = command.ext["i"]
        key = text.split("__SHARDINGKEY\x01")[1].split("\x02")[0]
        order.setdefault(key, []).append(int(bytes(command.body)))
    assert sum(map(len, order.values())) == 200
    for numbers in order.values():
        assert numbers == sorted(numbers)
    assert len(world.sender.order) == 0


def test_a_failed_message_fails_those_accepted_behind_it_and_names_itself() -> None:
    world = World(1)
    world.codes = {"broker-a": [13]}
    first, second, third = (submit(world, keyed(n)) for n in range(3))
    world.clock.advance(1.0)
    with pytest.raises(SendFailedError, match="MESSAGE_ILLEGAL"):
        first.result()
    for task in (second, third):
        with pytest.raises(SendFailedError, match=r"earlier message.*MESSAGE_ILLEGAL") as caught:
            task.result()
        assert caught.value.outcome is Outcome.NOT_SENT
    assert world.stored == []
    later = submit(world, keyed(9))
    world.clock.advance(1.0)
    assert later.result().queue.broker == "broker-a"


def test_a_blocking_send_behind_a_failure_goes_on() -> None:
    world = World(1)
    world.codes = {"broker-a": [13]}
    submit(world, keyed(0))
    waiting = world.driver.spawn(world.operation(keyed(1)))
    world.clock.advance(1.0)
    assert waiting.result() is not None
    assert [bytes(c.body) for _, _, c in world.stored] == [b"1"]


def test_other_keys_do_not_wait() -> None:
    world = World(1, 8)
    world.send()
    world.brokers["broker-a"].break_now(Hang(thaws=True))
    submit(world, keyed(0, "a"))
    world.brokers["broker-a"].fault = None
    other = submit(world, keyed(1, "b"))
    world.clock.advance(0.5)
    assert other.result() is not None
    assert [bytes(c.body) for _, _, c in world.stored] == [b"hello", b"1"]


def test_the_line_does_not_eat_the_time_of_submitted_messages() -> None:
    world = World(1, latency=0.5)
    tasks = [submit(world, keyed(n), timeout=1.0) for n in range(10)]
    world.clock.advance(30.0)
    assert [task.result().offset for task in tasks] == sorted(t.result().offset for t in tasks)
    assert len(world.stored) == 10


def test_a_blocking_send_waits_in_line_no_longer_than_its_timeout() -> None:
    world = World(1)
    world.clock.advance(100.0)
    world.send()
    world.brokers["broker-a"].break_now(Hang())
    submit(world, keyed(0), timeout=10.0)
    began = world.clock()
    with pytest.raises(SendTimeoutError, match=r"not sent: .* is under way \(no attempt, 1\.0 s\)"):
        world.send(keyed(1), timeout=1.0)
    assert world.clock() - began == pytest.approx(1.0)


def test_order_disappear_when_nobody_stands_in_them() -> None:
    order = KeyOrder(SimulatedLock())
    (one,) = order.enter(["a"], is_accepted=True)
    both = order.enter(["a", "b"], is_accepted=True)
    assert one.ready.is_set
    assert [t.ready.is_set for t in both] == [False, True]
    order.leave(one)
    assert both[0].ready.is_set
    for ticket in both:
        order.leave(ticket)
    assert len(order) == 0
    order.leave(one)  # twice is harmless
    assert len(order) == 0


def test_leaving_the_middle_of_a_line_opens_nobody() -> None:
    order = KeyOrder(SimulatedLock())
    first, second, third = (order.enter(["a"], is_accepted=False)[0] for _ in range(3))
    order.leave(second, ValueError("gave up"))
    assert not third.ready.is_set
    assert third.failed_before is None
    order.leave(first)
    assert third.ready.is_set


def test_what_was_accepted_behind_a_message_that_is_given_up_in_flight_is_not_sent() -> None:
    world = World(1)
    world.send(keyed(0))
    world.brokers["broker-a"].break_now(Hang())
    first, second, other = (
        submit(world, keyed(n, key)) for n, key in ((1, "k"), (2, "k"), (3, "x"))
    )
    world.clock.advance(0.01)
    first.cancel()
    world.clock.advance(0.01)
    with pytest.raises(SendFailedError, match="maybe stored") as caught:
        second.result()
    assert caught.value.outcome is Outcome.NOT_SENT
    with pytest.raises(OperationRuleError, match="still under way"):
        other.result()
    world.brokers["broker-a"].heal()
    assert world.send(keyed(4))  # later ones go on
    assert len(world.sender.order) == 1


def test_a_message_that_is_given_up_in_line_leaves_those_behind_it_alone() -> None:
    world = World(1)
    first, second, third = (submit(world, keyed(n)) for n in (1, 2, 3))
    second.cancel()
    world.clock.advance(1.0)
    assert first.result()
    assert third.result()
    assert [bytes(command.body) for _, _, command in world.stored] == [b"1", b"3"]


@pytest.mark.parametrize("late", [0.0, 0.001])
def test_a_message_whose_turn_comes_at_its_deadline_is_not_sent(late) -> None:
    world = World(1)
    world.send()
    written: list[bytes] = []
    broker = world.brokers["broker-a"]
    broker.on_arrival = lambda request, _: written.append(bytes(request.body))
    (ahead,) = world.sender.order.enter([("T", "k")], is_accepted=False)
    waiting = world.driver.spawn(world.operation(keyed(1), timeout=1.0))
    # The turn comes in time, but the machine pauses until the time is over.
    world.clock.pause_until(world.clock() + 1.0 + late)
    world.clock.advance(0.5)
    world.sender.order.leave(ahead)
    world.clock.advance(3.0)
    with pytest.raises(SendTimeoutError, match="not sent: there was no time to try") as caught:
        waiting.result()
    assert caught.value.outcome is Outcome.NOT_SENT
    assert written == []
    assert len(world.sender.order) == 0
    assert world.instance.faults.state_of("broker-a") == "usable"  # it is nobody's fault there


def test_the_last_of_a_key_is_the_one_behind_which_none_waits() -> None:
    order = KeyOrder(SimulatedLock())
    (first,) = order.enter(["k"], is_accepted=True)
    assert order.is_last(first)
    (second,), (other,) = (order.enter([key], is_accepted=True) for key in "kl")
    assert not order.is_last(first)
    assert order.is_last(second)
    assert order.is_last(other)
    order.leave(first)
    order.leave(second)
    assert not order.is_last(second)


def test_a_send_in_the_midst_of_one_of_its_key_in_the_same_thread_waits_for_that_thread() -> None:
    order = KeyOrder(SimulatedLock())
    (first,) = order.enter(["k"], is_accepted=False, thread=1)
    (second,) = order.enter(["k"], is_accepted=False, thread=1)
    (third,) = order.enter(["k"], is_accepted=False, thread=2)
    (fourth,) = order.enter(["k"], is_accepted=True)
    (fifth,) = order.enter(["k"], is_accepted=True)
    setters = [slot.ready.setter for slot in (first, second, third, fourth, fifth)]
    assert setters == [None, 1, None, None, None]
    assert not second.ready.is_set


class Interrupted:
    """A key in the midst of whose n-th look-up a signal handler runs."""

    def __init__(self, handler: Callable[[], object], at: int) -> None:
        self.handler = handler
        self.left = at

    def __hash__(self) -> int:
        self.left -= 1
        if self.left == 0:
            self.handler()
        return 1


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("stays", [False, True])
def test_a_send_of_a_signal_handler_gets_its_place_in_line_whenever_it_comes(at, stays) -> None:
    order = KeyOrder(RLock())
    inner: list[KeySlot] = []

    def handler() -> None:
        inner.extend(order.enter([key], is_accepted=True))
        if not stays:
            order.leave(inner[0])

    key = Interrupted(handler, at)
    (outer,) = order.enter([key], is_accepted=False)
    assert inner
    line = [slot for slot in (outer, *inner) if slot.ready.is_set]
    if stays:
        assert len(line) == 1  # never both
        order.leave(line[0])
    assert outer.ready.is_set or inner[0].ready.is_set
    order.leave(outer)
    order.leave(inner[0])
    assert outer.ready.is_set
    assert inner[0].ready.is_set or not stays
    assert len(order) == 0
