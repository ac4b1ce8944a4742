"""What is counted: for each way to send and to handle, what one message costs.

Each way to send is counted for *body only* and for *tag + key*, each message with a body and a key of
its own; each way to handle for a handler that does nothing and for one that looks at what it gets.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from bench.consuming import look
from bench.guard import counting
from bench.guard.consumer_stage import consumer_stage
from bench.guard.stage import ADDRESS, TOPIC, asyncio_stage, blocking_stage
from bench.shapes import BODY, KEY, RICH, Maker, maker
from rocketwire import Message
from rocketwire.sync.member import Member

_SIZE = 200
_WARM_UP = 64
#: Bursts before the one that is counted, so that no turn of the loop falls into its middle.
_FIRST_BURSTS = 4
_TIMES = 64
_IN_FLIGHT = 1000
_TURNS = 16


class Source:
    """Makes one message after another."""

    def __init__(self, make: Maker) -> None:
        self._make = make
        # Numbers of as many digits, so that all keys are as long.
        self._numbers = itertools.count(100_000)

    def one(self) -> Message:
        """The next message."""
        return self._make(next(self._numbers))

    def some(self, count: int) -> list[Message]:
        """The next messages."""
        return [self.one() for _ in range(count)]


def count_all() -> dict[str, float]:
    """Every count by its name."""
    if sys.version_info >= (3, 12):
        _have_counted_once()
    return _count_all()


@cache
def _have_counted_once() -> None:
    """From Python 3.12 on, code is not counted in the frame in which its counting begins."""
    _count_all()


def _count_all() -> dict[str, float]:
    counts: dict[str, float] = {}
    for shape in (BODY, KEY):
        counts |= _sent(maker(shape, TOPIC, _SIZE), "" if shape is BODY else f", {shape.name}")
    for looking in (False, True):
        counts |= _read(", looked at" if looking else "", looking=looking)
    for shape in (BODY, KEY, RICH):
        counts[f"Message, {shape.name}: bytecodes"] = _made(maker(shape, TOPIC, _SIZE))
    return {name: round(value, 2) for name, value in counts.items()}


def _sent(make: Maker, shape: str) -> dict[str, float]:
    """Every way to send messages of a shape."""
    source = Source(make)
    counts = _blocking(f"send{shape}", source, lambda p: p.send(source.one()))
    counts |= _blocking(f"send_oneway{shape}", source, lambda p: p.send_oneway(source.one()))
    counts |= _blocking(f"send of 50{shape}", source, lambda p: p.send(source.some(50)), 50)
    counts |= _blocking(
        f"send_many of 200{shape}", source, lambda p: p.send_many(source.some(200)), 200, times=8
    )
    counts |= asyncio.run(_submitted(f"submit{shape}", source))
    counts |= asyncio.run(_submitted(f"submit auto_batch{shape}", source, auto_batch=True))
    counts |= asyncio.run(_awaited(f"await send{shape}", source))
    counts[f"submit{shape}: bytes of memory in flight"] = asyncio.run(_memory(source))
    return counts


def _read(name: str, *, looking: bool) -> dict[str, float]:
    """Every way to handle, with a handler that does nothing or looks at every message."""
    see = look if looking else _ignore
    counts = asyncio.run(_consumed(f"await handler{name}", see))
    counts |= asyncio.run(_consumed(f"await handler, batch 256{name}", see, batch=256))
    counts |= asyncio.run(_handled(f"handler{name}", see))
    counts |= asyncio.run(_handled(f"handler, batch 256{name}", see, batch=256))
    return counts


def _ignore(_: Any) -> None:
    """Look at nothing."""


def _made(make: Maker) -> float:
    source = Source(make)
    source.some(_WARM_UP)
    with counting.bytecodes() as codes:
        source.some(_TIMES)
    return codes.count / _TIMES


def _blocking(
    name: str, source: Source, send: Callable[[Any], object], each: int = 1, times: int = _TIMES
) -> dict[str, float]:
    is_oneway = name.startswith("send_oneway")
    with blocking_stage() as (producer, wire):
        for _ in range(times):
            send(producer)
        with counting.bytecodes() as codes:
            for _ in range(times):
                send(producer)
        before = wire.written
        with counting.socket_calls() as calls:
            for _ in range(times):
                send(producer)
        if is_oneway:
            producer.send(source.one())  # everything written before it has arrived
        written = wire.written - before
    found = {
        f"{name}: bytecodes": codes.count / times / each,
        f"{name}: socket calls": calls.count / times / each,
    }
    if not is_oneway:
        found[f"{name}: bytes on the wire"] = written / times / each
    return found


async def _submitted(name: str, source: Source, **options: Any) -> dict[str, float]:
    async with asyncio_stage(**options) as (producer, wire, read):

        async def burst() -> None:
            for _ in range(_TIMES):
                await producer.submit(source.one())
            for _ in range(3):  # batches leave in a tick of their own
                await asyncio.sleep(0)
            read()

        for _ in range(_FIRST_BURSTS):
            await burst()
        before, writes = wire.written, wire.writes
        with counting.bytecodes() as codes:
            await burst()
        if producer.stats().in_flight:
            raise RuntimeError(f"{name}: {producer.stats().in_flight} messages have no answer")
        return {
            f"{name}: bytecodes": codes.count / _TIMES,
            f"{name}: writes": (wire.writes - writes) / _TIMES,
            f"{name}: bytes on the wire": (wire.written - before) / _TIMES,
        }


async def _awaited(name: str, source: Source) -> dict[str, float]:
    async with asyncio_stage() as (producer, _, read):

        async def burst() -> None:
            tasks = [asyncio.ensure_future(producer.send(source.one())) for _ in range(_TIMES)]
            await asyncio.sleep(0)
            read()
            await asyncio.gather(*tasks)

        for _ in range(_FIRST_BURSTS):
            await burst()
        with counting.bytecodes() as codes:
            await burst()
        return {f"{name}: bytecodes": codes.count / _TIMES}


async def _consumed(name: str, see: Callable[[Any], object], batch: int = 1) -> dict[str, float]:
    """An asyncio consumer: pulled, read, handed out, settled."""
    async with consumer_stage(batch=batch) as stage:

        async def handle(given: Any) -> None:
            if batch == 1:
                see(given)
            else:
                for message in given:
                    see(message)

        task = asyncio.create_task(stage.consumer._work(handle))
        for _ in range(_TURNS):
            await stage.turn()
        before = stage.workload.handled
        with counting.bytecodes() as codes:
            for _ in range(_TURNS):
                await stage.turn()
        count = stage.workload.handled - before
        task.cancel()
        return {f"{name}: bytecodes": codes.count / count}


async def _handled(name: str, see: Callable[[Any], object], batch: int = 1) -> dict[str, float]:
    """A thread of a blocking consumer: handed out and settled. Another one pulls."""
    async with consumer_stage(batch=batch, threads=True) as stage:
        member = cast("Member", stage.consumer)
        for _ in range(_TURNS):
            await stage.turn()
        left = count = stage.workload.held

        def handle(given: Any) -> None:
            nonlocal left
            messages = [given] if batch == 1 else given
            for message in messages:
                see(message)
            left -= len(messages)
            if not left:
                member.stop()

        member._session = cast("Any", stage)  # it takes itself for a member
        with counting.bytecodes() as codes:
            member.handle_all(handle)
        member._session = None
        return {f"{name}: bytecodes": codes.count / count}


async def _memory(source: Source) -> float:
    async with asyncio_stage(shutdown_timeout=0.01) as (producer, wire, read):
        for _ in range(_WARM_UP):
            await producer.submit(source.one())
        read()
        wire.is_deaf = True
        # Bodies and keys are the caller's; the messages are not made yet.
        parts = [(m.body, m.tags, m.keys) for m in source.some(_IN_FLIGHT)]
        deliveries: list[Any] = []

        def make() -> object:
            for body, tags, keys in parts:
                step = producer.submit(Message(TOPIC, body, tags=tags, keys=keys))
                try:
                    step.send(None)
                except StopIteration as stop:
                    deliveries.append(stop.value)
            producer._driver.connections[ADDRESS]._flush()  # the end of the tick
            return deliveries

        producer._submitter.left = 10**9  # no turn of the loop in between
        return counting.memory_of(make) / _IN_FLIGHT
