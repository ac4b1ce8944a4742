"""One message never stops a queue, whatever whoever sent it wrote into it.

A sender decides the born timestamp, the system flag, the properties and the body. Random ones of
these are read by every reader that there is: each must get every message, no field may raise, and
all must agree.
"""

from __future__ import annotations

import pickle
import sys
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire_tools import available, encode_batch

from rocketwire.columns.decode import RecordDecoder
from rocketwire.columns.record_starts import PullBody
from rocketwire.columns.schema import ALL_SCHEMA
from rocketwire.core.group.handling import Failure, describe, wanted_retry
from rocketwire.core.reading.pull import ALL, read_pull
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.stored_message import STORED_FIELDS, StoredMessage
from rocketwire.wire import compression
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command
from rocketwire.wire.lazy_message import tried_again, weigh
from rocketwire.wire.stored_message import decode_record, encode_record

QUEUE = MessageQueue("orders", "broker-a", 0)
FIRST = 100

whole_bodies = st.one_of(st.binary(max_size=60), st.sampled_from([b"", b"hello", bytes(5000)]))


@st.composite
def bodies(draw: Any) -> bytes:
    """Plain, compressed by any kind, a batch, or any of these damaged."""
    body = draw(whole_bodies)
    kind = draw(st.sampled_from(["plain", *available(), "batch"]))
    if kind == "batch":
        items = draw(
            st.lists(st.tuples(whole_bodies, st.just(b"a\x01b\x02"), st.just(0)), max_size=3)
        )
        body = encode_batch(items)
        kind = draw(st.sampled_from(["plain", "zlib"]))
    if kind != "plain":
        body, _ = compression.compress(body, kind)
    if body and draw(st.booleans()):
        damaged = bytearray(body)
        damaged[draw(st.integers(0, len(body) - 1))] ^= draw(st.integers(1, 255))
        body = bytes(damaged[: draw(st.integers(0, len(damaged)))])
    return body


flags = st.one_of(
    st.sampled_from([0, 0x1, 0x101, 0x201, 0x301, 0x701, 0xC0, 0xC1, 0x3C1, 0x40, 0x80]),
    st.integers(-(2**31), 2**31 - 1),
)
times = st.one_of(
    st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63), 0, -1, 1_700_000_000_000]),
    st.integers(-(2**63), 2**63 - 1),
)
names = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "INNER_BASE", "INNER_NUM", "DELAY", "TIMER_DELIVER_MS",
     "__RMQ.TRANSIENT.x", "RETRY_TOPIC", "WAIT", "own", "\u00e4"]
)  # fmt: skip
values = st.one_of(
    st.sampled_from(["0", "-1", "9" * 25, "99999999999999999999", "false", "1_0", "x y"]),
    st.text(max_size=5),
)
properties = st.one_of(
    st.dictionaries(names, values, max_size=5).map(
        lambda found: "".join(f"{n}\x01{v}\x02" for n, v in found.items()).encode(
            "utf-8", "replace"
        )
    ),
    st.lists(st.sampled_from([b"TAGS", b"a", b"\x01", b"\x02", b"\xff"]), max_size=8).map(b"".join),
)


@st.composite
def answers(draw: Any) -> list[bytes]:
    """The records of a pull's answer, one for each offset."""
    count = draw(st.integers(1, 4))
    return [
        encode_record(
            topic="orders",
            body=draw(bodies()),
            properties=draw(properties),
            queue_offset=FIRST + number,
            physical_offset=draw(st.integers(0, 2**62)),
            born_ms=draw(times),
            store_ms=draw(times),
            system_flag=draw(flags),
            flag=draw(st.integers(-(2**31), 2**31 - 1)),
            reconsume_times=draw(st.integers(0, 2**31 - 1)),
            born_host=draw(st.sampled_from(["10.0.0.1:1", "[::1]:4294967295"])),
        )
        for number in range(count)
    ]


def reply_of(records: list[bytes], **more: str) -> Reply:
    ext = {"nextBeginOffset": str(FIRST + len(records)), "minOffset": "0", "maxOffset": "900"}
    command = Command(0, ext | more, b"".join(records), flag=RESPONSE)
    return Reply(encode_command(command)[4:])


def check(message: StoredMessage) -> None:
    """Everything that anybody does with a message works."""
    for name in STORED_FIELDS:
        getattr(message, name)
    assert isinstance(message.body, bytes)
    assert message.undecodable is None or message.undecodable
    for moment in (message.born_at, message.stored_at):
        assert datetime(1, 1, 2, tzinfo=UTC) <= moment <= datetime(9999, 12, 30, tzinfo=UTC)
        assert moment + timedelta(days=1)
        assert moment.isoformat()
    assert repr(message)
    assert hash(message) == hash(pickle.loads(pickle.dumps(message)))
    assert message.to_message().body == message.body
    assert describe(message, "g")
    assert describe([message, message], "g")
    assert wanted_retry(Failure(ValueError("no")), message, "g") is not None
    assert weigh([tried_again(message)]) == weigh([message])


@given(answers())
def test_every_message_is_read_whatever_its_sender_wrote(records):
    fetched = read_pull(reply_of(records), QUEUE, FIRST, ALL)
    assert [m.offset for m in fetched.messages] == list(range(FIRST, FIRST + len(records)))
    assert fetched.next_offset == FIRST + len(records)
    for message in fetched.messages:
        check(message)
    again = read_pull(reply_of(records), QUEUE, FIRST, ALL)
    assert [m.body for m in again.messages] == [m.body for m in fetched.messages]


