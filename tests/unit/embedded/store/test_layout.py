"""The store against records and a batch that Apache's own classes encoded (see vectors/java)."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from rocketwire.embedded import store as store_room
from rocketwire.embedded.store import Draft, MessageStore, StoreSizes
from rocketwire.embedded.store.batch_append import BatchPlace, plan_batch
from rocketwire.embedded.store.batch_columns import plan_columns
from rocketwire.embedded.store.fetch import Wanted
from rocketwire.embedded.store.fields import (
    HEAD_V4_SIZE,
    PHYSICAL,
    PLACES,
    QUEUE_OFFSET,
    SIZE,
    SYSTEM_FLAG,
)
from rocketwire.embedded.store.layout import check_record, encode_record, properties_of, record_size
from rocketwire.wire.java_hash import java_string_hash

_FILE = Path(__file__).parents[3] / "vectors" / "java" / "java.tsv"
VECTORS = dict(line.split("\t", 1) for line in _FILE.read_text("utf-8").splitlines())
BORN_V4 = bytes([10, 1, 2, 3]) + (50123).to_bytes(4, "big")
BORN_V6 = bytes.fromhex("20010db8000000000000000000000001") + (50123).to_bytes(4, "big")
STORE_V4 = bytes([192, 168, 7, 250]) + (10911).to_bytes(4, "big")
STORE_V6 = bytes.fromhex("fe8000000000000000000000000a000b") + (10911).to_bytes(4, "big")
#: Each record, the host bits of its system flag, and its addresses: what MakeVectors.java put in.
RECORDS = {
    "record.v1": (0, BORN_V4, STORE_V4),
    "record.born6": (0x10, BORN_V6, STORE_V4),
    "record.store6": (0x20, BORN_V4, STORE_V6),
    "record.both6": (0x30, BORN_V6, STORE_V6),
}
QUEUE_PLACE, LOG_PLACE = 1234567890123, 987654321098
BORN_MS, STORE_MS = 1700000000000, 1700000000100
BODY, CRC = "héllo wörld".encode(), 0x151D5FB9
PROPERTIES = (
    "colour\x01blå\x02KEYS\x01k1 k2\x02__SHARDINGKEY\x01s-1\x02"
    "UNIQ_KEY\x017F00000100010000000200000000000A\x02TAGS\x01TagA\x02"
).encode()


def vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name])


def long_topic() -> bytes:
    """The first record as one of version 2, put together by hand: there is no vector of one."""
    record = vector("record.v1")
    tail = (200).to_bytes(2, "big") + b"L" * 200 + record[record.index(b"\tTopicTest") + 10 :]
    head = record[8 : record.index(BODY)]
    return struct.pack(">iI", 8 + len(head + BODY + tail), 0xDAA320AB) + head + BODY + tail


def in_log(start: int, first: int) -> tuple[bytes, list[tuple[int, bytes]]]:
    """All records as a log that begins at an offset, their queue at another; and each with its place.

    Two fields are changed, by Apache's own count of bytes: the queue's offset is at 20, the log's at 28.
    """
    log, records = b"", []
    for number, whole in enumerate([*map(vector, RECORDS), long_topic()]):
        place = start + len(log)
        record = whole[:20] + struct.pack(">qq", first + number, place) + whole[36:]
        records.append((place, record))
        log += record
    return log, records


@pytest.mark.parametrize("name", RECORDS)
def test_each_field_lies_where_java_puts_it(name: str) -> None:
    record = vector(name)
    bits, born_host, store_host = RECORDS[name]
    numbers = {
        "size": len(record), "magic": 0xDAA320A7, "crc": CRC, "queue": 3, "flag": 2**32 - 7,
        "queue_offset": QUEUE_PLACE, "physical": LOG_PLACE, "system_flag": bits, "born": BORN_MS,
        "born_host": int.from_bytes(born_host, "big"), "stored": STORE_MS,
        "store_host": int.from_bytes(store_host, "big"), "reconsumed": 2, "prepared": 77,
        "body_size": len(BODY),
    }  # fmt: skip
    places = PLACES[bits]
    found = {field: int.from_bytes(record[place], "big") for field, place in places.items()}
    assert found == numbers
    assert record[places["body_size"].stop :].startswith(BODY)
    assert (places["size"], places["physical"]) == (SIZE, PHYSICAL)
    assert (places["queue_offset"], places["system_flag"]) == (QUEUE_OFFSET, SYSTEM_FLAG)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_the_one_that_java_makes(name: str) -> None:
    _, born_host, store_host = RECORDS[name]
    draft = Draft("TopicTest", 3, BODY, PROPERTIES, BORN_MS, born_host, -7, 0, 2, 77)
    record = encode_record(draft, QUEUE_PLACE, LOG_PLACE, STORE_MS, store_host)
    assert record == vector(name)
    assert record_size(draft, store_host) == len(record)


def test_a_topic_of_more_than_127_bytes_makes_a_record_of_version_2() -> None:
    draft = Draft("L" * 200, 3, BODY, PROPERTIES, BORN_MS, BORN_V4, -7, 0, 2, 77)
    record = encode_record(draft, QUEUE_PLACE, LOG_PLACE, STORE_MS, STORE_V4)
    assert record == long_topic()
    assert record_size(draft, STORE_V4) == len(record)
    for topic, magic in (("L" * 127, "daa320a7"), ("L" * 128, "daa320ab")):
        draft.topic = topic
        record = encode_record(draft, 0, 0, STORE_MS, STORE_V4)
        assert record[4:8].hex() == magic
        assert record_size(draft, STORE_V4) == len(record)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_java_is_read_wherever_it_lies(name: str) -> None:
    record = vector(name)
    head = check_record(memoryview(b"before" + record + b"behind"), 6, LOG_PLACE)
    assert head is not None
    expected = (len(record), "TopicTest", 3, QUEUE_PLACE, RECORDS[name][0], STORE_MS, PROPERTIES)
    assert head == expected
    assert properties_of(memoryview(record)) == PROPERTIES


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_is_cut_anywhere_is_none(name: str) -> None:
    record = vector(name)
    for size in range(len(record)):
        assert check_record(memoryview(record[:size]), 0, LOG_PLACE) is None
        shorter = size.to_bytes(4, "big") + record[4:]
        assert check_record(memoryview(shorter), 0, LOG_PLACE) is None


def test_a_store_reads_a_log_of_records_that_java_made(tmp_path: Path) -> None:
    """Recovery, queues, reading by offset and by time, and the index, over every kind of address."""
    sizes = StoreSizes(log_file=8192, queue_units=16, index_slots=32, index_entries=64)
    log, records = in_log(sizes.log_file, 5)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{sizes.log_file:020d}").write_bytes(
        log.ljust(sizes.log_file, b"\0")
    )
    store = MessageStore(tmp_path, host=STORE_V4, clock_ms=lambda: 0, sizes=sizes)
    try:
        assert (store.recovered, store.log.end) == (len(records), sizes.log_file + len(log))
        code = java_string_hash("TagA")
        queue = store.queues.need("TopicTest", 3)
        found = [(place, len(record), code) for place, record in records]
        assert [queue.unit(5 + number) for number in range(4)] == found[:4]
        assert store.queues.need("L" * 200, 3).unit(9) == found[4]
        for place, record in records:
            assert bytes(store.record_at(place) or b"") == record
            assert store.store_ms_at(place) == STORE_MS
            assert store.record_at(place + 1) is None
        wanted = Wanted(matches=lambda properties: properties["colour"] == "blå")
        fetched = store.fetch("TopicTest", 3, 5, wanted=wanted)
        assert b"".join(fetched.pieces) == b"".join(record for _, record in records[:4])
        assert store.offset_by_time("TopicTest", 3, STORE_MS) == 5
        assert store.offset_by_time("TopicTest", 3, STORE_MS + 1) == 9
        assert store.follower.step(100) == len(records)
        for topic, filed in (("TopicTest", records[3::-1]), ("L" * 200, records[4:])):
            for key in ("k1", "k2", "7F00000100010000000200000000000A"):
                keyed = store.find(topic, key, STORE_MS, STORE_MS, 10)
                assert keyed == [record for _, record in filed]
                assert store.find(topic, key, 0, STORE_MS - 2000, 10) == []
    finally:
        store.abandon()


@pytest.mark.parametrize("times", [1, 40])
def test_a_batch_of_java_becomes_the_records_of_its_messages(times: int) -> None:
    """By the plain loop; and by columns, where there are enough messages for those."""
    place = BatchPlace(3, 70, 4096, 0, BORN_MS, BORN_V4, STORE_MS, STORE_V4, 2)
    batch = vector("batch") * times
    written = [plan_batch(batch, b"TopicTest", b"", HEAD_V4_SIZE).encode(place)]
    columns = plan_columns(batch, b"TopicTest", b"", BORN_V4, STORE_V4)
    if times > 1:
        assert columns is not None
        written.append(columns.encode(place))
    for records in written:
        data, at = bytes(records.data), 0
        for number in range(3 * times):
            text = f"WAIT\x01true\x02TAGS\x01Tag{number % 3}\x02".encode()
            draft = Draft("TopicTest", 3, f"body-{number % 3}".encode(), text, BORN_MS, BORN_V4)
            draft.flag, draft.reconsume_times = number % 3 * 1000 - 1, 2
            record = encode_record(draft, 70 + number, 4096 + at, STORE_MS, STORE_V4)
            assert data[at : at + len(record)] == record
            unit = struct.pack(
                ">qiq", 4096 + at, len(record), java_string_hash(text[15:19].decode())
            )
            assert records.units[20 * number : 20 * number + 20] == unit
            at += len(record)
        assert at == len(data)


def test_the_store_imports_nothing_that_the_client_reads_or_writes_records_with() -> None:
    forbidden = re.compile(
        r"^\s*(from|import) rocketwire\.wire(\.| import )(record_layout|stored_message|lazy_message|batch)",
        re.MULTILINE,
    )
    files = list(Path(store_room.__file__).parent.glob("*.py"))
    assert [path.name for path in files if forbidden.search(path.read_text("utf-8"))] == []
    assert len(files) > 10
