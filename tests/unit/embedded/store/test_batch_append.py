"""The columns and the loop write the same bytes, and a batch is read with care."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire_tools import iter_records

from rocketwire.embedded.store import MessageRefusedError
from rocketwire.embedded.store.batch_append import BatchPlace, plan_batch
from rocketwire.embedded.store.batch_columns import plan_columns
from rocketwire.embedded.store.fields import HEAD_V4_SIZE, UNIT
from rocketwire.wire.java_hash import java_string_hash

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
SUFFIX = b"CLUSTER\x01c\x02"
PLACE = BatchPlace(
    queue_id=3,
    queue_offset=70,
    physical_offset=4096,
    system_flag=0,
    born_ms=1_700_000_000_000,
    born_host=HOST,
    store_ms=1_700_000_000_123,
    store_host=HOST,
    reconsume_times=2,
)


def item(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


@given(
    st.integers(64, 200),
    st.integers(0, 40),
    st.lists(st.sampled_from(["red", "green", "b\x01d"]), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([b"", SUFFIX]),
    st.randoms(use_true_random=False),
)
def test_the_columns_write_equal_messages_as_the_loop_does(
    count, size, tags, separator, suffix, chance
) -> None:
    items = []
    for _ in range(count):
        tag = chance.choice(tags).ljust(5, "x")
        text = f"KEYS\x01{chance.randrange(1000):04d}\x02TAGS\x01{tag}" + "\x02" * separator
        # Bodies may look like properties.
        body = chance.choice([chance.randbytes(size), b"\x02TAGS\x01no\x02".ljust(size)[:size]])
        items.append(item(body, text.encode(), chance.randrange(-(2**31), 2**31)))
    body = b"".join(items) * (1 + 4096 // len(b"".join(items)))
    loop = plan_batch(body, b"topic", suffix, HEAD_V4_SIZE)
    columns = plan_columns(body, b"topic", suffix, HOST, HOST)
    assert columns is not None
    assert columns.total == loop.total
    assert columns.encode(PLACE) == loop.encode(PLACE)


@given(
    st.integers(64, 160),
    st.lists(st.sampled_from(["red", "green", "b\x01d"]), min_size=1, max_size=3),
    st.sampled_from(["{tag}{open}", "A\x011\x02{tag}{open}", "{tag}\x02Z\x011{open}", "{open}"]),
    st.sampled_from(["never", "always", "sometimes"]),
    st.sampled_from([b"", SUFFIX]),
    st.integers(0, 2**32),
)
def test_the_columns_write_what_the_loop_writes(
    count, tags, shape, separator, suffix, seed
) -> None:
    chance = random.Random(seed)
    items = []
    for _ in range(count):
        size = chance.randrange(120, 260)
        last = {"never": "", "always": "\x02"}.get(separator, chance.choice(["", "\x02"]))
        text = f"KEYS\x01{chance.randrange(10 ** chance.randrange(1, 9))}\x02" + shape.format(
            tag=f"TAGS\x01{chance.choice(tags)}", open=last
        )
        body = chance.choice([chance.randbytes(size), b"\x02TAGS\x01no\x02".ljust(size)])
        items.append(item(body, text.encode(), chance.randrange(-(2**31), 2**31)))
    body = b"".join(items) * (1 + 4096 // len(b"".join(items)))
    loop = plan_batch(body, b"topic", suffix, HEAD_V4_SIZE)
    columns = plan_columns(body, b"topic", suffix, HOST, HOST)
    assert columns is not None
    assert columns.total == loop.total
    assert columns.encode(PLACE) == loop.encode(PLACE)


@given(
    st.lists(st.integers(0, 400), min_size=64, max_size=90),
    st.integers(0, 5000),
    st.binary(min_size=1, max_size=4),
)
def test_the_columns_accept_what_the_loop_accepts(sizes, at, garbage) -> None:
    """Whatever is written over a batch: it is read alike, or left to the loop."""
    whole = b"".join(item(b"x" * size, b"TAGS\x01a\x02") for size in sizes)
    at %= len(whole)
    body = whole[:at] + garbage + whole[at + len(garbage) :]
    columns = plan_columns(body, b"topic", SUFFIX, HOST, HOST)
    if columns is not None:
        loop = plan_batch(body, b"topic", SUFFIX, HEAD_V4_SIZE)
        assert (columns.total, columns.encode(PLACE)) == (loop.total, loop.encode(PLACE))


@pytest.mark.parametrize(
    "body",
    [
        item(b"x" * 20, b"") * 3,
        b"\xff" * 5000,
        b"\0" * 5000,
        item(b"x" * 300, b"") * 20,
        item(b"x" * 300, b"") * 80 + b"\0\0\0\x17",
        item(b"x" * 300, b"") * 80 + b"\0" * 322,
        item(b"x" * 301, b"") * 80 + item(b"", b"p" * 32_760),
    ],
)
def test_the_columns_leave_what_is_odd_to_the_loop(body: bytes) -> None:
    assert plan_columns(body, b"t", SUFFIX, HOST, HOST) is None


def test_one_mention_too_many_of_a_tag_is_seen() -> None:
    """As many mentions as messages, but two in one and none in another."""
    twice, none = b"TAGS\x01a\x02TAGS\x01b\x02", b"KEYS\x01k\x02"
    body = b"".join(item(b"x" * (200 + n), twice if n % 2 else none) for n in range(80))
    columns = plan_columns(body, b"topic", b"", HOST, HOST)
    assert columns is not None
    units = UNIT.iter_unpack(columns.encode(PLACE).units)
    assert [code for _, _, code in units] == [0, java_string_hash("b")] * 40


def test_every_field_is_where_a_reader_looks_for_it() -> None:
    body = item(b"one", b"TAGS\x01a", 5) + item(b"three", b"", -5)
    records = plan_batch(body, b"topic", SUFFIX, HEAD_V4_SIZE).encode(PLACE)
    first, second = iter_records(records.data)
    assert (first.body, second.body) == (b"one", b"three")
    assert (first.flag, second.flag) == (5, -5)
    assert (first.queue_offset, second.queue_offset) == (70, 71)
    packed = struct.pack(">2q", first.physical_offset, second.physical_offset)
    assert records.offsets == packed
    assert first.properties == {"TAGS": "a", "CLUSTER": "c"}
    assert second.properties == {"CLUSTER": "c"}
    assert (first.reconsume_times, first.queue_id, first.topic) == (2, 3, "topic")
    units = list(UNIT.iter_unpack(records.units))
    assert units == [
        (4096, first.size, java_string_hash("a")),
        (4096 + first.size, second.size, 0),
    ]


def test_ipv6_batches_go_through_the_loop() -> None:
    six = bytes(16) + (1).to_bytes(4, "big")
    body = item(b"x" * 300, b"") * 80
    assert plan_columns(body, b"t", SUFFIX, six, HOST) is None
    place = BatchPlace(0, 0, 0, 0x10, 1, six, 2, HOST)
    records = plan_batch(body, b"t", SUFFIX, HEAD_V4_SIZE + 12).encode(place)
    assert {r.born_host for r in iter_records(records.data)} == {"[::]:1"}


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(MessageRefusedError):
        plan = plan_batch(data, b"t", SUFFIX, HEAD_V4_SIZE)
        assert sum(22 + b + p for _, _, b, p in plan.items) == len(data)
