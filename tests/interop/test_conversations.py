"""Transactions with their checks, and requests with their replies."""

import time
from typing import Any

import pytest
from tests.interop.driver import DriverError, body_of, message


@pytest.mark.parametrize(
    ("local", "check"),
    [
        ("COMMIT_MESSAGE", "COMMIT_MESSAGE"),
        ("UNKNOW", "COMMIT_MESSAGE"),
    ],
    ids=["at-once", "when-asked"],
)
def test_a_committed_transaction_is_seen(meeting: Any, local: str, check: str):
    topic = meeting.topic()
    consumer = meeting.consumer("push", topic)
    producer = meeting.producer(transactional=True)
    sent = meeting.call(
        "producer.transaction",
        producer=producer,
        message=message(topic, "paid", tags="T", keys="k", properties={"p": "v"}),
        local=local,
        check=check,
    )
    assert sent["status"] == "SEND_OK"
    (found,) = meeting.take(consumer, 1)
    assert body_of(found) == b"paid"
    assert (found["tags"], found["keys"], found["properties"]["p"]) == ("T", "k", "v")
    assert found["properties"]["UNIQ_KEY"] == sent["msg_id"]
    assert found["sys_flag"] & 0xC == 8
    asked = [each["topic"] for each in meeting.call("producer.checks", producer=producer)]
    if local == "UNKNOW":
        assert asked
        assert set(asked) == {topic}


def test_a_rolled_back_transaction_is_never_seen(meeting: Any):
    topic = meeting.topic()
    consumer = meeting.consumer("push", topic)
    producer = meeting.producer(transactional=True)

    def transact(body: str, local: str, check: str) -> None:
        # The decision is told one way and may be lost, and a slow broker may ask before it has heard
        # it, so the producer says the same when it is asked.
        arguments = {"message": message(topic, body), "local": local, "check": check}
        meeting.call("producer.transaction", producer=producer, **arguments)

    transact("rolled back", "ROLLBACK_MESSAGE", "ROLLBACK_MESSAGE")
    transact("rolled back when asked", "UNKNOW", "ROLLBACK_MESSAGE")
    wait_for_check(meeting, producer, b"rolled back when asked")
    transact("committed", "COMMIT_MESSAGE", "COMMIT_MESSAGE")
    seen = meeting.take(consumer, 1) + meeting.take(consumer, 3, seconds=2.0)
    # A commit that was told and asked for may be done twice; a rollback is never a commit.
    assert {body_of(each) for each in seen} == {b"committed"}


def wait_for_check(meeting: Any, producer: str, body: bytes) -> None:
    """Wait until the broker has asked for this message.

    It asks where the producer's heartbeat has been, which comes every half minute.
    """
    deadline = time.monotonic() + 90
    asked: list[bytes] = []
    while body not in asked:
        assert time.monotonic() < deadline, f"the broker asked for {asked} only"
        time.sleep(0.1)
        asked = [body_of(each) for each in meeting.call("producer.checks", producer=producer)]


def test_a_request_gets_its_reply(meeting: Any):
    topic = meeting.topic()
    replier = meeting.producer()
    meeting.consumer("push", topic, reply_with=replier)
    # A reply may go through any broker, and finds the requester only where its heartbeat has been:
    # the Go client sends the first one to new brokers after half a minute.
    deadline = time.monotonic() + 90
    while True:
        try:
            reply = ask(meeting, topic)
            break
        except DriverError:
            if time.monotonic() > deadline:
                raise
    assert body_of(reply) == b"reply to question"


def ask(meeting: Any, topic: str) -> dict[str, Any]:
    return dict(
        meeting.call(
            "producer.request",
            producer=meeting.producer(),
            message=message(topic, "question"),
            # The blocking form of Java 5.3.1 to 5.3.3 gives up as soon as the request is stored.
            callback=meeting.client.name == "java-5.3.3",
            timeout_ms=10_000,
        )
    )
