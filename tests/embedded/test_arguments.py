"""Arguments that several clients take: times as text, and what a client says that was shut down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rocketwire import (
    AsyncConsumer,
    AsyncProducer,
    AsyncReader,
    AsyncSimpleConsumer,
    ClientClosedError,
    ConfigError,
    Consumer,
    InvalidMessageError,
    Message,
    Producer,
    Reader,
    Retry,
    SimpleConsumer,
)
from rocketwire.embedded import EmbeddedCluster

NO_TIMES = ["soon", [], True, float("nan"), "9" * 400]


@pytest.fixture(autouse=True)
def topic(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", queues=1)


def test_every_wait_of_the_blocking_clients_takes_a_time_as_text(cluster: EmbeddedCluster) -> None:
    with Producer(cluster.name_server) as producer:
        delivery = producer.submit(Message("t", b"1"), timeout="3s")
        assert delivery.result("5s") == delivery.result(5)
        assert delivery.exception("5s") is None
        producer.flush("5s")
        producer.flush(float("inf"))
        producer.flush(-1)
        for wrong in NO_TIMES:
            with pytest.raises(ConfigError, match="no span of time"):
                producer.flush(wrong)
    with Reader(cluster.name_server) as reader:
        (queue,) = reader.queues("t")
        assert len(reader.fetch(queue, 0, wait="100ms").messages) == 1
        for wrong in [*NO_TIMES, -1]:
            with pytest.raises(InvalidMessageError, match="wait"):
                reader.fetch(queue, 0, wait=wrong)


def test_so_do_those_of_asyncio(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server) as producer:
            await (await producer.submit(Message("t", b"1"), timeout="3s"))
            await producer.flush("5s")
            for wrong in NO_TIMES:
                with pytest.raises(ConfigError, match="no span of time"):
                    await producer.flush(wrong)
        async with AsyncReader(cluster.name_server) as reader:
            (queue,) = await reader.queues("t")
            assert len((await reader.fetch(queue, 0, wait="100ms")).messages) == 1

    asyncio.run(main())


def test_a_retry_and_the_tools_for_tests_do_so_too(cluster: EmbeddedCluster) -> None:
    assert Retry("2s") == Retry(2) == Retry(after=2.0)
    assert Retry().after is None
    assert repr(Retry("1m")) == "Retry(after=60.0)"
    for wrong in [*NO_TIMES, -1, "-1s"]:
        with pytest.raises(ConfigError, match="Retry after"):
            Retry(wrong)
    assert cluster.broker("broker-a").slow("5ms").seconds == 0.005
    with pytest.raises(TimeoutError, match="nobody"):
        cluster.wait_idle("nobody", timeout="50ms")
    cluster.clock.advance("1d")
    assert cluster.clock.ahead == 86400


CALLS: dict[str, Callable[[Any], Any]] = {
    "subscribe": lambda consumer: consumer.subscribe("t"),
    "pause": lambda consumer: consumer.pause("t"),
    "resume": lambda consumer: consumer.resume("t"),
    "run": lambda consumer: consumer.run(print),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_consumer_that_was_shut_down_says_so(cluster: EmbeddedCluster, call: str) -> None:
    with Consumer(cluster.name_server, group="g").subscribe("t") as consumer:
        pass
    consumer.stop()  # it may be told twice, and run() must not end as if all were well
    with pytest.raises(ClientClosedError, match="shut down"):
        CALLS[call](consumer)


@pytest.mark.parametrize("call", CALLS)
def test_so_does_one_of_asyncio(cluster: EmbeddedCluster, call: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(cluster.name_server, group="g").subscribe("t") as consumer:
            pass
        consumer.stop()
        with pytest.raises(ClientClosedError, match="shut down"):
            found = CALLS[call](consumer)
            await found
        with pytest.raises(ClientClosedError, match="shut down"):
            await consumer.seek(None, 0)  # type: ignore[arg-type]

    asyncio.run(main())


def test_simple_consumers_look_at_their_topics_as_consumers_do(cluster: EmbeddedCluster) -> None:
    for kind in (SimpleConsumer, AsyncSimpleConsumer, Consumer, AsyncConsumer):
        with pytest.raises(InvalidMessageError, match="letters, digits"):
            kind(cluster.name_server, group="g").subscribe("a b")
    with SimpleConsumer(cluster.name_server, group="g") as consumer:
        pass
    with pytest.raises(ClientClosedError, match="shut down"):
        consumer.subscribe("t")


def test_publish_queues_of_no_topic_is_refused_before_anybody_is_asked(
    cluster: EmbeddedCluster,
) -> None:
    with Producer(cluster.name_server) as producer:
        for wrong in (None, "", 3):
            with pytest.raises(InvalidMessageError, match="topic"):
                producer.publish_queues(wrong)  # type: ignore[arg-type]
