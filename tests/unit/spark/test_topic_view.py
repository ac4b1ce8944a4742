"""Answers of several name servers are put together."""

from rocketwire.embedded import EmbeddedCluster
from rocketwire.spark.client import Cluster
from rocketwire.spark.options import TopicChoice
from rocketwire.spark.topic_view import merged
from rocketwire.sync.reader import Reader
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute


def route(*brokers, queues=4, order=None):
    return TopicRoute(
        tuple(QueueData(name, queues, queues, 6) for name in brokers),
        tuple(BrokerData("c", name, {0: f"{name}:1"}) for name in brokers),
        order,
    )


def test_what_any_server_names_counts():
    both = merged([route("a"), route("a", "b", queues=8, order="a:8;b:8")])
    assert {data.broker: data.read_queues for data in both.queues} == {"a": 8, "b": 8}
    assert {data.broker for data in both.brokers} == {"a", "b"}
    assert both.order_conf == "a:8;b:8"


def test_an_order_configuration_that_only_one_server_has_counts():
    assert merged([route("a"), route("a", order="a:4;b:4")]).order_conf == "a:4;b:4"


def test_servers_that_agree_change_nothing():
    one = route("a", "b")
    assert merged([one, route("a", "b")]) is one


def test_a_master_that_only_one_server_knows_is_found():
    slave = TopicRoute((QueueData("a", 4, 4, 6),), (BrokerData("c", "a", {1: "s:1"}),))
    full = TopicRoute((QueueData("a", 4, 4, 6),), (BrokerData("c", "a", {0: "m:1", 1: "s:1"}),))
    assert merged([slave, full]).brokers[0].master == "m:1"


def test_a_broker_that_only_one_name_server_knows_is_found():
    with EmbeddedCluster(brokers=1) as few, EmbeddedCluster(brokers=2) as more:
        for cluster in (few, more):
            cluster.create_topic("t", queues=2)
        dead = "127.0.0.1:1"
        for servers in ([few, more], [more, few]):
            addresses = [*(cluster.name_server for cluster in servers), dead]
            with Reader(addresses, background=False) as reader:
                view = Cluster(reader).view_of("t")
                assert set(view.brokers) == {"broker-a", "broker-b"}
                assert Cluster(reader).view_of("nowhere") is None
                assert {queue.broker for queue in Cluster(reader).queues_of("t")} == {
                    "broker-a",
                    "broker-b",
                }


def test_a_pattern_chooses_from_the_topics_of_all_name_servers():
    with EmbeddedCluster(brokers=1) as one, EmbeddedCluster(brokers=1) as other:
        one.create_topic("order-1", queues=1)
        other.create_topic("order-2", queues=1)
        for servers in ([one, other], [other, one]):
            addresses = [*(cluster.name_server for cluster in servers), "127.0.0.1:1"]
            with Reader(addresses, background=False) as reader:
                chosen = Cluster(reader).topics(TopicChoice(pattern="order.*"))
                assert chosen == ("order-1", "order-2")
