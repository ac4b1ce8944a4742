"""Sends of one tick are numbered and written together, at its end. Until then nothing has left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from bench.guard.stage import ADDRESS, TOPIC, asyncio_stage

from rocketwire import Message, Outcome, SendFailedError
from rocketwire.wire.command import ONEWAY, decode_command
from rocketwire.wire.framing import MAX_FRAME, FrameBuffer


def on_stage(test: Callable[..., Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with asyncio_stage(**options) as (producer, wire, read):
            seen: list[bytes] = []
            take = wire.request

            def request(data: bytes) -> None:
                seen.append(data)
                take(data)

            wire.request = request
            await test(producer, producer._driver.connections[ADDRESS], seen, read)

    asyncio.run(main())


def commands(seen: list[bytes]) -> list[Any]:
    return [decode_command(frame) for frame in FrameBuffer().feed(b"".join(seen))]


def test_what_is_submitted_in_one_tick_leaves_in_one_write_in_order() -> None:
    async def test(producer: Any, _: Any, seen: list[bytes], read: Any) -> None:
        sends = [await producer.submit(Message(TOPIC, f"m-{n}")) for n in range(20)]
        assert seen == []
        await asyncio.sleep(0)
        assert len(seen) == 1
        found = commands(seen)
        assert [command.body for command in found] == [b"m-%d" % n for n in range(20)]
        assert [command.opaque for command in found] == list(range(1, 21))
        read()
        assert {send.result().queue.topic for send in sends} == {TOPIC}

    on_stage(test)


def test_a_oneway_between_submits_keeps_its_place() -> None:
    async def test(producer: Any, _: Any, seen: list[bytes], read: Any) -> None:
        await producer.submit(Message(TOPIC, "before"))
        await producer.send_oneway(Message(TOPIC, "between"))
        await producer.submit(Message(TOPIC, "behind"))
        await asyncio.sleep(0)
        found = commands(seen)
        assert [command.body for command in found] == [b"before", b"between", b"behind"]
        assert [command.flag & ONEWAY for command in found] == [0, ONEWAY, 0]
        read()

    on_stage(test)


def test_one_that_is_cancelled_in_its_tick_is_not_sent_and_never_leaves() -> None:
    async def test(producer: Any, connection: Any, seen: list[bytes], read: Any) -> None:
        kept = await producer.submit(Message(TOPIC, "kept"))
        cancelled = await producer.submit(Message(TOPIC, "cancelled"))
        cancelled.cancel()
        await asyncio.sleep(0)
        assert [command.body for command in commands(seen)] == [b"kept"]
        assert cancelled.exception().outcome is Outcome.NOT_SENT
        read()
        assert kept.exception() is None
        alone = await producer.submit(Message(TOPIC, "alone"))
        alone.cancel()
        await asyncio.sleep(0)
        assert connection._out_size == 0
        assert not connection.session.pending
        assert connection.session.unanswered == 0
        assert producer.stats().in_flight == 0
        assert [broker.in_flight for broker in producer.health()] == [0]

    on_stage(test)


@pytest.mark.parametrize("end", ["lost", "closed"])
def test_a_connection_that_ends_before_the_tick_does_has_sent_nothing(end: str) -> None:
    async def test(producer: Any, connection: Any, seen: list[bytes], _: Any) -> None:
        send = await producer.submit(Message(TOPIC, "x"))
        connection.connection_lost(None) if end == "lost" else connection.close()
        await asyncio.sleep(0)
        send.cancel()  # a lost one would try to connect again
        assert send.exception().outcome is Outcome.NOT_SENT
        assert seen == []

    on_stage(test, retries=0)


def test_a_request_that_fits_into_no_frame_fails_alone() -> None:
    async def test(producer: Any, connection: Any, seen: list[bytes], read: Any) -> None:
        sends = [
            await producer.submit(Message(TOPIC, body))
            for body in (b"one", b"\x01" * (MAX_FRAME - 50), b"two")
        ]
        await asyncio.sleep(0)
        assert [command.body for command in commands(seen)] == [b"one", b"two"]
        read()
        assert [type(send.exception()) for send in sends] == [
            type(None), SendFailedError, type(None),
        ]  # fmt: skip
        assert sends[1].exception().outcome is Outcome.NOT_SENT
        assert connection.session.unanswered == 0
        assert producer.stats().in_flight == 0

    on_stage(test, max_message_size=MAX_FRAME, compress_over=0, max_in_flight_bytes=1 << 30)


def test_numbers_begin_again_before_they_run_out() -> None:
    async def test(producer: Any, connection: Any, seen: list[bytes], read: Any) -> None:
        connection.session.opaque = 0x7FFFFFFF - 1
        for _ in range(3):
            await producer.submit(Message(TOPIC, "x"))
        await asyncio.sleep(0)
        assert [command.opaque for command in commands(seen)] == [1, 2, 3]
        read()
        assert producer.stats().in_flight == 0

    on_stage(test)
