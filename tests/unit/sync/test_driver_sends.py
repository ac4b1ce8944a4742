"""Sends over real sockets: what happens when the answer is not the usual one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketwire import Message, Outcome, Producer, SendFailedError, SendResult, SendStatus
from rocketwire.core.sending.mode import SendMode
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("orders", queues=2)
        yield running


@pytest.fixture
def producer(cluster: EmbeddedCluster) -> Iterator[Producer]:
    options = {"group": "lane", "background": False, "send_timeout": 30.0}
    with Producer(cluster.name_server, **options) as running:
        for _ in range(4):
            running.send(Message("orders", b"warm-up"))
        yield running


def send(producer: Producer, body: bytes) -> SendResult:
    """Send a message whose first attempt is decided at once."""
    attempt = producer._sender.start(Message("orders", body), SendMode.BLOCKING)
    assert attempt.target is not None
    return producer._driver.send(attempt)


def test_the_result_tells_where_the_message_is(cluster, producer) -> None:
    result = send(producer, b"here")
    assert result.status is SendStatus.OK
    assert result.attempts == ()
    found = {(m.queue, m.offset): m for m in cluster.messages("orders")}
    message = found[result.queue, result.offset]
    assert message.body == b"here"
    assert message.message_id == result.message_id
    assert message.offset_message_id == result.offset_message_id


@pytest.mark.parametrize("fault", ["busy", "refuse"])
def test_what_fails_there_is_retried_as_any_other_send(cluster, producer, fault) -> None:
    getattr(cluster.broker("broker-a"), fault)()
    results = [send(producer, b"%d" % n) for n in range(4)]
    assert {r.queue.broker for r in results} == {"broker-b"}
    assert [len(r.attempts) for r in results].count(1) == 1
    (health,) = [h for h in producer.health() if h.broker == "broker-a"]
    assert health.failures == 1


def test_a_refusal_has_its_outcome(cluster, producer) -> None:
    for name in ("broker-a", "broker-b"):
        cluster.broker(name).disk_full()
    with pytest.raises(SendFailedError) as failed:
        send(producer, b"x")
    assert failed.value.outcome is Outcome.REJECTED
    assert producer.stats().failed == 1


def test_an_interrupted_send_leaves_nothing_in_flight(cluster, producer, monkeypatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    connections = [c for idle in producer._pool._idle.values() for c in idle]
    for connection in connections:
        monkeypatch.setattr(type(connection), "_take", interrupt)
    with pytest.raises(KeyboardInterrupt):
        send(producer, b"x")
    assert [h.in_flight for h in producer.health()] == [0, 0]
    monkeypatch.undo()
    assert producer.send(Message("orders", b"after"))


def test_a_oneway_message_arrives_and_leaves_nothing_in_flight(cluster, producer) -> None:
    for body in (b"one", b"two", b"three"):
        producer.send_oneway(Message("orders", body))
    assert producer.stats().oneway == 3
    assert [h.in_flight for h in producer.health()] == [0, 0]
    for _ in range(4):  # on the same connections, so behind them
        producer.send(Message("orders", b"last"))
    bodies = [m.body for m in cluster.messages("orders")]
    assert {b"one", b"two", b"three"} <= set(bodies)


def test_a_oneway_message_that_can_not_be_written_is_an_error(cluster, producer) -> None:
    for name in ("broker-a", "broker-b"):
        cluster.broker(name).refuse()
    with pytest.raises(SendFailedError) as failed:
        producer.send_oneway(Message("orders", b"x"))
    assert failed.value.outcome is Outcome.NOT_SENT
