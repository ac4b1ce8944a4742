"""Columns decoded from pull bodies are, row by row, what the plain reader makes of them."""

import gc
import weakref
import zlib
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire_tools import encode_batch

from rocketwire.columns.decode import RecordDecoder
from rocketwire.columns.record_starts import PullBody
from rocketwire.columns.schema import (
    ALL_COLUMNS,
    READ_SCHEMA,
    ROW_ID_PROPERTY,
    SOURCE_ID_PROPERTY,
    select_columns,
)
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.lazy_message import cut
from rocketwire.wire.message_fields import Source, all_properties
from rocketwire.wire.stored_message import encode_record

QUEUE = MessageQueue("orders", "broker-a", 2)
#: Assembled by hand from the layout in the protocol's description, not by our encoder.
VECTOR = bytes.fromhex(
    "0000006b daa320a7 3610a686 00000002 00000000 0000000000000005 0000000000000400 00000000"
    "0000018bcfe56800 0a0000010000c350 0000018bcfe56864 0a00000200002a9f 00000000"
    "0000000000000000 00000005 68656c6c6f 01 54 000a 54414753015461674102"
)


def decode(bodies, **options):
    columns = options.pop("columns", ALL_COLUMNS)
    decoder = RecordDecoder(select_columns(columns), **options)
    return pa.Table.from_batches(decoder.decode(bodies), schema=decoder.schema)


def body_of(*records, queue=QUEUE, **fields):
    return PullBody(queue, b"".join(records), **fields)


def reference(bodies, included="user"):
    """One dictionary per row, by the reader that goes from record to record."""
    rows = []
    for part in bodies:
        source = Source(bytes(part.body), part.queue, part.queue.broker, part.offset_delta)
        for message in cut(source, part.next_offset).messages if part.body else ():
            if not part.first <= message.offset < part.end:
                continue
            properties = dict(message.properties)
            row_id = properties.pop(ROW_ID_PROPERTY, None)
            source_id = properties.pop(SOURCE_ID_PROPERTY, None)
            whence, position, size, _ = message._record
            if included != "user":
                everything = all_properties(whence, message, position, size)
                properties = dict(everything) if included == "all" else {}
            queue_id = whence.data[position + 12 : position + 16]
            rows.append(
                {
                    "topic": part.queue.topic,
                    "broker": part.queue.broker,
                    "queueId": int.from_bytes(queue_id, "big", signed=True),
                    "queueOffset": message.offset,
                    "messageId": message.message_id,
                    "rowId": row_id,
                    "tags": message.tags,
                    "keys": message.keys,
                    "shardingKey": message.sharding_key,
                    "body": message.body,
                    "properties": properties,
                    "bornTimestamp": message.born_at,
                    "storeTimestamp": message.stored_at,
                    "reconsumeTimes": message.reconsume_times,
                    "flag": message.flag,
                    "sourceRowId": source_id,
                    "undecodable": message.undecodable,
                }
            )
    return rows


def rows_of(table):
    rows = table.to_pylist()
    for row in rows:
        if "properties" in row:
            assert len({name for name, _ in row["properties"]}) == len(row["properties"])
            row["properties"] = dict(row["properties"])
    return rows


names = st.one_of(
    st.sampled_from(
        [
            "UNIQ_KEY", "KEYS", "TAGS", "__SHARDINGKEY", "_row", "_src", "WAIT", "CLUSTER", "MSG_REGION",
            "TRAN_PREPARED_QUEUE_OFFSET", "TRAN_PREPARED_qUEUE_OFFSET", "__RMQ.TRANSIENT.x",
            "__RMQ.TRx", "UNIQ_KEY2", "KEY", "KEYSS", "__SHARDINGKEx", "_SHARDINGKEY", "a-name",
            "a-name-beyond-sixteen-bytes", "a-name-between-sixteen-bytes",
        ]
    ),
    st.text(min_size=1, max_size=20),
)  # fmt: skip
values = st.text(max_size=12)
sound_text = st.lists(st.tuples(names, values), max_size=6).map(
    lambda pairs: "".join(
        f"{name}\x01{value}\x02"
        for name, value in pairs
        if not {"\x01", "\x02"} & set(name + value)
    ).encode("utf-8", "replace")
)
odd_text = st.one_of(
    sound_text.map(lambda text: text.removesuffix(b"\x02")),
    st.lists(
        st.sampled_from([b"KEYS", b"TAGS", b"x", b"\x00", b"\x01", b"\x02", b"\xff", b"\xc3\xa9"]),
        max_size=12,
    ).map(b"".join),
)
hosts = st.sampled_from(["10.0.0.1:50000", "127.0.0.1:10911", "[2001:db8::1]:10911"])
moments = st.integers(0, 4_102_444_800_000)


