"""Receive and acknowledge on real brokers, with Java's POP members in the same group."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.driver import JavaDriver, body_of
from tests.real import jars, running
from tests.real.apache import ApacheCluster
from tests.real.grpc_proxy import GrpcProxy
from tests.real.running import unique

from rocketwire import BrokerError, Message, Producer, SimpleConsumer


@pytest.fixture(params=["5.3.3", "5.5.0"])
def version(request: pytest.FixtureRequest) -> str:
    jars.require_tools(request.param)
    return str(request.param)


@pytest.fixture
def producer(cluster: ApacheCluster) -> Iterator[Producer]:
    # On a busy machine a broker may take seconds, and what is sent again would be stored twice.
    with Producer(cluster.name_server, group=unique("feeder"), send_timeout=60) as producer:
        yield producer


@pytest.fixture
def java_member(cluster: ApacheCluster, java: JavaDriver, topic: str) -> Iterator[Any]:
    """Starts a push consumer of Java that receives as ours does; gives its name."""
    started: list[str] = []

    def start(group: str) -> str:
        name = unique("consumer")
        printed = java.mqadmin(
            cluster.name_server,
            "setConsumeMode", "-c", "RocketwireCluster", "-t", topic, "-g", group, "-m", "POP", "-q", "8",
        )  # fmt: skip
        assert "success" in printed, printed
        options = {"clientRebalance": False, "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
        java.call(
            "push.start",
            name_server=cluster.name_server, consumer=name, group=group, topic=topic, options=options,
        )  # fmt: skip
        started.append(name)
        return name

    yield start
    for name in started:
        java.begin("consumer.stop", consumer=name)


def test_javas_members_and_ours_share_every_message(
    cluster: ApacheCluster, java: JavaDriver, topic: str, producer: Producer, java_member: Any
):
    group = unique("group")
    name = java_member(group)
    bodies = {f"m-{number}" for number in range(400)}
    with SimpleConsumer(cluster.name_server, group=group, start="earliest") as consumer:
        consumer.subscribe(topic)
        ours: list[str] = []
        theirs: list[str] = []
        for part in range(20):
            chosen = sorted(bodies)[part * 20 : part * 20 + 20]
            producer.send_many([Message(topic, body) for body in chosen])
            received = consumer.receive(8, wait=0.5)
            ours += [message.text for message in received]
            consumer.acknowledge(received)
        deadline = time.monotonic() + 60
        while len(set(ours) | set(theirs)) < 400 and time.monotonic() < deadline:
            received = consumer.receive(wait=0.2)
            ours += [message.text for message in received]
            consumer.acknowledge(received)
            taken = java.call("push.take", consumer=name, count=400, timeout_ms=500)
            theirs += [body_of(message).decode() for message in taken]
    assert set(ours) | set(theirs) == bodies
    assert ours
    assert theirs
    assert len(ours) + len(theirs) == 400


def test_what_ours_leaves_is_taken_over_by_javas(
    cluster: ApacheCluster, java: JavaDriver, topic: str, producer: Producer, java_member: Any
):
    group = unique("group")
    producer.send(Message(topic, "left", keys="k", properties={"p": "1"}))
    with SimpleConsumer(cluster.name_server, group=group, start="earliest") as consumer:
        consumer.subscribe(topic)
        (message,) = consumer.receive(wait=20, invisible=3)
        assert (message.text, message.delivery_attempt) == ("left", 1)
    name = java_member(group)
    (found,) = java.call("push.take", consumer=name, count=1, timeout_ms=40_000, limit=60)
    assert body_of(found) == b"left"
    assert found["reconsume_times"] == 1


def test_messages_are_kept_given_back_and_done_with_one_by_one(
    cluster: ApacheCluster, topic: str, producer: Producer
):
    producer.send_many([Message(topic, f"{number}") for number in range(10)])
    with SimpleConsumer(cluster.name_server, group=unique("group"), start="earliest") as consumer:
        consumer.subscribe(topic)
        found: dict[str, Any] = {}
        deadline = time.monotonic() + 30
        while len(found) < 10 and time.monotonic() < deadline:
            found |= {message.text: message for message in consumer.receive(wait=2, invisible=30)}
        kept, released = found.pop("3"), found.pop("7")
        kept.extend(120)
        released.release()
        for message in found.values():
            message.ack()
        again: list[Any] = []
        while not again and time.monotonic() < deadline + 30:
            again = consumer.receive(wait=2)
        assert [(message.text, message.delivery_attempt) for message in again] == [("7", 2)]
        consumer.acknowledge([kept, *again])


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_proxy_is_told_to_be_in_the_way(proxy: GrpcProxy, start: str):
    running.cluster("5.3.3").create_topic(topic := unique("topic"))
    consumer = SimpleConsumer(proxy.remoting, group=unique("group"), start=start)
    refused = pytest.raises(BrokerError, match="not through a proxy: use Consumer")
    with refused, consumer.subscribe(topic) as started:
        started.receive(wait=0)
