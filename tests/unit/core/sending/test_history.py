"""What hooks are told of sends and of their attempts."""

from __future__ import annotations

import pytest
from tests.unit.core.world import World, address, route_of

from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.errors import Outcome, SendFailedError
from rocketwire.hooks import HookSet, SendEvent
from rocketwire.message import Message
from rocketwire.testing.simulated_network import Hang
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command


class Ends:
    def __init__(self) -> None:
        self.events: list[SendEvent] = []

    def after_send(self, event: SendEvent) -> None:
        self.events.append(event)


def test_a_cancelled_send_ends_with_an_error_that_tells_its_outcome() -> None:
    ends = Ends()
    world = World(1, hooks=(ends,))
    world.brokers["broker-a"].break_now(Hang())
    before_the_route = world.driver.spawn(world.operation())
    before_the_route.cancel()
    task = world.driver.spawn(world.operation())
    world.clock.advance(0.01)
    task.cancel()
    outcomes = [e.error.outcome for e in ends.events if isinstance(e.error, SendFailedError)]
    assert outcomes == [Outcome.NOT_SENT, Outcome.MAYBE_STORED]


def test_the_end_of_a_send_is_told_with_when_what_and_where() -> None:
    ends = Ends()
    world = World(1, hooks=(ends,), compress_over=100)
    world.clock.advance(100.0)
    began = world.clock()
    result = world.send(Message("T", b"x" * 1000))
    (event,) = ends.events
    assert event.result == result
    assert event.error is None
    assert event.message_ids == result.message_ids
    assert event.at - 1_700_000_000.0 == pytest.approx(began, abs=1e-5)
    assert event.elapsed == pytest.approx(world.clock() - began)
    assert 0.001 < event.elapsed < 0.1
    assert event.address == address("broker-a")
    assert 0 < event.size < 100


@pytest.mark.parametrize("code", [0, 2], ids=["stored", "refused"])
def test_an_answer_that_makes_no_sense_fails_the_send_as_it_does_without_hooks(code) -> None:
    """Hooks are told whether the broker wants traces, which stands in the part that can't be read."""
    ends = Ends()
    world = World(1, hooks=(ends,), retries=1)
    world.send()
    ends.events.clear()
    place = {"msgId": "0A", "queueId": "0", "queueOffset": "1"}
    frame = bytearray(encode_command(Command(code, place, remark="no", flag=RESPONSE))[4:])
    at = frame.index(b"msgId")
    frame[at - 2 : at] = b"\x7f\xff"  # the length of the field's name
    world.network._respond = lambda *_: Reply(bytes(frame))
    with pytest.raises(SendFailedError) as failed:
        world.send()
    assert failed.value.outcome is Outcome.MAYBE_STORED
    assert len(failed.value.attempts) == 2
    (event,) = ends.events
    assert event.error is failed.value


def test_attempts_are_numbered_from_one_whatever_became_of_them() -> None:
    numbers = []

    class Hook:
        def after_attempt(self, event) -> None:
            numbers.append((event.attempt, event.outcome))

    world = World(2, hooks=(Hook(),))
    world.codes = {"broker-a": [2], "broker-b": [2]}
    world.send()
    assert numbers == [(1, "rejected"), (2, "rejected"), (3, "stored")]


def test_a_senders_own_hooks_hear_of_its_messages_only() -> None:
    ours, theirs = Ends(), Ends()
    world = World(1, hooks=(ours,))
    other = Sender(world.instance, world.config, world.sender.positions, HookSet((theirs,)))
    world.send()
    world.driver.run(other.send(Message("T", b"x"), SendMode.BLOCKING))
    assert (len(ours.events), len(theirs.events)) == (1, 1)


def test_watchers_of_an_instance_come_and_go() -> None:
    told = []

    class Watcher:
        def __init__(self, name: str) -> None:
            self.name = name

        def route_changed(self, event) -> None:
            told.append(self.name)

    one, two = Watcher("one"), Watcher("two")
    world = World(1, hooks=(one,), route_refresh=1.0)
    world.instance.watch((two, two))
    for leaving in ((), (two,), (two, one)):
        world.instance.unwatch(leaving)
        queues = 10 + len(told)
        world.send()
        world.routes["T"] = route_of({"broker-a": queues})
        world.clock.advance(2.0)
        world.send()
        told.append("|")
    assert told == ["one", "two", "two", "|", "one", "two", "|", "|"]