@st.composite
def records(draw, text=sound_text):
    flag = draw(st.sampled_from([0, 0, 0, 2, 8]))
    body = draw(st.binary(min_size=0, max_size=60))
    if draw(st.integers(0, 9)) == 0:
        body, flag = zlib.compress(body), flag | SystemFlag.COMPRESSED
    return encode_record(
        topic=draw(st.sampled_from(["orders", "t", "x" * 127, "y" * 128, "z" * 300])),
        body=body,
        properties=draw(text),
        queue_id=draw(st.integers(0, 2**31 - 1)),
        queue_offset=draw(st.integers(0, 50)),
        physical_offset=draw(st.integers(0, 2**62)),
        born_ms=draw(moments),
        born_host=draw(hosts),
        store_ms=draw(moments),
        store_host=draw(hosts),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        system_flag=flag,
        reconsume_times=draw(st.integers(0, 100)),
    )


@st.composite
def pull_bodies(draw, text=sound_text):
    first = draw(st.integers(0, 20))
    return PullBody(
        MessageQueue(draw(st.sampled_from(["orders", "other"])), draw(st.sampled_from("ab")), 0),
        b"".join(draw(st.lists(records(text), max_size=5)))
        + draw(st.sampled_from([b"", b"", b"\x00\x00\x01", bytes.fromhex("00000100daa320a7")])),
        offset_delta=draw(st.sampled_from([0, 0, 100])),
        first=first,
        end=draw(st.sampled_from([first + 15, 2**63 - 1])),
    )


@settings(deadline=None)
@given(st.lists(pull_bodies(), max_size=4), st.sampled_from(["user", "all", "none"]))
def test_columns_equal_the_plain_readers_rows(bodies, included):
    assert rows_of(decode(bodies, properties=included)) == reference(bodies, included)


@settings(deadline=None)
@given(st.lists(pull_bodies(sound_text | odd_text), max_size=4))
def test_badly_written_properties_are_read_as_the_plain_reader_reads_them(bodies):
    assert rows_of(decode(bodies)) == reference(bodies)


@settings(deadline=None, max_examples=50)
@given(st.lists(pull_bodies(), max_size=3), st.sets(st.sampled_from(ALL_COLUMNS), min_size=1))
def test_a_choice_of_columns_changes_nothing_in_them(bodies, chosen):
    columns = sorted(chosen)
    whole = reference(bodies)
    assert rows_of(decode(bodies, columns=columns)) == [
        {name: row[name] for name in columns} for row in whole
    ]


clean = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20
)


@settings(deadline=None)
@given(
    st.lists(names.filter(lambda name: not {"\x01", "\x02"} & set(name)), max_size=6),
    st.integers(1, 6),
    st.sampled_from(["user", "all", "none"]),
    st.data(),
)
def test_rows_with_the_same_names_are_read_like_any_others(shared, rows, included, data):
    """Also when one of them is a little different."""
    texts = []
    for _ in range(rows):
        own = list(shared)
        if own and data.draw(st.integers(0, 5)) == 0:
            own[data.draw(st.integers(0, len(own) - 1))] = data.draw(st.sampled_from(["x", "KEYS"]))
        pairs = [(name, data.draw(clean)) for name in own]
        texts.append("".join(f"{n}\x01{v}\x02" for n, v in pairs).encode("utf-8", "replace"))
    body = body_of(*(encode_record(topic="t", body=b"x", properties=text) for text in texts))
    assert rows_of(decode([body], properties=included)) == reference([body], included)


def test_a_record_assembled_by_hand():
    (row,) = rows_of(decode([body_of(VECTOR)]))
    assert row == {
        "topic": "orders",
        "broker": "broker-a",
        "queueId": 2,
        "queueOffset": 5,
        "messageId": "0A00000200002A9F0000000000000400",
        "rowId": None,
        "tags": "TagA",
        "keys": None,
        "shardingKey": None,
        "body": b"hello",
        "properties": {},
        "bornTimestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "storeTimestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        + timedelta(milliseconds=100),
        "reconsumeTimes": 0,
        "flag": 0,
        "sourceRowId": None,
        "undecodable": None,
    }


def test_the_batch_has_exactly_the_schema():
    decoder = RecordDecoder()
    (batch,) = decoder.decode([body_of(VECTOR)])
    assert batch.schema.equals(READ_SCHEMA, check_metadata=True)
    batch.validate(full=True)


def test_a_batch_kept_in_one_record_becomes_its_messages():
    items = [(b"one", b"KEYS\x01k1\x02", 0), (b"two", b"KEYS\x01k2\x02", 7)]
    inner = encode_record(
        topic="orders",
        body=encode_batch(items),
        properties=b"INNER_NUM\x012\x02INNER_BASE\x0140\x02",
        queue_offset=3,
        system_flag=SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP,
    )
    last = encode_record(topic="orders", body=b"hello", queue_offset=42)
    rows = rows_of(decode([body_of(VECTOR, inner, last)]))
    assert [(r["queueOffset"], r["body"], r["keys"], r["flag"]) for r in rows] == [
        (5, b"hello", None, 0),
        (40, b"one", "k1", 0),
        (41, b"two", "k2", 7),
        (42, b"hello", None, 0),
    ]


