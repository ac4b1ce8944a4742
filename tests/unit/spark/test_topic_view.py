"""Answers of several name servers are put together."""

from rocketwire.spark.topic_view import merged
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


def test_servers_that_agree_change_nothing():
    one = route("a", "b")
    assert merged([one, route("a", "b")]) is one


def test_a_master_that_only_one_server_knows_is_found():
    slave = TopicRoute((QueueData("a", 4, 4, 6),), (BrokerData("c", "a", {1: "s:1"}),))
    full = TopicRoute((QueueData("a", 4, 4, 6),), (BrokerData("c", "a", {0: "m:1", 1: "s:1"}),))
    assert merged([slave, full]).brokers[0].master == "m:1"
