"""How sends end whose attempt a shell has written itself, without their operation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World

from rocketwire.core.sending import finish
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.history import SendHistory
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.hooks import AttemptEvent, SendEvent
from rocketwire.message import Message, SendResult


class Shell:
    """Writes attempts and ends them, as the drivers of the shells do."""

    def __init__(self, brokers: int = 1, **options: Any) -> None:
        self.world = World(brokers, **options)
        self.clock = self.world.clock
        self.clock.advance(100.0)
        self.world.send(Message("T", b"to know the route"))
        self.before = self.world.sender.counters.snapshot()

    def start(self, message: Any = None, mode: SendMode = SendMode.BLOCKING) -> SendAttempt:
        given = Message("T", b"hello") if message is None else message
        return self.world.sender.start(given, mode)

    def write(self, message: Any = None, mode: SendMode = SendMode.BLOCKING) -> SendAttempt:
        attempt = self.start(message, mode)
        attempt.written(self.clock(), 100)
        return attempt

    def stored(self, attempt: SendAttempt) -> SendResult:
        answer = self.world.answer(attempt, 0).frame
        return finish.stored(attempt, bytes(answer), self.clock())

    def health(self, broker: str = "broker-a") -> Any:
        table = self.world.instance.faults.snapshot(self.clock())
        return next(health for health in table if health.broker == broker)


def keyed(body: bytes = b"x") -> Message:
    return Message("T", body, sharding_key="k")


# -- stored ----------------------------------------------------------------------------------------


def test_a_stored_attempt_is_counted_with_the_time_that_it_took() -> None:
    shell = Shell()
    attempt = shell.write(Message("T", b"12345"))
    shell.clock.advance(0.25)
    result = shell.stored(attempt)
    assert (result.queue, result.message_ids) == (attempt.where.queue, attempt.ids)
    stats, before = shell.world.sender.counters.snapshot(), shell.before
    assert (stats.sent - before.sent, stats.messages - before.messages) == (1, 1)
    assert stats.bytes - before.bytes == 5
    (broker,) = stats.brokers
    assert broker.answers == before.brokers[0].answers + 1
    assert broker.seconds - before.brokers[0].seconds == pytest.approx(0.25)


def test_the_fault_table_learns_of_a_stored_attempt() -> None:
    shell = Shell()
    attempt = shell.write()
    shell.clock.advance(0.05)
    assert shell.health().in_flight == 1
    shell.stored(attempt)
    assert shell.health().in_flight == 0
    assert shell.health().last_latency == pytest.approx(0.05)


def test_a_stored_batch_counts_each_of_its_messages() -> None:
    shell = Shell()
    shell.stored(shell.write([Message("T", b"1"), Message("T", b"2"), Message("T", b"3")]))
    stats, before = shell.world.sender.counters.snapshot(), shell.before
    assert (stats.sent - before.sent, stats.messages - before.messages) == (1, 3)


def test_the_next_message_of_a_key_goes_when_the_one_before_it_is_stored() -> None:
    shell = Shell()
    first = shell.write(keyed())
    waiting = shell.world.driver.spawn(shell.world.operation(keyed(b"next")))
    shell.clock.advance(0.5)
    assert not waiting.done
    shell.stored(first)
    shell.clock.advance(0.5)
    assert waiting.result() is not None
    assert len(shell.world.sender.order) == 0


def test_the_story_of_a_send_ends_with_the_attempt_that_was_stored() -> None:
    shell = Shell()
    attempt = shell.write()
    attempt.history = SendHistory(attempt.began)
    shell.stored(attempt)
    assert attempt.history.last is attempt


# -- several that were stored ----------------------------------------------------------------------


def test_attempts_that_are_stored_together_count_for_their_own_senders_and_brokers() -> None:
    shell = Shell(2)
    world = shell.world
    other = Sender(world.instance, world.config, world.sender.positions)
    senders = [world.sender, world.sender, other, other, other, world.sender, world.sender]
    attempts = []
    for number, sender in enumerate(senders):
        attempt = sender.start(Message("T", b"%d" % number), SendMode.ASYNC)
        attempt.written(shell.clock(), 100)
        attempts.append(attempt)
    shell.clock.advance(0.02)
    finish.stored_all(attempts, shell.clock())
    before = shell.before
    stats, others = world.sender.counters.snapshot(), other.counters.snapshot()
    assert (stats.sent - before.sent, stats.messages - before.messages) == (4, 4)
    assert (others.sent, others.messages, others.bytes) == (3, 3, 3)
    for sender, seen, known in ((world.sender, stats, before), (other, others, None)):
        for name in world.names:
            mine = [a for a in attempts if a.sender is sender and a.broker == name]
            (broker,) = [b for b in seen.brokers if b.broker == name]
            old = [b for b in known.brokers if b.broker == name] if known else []
            assert broker.answers - sum(b.answers for b in old) == len(mine)
            seconds = broker.seconds - sum(b.seconds for b in old)
            assert seconds == pytest.approx(0.02 * len(mine))
    assert [shell.health(name).in_flight for name in world.names] == [0, 0]


@pytest.mark.parametrize(("singles", "batches"), [(1, 0), (0, 1), (0, 2), (1, 2), (2, 1)])
def test_batches_that_are_stored_together_count_each_of_their_messages(
    singles: int, batches: int
) -> None:
    shell = Shell()
    batch = [Message("T", b"22"), Message("T", b"333")]
    attempts = [shell.write(Message("T", b"1")) for _ in range(singles)]
    attempts += [shell.write(batch) for _ in range(batches)]
    size = sum(len(attempt.body) for attempt in attempts)
    finish.stored_all(attempts, shell.clock())
    stats, before = shell.world.sender.counters.snapshot(), shell.before
    assert stats.sent - before.sent == singles + batches
    assert stats.messages - before.messages == singles + 2 * batches
    assert stats.bytes - before.bytes == size
    assert {attempt.body for attempt in attempts} == {b""}  # let go of


# -- interrupted -----------------------------------------------------------------------------------


def test_an_interrupted_send_keeps_no_place() -> None:
    shell = Shell()
    first = shell.write(keyed())
    second = shell.start(keyed())
    assert second.target is None  # it waits for its turn
    finish.interrupted(second)
    finish.interrupted(first)
    assert len(shell.world.sender.order) == 0
    assert shell.health().in_flight == 0
    finish.interrupted(first)  # twice is harmless
    assert shell.health().failures == 0


# -- oneway ----------------------------------------------------------------------------------------


def test_a_oneway_message_that_was_written_is_under_way_no_more() -> None:
    shell = Shell()
    attempt = shell.write(mode=SendMode.ONEWAY)
    assert shell.health().in_flight == 1
    finish.written_oneway(attempt, shell.clock())
    assert shell.health().in_flight == 0
    assert shell.world.sender.counters.oneway == 1


def test_java_s_table_learns_of_a_oneway_message_of_which_it_had_not_heard() -> None:
    shell = Shell(fault="java4")
    attempt = shell.start(mode=SendMode.ONEWAY)
    shell.clock.advance(0.6)
    finish.written_oneway(attempt, shell.clock())
    assert shell.health().state == "isolated"  # it took so long to be written


def test_a_oneway_message_gives_the_place_on_trial_back() -> None:
    shell = Shell()
    shell.world.instance.faults.reset("broker-a")
    attempt = shell.start(mode=SendMode.ONEWAY)
    assert shell.health().state == "trial"
    assert attempt.entry.trial_attempt is attempt
    finish.written_oneway(attempt, shell.clock())
    assert attempt.entry.trial_attempt is None


def test_the_next_message_of_a_key_goes_when_a_oneway_one_is_written() -> None:
    shell = Shell()
    finish.written_oneway(shell.start(keyed(), SendMode.ONEWAY), shell.clock())
    assert len(shell.world.sender.order) == 0


def test_hooks_hear_of_a_oneway_message_when_the_order_of_its_key_is_left() -> None:
    attempts: list[AttemptEvent] = []
    ends: list[tuple[SendEvent, int]] = []

    class Hook:
        def after_attempt(self, event: AttemptEvent) -> None:
            attempts.append(event)

        def after_send(self, event: SendEvent) -> None:
            ends.append((event, len(shell.world.sender.order)))

    shell = Shell(hooks=(Hook(),))
    attempts.clear()
    ends.clear()
    attempt = shell.start(keyed(), SendMode.ONEWAY)
    shell.clock.advance(0.25)
    finish.written_oneway(attempt, shell.clock())
    (event,) = attempts
    assert (event.outcome, event.mode, event.attempt) == ("oneway", "oneway", 1)
    assert event.latency == pytest.approx(0.25)
    ((end, in_order),) = ends
    assert (end.result, end.error, end.message_ids) == (None, None, attempt.ids)
    assert end.elapsed == pytest.approx(0.25)
    assert end.address == attempt.where.address
    assert in_order == 0


def test_a_oneway_send_with_a_story_goes_on_with_it() -> None:
    shell = Shell()
    attempt = shell.start(keyed(), SendMode.ONEWAY)
    history = attempt.history = SendHistory(attempt.began)
    finish.written_oneway(attempt, shell.clock())
    assert history.last is attempt
    assert len(shell.world.sender.order) == 0
