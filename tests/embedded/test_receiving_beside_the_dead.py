"""One broker that can't be reached keeps no simple consumer from the others, nor is anything of it skipped."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rocketwire import (
    AsyncSimpleConsumer,
    Message,
    MessageQueue,
    Producer,
    SimpleConsumer,
    TransportError,
)
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture
def cluster() -> Any:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("t", queues=1)
        yield cluster


def send(cluster: EmbeddedCluster, broker: str, *bodies: str) -> None:
    with Producer(cluster.name_server) as producer:
        for body in bodies:
            producer.send(Message("t", body), queue=MessageQueue("t", broker, 0))


@pytest.mark.parametrize("sql", [None, "a IS NULL"])
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_member_that_starts_receives_from_the_others(
    cluster: EmbeddedCluster, start: Any, sql: str | None
) -> None:
    cluster.broker("broker-a").refuse()
    with SimpleConsumer(cluster.name_server, group="g", start=start) as consumer:
        consumer.subscribe("t", sql=sql)
        assert consumer.receive(wait=0) == []
        send(cluster, "broker-b", "1")
        assert [message.text for message in consumer.receive(wait=10)] == ["1"]


def test_so_does_one_of_asyncio(cluster: EmbeddedCluster) -> None:
    async def main() -> list[str]:
        async with AsyncSimpleConsumer(cluster.name_server, group="g").subscribe("t") as consumer:
            await asyncio.to_thread(send, cluster, "broker-b", "1")
            return [message.text for message in await consumer.receive(wait=10)]

    cluster.broker("broker-a").refuse()
    assert asyncio.run(main()) == ["1"]


def test_what_the_broker_gets_before_it_is_reached_is_not_skipped(cluster: EmbeddedCluster) -> None:
    send(cluster, "broker-a", "before the group")
    time.sleep(0.01)
    cluster.broker("broker-a").refuse()
    with SimpleConsumer(cluster.name_server, group="g", start="latest") as consumer:
        consumer.subscribe("t")
        assert consumer.receive(wait=0) == []
        cluster.broker("broker-a").heal()
        send(cluster, "broker-a", "1", "2")
        found: list[str] = []
        deadline = time.monotonic() + 30
        while len(found) < 2 and time.monotonic() < deadline:
            messages = consumer.receive(wait=0.2)
            consumer.acknowledge(messages)
            found += [message.text for message in messages]
    assert found == ["1", "2"]


def test_a_broker_that_comes_later_begins_at_its_first_message(cluster: EmbeddedCluster) -> None:
    with SimpleConsumer(
        cluster.name_server, group="g", start="latest", route_refresh=0.1
    ) as consumer:
        consumer.subscribe("t")
        assert consumer.receive(wait=0) == []
        cluster.add_broker("broker-c")
        cluster.create_topic("t", queues=1)
        send(cluster, "broker-c", "early")
        found: list[str] = []
        deadline = time.monotonic() + 30
        while not found and time.monotonic() < deadline:
            found += [message.text for message in consumer.receive(wait=0.2)]
    assert found == ["early"]


def test_where_no_broker_can_be_reached_that_is_an_error(cluster: EmbeddedCluster) -> None:
    for broker in cluster.brokers:
        broker.refuse()
    with pytest.raises(TransportError, match="refused"):
        SimpleConsumer(cluster.name_server, group="g").subscribe("t").start()
