"""Our codecs against what the JDK and Apache RocketMQ's own classes made (see vectors/java)."""

import json
import re
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.wire_tools import encode_batch, encode_trace, to_stored_message

from rocketwire.message import Message, MessageQueue
from rocketwire.wire.acl import signature
from rocketwire.wire.batch import BatchItem, decode_batch
from rocketwire.wire.client_bodies import (
    ConsumerData,
    QueueStats,
    Subscription,
    decode_topic_stats,
    heartbeat_body,
    lock_body,
)
from rocketwire.wire.compression import decompress
from rocketwire.wire.java_hash import (
    java_hash,
    java_long,
    java_string_hash,
)
from rocketwire.wire.message_id import decode_offset_message_id
from rocketwire.wire.properties import decode_properties_bytes, rewritten
from rocketwire.wire.route import (
    decode_cluster_info,
    decode_route,
    encode_cluster_info,
    encode_route,
    publish_queues,
    static_owners,
    subscribe_queues,
)
from rocketwire.wire.send_properties import encode_fields
from rocketwire.wire.stored_message import decode_record, encode_record
from rocketwire.wire.trace_record import (
    EndTransactionRecord,
    PubRecord,
    SubAfterRecord,
    SubBeforeRecord,
    decode_trace,
)

_FILE = Path(__file__).parents[2] / "vectors" / "java" / "java.tsv"
VECTORS = dict(line.split("\t", 1) for line in _FILE.read_text("utf-8").splitlines())


def data(name):
    return bytes.fromhex(VECTORS[name])


def named(prefix):
    return sorted(
        (name[len(prefix) :], value) for name, value in VECTORS.items() if name.startswith(prefix)
    )


@pytest.mark.parametrize(("units", "expected"), named("string."))
def test_hash_of_text(units, expected):
    text = bytes.fromhex(units).decode("utf-16-be", "surrogatepass")
    assert java_string_hash(text) == java_hash(text) == int(expected)


@pytest.mark.parametrize(("value", "expected"), named("hash.int."))
def test_hash_of_an_integer(value, expected):
    assert java_hash(int(value)) == int(expected)


@pytest.mark.parametrize(("value", "expected"), named("hash.long."))
def test_hash_of_a_long(value, expected):
    assert java_hash(java_long(int(value))) == int(expected)
    if not -(2**31) <= int(value) < 2**31:
        assert java_hash(int(value)) == int(expected)


@pytest.mark.parametrize(("value", "expected"), named("hash.double."))
def test_hash_of_a_double(value, expected):
    assert java_hash(float(value)) == int(expected)


@pytest.mark.parametrize(("value", "expected"), named("hash.uuid."))
def test_hash_of_a_uuid(value, expected):
    assert java_hash(uuid.UUID(value)) == int(expected)


@pytest.mark.parametrize(("value", "expected"), named("hash.date."))
def test_hash_of_a_date(value, expected):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(value))
    assert java_hash(moment) == int(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("boolean.true", True),
        ("boolean.false", False),
        ("short.-7", -7),
        ("char.x", "x"),
        ("char.中", "中"),
        ("list.empty", []),
        ("list.empty", ()),
        ("list.1,2,3", [1, 2, 3]),
        ("list.a,null,b", ("a", None, "b")),
        ("list.-1,[x]", [-1, ["x"]]),
        ("set.a,b,-1", {"a", "b", -1}),
        ("set.a,b,-1", frozenset({"a", "b", -1})),
        ("set.empty", set()),
        ("map.a=1,b=null,-3=z", {"a": 1, "b": None, -3: "z"}),
        ("queue", MessageQueue("T", "broker-a", 3)),
        ("queue.negative", MessageQueue("主题", "经纪", 255)),
    ],
)
def test_hash_of_everything_else(name, value):
    assert java_hash(value) == int(VECTORS[f"hash.{name}"])


