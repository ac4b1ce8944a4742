"""What is counted: for each way to send and to handle, what one message costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from bench.guard import counting
from bench.guard.consumer_stage import consumer_stage
from bench.guard.stage import TOPIC, asyncio_stage, blocking_stage
from rocketwire import Message
from rocketwire.sync.member import Member

_BODY = b"x" * 200
_WARM_UP = 64
#: Bursts before the one that is counted, so that no turn of the loop falls into its middle.
_FIRST_BURSTS = 4
_TIMES = 64
_IN_FLIGHT = 1000
_TURNS = 16


def _message() -> Message:
    return Message(TOPIC, _BODY)


def count_all() -> dict[str, float]:
    """Every count by its name."""
    _have_counted_once()
    return _count_all()


@cache
def _have_counted_once() -> None:
    """From Python 3.12 on, code is not counted in the frame in which its counting begins."""
    _count_all()


def _count_all() -> dict[str, float]:
    counts: dict[str, float] = {}
    counts |= _blocking("send", lambda p: p.send(_message()))
    counts |= _blocking("send_oneway", lambda p: p.send_oneway(_message()))
    counts |= _blocking("send of 50", lambda p: p.send([_message() for _ in range(50)]), each=50)
    counts |= asyncio.run(_submitted("submit"))
    counts |= asyncio.run(_submitted("submit auto_batch", auto_batch=True))
    counts |= asyncio.run(_awaited())
    counts |= asyncio.run(_consumed("await handler"))
    counts |= asyncio.run(_consumed("await handler, batch 256", batch=256))
    counts |= asyncio.run(_handled("handler"))
    counts |= asyncio.run(_handled("handler, batch 256", batch=256))
    counts["submit: bytes of memory in flight"] = asyncio.run(_memory())
    return {name: round(value, 2) for name, value in counts.items()}


def _blocking(name: str, send: Callable[[Any], object], each: int = 1) -> dict[str, float]:
    with blocking_stage() as (producer, wire):
        for _ in range(_WARM_UP):
            send(producer)
        with counting.bytecodes() as codes:
            for _ in range(_TIMES):
                send(producer)
        before = wire.written
        with counting.socket_calls() as calls:
            for _ in range(_TIMES):
                send(producer)
        if name == "send_oneway":
            producer.send(_message())  # everything written before it has arrived
        written = wire.written - before
    found = {
        f"{name}: bytecodes": codes.count / _TIMES / each,
        f"{name}: socket calls": calls.count / _TIMES / each,
    }
    if name != "send_oneway":
        found[f"{name}: bytes on the wire"] = written / _TIMES / each
    return found


async def _submitted(name: str, **options: Any) -> dict[str, float]:
    async with asyncio_stage(**options) as (producer, wire, read):

        async def burst() -> None:
            for _ in range(_TIMES):
                await producer.submit(_message())
            for _ in range(3):  # lots leave in a tick of their own
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


async def _awaited() -> dict[str, float]:
    async with asyncio_stage() as (producer, _, read):

        async def burst() -> None:
            tasks = [asyncio.ensure_future(producer.send(_message())) for _ in range(_TIMES)]
            await asyncio.sleep(0)
            read()
            await asyncio.gather(*tasks)

        for _ in range(_FIRST_BURSTS):
            await burst()
        with counting.bytecodes() as codes:
            await burst()
        return {"await send: bytecodes": codes.count / _TIMES}


async def _consumed(name: str, batch: int = 1) -> dict[str, float]:
    """An asyncio consumer: pulled, read, handed out, settled."""
    async with consumer_stage(batch=batch) as stage:

        async def handle(_: Any) -> None:
            pass

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


async def _handled(name: str, batch: int = 1) -> dict[str, float]:
    """A thread of a blocking consumer: handed out and settled. Another one pulls."""
    async with consumer_stage(batch=batch, threads=True) as stage:
        member = cast("Member", stage.consumer)
        for _ in range(_TURNS):
            await stage.turn()
        left = count = stage.workload.held

        def handle(given: Any) -> None:
            nonlocal left
            left -= 1 if batch == 1 else len(given)
            if not left:
                member.stop()

        member._session = cast("Any", stage)  # it takes itself for a member
        with counting.bytecodes() as codes:
            member.handle_all(handle)
        member._session = None
        return {f"{name}: bytecodes": codes.count / count}


async def _memory() -> float:
    async with asyncio_stage(shutdown_timeout=0.01) as (producer, wire, read):
        for _ in range(_WARM_UP):
            await producer.submit(_message())
        read()
        wire.is_deaf = True
        bodies = [bytes([n % 256]) * 200 for n in range(_IN_FLIGHT)]
        deliveries: list[Any] = []

        def make() -> object:
            for body in bodies:
                step = producer.submit(Message(TOPIC, body))
                try:
                    step.send(None)
                except StopIteration as stop:
                    deliveries.append(stop.value)
            return deliveries

        producer._burst = -(10**9)  # no turn of the loop in between
        return counting.memory_of(make) / _IN_FLIGHT
