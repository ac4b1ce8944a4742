"""A read of one client never returns less in silence: by what it saw, or by what it is told."""

import time

import pytest

from rocketwire import Message, MissingQueuesError, Producer, Reader
from rocketwire.columns import read_table
from rocketwire.embedded import EmbeddedCluster
from rocketwire.errors import ConfigError


@pytest.fixture
def pair():
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("t", queues=1)
        with Producer(cluster.name_server) as producer:
            for queue in producer.publish_queues("t"):
                producer.send(Message("t", queue.broker), queue=queue)
        yield cluster


@pytest.fixture(params=["reader", "columns"])
def bodies(request):
    def read(reader, **options):
        if request.param == "columns":
            return sorted(read_table(reader, "t", **options).column("body").to_pylist())
        return sorted(message.body for message in reader.read("t", **options))

    return read


def test_a_broker_that_this_client_saw_is_missed(pair, bodies):
    with Reader(pair.name_server, route_refresh=0.01) as reader:
        assert bodies(reader) == [b"broker-a", b"broker-b"]
        pair.broker("broker-b").kill()
        while len(reader.queues("t")) == 2:  # until the name server has forgotten it
            time.sleep(0.02)
        with pytest.raises(MissingQueuesError, match="broker-b") as caught:
            bodies(reader)
        assert [queue.broker for queue in caught.value.queues] == ["broker-b"]
        assert bodies(reader, expected_brokers=["broker-a"]) == [b"broker-a"]
        assert bodies(reader, expected_brokers=1) == [b"broker-a"]
        pair.broker("broker-b").restart()
        assert bodies(reader) == [b"broker-a", b"broker-b"]


def test_a_new_client_is_told_what_should_be_there(pair, bodies):
    pair.broker("broker-b").kill()
    with Reader(pair.name_server) as reader:
        with pytest.raises(MissingQueuesError, match="broker-b"):
            bodies(reader, expected_brokers="broker-a,broker-b")
        with pytest.raises(MissingQueuesError, match="1 of 2"):
            bodies(reader, expected_brokers=2)
        for wrong in (0, [], [1], 1.5):
            with pytest.raises(ConfigError, match="expected_brokers"):
                bodies(reader, expected_brokers=wrong)