HOSTS = {
    "v1": ("10.1.2.3:50123", "192.168.7.250:10911"),
    "born6": ("[2001:db8::1]:50123", "192.168.7.250:10911"),
    "store6": ("10.1.2.3:50123", "[fe80::a:b]:10911"),
    "both6": ("[2001:db8::1]:50123", "[fe80::a:b]:10911"),
}


@pytest.mark.parametrize("kind", HOSTS)
def test_records_are_read_and_written_as_java_does(kind):
    born, store = HOSTS[kind]
    raw = data(f"record.{kind}")
    record, end = decode_record(raw, 0)
    assert end == len(raw) == record.size
    assert (record.born_host, record.store_host) == (born, store)
    assert record.body == "héllo wörld".encode()
    assert (record.topic, record.queue_id, record.flag) == ("TopicTest", 3, -7)
    assert (record.queue_offset, record.physical_offset) == (1234567890123, 987654321098)
    assert (record.born_ms, record.store_ms) == (1700000000000, 1700000000100)
    assert (record.reconsume_times, record.prepared_offset) == (2, 77)
    assert record.properties == {
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "colour": "blå",
        "__SHARDINGKEY": "s-1",
        "UNIQ_KEY": "7F00000100010000000200000000000A",
    }
    assert raw == encode_record(
        topic="TopicTest",
        body=record.body,
        properties=record.properties_raw,
        queue_id=3,
        queue_offset=1234567890123,
        physical_offset=987654321098,
        born_ms=1700000000000,
        born_host=born,
        store_ms=1700000000100,
        store_host=store,
        flag=-7,
        reconsume_times=2,
        prepared_offset=77,
        # Java's encoder writes the checksum it is given.
        body_crc=record.body_crc,
    )


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_records_of_java_are_made_whole(kind):
    pytest.importorskip({"zstd": "zstandard"}.get(kind, kind))
    record, _ = decode_record(data(f"record.{kind}"), 0)
    message = to_stored_message(record, broker="b")
    assert message.body == b"compress me " * 400
    assert (message.tags, message.keys, message.sharding_key) == ("TagA", "k1 k2", "s-1")
    assert message.properties == {"colour": "blå"}


@pytest.mark.parametrize(("kind", "flag"), [("lz4", 0x101), ("zstd", 0x201), ("zlib", 0x301)])
def test_bodies_that_java_compressed_are_made_whole(kind, flag):
    pytest.importorskip({"zstd": "zstandard"}.get(kind, kind))
    whole = b"RocketMQ compresses what is worth it. " * 200
    assert decompress(data(f"compressed.{kind}"), flag, len(whole)) == whole


def test_batches_are_read_and_written_as_java_does():
    items = list(decode_batch(data("batch")))
    assert items == [
        BatchItem(
            f"body-{i}".encode(), f"WAIT\x01true\x02TAGS\x01Tag{i}\x02".encode(), i * 1000 - 1
        )
        for i in range(3)
    ]
    assert encode_batch(items) == data("batch")


def test_properties_are_written_as_java_does():
    message = Message("T", b"x", tags="TagA", properties={"colour": "中"})
    assert encode_fields(message) == data("properties")
    assert rewritten({"TAGS": "TagA", "colour": "中"}).encode() == data("properties")


@pytest.mark.parametrize(("text", "expected"), named("properties.read."))
def test_properties_are_read_as_java_does(text, expected):
    assert decode_properties_bytes(bytes.fromhex(text)) == json.loads(expected)


@pytest.mark.parametrize(("name", "host"), [("v4", "192.168.7.250"), ("v6", "fe80::a:b")])
def test_offset_ids(name, host):
    text = VECTORS[f"offset_id.{name}"]
    assert decode_offset_message_id(text) == (host, 10911, 987654321098)


def test_routes_in_both_dialects():
    bare, standard = data("route.bare"), data("route.standard")
    route = decode_route(bare)
    assert route == decode_route(standard)
    assert encode_route(route, standard=False) == bare
    # Java writes the digits of an escape in capitals; every reader takes both.
    lower = re.sub(rb"\\u[0-9A-F]{4}", lambda found: found[0].lower(), standard)
    assert encode_route(route, standard=True) == lower
    assert route.brokers[0].addresses == {
        0: "10.0.0.1:10911",
        1: "10.0.0.2:10911",
        10: "10.0.0.3:10911",
    }