@given(answers(), st.data())
def test_a_field_is_the_same_whichever_was_asked_for_before(records, data):
    order = data.draw(st.permutations(STORED_FIELDS))
    one = read_pull(reply_of(records), QUEUE, FIRST, ALL).messages
    other = read_pull(reply_of(records), QUEUE, FIRST, ALL).messages
    for first, second in zip(one, other, strict=True):
        found = {name: getattr(first, name) for name in order}
        assert found == {name: getattr(second, name) for name in STORED_FIELDS}


@given(answers())
def test_columns_read_what_readers_read(records):
    fetched = read_pull(reply_of(records), QUEUE, FIRST, ALL)
    text = b"".join(records)
    part = PullBody(
        QUEUE, text, first=FIRST, end=FIRST + len(records), next_offset=FIRST + len(records)
    )
    for on_bad_body in ("raw", "skip"):
        decoder = RecordDecoder(ALL_SCHEMA, on_bad_body=on_bad_body)
        rows = pa.Table.from_batches(decoder.decode([part]), schema=ALL_SCHEMA).to_pylist()
        wanted = [m for m in fetched.messages if on_bad_body == "raw" or m.undecodable is None]
        assert decoder.skipped == len(fetched.messages) - len(wanted)
        assert [
            (r["queueOffset"], r["body"], r["undecodable"], r["tags"], r["keys"], r["messageId"],
             r["bornTimestamp"], r["storeTimestamp"], r["flag"], r["reconsumeTimes"])
            for r in rows
        ] == [
            (m.offset, m.body, m.undecodable, m.tags, m.keys, m.message_id,
             m.born_at, m.stored_at, m.flag, m.reconsume_times)
            for m in wanted
        ]  # fmt: skip
    bad = [m for m in fetched.messages if m.undecodable is not None]
    decoder = RecordDecoder(ALL_SCHEMA, on_bad_body="fail")
    if bad:
        with pytest.raises(RemoteProtocolError, match=f"offset {bad[0].offset}: the body can't"):
            list(decoder.decode([part]))
    else:
        assert sum(batch.num_rows for batch in decoder.decode([part])) == len(records)


@given(answers(), st.data())
def test_a_reply_whose_last_record_is_cut_is_gone_on_with_behind_the_last_whole_one(records, data):
    kept = data.draw(st.integers(1, len(records[-1]) - 1))
    cut = [*records[:-1], records[-1][:-kept]]
    if len(records) == 1:
        with pytest.raises(RemoteProtocolError, match="ends within its first record"):
            read_pull(reply_of(cut), QUEUE, FIRST, ALL)
        return
    fetched = read_pull(reply_of(cut), QUEUE, FIRST, ALL)
    last, _ = decode_record(records[-2])
    # How many offsets a batch takes is told by what follows it: it is asked for again.
    is_batch = len(records) > 2 and last.system_flag & 0xC0 == 0xC0
    assert fetched.next_offset == FIRST + len(records) - (2 if is_batch else 1)
    assert [m.offset for m in fetched.messages] == list(range(FIRST, fetched.next_offset))


CASES = {
    "damaged zlib": (b"x\x9cnonsense", 0x301, "zlib body is damaged"),
    "zlib cut short": (zlib.compress(b"hello" * 100)[:-9], 0x301, "cut short"),
    "damaged lz4": (b"nonsense", 0x101, "lz4 body is damaged"),
    "damaged zstd": (b"nonsense", 0x201, "zstd body is damaged"),
    "unknown compression": (b"nonsense", 0x701, "unknown way"),
    "a batch that is none": (b"nonsense", 0xC0, "marked as a batch"),
    "an empty batch": (b"", 0xC0, "marked as a batch"),
    "a batch that takes others' offsets": (
        encode_batch([(b"a", b"", 0), (b"b", b"", 0)]), 0xC0, "marked as a batch",
    ),
    "a bomb": (zlib.compress(bytes(65 * 1024 * 1024)), 0x301, "too large"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_can_t_be_decoded_is_handed_over_raw_with_the_reason(name):
    body, flag, why = CASES[name]
    records = [
        encode_record(topic="orders", body=b"before", queue_offset=FIRST),
        encode_record(topic="orders", body=body, queue_offset=FIRST + 1, system_flag=flag),
        encode_record(topic="orders", body=b"behind", queue_offset=FIRST + 2),
    ]
    messages = read_pull(reply_of(records), QUEUE, FIRST, ALL).messages
    assert [m.body for m in messages] == [b"before", body, b"behind"]
    assert [m.undecodable is None for m in messages] == [True, False, True]
    assert why in messages[1].undecodable


@pytest.mark.parametrize(("flag", "package"), [(0x101, "lz4"), (0x201, "zstandard")])
def test_a_body_whose_package_is_not_installed_says_which(monkeypatch, flag, package):
    monkeypatch.setitem(sys.modules, f"{package}.frame" if package == "lz4" else package, None)
    monkeypatch.setitem(sys.modules, package, None)
    record = encode_record(topic="orders", body=b"x", queue_offset=FIRST, system_flag=flag)
    (message,) = read_pull(reply_of([record]), QUEUE, FIRST, ALL).messages
    assert message.body == b"x"
    assert "rocketwire[fast]" in message.undecodable


def test_the_base_of_a_batch_can_t_be_set_by_its_sender():
    """INNER_BASE came from the sender: offsets of others, or beyond all, were committed."""
    body = encode_batch([(b"one", b"", 0)])
    for base in ("5", "900000000"):
        record = encode_record(
            topic="orders",
            body=body,
            properties=f"INNER_BASE\x01{base}\x02".encode(),
            queue_offset=FIRST,
            system_flag=0xC0,
        )
        (message,) = read_pull(reply_of([record]), QUEUE, FIRST, ALL).messages
        assert (message.offset, message.body) == (FIRST, b"one")
