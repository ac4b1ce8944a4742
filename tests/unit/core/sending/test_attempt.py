"""What stays of an attempt when it is over, and what is asked again before the next one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World, address, route_of

from rocketwire.core.sending.attempt import RELEASED
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import Outcome, SendFailedError
from rocketwire.hooks import AttemptEvent
from rocketwire.message import Message
from rocketwire.testing.simulated_network import Refuse


def is_rung(world: World) -> bool:
    """Whether routes are to be asked for at once."""
    return world.driver.run(world.instance.route_wake_up.wait(world.clock()))


def known(brokers: int = 1, **options: Any) -> World:
    """A world whose clock has run for long, and whose route was just asked for."""
    world = World(brokers, **options)
    world.clock.advance(100.0)
    world.send()
    world.asked.clear()
    world.stored.clear()
    return world


# -- what stays -----------------------------------------------------------------------------------


def test_a_send_that_is_over_keeps_neither_its_bodies_nor_those_of_its_last_attempt() -> None:
    world = known(2)
    world.codes = {name: [2] for name in world.names}
    first = world.sender.start(Message("T", b"hello"), SendMode.BLOCKING)
    world.driver.run(first.operation())
    assert first.history is not None
    last = first.history.last
    assert last is not None
    assert last is not first
    first.release()
    for attempt in (first, last):
        assert (attempt.body, attempt.message) == (b"", RELEASED)


def test_a_batch_that_is_over_keeps_no_message() -> None:
    world = known()
    attempt = world.sender.start([Message("T", b"1"), Message("T", b"2")], SendMode.BLOCKING)
    world.driver.run(attempt.operation())
    attempt.release()
    assert attempt.messages == ()
    assert attempt.body == b""


def test_a_send_that_never_came_to_an_attempt_keeps_no_message_either() -> None:
    world = World()
    attempt = world.sender.start(Message("nowhere", b"hello"), SendMode.BLOCKING)
    with pytest.raises(SendFailedError):
        world.driver.run(attempt.operation())
    attempt.release()
    assert (attempt.body, attempt.message) == (b"", RELEASED)


# -- the way to the next one ----------------------------------------------------------------------


@pytest.mark.parametrize(("age", "asked"), [(0.0, 0), (0.9, 0), (1.1, 1), (1.9, 1)])
def test_a_retry_asks_for_the_route_again_unless_that_was_done_a_moment_ago(
    age: float, asked: int
) -> None:
    world = known(retries=1)
    world.brokers["broker-a"].break_now(Refuse())
    world.clock.advance(age)
    with pytest.raises(SendFailedError) as caught:
        world.send()
    assert len(caught.value.attempts) == 2
    assert world.asked == ["T"] * asked


def test_a_retry_goes_by_the_route_that_others_have_asked_for_meanwhile() -> None:
    world = known(retries=1)
    world.network.add_broker(address("broker-b"), latency=0.002)
    attempt = world.sender.start(Message("T", b"x"), SendMode.BLOCKING)
    world.brokers["broker-a"].break_now(Refuse())
    world.instance.routes.update("T", route_of({"broker-b": 1}))
    result = world.driver.run(attempt.operation())
    assert result.queue.broker == "broker-b"
    assert world.asked == []


def test_an_attempt_that_starts_over_goes_by_the_route_that_is_known_then() -> None:
    world = known()
    world.network.add_broker(address("broker-b"), latency=0.002)
    attempt = world.sender.start(Message("T", b"x"), SendMode.BLOCKING)
    world.sender.start_over(attempt)
    world.sender.start_over(attempt)  # twice is harmless
    world.instance.routes.update("T", route_of({"broker-b": 1}))
    assert world.driver.run(attempt.operation()).queue.broker == "broker-b"


def test_an_attempt_that_starts_over_gives_its_place_on_trial_back() -> None:
    world = known()
    world.instance.faults.reset("broker-a")
    attempt = world.sender.start(Message("T", b"x"), SendMode.BLOCKING)
    assert attempt.entry.trial_attempt is attempt
    world.sender.start_over(attempt)
    assert attempt.entry.trial_attempt is None
    assert attempt.target is None


@pytest.mark.parametrize("mode", [SendMode.BLOCKING, SendMode.ONEWAY])
def test_a_send_that_is_given_up_where_it_stands_keeps_no_place_and_is_told(mode: SendMode) -> None:
    ends: list[Any] = []

    class Hook:
        def after_send(self, event: Any) -> None:
            ends.append(event.error)

    world = known(hooks=(Hook(),))
    ends.clear()
    message = Message("T", b"x", sharding_key="k")
    attempt = world.sender.start(message, mode)
    waiting = world.sender.start(message, mode)
    attempt.written(world.clock(), 100)
    for each in (waiting, attempt):
        each.give_up()
    (health,) = world.instance.faults.snapshot(world.clock())
    assert health.in_flight == 0
    assert len(world.sender.order) == 0
    assert [error.outcome for error in ends] == [Outcome.NOT_SENT, Outcome.MAYBE_STORED]
    assert world.stored == []


@pytest.mark.parametrize("mode", [SendMode.BLOCKING, SendMode.ASYNC, SendMode.ONEWAY])
def test_routes_are_asked_for_at_once_after_a_broker_that_can_not_be_reached(
    mode: SendMode,
) -> None:
    world = known(retries=0, async_retries=0)
    assert not is_rung(world)
    world.brokers["broker-a"].break_now(Refuse())
    with pytest.raises(SendFailedError):
        world.send(mode=mode)
    assert is_rung(world)


@pytest.mark.parametrize(("code", "rung"), [(2, False), (14, True), (17, True)])
def test_routes_are_asked_for_at_once_after_an_answer_of_a_broker_that_may_have_changed(
    code: int, rung: bool
) -> None:
    world = known(retries=0)
    world.codes = {"broker-a": [code]}
    with pytest.raises(SendFailedError):
        world.send()
    assert is_rung(world) is rung


# -- what is told of each -------------------------------------------------------------------------


def test_each_attempt_tells_when_its_send_began() -> None:
    events: list[AttemptEvent] = []

    class Hook:
        def after_attempt(self, event: AttemptEvent) -> None:
            events.append(event)

    world = known(2, hooks=(Hook(),), latency=0.25)
    events.clear()
    world.codes = {name: [2] for name in world.names}
    began = world.instance.wall()
    world.send()
    assert [round(event.at - began, 6) for event in events] == [0.25, 0.5, 0.75]
    assert [round((event.send_at or 0.0) - began, 6) for event in events] == [0.0] * 3
    assert [event.latency for event in events] == [pytest.approx(0.25)] * 3


# -- plans ----------------------------------------------------------------------------------------


def test_a_producer_of_very_many_topics_keeps_no_plan_for_each() -> None:
    world = World(1)
    for number in range(1100):
        world.instance.routes.update(f"T{number}", route_of({"broker-a": 1}))
        attempt = world.sender.start(Message(f"T{number}", b"x"), SendMode.BLOCKING)
        assert attempt.where.broker == "broker-a"
    assert sum(map(len, world.sender._plans)) <= 1001
