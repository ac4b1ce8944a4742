"""The pytest plugin: RocketMQ as a fixture, for the tests of your own application.

pytest loads it by itself wherever Rocketwire is installed. Loading costs next to nothing; the
embedded cluster is imported when the first test asks for it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from rocketwire.embedded import EmbeddedCluster, Journal
    from rocketwire.embedded.clock import ClusterClock
    from rocketwire.stored_message import StoredMessage

_LONGEST_NAME: Final = 100
_DEFAULT_BROKERS: Final = 2


class TopicForTest:
    """What the ``rocketmq`` fixture gives: a running cluster and a topic of the test's own.

    Attributes:
        cluster: the cluster that all tests of the session share.
        topic: a topic that no other test uses; it is deleted when the test is over.
    """

    def __init__(self, cluster: EmbeddedCluster, name: str) -> None:
        self.cluster: Final = cluster
        self._name = name
        self._topics: list[str] = []
        self.topic: Final = self.new_topic()

    @property
    def name_server(self) -> str:
        """What a producer or a reader is given."""
        return self.cluster.name_server

    @property
    def journal(self) -> Journal:
        """Every request that the brokers saw, those of other tests included."""
        return self.cluster.journal

    @property
    def clock(self) -> ClusterClock:
        """The cluster's clock: ``rocketmq.clock.advance("10s")`` makes delayed messages due.

        It stays where it is put, for the tests that follow, too.
        """
        return self.cluster.clock

    def new_topic(self, queues: int = 4) -> str:
        """One more topic of the test's own."""
        topic = f"{self._name}-{uuid.uuid4().hex[:8]}"
        self.cluster.create_topic(topic, queues)
        self._topics.append(topic)
        return topic

    def messages(self, topic: str | None = None) -> list[StoredMessage]:
        """What is stored in the topic, by broker, queue and offset."""
        return self.cluster.messages(topic or self.topic)

    def dead_letters(self, group: str) -> list[StoredMessage]:
        """The messages that a consumer group has given up."""
        return self.cluster.dead_letters(group)

    def wait_idle(self, group: str, timeout: float | str = 10.0) -> None:
        """Wait until a consumer group has handled everything that is in its queues.

        Messages that wait for their time are in no queue yet: put the clock forward first.

        Raises:
            TimeoutError: it has not; the text says where it is behind.
        """
        self.cluster.wait_idle(group, timeout)

    def close(self) -> None:
        """Delete the topics, and mend what the test broke."""
        for broker in self.cluster.brokers:
            if not broker.running:
                broker.restart()
            broker.heal()
        for topic in self._topics:
            self.cluster.delete_topic(topic)

    def __repr__(self) -> str:
        return f"<rocketmq: topic {self.topic!r} at {self.name_server}>"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "rocketmq(**options): how rocketmq_cluster is started, e.g. brokers=3, flush='sync'; "
        "the options are those of EmbeddedCluster",
    )


def _start(options: dict[str, Any]) -> EmbeddedCluster:
    from rocketwire.embedded import EmbeddedCluster
    from rocketwire.errors import RocketMQError

    try:
        return EmbeddedCluster(**options).start()
    except (RocketMQError, OSError, TypeError) as error:
        pytest.fail(f"the embedded RocketMQ cluster did not start: {error}", pytrace=False)


@pytest.fixture(scope="session")
def rocketmq_session_cluster() -> Iterator[EmbeddedCluster]:
    """The cluster behind ``rocketmq``: one per session, and per worker of pytest-xdist."""
    cluster = _start({"brokers": _DEFAULT_BROKERS})
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def rocketmq(
    request: pytest.FixtureRequest, rocketmq_session_cluster: EmbeddedCluster
) -> Iterator[TopicForTest]:
    """A running RocketMQ, and a fresh topic: ``rocketmq.name_server``, ``rocketmq.topic``."""
    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:_LONGEST_NAME].strip("-")
    given = TopicForTest(rocketmq_session_cluster, name or "test")
    try:
        yield given
    finally:
        given.close()


@pytest.fixture
def rocketmq_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A cluster of the test's own, to break; ``@pytest.mark.rocketmq(brokers=3)`` sets it up."""
    marker = request.node.get_closest_marker("rocketmq")
    options = {"brokers": _DEFAULT_BROKERS} | (dict(marker.kwargs) if marker is not None else {})
    cluster = _start(options)
    try:
        yield cluster
    finally:
        cluster.stop()
