"""Stored records: layout, limits, and what a user gets to see of them."""

import struct
import zlib
from datetime import UTC, datetime

import pytest
from tests.wire_tools import encode_batch, iter_records, to_stored_message

from rocketwire.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.lazy_message import whole_records
from rocketwire.wire.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD
from rocketwire.wire.stored_message import (
    decode_record,
    encode_record,
    pack_host,
    unpack_host,
    unwrap_inner_batch,
)

# protocol.md section 12.
HELLO = bytes.fromhex(
    "0000006b daa320a7 3610a686 00000002 00000000 0000000000000005 0000000000000400 00000000"
    "0000018bcfe56800 0a0000010000c350 0000018bcfe56864 0a00000200002a9f 00000000"
    "0000000000000000 00000005 68656c6c6f 01 54 000a 54414753015461674102"
)
HELLO_FIELDS = {
    "topic": "T",
    "body": b"hello",
    "properties": b"TAGS\x01TagA\x02",
    "queue_id": 2,
    "queue_offset": 5,
    "physical_offset": 1024,
    "born_ms": 1700000000000,
    "born_host": "10.0.0.1:50000",
    "store_ms": 1700000000100,
    "store_host": "10.0.0.2:10911",
}
# By hand from the table of protocol.md section 3.4: V2, both hosts IPv6, a topic of 128 bytes.
LONG_TOPIC = b"t" * 128
V2_V6 = b"".join(
    (
        (88 + 24 + 2 + 2 + 128 + 2 + 0).to_bytes(4, "big"),
        bytes.fromhex("daa320ab"),
        (zlib.crc32(b"hi") & 0x7FFFFFFF).to_bytes(4, "big"),
        bytes.fromhex("00000001 00000009"),
        bytes.fromhex("0000000000000007 0000000000000800"),
        bytes.fromhex("00000030"),
        bytes.fromhex("0000018bcfe56800"),
        bytes.fromhex("20010db8000000000000000000000001 0000c350"),
        bytes.fromhex("0000018bcfe56864"),
        bytes.fromhex("00000000000000000000000000000001 00002a9f"),
        bytes.fromhex("00000003 000000000000000b"),
        bytes.fromhex("00000002") + b"hi",
        bytes.fromhex("0080") + LONG_TOPIC,
        bytes.fromhex("0000"),
    )
)


def changed(position, layout, value, data=HELLO):
    copy = bytearray(data)
    struct.pack_into(layout, copy, position, value)
    return bytes(copy)


def test_the_published_vector_is_written():
    assert encode_record(**HELLO_FIELDS) == HELLO


def test_the_published_vector_is_read():
    record, end = decode_record(HELLO, 0)
    assert end == 107
    assert (record.size, record.magic, record.body_crc) == (107, MAGIC_V1, 907060870)
    assert (record.queue_id, record.flag, record.queue_offset) == (2, 0, 5)
    assert (record.physical_offset, record.system_flag) == (1024, 0)
    assert (record.born_ms, record.born_host) == (1700000000000, "10.0.0.1:50000")
    assert (record.store_ms, record.store_host) == (1700000000100, "10.0.0.2:10911")
    assert (record.body, record.topic) == (b"hello", "T")
    assert record.properties == {"TAGS": "TagA"}
    shown = to_stored_message(record, broker="b")
    assert shown.offset_message_id == "0A00000200002A9F0000000000000400"


def test_a_long_topic_and_ipv6_hosts_are_read():
    record, end = decode_record(V2_V6, 0)
    assert end == len(V2_V6)
    assert (record.magic, record.topic) == (MAGIC_V2, LONG_TOPIC.decode())
    assert (record.born_host, record.store_host) == ("[2001:db8::1]:50000", "[::1]:10911")
    assert (record.queue_id, record.flag, record.queue_offset) == (1, 9, 7)
    assert (record.reconsume_times, record.prepared_offset) == (3, 11)
    shown = to_stored_message(record, broker="b")
    assert shown.offset_message_id == "0" * 31 + "1" + "00002A9F" + "0000000000000800"


