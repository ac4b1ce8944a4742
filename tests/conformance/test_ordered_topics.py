"""Ordered topics: a key keeps its queue while its broker is away."""

from __future__ import annotations

import pytest

from rocketwire import Message, Outcome, Producer, SendFailedError
from rocketwire.embedded import EmbeddedCluster

KEYS = [f"account-{i}" for i in range(24)]


@pytest.fixture
def cluster():
    with EmbeddedCluster(brokers=3, order_routes=True) as cluster:
        yield cluster


def places(producer: Producer) -> dict[str, object]:
    """Where each key goes; the outcome where it failed."""
    found: dict[str, object] = {}
    for key in KEYS:
        try:
            found[key] = producer.send(Message("ledger", b"x", sharding_key=key)).queue
        except SendFailedError as error:
            found[key] = error.outcome
    return found


@pytest.mark.parametrize("by_producer", [True, False])
def test_keys_stay_while_a_broker_is_away(cluster, by_producer: bool):
    with Producer(cluster.name_server, group="g", route_refresh=0.1) as producer:
        if by_producer:
            producer.create_topic("ledger", 2, order=True)
        else:
            cluster.create_topic("ledger", 2, order=True)
        before = places(producer)
        assert {place.broker for place in before.values()} == {"broker-a", "broker-b", "broker-c"}
        assert len(producer.publish_queues("ledger")) == 6
        cluster.broker("broker-b").kill()
        during = places(producer)
        assert during == {
            k: q if q.broker != "broker-b" else Outcome.NOT_SENT for k, q in before.items()
        }
        assert len(producer.publish_queues("ledger")) == 6
        cluster.broker("broker-b").restart()
        assert places_once_back(producer) == before


def places_once_back(producer: Producer) -> dict[str, object]:
    found = places(producer)
    for _ in range(600):
        if Outcome.NOT_SENT not in found.values():
            break
        found = places(producer)
    return found


def test_an_ordered_topic_that_is_deleted_leaves_no_list_behind(cluster):
    cluster.create_topic("ledger", 2, order=True)
    cluster.delete_topic("ledger")
    cluster.create_topic("ledger", 1, brokers=("broker-a",))
    with Producer(cluster.name_server, group="g") as producer:
        assert [(q.broker, q.id) for q in producer.publish_queues("ledger")] == [("broker-a", 0)]
