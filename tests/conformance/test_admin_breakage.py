"""What an operator is told when a broker is dead: who it is, and what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.admins import ADMINS

from rocketwire import ConnectFailedError, Message, NameServerUnavailableError, Producer
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers, the second of which can not be reached: the name server knows it still."""
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", 2)
        with Producer(cluster.name_server) as producer:
            producer.send(Message("orders", b"x"), queue=producer.publish_queues("orders")[0])
        cluster.broker("broker-b").refuse()
        yield cluster


@pytest.fixture(params=list(ADMINS))
def admin(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[Any]:
    made = ADMINS[request.param](cluster.name_server, request_timeout=2.0)
    made.start()
    yield made
    made.close()


def test_what_can_be_seen_is_shown_and_the_rest_named(admin: Any):
    alive, dead = admin.brokers()
    assert (alive.error, alive.version) == (None, "5.3.1")
    assert dead.error is not None
    assert dead.error.startswith("broker-b: ")
    assert "rocketwire doctor" in dead.error
    topic = admin.topic("orders")
    assert topic.messages == 1
    told = {state.queue.broker: state.error for state in topic.queues}
    assert told["broker-a"] is None
    assert told["broker-b"] is not None
    assert "broker-b: " in told["broker-b"]


def test_a_change_that_was_half_done_says_how_far_it_came(admin: Any):
    with pytest.raises(ConnectFailedError, match=r"broker-b: .*done on broker-a"):
        admin.create_topic("new", 1)
    for ask in (
        admin.groups,
        lambda: admin.alter_topic("orders", queues=3),
        lambda: admin.delete_topic("orders"),
        lambda: admin.group("nobody"),
        lambda: admin.broker_settings("broker-b"),
        lambda: admin.change_broker_settings("broker-b", {"maxMessageSize": 1}),
    ):
        with pytest.raises(ConnectFailedError, match=r"broker-b: .*see that it is up"):
            ask()


def test_no_name_server_is_said_to_be_that(admin: Any, cluster: EmbeddedCluster):
    cluster.stop()
    for ask in (admin.topics, admin.brokers, admin.groups, lambda: admin.topic("orders")):
        with pytest.raises(NameServerUnavailableError, match="check name_servers"):
            ask()