def test_a_long_topic_and_ipv6_hosts_are_written():
    assert (
        encode_record(
            topic=LONG_TOPIC,
            body=b"hi",
            queue_id=1,
            flag=9,
            queue_offset=7,
            physical_offset=2048,
            born_ms=1700000000000,
            born_host=pack_host("[2001:db8::1]:50000"),
            store_ms=1700000000100,
            store_host="[::1]:10911",
            reconsume_times=3,
            prepared_offset=11,
        )
        == V2_V6
    )


@pytest.mark.parametrize(("length", "magic"), [(127, MAGIC_V1), (128, MAGIC_V2)])
def test_the_topics_length_decides_the_version(length, magic):
    record, _ = decode_record(encode_record(topic="t" * length, body=b""), 0)
    assert (record.magic, len(record.topic)) == (magic, length)


def test_the_length_of_a_topic_counts_bytes():
    record, _ = decode_record(encode_record(topic="中" * 43, body=b""), 0)
    assert (record.magic, record.topic) == (MAGIC_V2, "中" * 43)


def test_host_bits_that_do_not_fit_the_hosts_are_corrected():
    record, _ = decode_record(encode_record(topic="T", body=b"", system_flag=0x3F), 0)
    assert record.system_flag == 0x0F


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"properties": b"x" * 32768}, "32767"),
        ({"topic": "t" * 32768}, "topic"),
        ({"queue_id": 2**31}, "does not fit"),
        ({"born_ms": 2**63}, "does not fit"),
        ({"born_host": "localhost:1"}, "IP address"),
        ({"born_host": "10.0.0.1"}, "ip:port"),
        ({"store_host": "10.0.0.1:x"}, "ip:port"),
        ({"store_host": "10.0.0.1:4294967296"}, "ip:port"),
    ],
)
def test_what_does_not_fit_into_a_record_is_refused(fields, what):
    with pytest.raises(LocalProtocolError, match=what):
        encode_record(**(HELLO_FIELDS | fields))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_at_any_position(kind):
    record, end = decode_record(kind(b"..." + HELLO + b"..."), 3)
    assert end == 3 + len(HELLO)
    assert type(record.body) is bytes
    assert type(record.properties_raw) is bytes
    assert record == decode_record(HELLO, 0)[0]
    assert list(iter_records(kind(HELLO * 2))) == [record, record]


def test_hosts_are_the_same_after_a_round_trip():
    for text in ("0.0.0.0:0", "255.255.255.255:65535", "[::]:0", "[ff02::1]:4294967295"):
        assert unpack_host(pack_host(text)) == text


BROKEN = [
    pytest.param(changed(0, ">i", 0), id="size 0, which would never end"),
    pytest.param(changed(0, ">i", -1), id="size negative"),
    pytest.param(changed(0, ">i", 90), id="size below the least"),
    pytest.param(changed(0, ">i", 106), id="size one too small"),
    pytest.param(changed(4, ">I", 0xDAA320A8), id="magic unknown"),
    pytest.param(changed(4, ">I", MAGIC_V2), id="magic of the other version"),
    pytest.param(changed(36, ">i", 0x10), id="born host said to be IPv6"),
    pytest.param(changed(36, ">i", 0x30), id="both hosts said to be IPv6"),
    pytest.param(changed(84, ">i", -1), id="body length negative"),
    pytest.param(changed(84, ">i", 6), id="body length one too large"),
    pytest.param(changed(84, ">i", 2**31 - 1), id="body length huge"),
    pytest.param(changed(93, ">B", 255), id="topic length beyond the record"),
    pytest.param(changed(93, ">B", 0), id="topic length too small"),
    pytest.param(changed(95, ">h", 9), id="properties length too small"),
    pytest.param(changed(95, ">h", 11), id="properties length too large"),
    pytest.param(changed(95, ">h", -1), id="properties length negative"),
    pytest.param(changed(114, ">h", -1, V2_V6), id="topic length of version 2 negative"),
]


