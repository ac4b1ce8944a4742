"""Large bodies are compressed on other threads; order and outcomes stay as they were."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from rocketwire import AsyncProducer, AsyncReader, Message, ReplyTimeoutError, SendStatus
from rocketwire.aio.delivery import Delivery
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire import compression

TOPIC = "orders"
LARGE = b"large " * 40_000
MEDIUM = b"medium " * 8_000


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic(TOPIC, queues=1)
        yield running


@pytest.fixture
def compressed_on(monkeypatch) -> list[tuple[int, str]]:
    """Sizes, and the threads on which bodies of them were compressed."""
    found: list[tuple[int, str]] = []
    usual = zlib.compress

    class Watched:
        @staticmethod
        def compress(body: bytes, *rest: Any) -> bytes:
            found.append((len(body), threading.current_thread().name))
            return usual(body, *rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(zlib, name)

    monkeypatch.setattr(compression, "zlib", Watched())
    return found


async def bodies(cluster: EmbeddedCluster) -> list[bytes]:
    async with AsyncReader(cluster.name_server) as reader:
        return [message.body async for message in reader.read(TOPIC)]


@pytest.mark.parametrize("form", ["send", "submit", "send_oneway", "send_many", "keyed"])
def test_a_large_body_is_never_compressed_on_the_loop(cluster, compressed_on, form) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server) as producer:
            message = Message(TOPIC, LARGE, sharding_key="k" if form == "keyed" else None)
            if form in ("submit", "keyed"):
                assert (await (await producer.submit(message))).status is SendStatus.OK
            elif form == "send_many":
                assert len(await producer.send_many([message, Message(TOPIC, b"small")])) == 2
            else:
                await getattr(producer, form)(message)
                await producer.send(Message(TOPIC, b"behind"))
            assert producer._sender.encoder.prepared == {}
        assert LARGE in await bodies(cluster)

    asyncio.run(main())
    assert [size for size, _ in compressed_on] == [len(LARGE)]
    assert all(name.startswith("rocketwire-compress") for _, name in compressed_on)


@pytest.mark.parametrize("auto_batch", [None, True])
def test_submits_stay_in_order_behind_one_that_is_compressed(cluster, auto_batch) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, auto_batch=auto_batch) as producer:
            await producer.send(Message(TOPIC, b"first"))
            wanted = [LARGE + b"0", b"1", b"2", LARGE + b"3", b"4", MEDIUM + b"5", b"6"]
            messages = [Message(TOPIC, body, sharding_key="k") for body in wanted]
            deliveries = await asyncio.gather(*[producer.submit(m) for m in messages])
            assert [(await d).status for d in deliveries] == [SendStatus.OK] * 7
        assert (await bodies(cluster))[1:] == wanted

    asyncio.run(main())


@pytest.mark.parametrize("auto_batch", [None, True])
def test_oneway_sends_let_no_submit_overtake_one_that_is_compressed(
    cluster, monkeypatch, auto_batch
) -> None:
    """Their turn of the loop forgot that a message stood in line, and the next submit went before it."""
    go_on, usual = threading.Event(), compression.compress

    def slowly(*given: Any) -> tuple[bytes, int]:
        assert go_on.wait(30)
        return usual(*given)

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, auto_batch=auto_batch) as producer:
            await producer.send(Message(TOPIC, b"first"))
            monkeypatch.setattr("rocketwire.core.sending.encode.compress", slowly)
            before = asyncio.create_task(producer.submit(Message(TOPIC, LARGE)))
            await asyncio.sleep(0)
            for _ in range(600):
                await producer.send_oneway(Message(TOPIC, b"oneway"))
            behind = asyncio.create_task(producer.submit(Message(TOPIC, b"behind")))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not before.done()
            assert not behind.done()
            go_on.set()
            for submit in (before, behind):
                assert (await (await submit)).status is SendStatus.OK
        found = await bodies(cluster)
        assert [body for body in found if body != b"oneway"] == [b"first", LARGE, b"behind"]

    asyncio.run(main())


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("limit", [{"max_in_flight": 1}, {"max_in_flight_bytes": 1}])
def test_submits_that_wait_for_room_are_compressed_in_order(cluster, auto_batch, limit) -> None:
    """They were let in, and then failed, because nobody had compressed them."""

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, auto_batch=auto_batch, **limit) as producer:
            await producer.send(Message(TOPIC, b"first"))
            wanted = [b"0", LARGE + b"1", b"2", LARGE + b"3", LARGE + b"4", MEDIUM + b"5", b"6"]
            messages = [Message(TOPIC, body, sharding_key="k") for body in wanted]
            deliveries = await asyncio.gather(*[producer.submit(m) for m in messages])
            assert [(await d).status for d in deliveries] == [SendStatus.OK] * 7
            assert producer.stats().in_flight == 0
            assert producer._in_flight.held_bytes == 0
            assert producer._sender.encoder.prepared == {}
        assert (await bodies(cluster))[1:] == wanted

    asyncio.run(main())


@pytest.mark.parametrize("ticks", range(12))
def test_a_submit_that_waits_for_room_is_cancelled_at_any_moment(cluster, ticks) -> None:
    """Room, and what was compressed, are given back wherever it stands."""

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, max_in_flight=1) as producer:
            await producer.send(Message(TOPIC, b"first"))
            messages = [Message(TOPIC, LARGE + bytes([n])) for n in range(4)]
            submits = [asyncio.ensure_future(producer.submit(m)) for m in messages]
            for _ in range(ticks):
                await asyncio.sleep(0.001)
            for submit in submits[::2]:
                submit.cancel()
            ends = await asyncio.gather(*submits, return_exceptions=True)
            for end in ends:
                assert isinstance(end, (Delivery, asyncio.CancelledError)), end
            assert isinstance(ends[1], Delivery)
            await producer.flush()
            assert producer.stats().in_flight == 0
            assert producer._in_flight.held_bytes == 0
            assert producer._sender.encoder.prepared == {}

    asyncio.run(main())


def test_the_loop_compresses_little_in_one_tick(cluster, compressed_on) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server) as producer:
            await producer.send(Message(TOPIC, b"first"))
            sends = [producer.send(Message(TOPIC, MEDIUM)) for _ in range(20)]
            await asyncio.gather(*sends)
        assert (await bodies(cluster)).count(MEDIUM) == 20

    asyncio.run(main())
    here = sum(size for size, name in compressed_on if not name.startswith("rocketwire-compress"))
    assert 0 < here <= 256 * 1024
    assert len(compressed_on) == 20


def test_a_submit_that_is_cancelled_while_it_is_compressed_lets_the_others_go(cluster) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server) as producer:
            await producer.send(Message(TOPIC, b"first"))
            large = asyncio.ensure_future(producer.submit(Message(TOPIC, LARGE)))
            small = asyncio.ensure_future(producer.submit(Message(TOPIC, b"small")))
            await asyncio.sleep(0)
            large.cancel()
            assert (await (await small)).status is SendStatus.OK
            await producer.flush()
            assert producer.stats().in_flight == 0
            assert (await producer.send(Message(TOPIC, LARGE))).status is SendStatus.OK

    asyncio.run(main())


def test_a_shutdown_waits_for_what_is_being_compressed(cluster) -> None:
    async def main() -> None:
        producer = await AsyncProducer(cluster.name_server).start()
        await producer.send(Message(TOPIC, b"first"))
        sending = asyncio.ensure_future(producer.send_many([Message(TOPIC, LARGE)]))
        await asyncio.sleep(0)
        await producer.shutdown()
        assert len(await sending) == 1
        assert LARGE in await bodies(cluster)

    asyncio.run(main())


def test_the_body_of_a_large_request_is_never_compressed_on_the_loop(
    cluster, compressed_on
) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, group="asks") as producer:
            with pytest.raises(ReplyTimeoutError):  # nobody replies
                await producer.request(Message(TOPIC, LARGE), timeout=1.0)
        assert LARGE in await bodies(cluster)

    asyncio.run(main())
    assert [size for size, _ in compressed_on] == [len(LARGE)]
    assert all(name.startswith("rocketwire-compress") for _, name in compressed_on)


def test_a_transaction_of_a_large_message_is_compressed_off_the_loop(
    cluster, compressed_on
) -> None:
    async def main() -> None:
        async with (
            AsyncProducer(cluster.name_server, group="t") as producer,
            producer.transaction(Message(TOPIC, LARGE)) as transaction,
        ):
            await transaction.commit()
        assert LARGE in await bodies(cluster)

    asyncio.run(main())
    assert [size for size, _ in compressed_on] == [len(LARGE)]
    assert all(name.startswith("rocketwire-compress") for _, name in compressed_on)
