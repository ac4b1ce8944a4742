"""Java's producers and services on the other side of ours: transactions, requests, recalls."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.driver import JavaDriver, body_of, message
from tests.real import running
from tests.real.apache import ApacheCluster
from tests.real.running import unique

from rocketwire import Consumer, Message, Producer, Reader, Reply, TransactionState

#: How soon, and how often, brokers ask for open transactions, in ms.
#: Brokers of 5.x note decisions in batches, by default every 3 s: asking more often than that, they ask about what
#: is decided, and deliver what is committed again.
CHECKS = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
    "transactionOpBatchInterval": "100",
}


@pytest.fixture
def asking(version: str) -> ApacheCluster:
    """A cluster that asks for open transactions at once."""
    return running.shared(
        f"asking-{version}", lambda: ApacheCluster(version, brokers=1, overrides=CHECKS)
    )


@pytest.fixture
def orders(asking: ApacheCluster) -> str:
    name = unique("orders")
    asking.create_topic(name)
    return name


@pytest.fixture
def java_producer(java: JavaDriver) -> Iterator[Any]:
    """Starts a producer of Java; all are stopped in the end."""
    started: list[str] = []

    def start(name_server: str, group: str, **options: Any) -> str:
        name = unique("producer")
        java.call("producer.start", name_server=name_server, producer=name, group=group, **options)
        started.append(name)
        return name

    yield start
    for name in started:
        java.begin("producer.stop", producer=name)


def read_until(name_server: str, topic: str, count: int, seconds: float = 60.0) -> list[str]:
    deadline = time.monotonic() + seconds
    with Reader(name_server) as reader:
        while True:
            found = [m.text for m in reader.read(topic)]
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.2)


def test_our_checker_answers_for_a_producer_of_java(
    asking: ApacheCluster, java: JavaDriver, java_producer: Any, orders: str
):
    group = unique("group")
    producer = java_producer(asking.name_server, group, transactional=True)
    for body in ("kept", "dropped"):
        java.call(
            "producer.transaction",
            name_server=asking.name_server,
            producer=producer,
            message=message(orders, body, keys=body),
            local="UNKNOW",
            check="UNKNOW",
        )
    asked = []

    def checker(half: Any) -> bool:
        asked.append(half.keys)
        return half.keys == "kept"

    with Producer(asking.name_server, group=group, checker=checker):
        assert read_until(asking.name_server, orders, 1) == ["kept"]
        deadline = time.monotonic() + 60
        while "dropped" not in asked and time.monotonic() < deadline:
            time.sleep(0.1)
    assert set(asked) == {"kept", "dropped"}
    assert read_until(asking.name_server, orders, 2, seconds=2.0) == ["kept"]


def test_a_listener_of_java_answers_for_our_producer(
    asking: ApacheCluster, java: JavaDriver, java_producer: Any, orders: str
):
    group = unique("group")
    other = java_producer(asking.name_server, group, transactional=True)
    # Java's heartbeats go to brokers of topics that it has sent to.
    java.call(
        "producer.transaction",
        name_server=asking.name_server,
        producer=other,
        message=message(orders, "first"),
        local="COMMIT_MESSAGE",
        check="COMMIT_MESSAGE",
    )
    with Producer(asking.name_server, group=group) as producer:
        for body, check in (("kept", "COMMIT_MESSAGE"), ("dropped", "ROLLBACK_MESSAGE")):
            half = Message(orders, body, properties={"check": check})
            with producer.transaction(half) as tx:
                tx.leave_open()
            assert tx.state is TransactionState.OPEN
    # Java's own commit is told one way; where the broker asks before it has heard, it is done twice.
    found: set[str] = set()
    deadline = time.monotonic() + 90
    while "kept" not in found and time.monotonic() < deadline:
        found = set(read_until(asking.name_server, orders, 2))
    assert found == {"first", "kept"}
    checked = java.call("producer.checks", name_server=asking.name_server, producer=other)
    assert b"kept" in [body_of(each) for each in checked]


def test_a_hundred_transactions_are_decided_as_we_said(asking: ApacheCluster, orders: str):
    with Producer(asking.name_server, group=unique("group")) as producer:
        for number in range(100):
            with producer.transaction(Message(orders, f"{number}")) as tx:
                if number % 2:
                    tx.rollback()
            wanted = TransactionState.ROLLED_BACK if number % 2 else TransactionState.COMMITTED
            assert tx.state is wanted
    found = read_until(asking.name_server, orders, 50)
    assert sorted(map(int, found)) == list(range(0, 100, 2))


def test_java_asks_and_our_handler_replies(
    cluster: ApacheCluster, java: JavaDriver, java_producer: Any, topic: str, version: str
):
    group = unique("group")
    producer = java_producer(cluster.name_server, unique("asking"))
    with Consumer(cluster.name_server, group=group, start="earliest") as consumer:
        consumer.subscribe(topic)
        consumer.join()

        service = threading.Thread(
            target=consumer.run, args=(lambda m: Reply(b"reply to " + m.body),)
        )
        service.start()
        try:
            reply = java.call(
                "producer.request",
                name_server=cluster.name_server,
                producer=producer,
                message=message(topic, "question"),
                # The blocking form of Java 5.3.1 to 5.3.3 gives up as soon as the request is stored.
                callback=version == "5.3.3",
                timeout_ms=30_000,
            )
        finally:
            consumer.stop()
            service.join()
    assert body_of(reply) == b"reply to question"


def test_we_ask_and_a_service_of_java_replies(
    cluster: ApacheCluster, java: JavaDriver, java_producer: Any, topic: str
):
    replier = java_producer(cluster.name_server, unique("replier"))
    name = unique("consumer")
    java.call(
        "push.start",
        name_server=cluster.name_server,
        consumer=name,
        group=name,
        topic=topic,
        options={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
        reply_with=replier,
    )
    try:
        with Producer(cluster.name_server, group=unique("group")) as producer:
            for _ in range(5):
                reply = producer.request(Message(topic, "question"), timeout=30)
                assert reply.body == b"reply to question"
    finally:
        java.begin("consumer.stop", consumer=name)
