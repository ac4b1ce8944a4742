"""Timed messages that are called back: both shells, all clusters."""

from __future__ import annotations

import time

import pytest
from tests.conformance.shells import SHELLS, read_all

from rocketwire import (
    ClientClosedError,
    InvalidMessageError,
    Message,
    Producer,
    RecallError,
    RecallProblem,
    RocketMQError,
    RouteError,
    TransportError,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.message_id import RecallHandle, encode_recall_handle


def handle_of(topic: str, after: float = 600.0, broker: str = "broker-a") -> str:
    moment = int((time.time() + after) * 1000)
    return encode_recall_handle(RecallHandle(topic, broker, moment, "7F" * 16))


def test_a_recalled_message_is_not_delivered(target, shell):
    if target.is_4x:
        pytest.skip("4.x has no timed messages")
    topic = target.topic(queues=1)
    at = time.time() + 3
    kept = shell.send(Message(topic, "kept", deliver_at=at))
    gone = shell.send(Message(topic, "gone", deliver_at=at))
    assert kept.recall_handle
    assert shell.recall(topic, gone.recall_handle) == gone.message_id
    for _ in range(5):
        found = read_all(shell, topic, 1)
        if found:
            break
    time.sleep(0.5 if target.is_embedded else 2.0)
    assert [message.text for message in shell.read(topic)] == ["kept"]


def test_other_messages_have_no_handle(target, shell):
    topic = target.topic()
    assert shell.send(Message(topic, "now")).recall_handle is None
    assert shell.send([Message(topic, "1"), Message(topic, "2")]).recall_handle is None
    assert [r.recall_handle for r in shell.send_many([Message(topic, "3")] * 3)] == [None] * 3


@pytest.mark.parametrize("handle", [None, b"x", "", "x", "djIgYQ==", "ä", "A" * 5000])
def test_what_is_no_handle_is_told_before_anything_is_asked(target, shell, handle):
    with pytest.raises(RecallError, match="handle") as caught:
        shell.recall(target.topic(), handle)
    assert caught.value.problem is RecallProblem.MALFORMED


def test_a_handle_of_another_topic_is_malformed(target, shell):
    topic = target.topic()
    with pytest.raises(RecallError, match="one of topic 'other'") as caught:
        shell.recall(topic, handle_of("other"))
    assert caught.value.problem is RecallProblem.MALFORMED


def test_a_message_whose_time_has_come_is_too_late(target, shell):
    topic = target.topic()
    problem = RecallProblem.BROKER_TOO_OLD if target.is_4x else RecallProblem.TOO_LATE
    with pytest.raises(RecallError) as caught:
        shell.recall(topic, handle_of(topic, after=-1.0))
    assert caught.value.problem is problem


def test_a_broker_without_recalls_is_too_old(target, shell):
    if not target.is_4x:
        pytest.skip("it has them")
    topic = target.topic()
    with pytest.raises(RecallError, match=r"need 5\.3\.2") as caught:
        shell.recall(topic, handle_of(topic))
    assert caught.value.problem is RecallProblem.BROKER_TOO_OLD


@pytest.mark.parametrize("topic", [None, "", "a b", "%RETRY%group", "%DLQ%group"])
def test_a_topic_that_nothing_waits_in_is_refused(shell, topic):
    with pytest.raises(InvalidMessageError, match="topic"):
        shell.recall(topic, handle_of("t"))


def test_a_broker_that_is_not_there_is_named(target, shell):
    topic = target.topic()
    with pytest.raises(RouteError, match="nowhere"):
        shell.recall(topic, handle_of(topic, broker="nowhere"))


@pytest.mark.parametrize("name", SHELLS)
def test_with_the_clock_of_tests_and_with_a_dead_broker(name):
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        with SHELLS[name](cluster.name_server, request_timeout=0.5) as shell:
            result = shell.send(Message("t", "x", deliver_at=time.time() + 60))
            cluster.clock.advance("120s")
            with pytest.raises(RecallError, match="was delivered") as caught:
                shell.recall("t", result.recall_handle)
            assert caught.value.problem is RecallProblem.TOO_LATE
            cluster.broker("broker-a").kill()
            with pytest.raises((TransportError, RouteError)):
                shell.recall("t", result.recall_handle)


def test_a_closed_producer_says_so():
    producer = Producer("127.0.0.1:1")
    with pytest.raises(ClientClosedError, match="not started"):
        producer.recall("t", handle_of("t"))
    assert issubclass(RecallError, RocketMQError)
