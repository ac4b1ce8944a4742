"""Records are found where they are, whichever way their sizes are followed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketwire.columns.record_starts import PullBody, find_in_texts, find_records
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.record_layout import MAGIC_V1
from rocketwire.wire.stored_message import encode_record

QUEUE = MessageQueue("t", "b", 0)
#: Looks like the beginning of a record in the middle of a message.
LURE = (95).to_bytes(4, "big") + MAGIC_V1.to_bytes(4, "big")


def record(number, body):
    return encode_record(
        topic="t", body=body, properties=b"", queue_id=0, queue_offset=number,
        physical_offset=0, born_ms=0, store_ms=0,
    )  # fmt: skip


def in_buffer(texts, gap=7):
    """The same bodies in one buffer, with other bytes between them."""
    buffer = np.frombuffer(
        b"".join(b"\xff" * gap + text for text in texts) + b"\xff", dtype=np.uint8
    )
    parts, at = [], 0
    for text in texts:
        at += gap
        parts.append(PullBody(QUEUE, memoryview(buffer)[at : at + len(text)], buffer=buffer, at=at))
        at += len(text)
    return parts


def check(sizes_by_body):
    texts, expected = [], []
    for number, sizes in enumerate(sizes_by_body):
        records = [record(i, LURE + bytes(size)) for i, size in enumerate(sizes)]
        texts.append(b"".join(records))
        expected += [(number, text) for text in records]
    for found in (find_records(in_buffer(texts)), find_in_texts(texts)):
        stops = [
            start + int.from_bytes(found.data[start : start + 4].tobytes(), "big")
            for start in found.starts.tolist()
        ]
        got = [
            (source, found.data[start:stop].tobytes())
            for source, start, stop in zip(
                found.source.tolist(), found.starts.tolist(), stops, strict=True
            )
        ]
        assert got == expected


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=8))
def test_records_of_any_sizes_are_found(sizes):
    check(sizes)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=8))
def test_records_of_one_size_in_each_body_are_found(bodies):
    check([[size] * count for size, count in bodies])


def test_many_short_bodies_of_different_sizes_are_found():
    check([[(number * k) % 50 for k in range(1, 33)] for number in range(60)])


def test_a_body_as_long_as_even_records_would_be_is_not_taken_for_one():
    """Sizes of 10, 20 and 30 come to the length of three of the size of 20."""
    check([[20, 10, 30], [20, 20, 20]])


@pytest.mark.parametrize("size", [0, -1, 90])
def test_a_size_that_can_not_be_is_refused(size):
    text = bytearray(record(0, b"one") + record(1, b"two"))
    at = len(record(0, b"one"))
    text[at : at + 4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError):
        find_records(in_buffer([bytes(text)]))


def test_a_record_that_is_cut_off_at_the_end_is_left_out():
    whole = record(0, b"one")
    found = find_records(in_buffer([whole + record(1, b"two")[:-5]]))
    assert found.starts.tolist() == [0]
