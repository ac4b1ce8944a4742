"""Routes: what a name server may say, and the queues that follow. See also test_java_vectors."""

import json
import pickle
import random

import pytest

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.route import (
    NO_OWNER,
    BrokerData,
    ClusterInfo,
    QueueData,
    QueueMapping,
    TopicRoute,
    decode_cluster_info,
    decode_route,
    encode_cluster_info,
    encode_route,
    publish_queues,
    static_owners,
    subscribe_queues,
)

# As a 4.2 name server writes it: bare ids, the old spelling, no fields of 5.x.
OLD = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"[2001:db8::1]:10911"},'
    b'"brokerName":"broker-a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSynFlag":3,'
    b'"writeQueueNums":2}]}'
)


def broker(name, *, master=True):
    return BrokerData("C", name, {0: f"{name}:1"} if master else {1: f"{name}:2"})


def queues(name, number=2, permission=6, read=None):
    return QueueData(name, number if read is None else read, number, permission)


def test_an_old_name_servers_route():
    route = decode_route(OLD)
    assert route.queues == (QueueData("broker-a", 4, 2, 6, 3),)
    assert route.brokers == (
        BrokerData("C", "broker-a", {0: "10.0.0.1:10911", 1: "[2001:db8::1]:10911"}),
    )
    assert route.brokers[0].master == "10.0.0.1:10911"
    assert (route.order_conf, route.mappings) == (None, {})


def test_fields_of_5x_and_unknown_ones():
    route = decode_route(
        b'{"orderTopicConf":"","brokerDatas":[{"brokerAddrs":{"2":"a:1"},"brokerName":"b",'
        b'"cluster":"C","enableActingMaster":true,"zoneName":"z","other":{}}],"extra":[],'
        b'"queueDatas":[]}'
    )
    assert route.brokers == (BrokerData("C", "b", {2: "a:1"}, "z", acting_master=True),)
    assert route.order_conf == ""
    assert route.brokers[0].master is None


@pytest.mark.parametrize("text", [b"{}", b'{"queueDatas":null,"brokerDatas":null}'])
def test_an_empty_route(text):
    assert decode_route(text) == TopicRoute((), ())


def test_order_within_a_route_makes_no_difference():
    chooser = random.Random(7)
    parts_q = [queues(name) for name in "abcd"]
    parts_b = [broker(name) for name in "abcd"]
    first = TopicRoute(tuple(parts_q), tuple(parts_b))
    for _ in range(10):
        chooser.shuffle(parts_q)
        chooser.shuffle(parts_b)
        other = TopicRoute(tuple(parts_q), tuple(parts_b))
        assert other == first
        assert hash(other) == hash(first)


def test_order_makes_no_difference_among_entries_that_differ_little():
    # Once compared after sorting by some of the fields, which left these two in either order.
    flags = (QueueData("a", 1, 1, 6, 0), QueueData("a", 1, 1, 6, 1))
    zones = (BrokerData("C", "a", {0: "x:1"}, "z"), BrokerData("C", "a", {0: "x:1"}, None))
    assert TopicRoute(flags, zones) == TopicRoute(flags[::-1], zones[::-1])


@pytest.mark.parametrize(
    "other",
    [
        TopicRoute((queues("a", 3),), (broker("a"),)),
        TopicRoute((queues("a", permission=4),), (broker("a"),)),
        TopicRoute((queues("a"),), (BrokerData("C", "a", {0: "elsewhere:1"}),)),
        TopicRoute((queues("a"),), (broker("a"), broker("b"))),
        TopicRoute((queues("a"),), (broker("a"),), "a:2"),
        TopicRoute((queues("a"), queues("a")), (broker("a"),)),
        "a route",
    ],
)
def test_every_difference_counts(other):
    assert TopicRoute((queues("a"),), (broker("a"),)) != other


def test_a_route_survives_pickling():
    route = decode_route(OLD)
    assert pickle.loads(pickle.dumps(route)) == route


def test_a_broker_is_found_by_its_first_entry():
    first, second = broker("a"), BrokerData("C", "a", {0: "later:1"})
    route = TopicRoute((), (first, second))
    assert route.broker("a") is first
    assert route.broker("b") is None