def test_bodies_of_several_brokers_stay_apart():
    other = MessageQueue("orders", "broker-b", 0)
    table = decode([body_of(VECTOR), body_of(VECTOR, queue=other)], columns=["broker"])
    assert table.column("broker").to_pylist() == ["broker-a", "broker-b"]


def test_tags_are_compared_as_text_too():
    def tagged(tag):
        return encode_record(topic="t", body=b"x", properties=f"TAGS\x01{tag}\x02".encode())

    body = body_of(tagged("Aa"), tagged("BB"), VECTOR, encode_record(topic="t", body=b"none"))
    assert decode([body], columns=["body"], tags=["Aa"]).num_rows == 1
    assert decode([body], columns=["tags"], tags=["Aa", "BB"]).num_rows == 2


def test_a_magic_number_inside_a_body_misleads_nobody():
    body = bytes.fromhex("0000006bdaa320a7") * 20
    records = [encode_record(topic="t", body=body, queue_offset=i) for i in range(50)]
    table = decode([body_of(*records)], columns=["body", "queueOffset"])
    assert table.column("queueOffset").to_pylist() == list(range(50))
    assert set(table.column("body").to_pylist()) == {body}


def test_a_record_cut_off_at_the_end_of_a_body_is_left_for_the_next_pull():
    bodies = [body_of(VECTOR, VECTOR[:50]), body_of(VECTOR, VECTOR[:3]), body_of(VECTOR)]
    assert decode(bodies).num_rows == 3


def test_no_bodies_make_no_batches():
    assert list(RecordDecoder().decode([])) == []
    assert list(RecordDecoder().decode([body_of(), body_of()])) == []


def test_large_bodies_are_decoded_in_groups():
    record = encode_record(topic="t", body=b"x" * 1_000_000)
    batches = list(RecordDecoder().decode([body_of(record, record)] * 6))
    assert [batch.num_rows for batch in batches] == [4, 4, 4]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 0x7F),
        (3, 10),
        (4, 0),
        (84, 0xFF),
        (84, 0x01),
        (87, 0xFF),
        (93, 0x7F),
        (95, 0xFF),
        (36, 0xFF),
    ],
)
def test_nonsense_is_refused(at, value):
    broken = bytearray(VECTOR)
    broken[at] = value
    body = bytes(broken)
    try:
        expected = reference([body_of(body)])
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            decode([body_of(body)])
    else:
        assert rows_of(decode([body_of(body)])) == expected


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_mutated_bodies_are_read_alike_or_refused_alike(data):
    raw = bytearray(data.draw(pull_bodies().map(lambda part: part.body)))
    for _ in range(data.draw(st.integers(1, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    body = body_of(bytes(raw))
    try:
        expected = reference([body])
    except RemoteProtocolError:
        expected = None
    try:
        found = rows_of(decode([body]))
    except RemoteProtocolError:
        assert expected is None
    else:
        assert expected is None or found == expected


@pytest.mark.parametrize(
    "flag", [SystemFlag.NEED_UNWRAP, SystemFlag.INNER_BATCH, SystemFlag.COMPRESSED]
)
def test_text_that_is_no_utf8_is_mended_whatever_the_flags_say(flag):
    """Half a mark of an inner batch made the mended records be read from the raw ones again."""
    compressed = zlib.compress(b"x") if flag == SystemFlag.COMPRESSED else b"x"
    raw = encode_record(
        topic="t", body=compressed, properties=b"KEYS\x01a\x80\x02", system_flag=flag
    )
    body = body_of(raw)
    assert rows_of(decode([body])) == reference([body])
    assert rows_of(decode([body]))[0]["keys"] == "a\ufffd"


def test_impossible_times_do_not_stop_a_reader():
    far = encode_record(topic="t", body=b"x", born_ms=2**62, store_ms=-(2**62))
    (row,) = rows_of(decode([body_of(far)], columns=["bornTimestamp", "storeTimestamp"]))
    assert row["bornTimestamp"] == datetime(9999, 12, 30, tzinfo=UTC)
    assert row["storeTimestamp"] == datetime(1, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("columns", [None, ["keys", "body"]])
def test_the_networks_buffer_is_free_once_its_batch_is_made(columns):
    """A cycle used to keep every buffer until the garbage collector came: half of the memory."""
    text = b"".join(
        encode_record(topic="orders", body=b"x" * 50, queue_offset=number) for number in range(20)
    )
    buffer = np.frombuffer(text, dtype=np.uint8).copy()
    alive = weakref.ref(buffer)
    decoder = RecordDecoder(select_columns(columns))
    gc.collect()
    gc.disable()
    try:
        bodies = iter([PullBody(QUEUE, buffer.data, buffer=buffer)])
        del buffer
        (batch,) = decoder.decode(bodies)
        del bodies
        assert batch.num_rows == 20
        assert alive() is None
    finally:
        gc.enable()
