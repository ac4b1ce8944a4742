"""A consumer across a fork: the child is a member of its own, the parent is unharmed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from tests.conformance.members import eventually, unique_group
from tests.fork.forking import Child

from rocketwire import Consumer, Message, Producer
from rocketwire.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # From 3.12 on Python warns of forks in programs with threads: that is what is tested here.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("orders", 2)
        yield running


def test_a_child_of_a_running_consumer_joins_as_a_new_member(cluster):
    group, seen, ids = unique_group(), [], []
    consumer = Consumer(cluster.name_server, group=group, start="earliest").subscribe("orders")
    with consumer:
        thread = threading.Thread(target=consumer.run, args=(lambda m: seen.append(m.text),))
        thread.start()
        eventually(lambda: len(consumer.assignment()) == 4)
        parent_id = consumer.client_id

        def live() -> tuple[str, int]:
            consumer.join()
            eventually(lambda: len(consumer.assignment()) == 2)
            found = consumer.client_id
            consumer.shutdown()
            return found, os.getpid()

        child = Child(live)
        child_id, pid = child.result()
        ids += [parent_id, child_id]
        assert child_id != parent_id
        assert str(pid) in child_id
        # The child has left, and its inherited sockets are gone: the parent has everything.
        eventually(lambda: len(consumer.assignment()) == 4)
        with Producer(cluster.name_server, group="feeder") as producer:
            for number in range(8):
                producer.send(Message("orders", str(number)))
        eventually(lambda: len(seen) == 8)
        consumer.stop()
        thread.join(30)
    assert sorted(seen) == [str(n) for n in range(8)]


def test_a_child_that_does_nothing_leaves_the_parent_alone(cluster):
    group = unique_group()
    consumer = Consumer(cluster.name_server, group=group, start="earliest").subscribe("orders")
    with consumer:
        consumer.join()
        assert Child(lambda: "gone").result() == "gone"
        with Producer(cluster.name_server, group="feeder") as producer:
            producer.send(Message("orders", "after"))
        assert next(iter(consumer)).text == "after"
        assert consumer.stats().pull_errors == 0
