"""A broker that does not answer at once is asked again for its offsets, as often as was said."""

import pytest

from rocketwire.embedded import EmbeddedCluster
from rocketwire.spark.client import Cluster
from rocketwire.sync.reader import Reader


@pytest.fixture(scope="module")
def broken():
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", queues=2)
        yield cluster


def test_offsets_are_asked_for_again(broken):
    broker, naps = broken.broker("broker-a"), []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 2:
            broker.heal()

    with Reader(broken.name_server, background=False, request_timeout=1.0) as reader:
        queues = Cluster(reader).queues_of("t")
        broker.refuse()
        found = Cluster(reader, retries=3, interval=0.5, sleep=nap).bounds(queues)
        assert naps == [0.5, 0.5]
        assert (set(found.end), found.silent) == (set(queues), {})
        broker.refuse()
        stubborn = Cluster(reader, retries=1, interval=0.5, sleep=naps.append)
        assert set(stubborn.bounds(queues).silent) == set(queues)
        before = len(naps)
        # A stream asks all the time: what was silent the last time is not waited for again.
        assert set(stubborn.bounds(queues).silent) == set(queues)
        assert len(naps) == before
        broker.heal()
        assert set(stubborn.bounds(queues).end) == set(queues)
