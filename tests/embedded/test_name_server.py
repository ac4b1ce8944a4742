"""The name server: registration by anybody who speaks the protocol, routes, configuration."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
from wire_client import WireClient

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import JSON
from rocketwire.wire.lenient_json import loads
from rocketwire.wire.route import decode_cluster_info, decode_route


@pytest.fixture
def names():
    with EmbeddedCluster(brokers=0) as cluster, WireClient(cluster.name_server) as client:
        yield client


def register(
    client: WireClient,
    broker: str = "foreign",
    address: str = "127.0.0.1:1",
    topics: tuple[str, ...] = ("T", "U"),
    broker_id: int = 0,
    **more: Any,
):
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 3, "perm": 6}
        for name in topics
    }
    body = json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 5},
                "topicConfigTable": table,
            },
        }
    ).encode()
    ext = {
        "brokerName": broker, "brokerAddr": address, "clusterName": "C", "haServerAddr": "x",
        "brokerId": broker_id, "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
    }  # fmt: skip
    return client.call(103, ext | more, body, header=JSON)


def test_a_foreign_broker_may_register(names: WireClient) -> None:
    assert register(names).code == 0
    route = decode_route(names.call(105, {"topic": "T"}).body)
    assert route.queues[0].write_queues == 3
    assert route.brokers[0].addresses == {0: "127.0.0.1:1"}
    info = decode_cluster_info(names.call(106).body)
    assert info.clusters == {"C": ("foreign",)}
    assert sorted(json.loads(names.call(206).body)["topicList"]) == ["T", "U"]
    assert sorted(json.loads(names.call(224, {"cluster": "C"}).body)["topicList"]) == ["T", "U"]


def test_a_compressed_registration_is_read(names: WireClient) -> None:
    def piece(text: str) -> bytes:
        return struct.pack(">i", len(text)) + text.encode()

    version = '{"counter":1,"timestamp":2}'
    plain = piece(version) + struct.pack(">i", 2)
    plain += piece("A 8 7 6 SINGLE_TAG") + piece('B 1 1 4 SINGLE_TAG {"k":"v"}')
    plain += piece("[]") + struct.pack(">i", 0)
    body = zlib.compress(plain, 9)
    ext = {
        "brokerName": "b", "brokerAddr": "127.0.0.1:2", "clusterName": "C",
        "haServerAddr": "x", "brokerId": 0, "compressed": "true",
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
    }  # fmt: skip
    assert names.call(103, ext, body).code == 0
    route = decode_route(names.call(105, {"topic": "A"}).body)
    assert (route.queues[0].read_queues, route.queues[0].write_queues) == (8, 7)
    assert decode_route(names.call(105, {"topic": "B"}).body).queues[0].permission == 4


def test_what_a_registration_is_refused_for(names: WireClient) -> None:
    assert register(names, bodyCrc32=12345).code == ResponseCode.SYSTEM_ERROR
    # A 5.x name server takes a first registration with one topic for an update out of place.
    assert register(names, topics=("only",)).code == ResponseCode.SYSTEM_ERROR
    assert register(names, brokerName="").code == ResponseCode.SYSTEM_ERROR
    assert names.call(105, {"topic": "only"}).code == ResponseCode.TOPIC_NOT_EXIST
    assert register(names).code == 0
    assert register(names, topics=("only",)).code == 0
    assert names.call(105, {"topic": "only"}).code == 0


def test_a_broker_is_gone_with_its_connection() -> None:
    with EmbeddedCluster(brokers=0) as cluster, WireClient(cluster.name_server) as asker:
        with WireClient(cluster.name_server) as owner:
            register(owner)
            assert asker.call(105, {"topic": "T"}).code == 0
        reply = asker.call(105, {"topic": "T"})
        while reply.code == 0:
            reply = asker.call(105, {"topic": "T"})
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST
        assert decode_cluster_info(asker.call(106).body).brokers == {}


def test_a_silent_broker_is_forgotten_and_a_beating_one_is_not() -> None:
    with (
        EmbeddedCluster(brokers=0, broker_timeout=0.4) as cluster,
        WireClient(cluster.name_server) as client,
    ):
        register(client, "silent", "127.0.0.1:1")
        register(client, "beating", "127.0.0.1:2")
        beat = {"clusterName": "C", "brokerAddr": "127.0.0.1:2", "brokerName": "beating"}
        while "silent" in decode_cluster_info(client.call(106).body).brokers:
            assert client.call(904, beat).code == 0
        assert "beating" in decode_cluster_info(client.call(106).body).brokers


def test_unregistering_one_replica_leaves_the_other(names: WireClient) -> None:
    register(names, "pair", "127.0.0.1:1", broker_id=0)
    register(names, "pair", "127.0.0.1:2", broker_id=1)
    route = decode_route(names.call(105, {"topic": "T"}).body)
    assert route.brokers[0].addresses == {0: "127.0.0.1:1", 1: "127.0.0.1:2"}
    gone = {"brokerName": "pair", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": 0}
    assert names.call(104, gone).code == 0
    route = decode_route(names.call(105, {"topic": "T"}).body)
    assert route.brokers[0].addresses == {1: "127.0.0.1:2"}
    names.call(104, gone | {"brokerAddr": "127.0.0.1:2", "brokerId": 1})
    assert names.call(105, {"topic": "T"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_old_clients_get_bare_keys_and_new_ones_standard_json(names: WireClient) -> None:
    register(names)
    old = names.call(105, {"topic": "T"}, version=317).body
    new = names.call(105, {"topic": "T"}, version=401).body
    asked = names.call(105, {"topic": "T", "acceptStandardJsonOnly": "true"}, version=300).body
    assert b'"brokerAddrs":{0:"127.0.0.1:1"}' in old
    assert b'"brokerAddrs":{"0":"127.0.0.1:1"}' in new
    assert new == asked
    assert decode_route(old) == decode_route(new)
    assert b" " not in old
    # Apache writes cluster information with bare keys to everybody.
    assert b"{0:" in names.call(106, version=475).body


def test_key_value_configuration(names: WireClient) -> None:
    key = {"namespace": "N", "key": "k"}
    assert names.call(101, key).code == ResponseCode.QUERY_NOT_FOUND
    assert names.call(100, key | {"value": "v"}).code == 0
    assert names.call(101, key).ext == {"value": "v"}
    assert json.loads(names.call(219, {"namespace": "N"}).body) == {"table": {"k": "v"}}
    assert names.call(102, key).code == 0
    assert names.call(101, key).code == ResponseCode.QUERY_NOT_FOUND
    assert names.call(219, {"namespace": "N"}).code == ResponseCode.QUERY_NOT_FOUND


def test_configuration_survives_a_restart(tmp_path) -> None:
    for expected in (ResponseCode.QUERY_NOT_FOUND, 0):
        with (
            EmbeddedCluster(brokers=0, folder=tmp_path) as cluster,
            WireClient(cluster.name_server) as client,
        ):
            assert client.call(101, {"namespace": "N", "key": "k"}).code == expected
            client.call(100, {"namespace": "N", "key": "k", "value": "v"})


def test_ordered_topics_are_in_routes_where_that_is_switched_on() -> None:
    for on in (False, True):
        with (
            EmbeddedCluster(brokers=0, order_routes=on) as cluster,
            WireClient(cluster.name_server) as client,
        ):
            conf = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "foreign:2"}
            client.call(100, conf)
            body = loads(register(client).body)
            assert body == {"table": {"T": "foreign:2"}}
            route = decode_route(client.call(105, {"topic": "T"}).body)
            assert route.order_conf == ("foreign:2" if on else None)


def test_topics_deleted_and_added_by_operators(names: WireClient) -> None:
    register(names)
    assert names.call(216, {"topic": "T"}).code == 0
    assert names.call(105, {"topic": "T"}).code == ResponseCode.TOPIC_NOT_EXIST
    names.call(216, {"topic": "U", "clusterName": "other"})
    assert names.call(105, {"topic": "U"}).code == 0
    names.call(216, {"topic": "U", "clusterName": "C"})
    assert names.call(105, {"topic": "U"}).code == ResponseCode.TOPIC_NOT_EXIST
    queue = {"brokerName": "foreign", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    body = json.dumps({"queueDatas": [queue], "brokerDatas": []}).encode()
    assert names.call(217, {"topic": "added"}, body).code == 0
    assert names.call(105, {"topic": "added"}).code == 0


def test_write_permission_can_be_wiped_and_given_back(names: WireClient) -> None:
    register(names)
    assert names.call(205, {"brokerName": "foreign"}).ext == {"wipeTopicCount": "2"}
    assert decode_route(names.call(105, {"topic": "T"}).body).queues[0].permission == 4
    assert names.call(327, {"brokerName": "foreign"}).ext == {"addTopicCount": "2"}
    assert decode_route(names.call(105, {"topic": "T"}).body).queues[0].permission == 6


def test_a_broker_learns_whether_its_version_is_known(names: WireClient) -> None:
    who = {
        "brokerName": "foreign", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": 0,
    }  # fmt: skip
    version = json.dumps({"counter": 1, "stateVersion": 0, "timestamp": 5}).encode()
    assert names.call(322, who, version).ext == {"changed": "true"}
    register(names)
    assert names.call(322, who, version).ext == {"changed": "false"}
    assert names.call(322, who, b'{"counter":2}').ext == {"changed": "true"}


def test_hostile_registrations_change_nothing(names: WireClient) -> None:
    ext = {
        "brokerName": "evil", "brokerAddr": "127.0.0.1:9", "clusterName": "C",
        "haServerAddr": "x", "brokerId": 0,
    }  # fmt: skip
    bomb = zlib.compress(b"\0" * (64 << 20), 9)
    bad = '{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{"perm":-5},"b":{}}}}'
    for body, compressed in (
        (b"{", "false"), (b"[]", "false"), (b"{}", "false"), (bad.encode(), "false"),
        (b"not zlib", "true"), (bomb, "true"), (zlib.compress(b"\xff" * 40), "true"),
        (zlib.compress(struct.pack(">i", 2) + b"{}" + b"\x7f\xff\xff\xff"), "true"),
    ):  # fmt: skip
        assert names.call(103, ext | {"compressed": compressed}, body).code != 0
    assert decode_cluster_info(names.call(106).body).brokers == {}


def test_two_name_servers_both_know_every_broker() -> None:
    with EmbeddedCluster(brokers=2, name_servers=2) as cluster:
        addresses = cluster.name_server.split(";")
        assert len(addresses) == 2
        for address in addresses:
            with WireClient(address) as client:
                assert len(decode_cluster_info(client.call(106).body).brokers) == 2


def test_system_topics_are_listed(names: WireClient) -> None:
    register(names)
    listed = json.loads(names.call(304).body)
    assert {"TBW102", "foreign", "C"} <= set(listed["topicList"])
    assert listed["brokerAddr"] == "127.0.0.1:1"
    group = json.loads(names.call(901, {"clusterName": "C", "brokerName": "foreign"}).body)
    assert group["brokerMemberGroup"]["brokerAddrs"] == {"0": "127.0.0.1:1"}