@pytest.mark.parametrize("data", BROKEN)
def test_broken_records_are_refused_wherever_they_are(data):
    with pytest.raises(RemoteProtocolError, match="stored record at byte 0"):
        decode_record(data, 0)
    records = iter_records(HELLO + data + HELLO)
    assert next(records).topic == "T"
    with pytest.raises(RemoteProtocolError, match="stored record at byte 107"):
        list(records)


def test_ipv6_hosts_need_room():
    short = encode_record(topic="", body=b"")
    assert len(short) == MIN_RECORD
    with pytest.raises(RemoteProtocolError, match="too small for IPv6"):
        decode_record(changed(36, ">i", 0x20, short), 0)


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 50, 91, 106])
def test_an_incomplete_tail_ends_a_pull_silently(kept):
    assert whole_records(HELLO + HELLO + HELLO[:kept]) == (2, 2 * len(HELLO))


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 50, 106])
def test_an_incomplete_record_by_itself_is_an_error(kept):
    with pytest.raises(RemoteProtocolError, match="bytes are left"):
        decode_record(HELLO[:kept], 0)


def test_the_blank_end_of_a_file_is_no_record():
    blank = struct.pack(">iI", 40, MAGIC_BLANK) + bytes(32)
    assert whole_records(HELLO + blank) == (1, len(HELLO))
    with pytest.raises(RemoteProtocolError, match="blank of 40"):
        decode_record(blank, 0)
    with pytest.raises(RemoteProtocolError, match="blank of 7"):
        whole_records(struct.pack(">iI", 7, MAGIC_BLANK))


def test_properties_are_parsed_once():
    record, _ = decode_record(HELLO, 0)
    assert record.properties is record.properties


def stored(properties="", body=b"hello", **fields):
    raw = encode_record(
        **(HELLO_FIELDS | {"properties": properties.encode(), "body": body} | fields)
    )
    return to_stored_message(decode_record(raw, 0)[0], broker="broker-a")


def test_a_user_gets_fields_and_own_properties():
    message = stored(
        "TAGS\x01TagA\x02KEYS\x01k1 k2\x02__SHARDINGKEY\x01s\x02UNIQ_KEY\x01ABCD\x02WAIT\x01false\x02"
        "DELAY\x013\x02TIMER_DELIVER_MS\x011700000001500\x02CLUSTER\x01c\x02MSG_REGION\x01r\x02"
        "colour\x01red\x02__RMQ.TRANSIENT.x\x01y\x02",
        flag=7,
        reconsume_times=2,
    )
    assert message.properties == {"colour": "red"}
    assert (message.tags, message.keys, message.sharding_key) == ("TagA", "k1 k2", "s")
    assert (message.delay_level, message.deliver_at) == (3, 1700000001.5)
    assert (message.wait_store_ok, message.flag, message.reconsume_times) == (False, 7, 2)
    assert message.queue == MessageQueue("T", "broker-a", 2)
    assert (message.offset, message.commit_log_offset) == (5, 1024)
    assert message.message_id == "ABCD"
    assert message.offset_message_id == "0A00000200002A9F0000000000000400"
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert message.stored_at == datetime(2023, 11, 14, 22, 13, 20, 100000, tzinfo=UTC)
    assert (message.born_host, message.store_host) == ("10.0.0.1:50000", "10.0.0.2:10911")
    assert message.transaction_id is None
    assert message.text == "hello"


def test_a_message_without_a_unique_id_is_known_by_its_place():
    message = stored()
    assert message.message_id == message.offset_message_id
    assert (message.tags, message.keys, message.sharding_key) == (None, None, None)
    assert (message.delay_level, message.deliver_at, message.wait_store_ok) == (0, None, True)


@pytest.mark.parametrize("text", ["x", "", "9" * 5000, "1.5"])
def test_system_properties_that_make_no_sense_are_passed_over(text):
    message = stored(f"DELAY\x01{text}\x02TIMER_DELIVER_MS\x01{text}\x02TIMER_OUT_MS\x012000\x02")
    assert (message.delay_level, message.deliver_at) == (0, 2.0)


