"""Our codecs against what real name servers and brokers answered (see vectors/apache).

The frames were recorded from Apache RocketMQ by ``tests/real/record_vectors.py``; what the messages in
them are was read from the same bytes by Apache's Java client.
"""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.wire_tools import iter_records, to_stored_message

from rocketwire.message import MessageQueue
from rocketwire.wire.client_bodies import decode_topic_stats
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import decode_offset, decode_pull_reply, decode_send_reply
from rocketwire.wire.message_id import decode_offset_message_id
from rocketwire.wire.route import decode_cluster_info, decode_route, publish_queues
from rocketwire.wire.stored_message import decode_record, encode_record

FOLDER = Path(__file__).parents[2] / "vectors" / "apache"
RELEASES = ("4.9.7", "5.3.3")
ENTRIES: dict[str, dict[str, Any]] = {
    entry["file"].removesuffix(".bin"): entry
    for release in RELEASES
    for entry in json.loads((FOLDER / f"{release}.json").read_text())
}
TOPIC = "Vectors"


def reply(name: str) -> Reply:
    return Reply((FOLDER / f"{name}.bin").read_bytes()[4:])


def named(word: str) -> list[str]:
    return [name for name in ENTRIES if name.partition("-")[2].startswith(word)]


@pytest.mark.parametrize("name", ENTRIES)
def test_headers_are_read_as_recorded(name: str):
    expected = ENTRIES[name]["answer"]
    found = reply(name)
    assert found.opaque == expected["opaque"]
    assert found.code == expected["code"]
    assert found.remark == expected["remark"]
    assert found.ext == expected["ext"]


@pytest.mark.parametrize("name", [name for name in ENTRIES if "messages" in ENTRIES[name]])
def test_records_are_read_as_java_reads_them(name: str):
    expected = ENTRIES[name]["messages"]
    found = list(iter_records(reply(name).body))
    assert len(found) == len(expected)
    for record, java in zip(found, expected, strict=True):
        message = to_stored_message(record, broker="broker-a")
        assert message.body == base64.b64decode(java["body"])
        assert record.topic == java["topic"]
        assert record.properties == java["properties"]
        assert (message.tags, message.keys) == (java.get("tags"), java.get("keys"))
        assert (record.queue_id, record.queue_offset) == (java["queue"], java["offset"])
        assert record.physical_offset == java["commit_log_offset"]
        assert (record.size, record.flag) == (java["store_size"], java["flag"])
        assert (record.born_ms, record.store_ms) == (java["born"], java["stored"])
        assert (record.born_host, record.store_host) == (java["born_host"], java["store_host"])
        assert record.reconsume_times == java["reconsume_times"]
        assert record.prepared_offset == java["prepared_offset"]
        assert message.message_id == (java["properties"].get("UNIQ_KEY") or java["msg_id"])


@pytest.mark.parametrize("name", [name for name in ENTRIES if "messages" in ENTRIES[name]])
def test_records_written_by_us_are_the_same_bytes(name: str):
    body = bytes(reply(name).body)
    position = 0
    while position < len(body):
        record, after = decode_record(body, position)
        assert record.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF
        again = encode_record(
            topic=record.topic,
            queue_id=record.queue_id,
            flag=record.flag,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            system_flag=record.system_flag,
            born_ms=record.born_ms,
            born_host=record.born_host,
            store_ms=record.store_ms,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_offset=record.prepared_offset,
            body=record.body,
            properties=record.properties_raw,
        )
        assert again == body[position:after]
        position = after


@pytest.mark.parametrize("name", [*named("send-json"), *named("send-binary"), *named("send-batch")])
def test_send_replies_tell_where_the_message_lies(name: str):
    expected = ENTRIES[name]["answer"]["ext"]
    found = decode_send_reply(reply(name).ext)
    assert found.queue_id == 0
    assert found.queue_offset == int(expected["queueOffset"])
    assert found.region == "DefaultRegion"
    assert found.transaction_id == expected.get("transactionId")
    ids = found.offset_message_id.split(",")
    assert len(ids) == (2 if "batch" in name else 1)
    for each in ids:
        place = decode_offset_message_id(each)
        assert place.host == "127.0.0.1"


@pytest.mark.parametrize("name", named("pull"))
def test_pull_replies_tell_where_to_go_on(name: str):
    expected = ENTRIES[name]["answer"]["ext"]
    found = decode_pull_reply(reply(name).ext)
    assert found.next_offset == int(expected["nextBeginOffset"])
    assert (found.min_offset, found.max_offset) == (0, int(expected["maxOffset"]))
    assert (found.suggested_broker_id, found.offset_delta) == (0, 0)


@pytest.mark.parametrize("name", [*named("max-offset"), *named("min-offset"), *named("search")])
def test_offsets_are_read(name: str):
    assert decode_offset(reply(name).ext) == int(ENTRIES[name]["answer"]["ext"]["offset"])


@pytest.mark.parametrize("release", RELEASES)
def test_routes_with_bare_and_quoted_keys_are_one_route(release: str):
    bare, quoted = (reply(f"{release}-route-{version}").body for version in (317, 475))
    assert b"{0:" in bytes(bare)
    assert b'{"0":' in bytes(quoted)
    route = decode_route(bare)
    assert route == decode_route(quoted)
    assert publish_queues(TOPIC, route) == tuple(
        MessageQueue(TOPIC, "broker-a", number) for number in range(4)
    )
    broker = route.broker("broker-a")
    assert broker is not None
    assert (broker.master or "").startswith("127.0.0.1:")


@pytest.mark.parametrize("release", RELEASES)
def test_cluster_info_is_read(release: str):
    info = decode_cluster_info(reply(f"{release}-cluster-info").body)
    assert info.clusters == {"RocketwireCluster": ("broker-a",)}
    assert list(info.brokers) == ["broker-a"]


@pytest.mark.parametrize("release", RELEASES)
def test_topic_stats_with_objects_as_keys_are_read(release: str):
    stats = decode_topic_stats(reply(f"{release}-topic-stats").body)
    assert set(stats) == {MessageQueue(TOPIC, "broker-a", number) for number in range(4)}
    assert stats[MessageQueue(TOPIC, "broker-a", 1)].max_offset == 1


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("send-forbidden-topic", 16),
        ("send-unknown-topic", 17),
        ("route-unknown", 17),
        ("unknown-code-json", 3),
    ],
)
@pytest.mark.parametrize("release", RELEASES)
def test_refusals_carry_code_and_remark(release: str, word: str, code: int):
    found = reply(f"{release}-{word}")
    assert found.code == code
    assert found.remark
