"""What a client says of an address that is no name server, and of brokers that are away."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rocketwire import (
    Admin,
    AsyncProducer,
    AsyncReader,
    Consumer,
    Message,
    Producer,
    Reader,
    RocketMQError,
    SimpleConsumer,
)
from rocketwire.embedded import EmbeddedCluster

TOPIC = "orders"


class _Page(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def produce(address: str) -> None:
    with Producer(address, send_timeout=20.0) as producer:
        producer.send(Message(TOPIC, b"x"))


def submit(address: str) -> None:
    with Producer(address, send_timeout=20.0) as producer:
        producer.submit(Message(TOPIC, b"x")).result(20)


def produce_async(address: str) -> None:
    async def main() -> None:
        async with AsyncProducer(address, send_timeout=20.0) as producer:
            await producer.send(Message(TOPIC, b"x"))

    asyncio.run(main())


def read(address: str) -> None:
    with Reader(address) as reader:
        reader.queues(TOPIC)


def read_async(address: str) -> None:
    async def main() -> None:
        async with AsyncReader(address) as reader:
            await reader.queues(TOPIC)

    asyncio.run(main())


def consume(address: str) -> None:
    with Consumer(address, group="g") as consumer:
        consumer.subscribe(TOPIC).join()


def receive(address: str) -> None:
    with SimpleConsumer(address, group="g") as consumer:
        consumer.subscribe(TOPIC)
        consumer.receive(1, wait=0.1)


def administer(address: str) -> None:
    with Admin(address) as admin:
        admin.topic(TOPIC)


CLIENTS = [produce, submit, produce_async, read, read_async, consume, receive, administer]


def complaint(client: Callable[[str], None], address: str) -> str:
    """What a client raises; it has one second for it, and one to start and end."""
    began = time.monotonic()
    with pytest.raises(RocketMQError) as raised:
        client(address)
    assert time.monotonic() - began < 10, "it waited for its whole time limit"
    return str(raised.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_recognises_a_web_server(web_server, client) -> None:
    text = complaint(client, web_server)
    assert web_server in text
    assert "web server" in text
    assert "9876" in text


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_recognises_a_broker_in_place_of_a_name_server(client) -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        address = cluster.brokers[0].address
        text = complaint(client, address)
        assert address in text
        assert "broker" in text
        assert "9876" in text


def test_a_topic_whose_brokers_are_all_away_is_not_unknown() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic(TOPIC)
        with Producer(cluster.name_server, send_timeout=5.0) as producer:
            producer.send(Message(TOPIC, b"x"))
            cluster.brokers[0].kill()
            for _ in range(2):
                with pytest.raises(RocketMQError) as known:
                    producer.send(Message(TOPIC, b"x"))
            assert re.search(
                r"no broker of topic orders can be reached: broker-a for [\d.]+ m?s",
                str(known.value),
            )
        with Producer(cluster.name_server, send_timeout=5.0) as late:
            with pytest.raises(RocketMQError) as unknown:
                late.send(Message(TOPIC, b"x"))
            assert "unknown" not in str(unknown.value)
            assert "no broker at all is registered" in str(unknown.value)


def test_a_topic_that_nobody_has_is_unknown_and_the_brokers_that_are_there_are_named() -> None:
    with (
        EmbeddedCluster(brokers=2, auto_create_topics=False) as cluster,
        Producer(cluster.name_server) as producer,
    ):
        with pytest.raises(RocketMQError) as failed:
            producer.send(Message("nobody-has-it", b"x"))
        assert "is unknown" in str(failed.value)
        assert "broker-a, broker-b" in str(failed.value)


def test_a_broker_that_answers_again_is_not_said_to_be_away() -> None:
    with (
        EmbeddedCluster(brokers=1) as cluster,
        Producer(cluster.name_server, send_timeout=0.5, fault="off") as producer,
    ):
        cluster.create_topic(TOPIC)
        producer.send(Message(TOPIC, b"x"))
        broker = cluster.brokers[0]
        broker.kill()
        with pytest.raises(RocketMQError, match="no broker of topic"):
            producer.send(Message(TOPIC, b"x"))
        broker.restart()
        producer.send(Message(TOPIC, b"x"), timeout=20)
        broker.hang()
        with pytest.raises(RocketMQError) as failed:
            producer.send(Message(TOPIC, b"x"))
        assert "can be reached" not in str(failed.value)
