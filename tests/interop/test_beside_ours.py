"""Producers and services of Java and Go on the other side of ours: in one producer group, or as the one who answers.

On Apache's brokers Java's are tried in ``tests/real/test_talking_with_java.py``, with both releases.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.interop.driver import DriverError, body_of, message
from tests.real.running import unique

from rocketwire import (
    Consumer,
    Message,
    Producer,
    Reader,
    Reply,
    StoredMessage,
    TransactionState,
)

pytestmark = pytest.mark.without("5.3.3/java-5.3.3", "java-4.9.7")
#: Seconds for what brokers do at their own pace: they ask every 3 s for what is 2 s old.
PATIENCE = 60.0


def until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def texts(reader: Reader, topic: str) -> set[str]:
    return {found.text for found in reader.read(topic)}


def test_our_checker_answers_for_a_foreign_producer(meeting: Any):
    topic = meeting.topic()
    foreign = meeting.producer(transactional=True)
    asked: list[StoredMessage] = []

    def checker(half: StoredMessage) -> bool:
        asked.append(half)
        return half.keys == "kept"

    for body in ("kept", "dropped"):
        meeting.call(
            "producer.transaction",
            producer=foreign,
            message=message(topic, body, keys=body, tags="T", properties={"p": "v"}),
            local="UNKNOW",
            check="UNKNOW",
        )
    name_server = meeting.target.name_server
    # The producers of the drivers have their group by the same name.
    with Producer(name_server, group=foreign, checker=checker), Reader(name_server) as reader:
        assert until(lambda: {half.keys for half in asked} == {"kept", "dropped"})
        assert until(lambda: texts(reader, topic) == {"kept"})
    for half in asked:
        assert (half.topic, half.tags, half.properties["p"]) == (topic, "T", "v")


def test_a_foreign_listener_answers_for_our_producer(meeting: Any):
    topic = meeting.topic()
    foreign = meeting.producer(transactional=True)
    # Its heartbeats go to the brokers of topics that it has sent to; Go's first one a second after its start.
    meeting.call(
        "producer.transaction",
        producer=foreign,
        message=message(topic, "first"),
        local="COMMIT_MESSAGE",
        check="COMMIT_MESSAGE",
    )
    name_server = meeting.target.name_server
    with Producer(name_server, group=foreign) as producer, Reader(name_server) as reader:
        for body, check in (("kept", "COMMIT_MESSAGE"), ("dropped", "ROLLBACK_MESSAGE")):
            with producer.transaction(Message(topic, body, properties={"check": check})) as tx:
                tx.leave_open()
            assert tx.state is TransactionState.OPEN

        def checked() -> set[bytes]:
            found = meeting.call("producer.checks", producer=foreign)
            return {body_of(each) for each in found}

        assert until(lambda: checked() >= {b"kept", b"dropped"})
        assert until(lambda: texts(reader, topic) >= {"first", "kept"})
        assert texts(reader, topic) == {"first", "kept"}


@contextmanager
def our_service(name_server: str, topic: str) -> Iterator[Consumer]:
    """A consumer of ours that replies to every request."""
    with Consumer(name_server, group=unique("service"), start="earliest") as consumer:
        consumer.subscribe(topic)
        consumer.join()
        answers = threading.Thread(
            target=consumer.run,
            args=(lambda m: Reply(b"reply to " + m.body, properties={"from": "us"}),),
        )
        answers.start()
        try:
            yield consumer
        finally:
            consumer.stop()
            answers.join()


def test_a_foreign_producer_asks_and_our_handler_replies(meeting: Any):
    topic, other = meeting.topic(), meeting.topic()
    producer = meeting.producer(retries=2)
    # Go makes itself known to brokers a second after its start, if it has sent to them by then.
    meeting.call("producer.send", producer=producer, message=message(other, "first"))
    replies: list[dict[str, Any]] = []

    def ask() -> bool:
        with suppress(DriverError):  # no reply: the brokers did not know it yet
            replies.append(
                meeting.call(
                    "producer.request",
                    producer=producer,
                    message=message(topic, "question"),
                    callback=meeting.client.name == "java-5.3.3",
                    timeout_ms=3_000,
                )
            )
        return bool(replies)

    with our_service(meeting.target.name_server, topic) as consumer:
        assert until(ask)
        assert until(lambda: consumer.stats().replies == 1)
    (reply,) = replies
    assert body_of(reply) == b"reply to question"
    assert reply["properties"]["from"] == "us"


def test_we_ask_and_a_foreign_service_replies(meeting: Any):
    topic = meeting.topic()
    meeting.consumer("push", topic, reply_with=meeting.producer())
    with Producer(meeting.target.name_server, group=unique("asking")) as producer:
        for number in range(5):
            reply = producer.request(Message(topic, f"question {number}"), timeout=30)
            assert reply.text == f"reply to question {number}"
        assert producer.stats().late_replies == 0