def test_queues_of_a_route_in_javas_order():
    route = decode_route(data("route.bare"))
    listed = [f"{queue.broker}:{queue.id}" for queue in publish_queues("T", route)]
    assert listed == VECTORS["route.publish"].split()
    assert [queue.broker for queue in subscribe_queues("T", route)] == (
        ["broker-a"] * 4 + ["broker-b"] * 4 + ["经纪-c"] * 4
    )


def test_a_static_topic():
    route = decode_route(data("route.static"))
    owners = static_owners("T", route)
    expected = {
        MessageQueue("T", value.split()[0], int(number)): value.split()[1]
        for number, value in named("route.static.owner.")
    }
    assert owners == expected
    assert list(owners) == sorted(expected, key=lambda queue: queue.id)
    assert publish_queues("T", route) == subscribe_queues("T", route) == tuple(owners)
    assert encode_route(route, standard=False) == data("route.static")


def test_cluster_info():
    raw = data("cluster_info")
    info = decode_cluster_info(raw)
    assert set(info.brokers) == {"broker-a", "broker-b", "经纪-c"}
    assert set(info.clusters["DefaultCluster"]) == set(info.brokers)
    assert encode_cluster_info(info) == raw


def test_topic_statistics_whose_keys_are_objects():
    assert decode_topic_stats(data("topic_stats")) == {
        MessageQueue("T", "broker-a", i): QueueStats(i, 100 + i, 1700000000000 + i)
        for i in range(3)
    }


def test_a_heartbeat_is_what_java_sends():
    subscription = Subscription("T", "TagA || TagB", 5)
    body = heartbeat_body("10.0.0.1@1#2", ["pg"], [ConsumerData("cg", [subscription])])
    assert body == data("heartbeat")


def test_a_lock_is_what_java_sends():
    assert lock_body("c", "g", [MessageQueue("T", "broker-a", 1)]) == data("lock")


ID = "7F00000100010000000200000000000A"
REQUEST = "7F000001000100000002000000000FFF"


@pytest.mark.parametrize(
    ("name", "record"),
    [
        (
            "Pub",
            PubRecord(
                start_ms=1700000000000,
                region="DefaultRegion",
                group="g",
                topic="T",
                message_id=ID,
                tags="TagA",
                keys="k1 k2",
                store_host="10.0.0.2:10911",
                body_length=5,
                cost_ms=12,
                offset_message_id="0A00000200002A9F0000000000000400",
            ),
        ),
        (
            "SubBefore",
            SubBeforeRecord(
                time_ms=1700000000000,
                region="DefaultRegion",
                group="g",
                request_id=REQUEST,
                message_id=ID,
                retry_times=1,
                keys="k1 k2",
            ),
        ),
        (
            "SubAfter",
            SubAfterRecord(
                request_id=REQUEST,
                message_id=ID,
                cost_ms=12,
                success=True,
                keys="k1 k2",
                context_code=3,
                time_ms=1700000000000,
                group="g",
            ),
        ),
        (
            "EndTransaction",
            EndTransactionRecord(
                time_ms=1700000000000,
                region="DefaultRegion",
                group="g",
                topic="T",
                message_id=ID,
                tags="TagA",
                keys="k1 k2",
                store_host="10.0.0.2:10911",
                message_type=0,
                transaction_id="tx",
                from_check=True,
            ),
        ),
    ],
)
def test_trace_records_are_read_and_written_as_java_does(name, record):
    assert encode_trace([record]) == data(f"trace.{name}")
    assert decode_trace(data(f"trace.{name}")) == [record]


def test_a_signature_is_what_java_computes():
    # The values of AccessKey, Zeta, a and b in this order, then the body.
    content = "rocketmq" + "z" + "group" + "T中"
    assert signature(content.encode() + b"\x00\x01\xff", "12345678") == VECTORS["acl.signature"]
