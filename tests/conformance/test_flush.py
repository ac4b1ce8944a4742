"""A flush waits for what was submitted before it, and for nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from rocketwire import AsyncProducer, ConfigError, Message, MessageQueue, Producer
from rocketwire.embedded import EmbeddedCluster

LIMIT = 30.0
OPTIONS = {"group": "flush", "send_timeout": LIMIT, "background": False, "shutdown_timeout": 0.1}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("orders", queues=1)
        yield running


def queue_on(broker: str) -> MessageQueue:
    return MessageQueue("orders", broker, 0)


@pytest.mark.parametrize("auto_batch", [False, True])
def test_a_blocking_flush_is_not_held_by_what_is_submitted_after_it(
    cluster: EmbeddedCluster, auto_batch: bool
) -> None:
    with Producer(cluster.name_server, auto_batch=auto_batch, **OPTIONS) as producer:
        producer.send(Message("orders", b"warm-up"), queue=queue_on("broker-a"))
        cluster.broker("broker-a").hang()
        cluster.broker("broker-b").hang()
        first = producer.submit(Message("orders", b"first"), queue=queue_on("broker-a"))
        before = producer._in_flight._groups.current
        flushing = threading.Thread(target=producer.flush, daemon=True)
        flushing.start()
        pause = threading.Event()
        while not before.is_closed:
            pause.wait(0.001)
        second = producer.submit(Message("orders", b"second"), queue=queue_on("broker-b"))
        cluster.broker("broker-a").heal()
        flushing.join(LIMIT)
        assert not flushing.is_alive()
        assert first.done()
        assert not second.done()


@pytest.mark.parametrize("auto_batch", [False, True])
def test_a_flush_waits_for_all_that_was_submitted_before(
    cluster: EmbeddedCluster, auto_batch: bool
) -> None:
    with Producer(cluster.name_server, auto_batch=auto_batch, **OPTIONS) as producer:
        for _ in range(3):
            deliveries = [producer.submit(Message("orders", b"%d" % n)) for n in range(300)]
            producer.flush(LIMIT)
            assert all(delivery.done() for delivery in deliveries)
        assert producer.submit(Message("orders", b"x")).result(f"{LIMIT}s").offset >= 0
        producer.flush(f"{LIMIT}s")
        with pytest.raises(ConfigError, match="no span of time"):
            producer.flush("soon")


@pytest.mark.parametrize("auto_batch", [False, True])
def test_an_asyncio_flush_is_not_held_by_what_is_submitted_after_it(
    cluster: EmbeddedCluster, auto_batch: bool
) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, auto_batch=auto_batch, **OPTIONS) as producer:
            await producer.send(Message("orders", b"warm-up"), queue=queue_on("broker-a"))
            cluster.broker("broker-a").hang()
            cluster.broker("broker-b").hang()
            first = await producer.submit(Message("orders", b"1"), queue=queue_on("broker-a"))
            flushing = asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0)
            second = await producer.submit(Message("orders", b"2"), queue=queue_on("broker-b"))
            cluster.broker("broker-a").heal()
            await asyncio.wait_for(flushing, LIMIT)
            assert first.done()
            assert not second.done()

    asyncio.run(main())


@pytest.mark.parametrize("auto_batch", [False, True])
def test_an_asyncio_flush_waits_for_all_that_was_submitted_before(
    cluster: EmbeddedCluster, auto_batch: bool
) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, auto_batch=auto_batch, **OPTIONS) as producer:
            for _ in range(3):
                deliveries = [await producer.submit(Message("orders", b"x")) for _ in range(300)]
                await producer.flush(LIMIT)
                assert all(delivery.done() for delivery in deliveries)
            await producer.flush(f"{LIMIT}s")
            with pytest.raises(ConfigError, match="no span of time"):
                await producer.flush("soon")

    asyncio.run(main())