@pytest.mark.parametrize("standard", [True, False])
def test_routes_are_the_same_after_a_round_trip(standard):
    mapping = QueueMapping("T", "__global__", 4, "a", 2**40, {0: 1, 3: 0})
    route = TopicRoute(
        (queues("经纪"), queues("b", permission=0)),
        (
            BrokerData("C", "经纪", {0: "[::1]:1", 12: "x:2"}, "zone", acting_master=True),
            broker("b"),
        ),
        "b:4;经纪:2",
        {"a": mapping},
    )
    data = encode_route(route, standard=standard)
    assert decode_route(data) == route
    assert b" " not in data
    assert (b'{"0":' in data) is standard
    assert data.isascii() is standard
    if standard:
        keys = list(json.loads(data))
        assert keys == sorted(keys)


def test_queues_are_sorted_as_java_sorts_names():
    # By UTF-16 code units an astral character comes before U+FFxx; by code points, after it.
    names = ["\uff42", "😀", "b", "B", "a-10", "a-2"]
    route = TopicRoute(tuple(queues(n, 1) for n in names), tuple(broker(n) for n in names))
    expected = ["B", "a-10", "a-2", "b", "😀", "\uff42"]
    assert [queue.broker for queue in publish_queues("T", route)] == expected
    assert [queue.broker for queue in subscribe_queues("T", route)] == expected


def test_only_writable_queues_with_a_master_take_messages():
    route = TopicRoute(
        (
            queues("ok", 2, 2),
            queues("read-only", 2, 4),
            queues("closed", 2, 0),
            queues("slave-only", 2),
            queues("unknown", 2),
        ),
        (broker("ok"), broker("read-only"), broker("closed"), broker("slave-only", master=False)),
    )
    assert publish_queues("T", route) == (MessageQueue("T", "ok", 0), MessageQueue("T", "ok", 1))
    assert {queue.broker for queue in subscribe_queues("T", route)} == {
        "read-only",
        "slave-only",
        "unknown",
    }


def test_the_first_entry_of_a_broker_decides_whether_it_has_a_master():
    entries = (broker("a", master=False), broker("a"))
    assert publish_queues("T", TopicRoute((queues("a"),), entries)) == ()
    assert len(publish_queues("T", TopicRoute((queues("a"),), entries[::-1]))) == 2


def test_reading_and_writing_have_their_own_numbers():
    route = TopicRoute((queues("a", 2, read=5),), (broker("a"),))
    assert len(publish_queues("T", route)) == 2
    assert len(subscribe_queues("T", route)) == 5


def test_an_ordered_topic_names_its_queues_itself():
    route = TopicRoute((queues("a", 9),), (broker("a"),), "z:2;a:1;")
    assert publish_queues("T", route) == (
        MessageQueue("T", "z", 0),
        MessageQueue("T", "z", 1),
        MessageQueue("T", "a", 0),
    )


def test_an_empty_order_configuration_is_none():
    route = TopicRoute((queues("a", 1),), (broker("a"),), "")
    assert publish_queues("T", route) == (MessageQueue("T", "a", 0),)


@pytest.mark.parametrize(
    "text", ["a", "a:", ":3", "a:x", "a:-1", "a:65537", "a:" + "9" * 5000, "a:1;b"]
)
def test_a_garbled_order_configuration_is_refused(text):
    with pytest.raises(RemoteProtocolError, match="ordered-topic"):
        publish_queues("T", TopicRoute((), (), text))


def test_a_static_topic_has_an_owner_for_each_queue():
    route = TopicRoute(
        (),
        (),
        None,
        {
            "a": QueueMapping("T", "__global__", 3, "a", 1, {0: 0, 1: 1}),
            "b": QueueMapping("T", "__global__", 4, "b", 2, {1: 0}),
            "c": QueueMapping("T", "north", 1, "c", 5, {0: 0}),
        },
    )
    assert static_owners("T", route) == {
        MessageQueue("T", "__syslo__global__", 0): "a",
        MessageQueue("T", "__syslo__north", 0): "c",
        MessageQueue("T", "__syslo__global__", 1): "b",
        MessageQueue("T", "__syslo__global__", 2): NO_OWNER,
        MessageQueue("T", "__syslo__global__", 3): NO_OWNER,
    }
    assert publish_queues("T", route) == subscribe_queues("T", route)


