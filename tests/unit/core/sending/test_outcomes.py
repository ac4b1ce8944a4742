"""Once a send has tried, what leaves it is a result or a ``SendFailedError`` with all its attempts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from tests.unit.core.world import NAME_SERVER, World

from rocketwire.core.effects import Invoke
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    InvalidMessageError,
    LocalProtocolError,
    NoWritableQueueError,
    Outcome,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    SendFailedError,
)
from rocketwire.message import Message, SendResult, SendStatus
from rocketwire.wire.codes import ResponseCode

#: What an attempt may end with, so that another one follows; numbers are answers.
ATTEMPTS: list[Exception | int] = [
    ConnectFailedError("refused"),
    ConnectionLostError("lost", written=True),
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.FLUSH_DISK_TIMEOUT,
]
#: What asking for a route may end with.
LOOKUPS: list[Exception | int] = [
    ClientClosedError("the client was shut down"),
    ConfigError("no name servers"),
    ConnectFailedError("refused"),
    LocalProtocolError("too large"),
    RemoteProtocolError("garbage"),
    RequestTimeoutError("late", written=True),
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.TOPIC_NOT_EXIST,
]
#: What a selector may raise.
SELECTORS: list[Exception] = [
    BrokerError(1, "its own", "broker-a"),
    ConfigError("its own"),
    InvalidMessageError("its own"),
    NoWritableQueueError("its own"),
    RocketMQError("its own"),
    RouteError("its own"),
    KeyError("its own"),
]


def world_with_a_route(**options: Any) -> World:
    world = World(3, retries=2, retry_another_broker_when_not_stored=True, **options)
    world.send()
    world.clock.advance(5.0)  # a retry asks for the route again
    world.stored.clear()
    return world


def live(
    world: World, tries: Iterator[Exception | int], lookup: Exception | int, **how: Any
) -> Any:
    """A whole send whose requests end as told; its result, or what left it, and the attempts made."""
    operation = world.operation(**how)
    step: Any = operation.send
    answer: Any = None
    made = 0
    try:
        while True:
            effect = step(answer)
            assert type(effect) is Invoke
            is_lookup = effect.address == NAME_SERVER
            made += not is_lookup
            found = lookup if is_lookup else next(tries)
            if isinstance(found, Exception):
                step, answer = operation.throw, type(found)(*found.args)
                if isinstance(found, (ConnectionLostError, RequestTimeoutError)):
                    answer.written = found.written
            else:
                if not is_lookup:
                    effect.request.written(world.clock(), 100)
                    world.codes = {name: [found] for name in world.names}
                else:
                    world.routes, world.route_code = {}, found
                step, answer = operation.send, world.answer(effect.request, 0)
                answer.arrived = world.clock()
    except StopIteration as stop:
        return stop.value, made
    except Exception as error:
        return error, made


def check(end: object, made: int, attempts: tuple[Exception | int, ...]) -> None:
    """One attempt at least was made, and ended as told."""
    done = attempts[:made]
    if ResponseCode.FLUSH_DISK_TIMEOUT in done:
        assert isinstance(end, SendResult), end
        assert end.status is SendStatus.FLUSH_DISK_TIMEOUT
        return
    assert isinstance(end, SendFailedError), end
    assert len(end.attempts) >= made
    was_lost = any(isinstance(one, ConnectionLostError) for one in done)
    assert (end.outcome is Outcome.MAYBE_STORED) == was_lost, end


@pytest.mark.parametrize("lookup", LOOKUPS, ids=repr)
def test_whatever_comes_of_asking_for_the_route_again(lookup) -> None:
    for attempts in product(ATTEMPTS, repeat=3):
        end, made = live(world_with_a_route(), iter(attempts), lookup)
        assert made == 3
        check(end, made, attempts)


@pytest.mark.parametrize("raised", SELECTORS, ids=repr)
@pytest.mark.parametrize("call", [2, 3])
def test_whatever_a_selector_raises_when_it_is_asked_again(raised, call) -> None:
    def selector(queues: Any, message: Message, argument: Any) -> Any:
        calls.append(message)
        if len(calls) == call:
            raise type(raised)(*raised.args)
        return queues[len(calls)]

    selector.pins = False  # type: ignore[attr-defined]
    for attempts in product(ATTEMPTS, repeat=2):
        calls: list[Message] = []
        tries = iter(attempts)
        end, made = live(world_with_a_route(), tries, ResponseCode.SYSTEM_ERROR, selector=selector)
        assert made == call - 1
        check(end, made, attempts)


@pytest.mark.parametrize("mode", list(SendMode))
@pytest.mark.parametrize("raised", SELECTORS, ids=repr)
def test_what_a_selector_raises_at_first_is_told_as_it_is_but_for_routes(raised, mode) -> None:
    def selector(*_: Any) -> Any:
        raise raised

    end, made = live(
        world_with_a_route(), iter(()), ResponseCode.SYSTEM_ERROR, selector=selector, mode=mode
    )
    assert made == 0
    if isinstance(raised, RouteError):
        assert type(end) is SendFailedError
        assert (end.outcome, end.__cause__) == (Outcome.NOT_SENT, raised)
    elif isinstance(raised, RocketMQError):
        assert end is raised
    else:
        assert isinstance(end, ConfigError)


class NoTruth:
    """As an array of numpy has none."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def test_a_key_that_is_neither_true_nor_false_is_refused_as_others_are() -> None:
    world = world_with_a_route()
    with pytest.raises(InvalidMessageError, match="no hash code"):
        world.send(selector="hash_queue", argument=NoTruth())
