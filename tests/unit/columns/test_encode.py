"""What the encoder makes of a table is, row by row, what the plain codecs would make of it."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketwire.columns.buffers import split_rows
from rocketwire.columns.encode import BatchEncoder, Frame, Single, first_bad_row
from rocketwire.columns.hash import java_hash_column
from rocketwire.columns.ids import MessageIdColumn
from rocketwire.columns.row_ids import ContentIds, NumberedIds
from rocketwire.errors import RouteError
from rocketwire.message import MessageQueue
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.properties import decode_properties_bytes

PROPERTIES = pa.map_(pa.string(), pa.string())


def queues_of(topic, count=3):
    return [MessageQueue(topic, broker, i) for broker in ("a", "b") for i in range(count)]


def encoder(topic="orders", **options):
    ids = MessageIdColumn(b"\x7f\x00\x00\x01", 7)
    return BatchEncoder(topic=topic, queues=queues_of, ids=ids, **options)


def encode(batch, **options):
    """All parts and bad rows of one batch."""
    parts, bad = [], {}
    for encoded in encoder(**options).encode(batch):
        parts += encoded.parts
        bad |= encoded.bad
    return parts, bad


def items_of(parts):
    """Row index -> (topic, queue, body, properties, flag), for frames and singles alike."""
    found = {}
    for part in parts:
        if isinstance(part, Single):
            found[part.row] = (part.topic, part.queue, part.body, part.properties, part.flag)
            continue
        items = list(decode_batch(part.body))
        assert len(items) == len(part.rows)
        for row, item in zip(part.rows.tolist(), items, strict=True):
            assert row not in found
            found[row] = (part.topic, part.queue, item.body, item.properties_raw, item.flag)
    return {
        row: (topic, queue, body, decode_properties_bytes(raw), flag)
        for row, (topic, queue, body, raw, flag) in sorted(found.items())
    }


text = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=9)
names = st.text(st.characters(min_codepoint=0x61, max_codepoint=0x7A), min_size=1, max_size=8)
row = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=40),
        "tags": st.none() | text,
        "keys": st.none() | text,
        "shardingKey": st.none() | text.filter(bool),
        "rowId": st.none() | text,
        "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
        "properties": st.none() | st.dictionaries(names, st.none() | text, max_size=3),
    }
)
KINDS = {
    "body": [pa.binary(), pa.large_binary(), pa.binary_view()],
    "tags": [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    "keys": [pa.string(), pa.string_view()],
    "shardingKey": [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
    "rowId": [pa.string(), pa.large_string()],
    "flag": [pa.int32(), pa.int64()],
}


@st.composite
def tables(draw):
    rows = draw(st.lists(row, max_size=25))
    chosen = ["body", *draw(st.sets(st.sampled_from([n for n in KINDS if n != "body"])))]
    columns = {}
    for name in chosen:
        kind = draw(st.sampled_from(KINDS[name]))
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        columns[name] = pa.array([r[name] for r in rows], plain).cast(kind)
    if draw(st.booleans()):
        maps = [None if r["properties"] is None else list(r["properties"].items()) for r in rows]
        columns["properties"] = pa.array(maps, PROPERTIES)
        chosen.append("properties")
    skipped = draw(st.integers(0, len(rows)))
    return rows[skipped:], set(chosen), pa.record_batch(columns).slice(skipped)


def expected_properties(source, chosen, stamp, index):
    wanted = {}
    for column, name in (("keys", "KEYS"), ("tags", "TAGS"), ("shardingKey", "__SHARDINGKEY")):
        if column in chosen and source[column]:
            wanted[name] = source[column]
    if "rowId" in chosen and source["rowId"]:
        wanted["_row"] = source["rowId"]
    elif stamp is not None:
        wanted["_row"] = f"{stamp}{index}"
    if "properties" in chosen and source["properties"]:
        wanted |= {name: value for name, value in source["properties"].items() if value}
    return wanted


@settings(deadline=None)
@given(tables(), st.sampled_from([None, "q:7:"]), st.integers(30, 400))
def test_every_row_arrives_once_with_all_it_had(table, stamp, frame_size):
    rows, chosen, batch = table
    parts, bad = encode(batch, row_ids=NumberedIds(stamp), frame_size=frame_size)
    assert bad == {}
    found = items_of(parts)
    assert list(found) == list(range(len(rows)))
    for index, source in enumerate(rows):
        topic, queue, body, properties, flag = found[index]
        identity = properties.pop("UNIQ_KEY")
        assert (topic, body) == ("orders", source["body"])
        assert len(identity) == 32
        assert properties == expected_properties(source, chosen, stamp, index)
        assert flag == ((source["flag"] or 0) if "flag" in chosen else 0)
        key = source["shardingKey"] if "shardingKey" in chosen else None
        if key is None:
            assert queue is None
        else:
            value = abs(int(java_hash_column(pa.array([key]))[0]))
            assert queue == queues_of("orders")[value % 6]


def test_frames_respect_the_size_and_the_order():
    batch = pa.record_batch({"body": [b"%06d" % i * 20 for i in range(1000)]})
    parts, _ = encode(batch, frame_size=10_000)
    assert all(len(part.body) <= 10_000 for part in parts)
    assert np.concatenate([part.rows for part in parts]).tolist() == list(range(1000))
    assert len(parts) == pytest.approx(1000 * 184 / 10_000, abs=2)


def test_a_row_larger_than_a_frame_is_a_frame_of_its_own():
    batch = pa.record_batch({"body": [b"a", b"b" * 5000, b"c"]})
    parts, _ = encode(batch, frame_size=1000)
    assert [part.rows.tolist() for part in parts] == [[0], [1], [2]]
    assert all(isinstance(part, Frame) for part in parts)


def test_a_row_too_large_for_any_batch_goes_alone_and_keeps_its_place():
    bodies = [b"a", b"b" * 1000, b"c"]
    batch = pa.record_batch({"body": bodies, "shardingKey": ["k"] * 3})
    parts, bad = encode(batch, max_message_size=1000)
    assert bad == {}
    assert [type(part) for part in parts] == [Frame, Single, Frame]
    assert [body for _, _, body, _, _ in items_of(parts).values()] == bodies


def test_delayed_rows_go_alone_with_their_property():
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "body": ["a", "b", "c", "d"],
            "delayLevel": pa.array([None, 3, 0, None], pa.int32()),
            "deliverAt": pa.array([None, None, None, moment], pa.timestamp("us", "UTC")),
        }
    )
    found = items_of(encode(batch)[0])
    singles = [part for part in encode(batch)[0] if isinstance(part, Single)]
    assert [(s.row, s.delay_level, s.deliver_ms) for s in singles] == [
        (1, 3, -1),
        (3, 0, 1893456000000),
    ]
    assert found[1][3]["DELAY"] == "3"
    assert found[3][3]["TIMER_DELIVER_MS"] == "1893456000000"
    assert "DELAY" not in found[0][3]


@pytest.mark.parametrize("keys", [{}, {"shardingKey": ["k", None, "k", None]}])
def test_rows_for_a_retry_topic_go_alone(keys):
    """Brokers take no batch for it."""
    batch = pa.record_batch(
        {"body": list("abcd"), "topic": ["%RETRY%g", "x", "%RETRY%g", "x"], **keys}
    )
    parts, bad = encode(batch, topic=None)
    assert bad == {}
    alone = [part.row for part in parts if isinstance(part, Single)]
    assert sorted(alone) == [0, 2]
    assert [item[:1] + item[2:3] for item in items_of(parts).values()] == [
        ("%RETRY%g", b"a"), ("x", b"b"), ("%RETRY%g", b"c"), ("x", b"d"),
    ]  # fmt: skip
    parts, _ = encode(batch.drop_columns("topic"), topic="%RETRY%g")
    assert sorted(part.row for part in parts) == [0, 1, 2, 3]


def test_rows_find_their_topic_by_column():
    batch = pa.record_batch({"body": list("abcd"), "topic": ["x", "y", "x", "y"]})
    parts, _ = encode(batch, topic=None)
    assert {part.topic: part.rows.tolist() for part in parts} == {"x": [0, 2], "y": [1, 3]}


def test_keys_are_hashed_within_their_own_topic():
    batch = pa.record_batch(
        {"body": list("abcd"), "topic": ["x", "y", "x", "y"], "shardingKey": ["k", "k", None, "j"]}
    )
    found = items_of(encode(batch, topic=None)[0])
    index = abs(int(java_hash_column(pa.array(["k"]))[0])) % 6
    assert found[0][1] == queues_of("x")[index]
    assert found[1][1] == queues_of("y")[index]
    assert found[2][1] is None


def test_rows_may_name_their_queue():
    batch = pa.record_batch(
        {
            "body": list("abc"),
            "targetBroker": ["b", None, "nowhere"],
            "targetQueueId": pa.array([2, None, 0], pa.int64()),
        }
    )
    parts, bad = encode(batch)
    assert items_of(parts)[0][1] == MessageQueue("orders", "b", 2)
    assert items_of(parts)[1][1] is None
    assert bad == {2: "topic orders has no queue 0 on broker nowhere"}


def test_row_ids_count_on_over_batches_and_over_bad_rows():
    writer = encoder(row_ids=NumberedIds("w:0:"))
    first = list(writer.encode(pa.record_batch({"body": ["a", "", "c"]})))
    second = list(writer.encode(pa.record_batch({"body": ["d"]})))
    found = items_of(first[0].parts) | items_of(second[0].parts)
    assert {row: item[3]["_row"] for row, item in found.items()} == {
        0: "w:0:0",
        2: "w:0:2",
        3: "w:0:3",
    }
    assert list(first[0].bad) == [1]


BAD = [
    ({"body": None}, "body is null"),
    ({"body": ""}, "body is empty"),
    ({"body": "x" * 2001}, "body is 2001 bytes: at most 2000"),
    ({"tags": "a\x01b"}, "tags contains 0x01 or 0x02"),
    ({"keys": "\x02"}, "keys contains 0x01 or 0x02"),
    ({"shardingKey": ""}, "shardingKey is empty"),
    ({"flag": 2**31}, "flag is 2147483648"),
    ({"delayLevel": 19}, "delayLevel is 19"),
    ({"delayLevel": -1}, "delayLevel is -1"),
    ({"delayLevel": 1, "deliverAt": datetime(2030, 1, 1, tzinfo=UTC)}, "both given"),
    ({"deliverAt": datetime(1960, 1, 1, tzinfo=UTC)}, "deliverAt is before 1970"),
    ({"targetBroker": "a"}, "name a queue together"),
    ({"targetQueueId": 1}, "name a queue together"),
    ({"properties": [("", "x")]}, "a property has an empty name"),
    ({"properties": [("UNIQ_KEY", "x")]}, "property 'UNIQ_KEY' is reserved"),
    ({"properties": [("_row", "x")]}, "property '_row' is reserved"),
    ({"properties": [("n\x01", "x")]}, "contains 0x01 or 0x02"),
    ({"properties": [("n", "x\x02")]}, "property 'n' contains 0x01 or 0x02"),
    ({"properties": [("n", "x" * 33000)]}, "properties take 330"),
    ({"topic": None}, "topic is null"),
    ({"topic": "no spaces"}, "topic is 'no spaces': 1 to 127"),
    ({"topic": "t" * 128}, "1 to 127"),
    ({"topic": ""}, "1 to 127"),
    ({"topic": "SELF_TEST_TOPIC"}, "RocketMQ keeps it for itself"),
]
TYPES = {
    "body": pa.string(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "shardingKey": pa.string(),
    "flag": pa.int64(),
    "delayLevel": pa.int64(),
    "deliverAt": pa.timestamp("us", "UTC"),
    "targetBroker": pa.string(),
    "targetQueueId": pa.int64(),
    "properties": PROPERTIES,
}


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[words for _, words in BAD])
def test_a_bad_row_is_named_and_the_others_go_on(fields, words):
    good = {"body": "fine", "topic": "orders"}
    rows = [good, good | fields, good]
    names = sorted(good.keys() | fields.keys())
    batch = pa.record_batch(
        {name: pa.array([r.get(name) for r in rows], TYPES[name]) for name in names}
    )
    parts, bad = encode(batch, topic=None, max_message_size=2000)
    assert list(bad) == [1]
    assert words in bad[1]
    assert [body for _, _, body, _, _ in items_of(parts).values()] == [b"fine", b"fine"]


def test_the_first_bad_row_is_told_and_the_others_counted():
    error = first_bad_row({4: "body is null", 9: "body is empty"}, "partition 2")
    assert str(error) == "partition 2, row 4: body is null (bad rows in all: 2)"


def test_a_batch_of_bad_rows_only():
    parts, bad = encode(pa.record_batch({"body": pa.array([None, None], pa.binary())}))
    assert parts == []
    assert list(bad) == [0, 1]


@pytest.mark.parametrize(
    ("entries", "words"),
    [(fields["properties"], words) for fields, words in BAD if "properties" in fields],
)
def test_what_is_wrong_with_properties_that_all_rows_have_is_told_alike(entries, words):
    more = [[("a", "1"), *entries]] * 2
    batch = pa.record_batch({"body": ["x", "y"], "properties": pa.array(more, PROPERTIES)})
    parts, bad = encode(batch)
    assert (parts, list(bad)) == ([], [0, 1])
    assert all(words in why for why in bad.values())


entry_values = st.lists(st.tuples(text.filter(bool), text.filter(bool)), min_size=1, max_size=6)


@settings(deadline=None)
@given(entry_values, st.booleans())
def test_rows_with_the_same_properties_are_encoded_as_they_are_beside_others(values, was_read):
    """Rows that share their names take another way, which must not show."""
    maps = [[("ab", one), ("UNIQ_KEY" if was_read else "c", two)] for one, two in values]
    others = [[("c", "x")], None, [("ab", "1"), ("d", "2"), ("e", "3")]]

    def encoded(entries):
        columns = {"body": ["b"] * len(entries), "properties": pa.array(entries, PROPERTIES)}
        if was_read:
            columns["queueOffset"] = pa.array(range(len(entries)))
        parts, bad = encode(pa.record_batch(columns), row_ids=ContentIds("w:"))
        assert not bad
        found = [properties for _, _, _, properties, _ in items_of(parts).values()]
        for properties in found:
            del properties["UNIQ_KEY"]
        return found

    assert encoded(maps) == encoded(maps + others)[: len(maps)]


def test_of_two_entries_of_one_name_readers_get_the_last_in_all_rows():
    """Where the last ones had one length and the first ones had not, readers got the first."""
    maps = [[("a", "1"), ("a", "22")], [("a", "333"), ("a", "44")]]
    batch = pa.record_batch({"body": ["x", "y"], "properties": pa.array(maps, PROPERTIES)})
    found = items_of(encode(batch)[0])
    assert [item[3]["a"] for item in found.values()] == ["22", "44"]


def test_what_rocketmq_set_on_a_message_that_was_read_is_dropped():
    batch = pa.record_batch(
        {
            "body": ["a"],
            "properties": pa.array([[("UNIQ_KEY", "old"), ("mine", "kept")]], PROPERTIES),
            "queueOffset": pa.array([7], pa.int64()),
        }
    )
    properties = items_of(encode(batch)[0])[0][3]
    assert properties["UNIQ_KEY"] != "old"
    assert properties["mine"] == "kept"


def test_properties_hidden_under_a_null_row_are_not_sent():
    keys, values = pa.array(["a", "b", "c"]), pa.array(["1", "2", "3"])
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), keys, values, mask=pa.array([False, True, False])
    )
    found = items_of(encode(pa.record_batch({"body": list("xyz"), "properties": maps}))[0])
    assert [set(item[3]) - {"UNIQ_KEY"} for item in found.values()] == [{"a"}, set(), {"c"}]


def test_properties_as_a_list_of_pairs():
    pair = pa.struct([("key", pa.string()), ("value", pa.string())])
    pairs = pa.array([[{"key": "k", "value": "v"}], None, []], pa.list_(pair))
    found = items_of(encode(pa.record_batch({"body": list("xyz"), "properties": pairs}))[0])
    assert found[0][3]["k"] == "v"
    assert set(found[1][3]) == {"UNIQ_KEY"}


#: Values of one length, of several, one that is too long to lie beside the ids, and none at all.
COLUMNS = {
    "even": ["abc", "def", "ghi", "jkl"],
    "ragged": ["a", "bcd", "ef", "g"],
    "long": ["x" * 300] * 4,
    "gaps": ["abc", None, "", "def"],
}


@pytest.mark.parametrize("keys", COLUMNS)
@pytest.mark.parametrize("tags", COLUMNS)
@pytest.mark.parametrize("row_ids", [NumberedIds(None), ContentIds("w:1:")])
def test_properties_of_one_length_and_of_several_stand_side_by_side(keys, tags, row_ids):
    bodies = [b"first", b"one", b"", b"three"]  # one is left out, because its body is empty
    fields = {"keys": COLUMNS[keys], "tags": COLUMNS[tags]}
    batch = pa.record_batch({"body": bodies, **fields}).slice(1)
    parts, bad = encode(batch, row_ids=row_ids)
    assert list(bad) == [1]
    found = items_of(parts)
    assert [body for _, _, body, _, _ in found.values()] == [b"one", b"three"]
    for row, (_, _, _, properties, _) in found.items():
        assert properties.get("KEYS") == (COLUMNS[keys][row + 1] or None)
        assert properties.get("TAGS") == (COLUMNS[tags][row + 1] or None)
        assert len(properties["UNIQ_KEY"]) == 32


def test_no_rows_make_no_frames():
    assert encode(pa.record_batch({"body": pa.array([], pa.binary())})) == ([], {})


def test_a_topic_without_queues_is_an_error_only_where_a_queue_is_needed():
    ids = MessageIdColumn(b"\x7f\x00\x00\x01", 7)
    writer = BatchEncoder(topic="t", queues=lambda topic: [], ids=ids)
    assert len(list(writer.encode(pa.record_batch({"body": ["a"]})))) == 1
    with pytest.raises(RouteError, match="topic t has no writable queue"):
        list(writer.encode(pa.record_batch({"body": ["a"], "shardingKey": ["k"]})))


def test_a_large_batch_is_encoded_in_pieces_that_stay_small():
    # Dictionary-encoded, so that the test itself needs little memory for 40 MiB of bodies.
    indices = pa.array(np.zeros(40, dtype=np.int32))
    body = pa.DictionaryArray.from_arrays(indices, pa.array([b"x" * 2**20], pa.binary()))
    pieces = list(encoder().encode(pa.record_batch({"body": body})))
    assert [sum(len(part.rows) for part in piece.parts) for piece in pieces] == [16, 16, 8]
    assert np.concatenate([part.rows for piece in pieces for part in piece.parts]).tolist() == list(
        range(40)
    )


def test_rows_are_split_by_the_bytes_of_their_values():
    batch = pa.record_batch(
        {
            "body": pa.array([b"x" * 10] * 5, pa.large_binary()),
            "properties": pa.array([[("a", "b" * 7)]] * 5, PROPERTIES),
            "other": pa.array(range(5)),
        }
    )
    cut = [(first, part.num_rows) for first, part in split_rows(batch, ("body", "properties"), 45)]
    assert cut == [(0, 2), (2, 2), (4, 1)]


def test_values_that_a_dictionary_has_once_count_in_every_row():
    few = pa.array([b"x" * 1000] * 50).dictionary_encode()
    batch = pa.record_batch({"body": few})
    assert batch.nbytes < 10_000
    assert [part.num_rows for _, part in split_rows(batch, ("body",), 10_000)] == [10] * 5