def test_absurd_numbers_of_queues_are_not_believed():
    names = [f"b{i}" for i in range(20)]
    many = TopicRoute(tuple(queues(n, 65536) for n in names), tuple(broker(n) for n in names))
    with pytest.raises(RemoteProtocolError, match="1310720 queues"):
        publish_queues("T", many)
    with pytest.raises(RemoteProtocolError, match="1310720 queues"):
        subscribe_queues("T", many)
    ordered = TopicRoute((), (), ";".join(f"b{i}:65536" for i in range(20)))
    with pytest.raises(RemoteProtocolError, match="1310720 queues"):
        publish_queues("T", ordered)
    scopes = {n: QueueMapping("T", n, 65536, n, 1, {}) for n in names}
    with pytest.raises(RemoteProtocolError, match="1310720 queues"):
        publish_queues("T", TopicRoute((), (), None, scopes))


def queue_json(**fields):
    good = {"brokerName": "b", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    return json.dumps({"queueDatas": [good | fields]})


def broker_json(**fields):
    good = {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": "a:1"}}
    return json.dumps({"brokerDatas": [good | fields]})


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[]", "the route"),
        ("null", "the route"),
        ('{"queueDatas":{}}', "queueDatas"),
        ('{"queueDatas":[1]}', "queueDatas"),
        ('{"brokerDatas":"x"}', "brokerDatas"),
        ('{"orderTopicConf":5}', "orderTopicConf"),
        ('{"topicQueueMappingByBroker":[1]}', "topicQueueMappingByBroker"),
        ('{"topicQueueMappingByBroker":{"a":1}}', "topicQueueMappingByBroker"),
        ('{"topicQueueMappingByBroker":{"a":{"totalQueues":1,"bname":"a"}}}', "epoch"),
        (
            (
                '{"topicQueueMappingByBroker":{"a":{"totalQueues":1,"bname":"a","epoch":1,'
                '"currIdMap":{"x":1}}}}'
            ),
            "'x'",
        ),
        (queue_json(brokerName=None), "brokerName"),
        (queue_json(brokerName=7), "brokerName"),
        (queue_json(brokerName="\ud800"), "brokerName"),
        (queue_json(perm="6"), "perm"),
        (queue_json(readQueueNums=-1), "readQueueNums"),
        (queue_json(writeQueueNums=65537), "writeQueueNums"),
        (queue_json(writeQueueNums=True), "writeQueueNums"),
        (queue_json(writeQueueNums=1.5), "writeQueueNums"),
        (queue_json(writeQueueNums={"a": 1}), "writeQueueNums"),
        (queue_json(topicSysFlag="x"), "topicSysFlag"),
        (broker_json(brokerAddrs=[1]), "brokerAddrs"),
        (broker_json(brokerAddrs={"x": "a:1"}), "'x'"),
        (broker_json(brokerAddrs={"-1": "a:1"}), "'-1'"),
        (broker_json(brokerAddrs={"9" * 5000: "a:1"}), "9999"),
        (broker_json(brokerAddrs={"0": 5}), "brokerAddrs"),
        (broker_json(cluster=[]), "cluster"),
        (broker_json(zoneName=1), "zoneName"),
    ],
)
def test_what_is_no_route_is_refused_by_field(text, field):
    with pytest.raises(RemoteProtocolError, match=field) as info:
        decode_route(text.encode())
    assert len(str(info.value)) < 200


def test_cluster_info_round_trip():
    info = ClusterInfo(
        {"a": broker("a"), "b": broker("b", master=False)}, {"C": ("a", "b"), "D": ()}
    )
    data = encode_cluster_info(info)
    assert decode_cluster_info(data) == info
    assert b'{0:"a:1"}' in data
    assert decode_cluster_info(b"{}") == ClusterInfo({}, {})


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"brokerAddrTable":[1]}',
        b'{"brokerAddrTable":{"a":1}}',
        b'{"clusterAddrTable":{"a":1}}',
        b'{"clusterAddrTable":{"a":[1]}}',
    ],
)
def test_broken_cluster_info_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        decode_cluster_info(text)