def test_the_transaction_id():
    assert stored("TRAN_MSG\x01true\x02UNIQ_KEY\x01AB\x02").transaction_id == "AB"
    assert stored("__transactionId__\x01CD\x02UNIQ_KEY\x01AB\x02").transaction_id == "CD"


def test_the_offset_is_moved_by_the_reply():
    record, _ = decode_record(HELLO, 0)
    assert to_stored_message(record, broker="b", delta=100).offset == 105


@pytest.mark.parametrize("flag", [0x1, 0x301])
def test_a_compressed_body_is_made_whole(flag):
    body = zlib.compress(b"hello " * 1000)
    assert stored(body=body, system_flag=flag).body == b"hello " * 1000


def test_a_compressed_body_is_made_whole_up_to_a_limit():
    raw = encode_record(topic="T", body=zlib.compress(bytes(1000)), system_flag=1)
    record, _ = decode_record(raw, 0)
    assert to_stored_message(record, broker="b", limit=1000).body == bytes(1000)
    raw_one = to_stored_message(record, broker="b", limit=999)
    assert raw_one.body == record.body
    assert "too large" in raw_one.undecodable


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        (2**62, datetime(9999, 12, 30, tzinfo=UTC)),
        (2**63 - 1, datetime(9999, 12, 30, tzinfo=UTC)),
        (-(2**62), datetime(1, 1, 2, tzinfo=UTC)),
        (-(2**63), datetime(1, 1, 2, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ],
)
def test_times_beyond_the_calendar_are_its_first_and_last_days(moment, shown):
    message = stored(born_ms=moment, store_ms=moment)
    assert message.born_at == message.stored_at == shown
    assert message.born_at.astimezone().utcoffset() is not None


def test_a_port_of_32_bits_still_has_an_id():
    raw = changed(68, ">i", -1)
    record, _ = decode_record(raw, 0)
    assert record.store_host == "10.0.0.2:4294967295"
    shown = to_stored_message(record, broker="b")
    assert shown.offset_message_id == "0A000002FFFFFFFF0000000000000400"


INNER = encode_batch(
    [(b"one", b"TAGS\x01a\x02", 1), (b"two", b"UNIQ_KEY\x01U2\x02", 2), (b"", b"", 3)]
)


@pytest.mark.parametrize(
    ("properties", "body", "flag", "base"),
    [
        (b"INNER_BASE\x0140\x02INNER_NUM\x013\x02", INNER, 0xC0, 40),
        (b"INNER_NUM\x013\x02", INNER, 0xC0, 5),
        (b"INNER_BASE\x01garbled\x02", INNER, 0xC0, 5),
        (b"INNER_BASE\x0140\x02", zlib.compress(INNER), 0xC1, 40),
    ],
)
def test_a_batch_in_one_record_is_unwrapped(properties, body, flag, base):
    raw = encode_record(
        **(HELLO_FIELDS | {"properties": properties, "body": body, "system_flag": flag})
    )
    record, _ = decode_record(raw, 0)
    inner = unwrap_inner_batch(record)
    assert [item.queue_offset for item in inner] == [base, base + 1, base + 2]
    assert [item.body for item in inner] == [b"one", b"two", b""]
    assert [item.flag for item in inner] == [1, 2, 3]
    assert [item.topic for item in inner] == ["T"] * 3
    assert all(item.system_flag == 0 for item in inner)
    first, second, third = (to_stored_message(item, broker="b") for item in inner)
    assert (first.tags, second.message_id) == ("a", "U2")
    assert third.offset_message_id == "0A00000200002A9F0000000000000400"


@pytest.mark.parametrize("flag", [0, 0x40, 0x80])
def test_other_records_are_their_own_only_content(flag):
    record, _ = decode_record(encode_record(**(HELLO_FIELDS | {"system_flag": flag})), 0)
    assert unwrap_inner_batch(record) == [record]


def test_a_broken_inner_batch_is_refused():
    record, _ = decode_record(encode_record(**(HELLO_FIELDS | {"system_flag": 0xC0})), 0)
    with pytest.raises(ProtocolError, match="batch item"):
        unwrap_inner_batch(record)
