"""Hash codes of a column are Java's, whatever the text and the kind of array."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketwire.columns.hash import java_hash_column, queue_index_column

KNOWN = {
    "TagA": 2598919,
    "TagB": 2598920,
    "order-1001": 708180863,
    "Aa": 2112,
    "BB": 2112,
    "": 0,
    "中文": 646394,
    "😀": 1772899,
    "polygenelubricants": -(2**31),
}


def java_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + low + 256 * high) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize(("text", "expected"), KNOWN.items())
def test_published_check_values_hold(text, expected):
    assert java_hash_column(pa.array([text])).tolist() == [expected]


def test_ascii_and_other_text_in_one_column():
    assert java_hash_column(pa.array(list(KNOWN))).tolist() == list(KNOWN.values())


@given(st.lists(st.one_of(st.none(), st.text())), st.integers(0, 5))
def test_a_sliced_column_hashes_each_row_by_itself(texts, skipped):
    column = pa.array(texts, pa.string()).slice(min(skipped, len(texts)))
    expected = [0 if text is None else java_hash(text) for text in column.to_pylist()]
    assert java_hash_column(column).tolist() == expected


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_other_kinds_of_text_columns(kind):
    texts = ["TagA", None, "中文", "TagA"]
    column = pa.array(texts, pa.string()).cast(kind)
    assert java_hash_column(column).tolist() == [2598919, 0, 646394, 2598919]


@pytest.mark.parametrize("length", [32767, 32768, 32769, 100_000])
def test_keys_longer_than_a_block(length):
    texts = ["a", "xy" * (length // 2) + "z" * (length % 2), "b"]
    assert java_hash_column(pa.array(texts)).tolist() == [java_hash(text) for text in texts]


def test_a_column_of_many_blocks():
    texts = [f"customer-{i * 7919}" for i in range(20_000)]
    assert java_hash_column(pa.array(texts)).tolist() == [java_hash(text) for text in texts]


def test_bytes_that_are_no_text_count_as_replacement_characters():
    broken = pa.array([b"\xff", b"ok", b"a\xc3"]).view(pa.string())
    assert java_hash_column(broken).tolist() == [
        java_hash("\ufffd"),
        java_hash("ok"),
        java_hash("a\ufffd"),
    ]


def test_an_empty_column():
    assert java_hash_column(pa.array([], pa.string())).tolist() == []


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 1000))
def test_the_queue_is_the_absolute_remainder(value, queues):
    remainder = value - int(value / queues) * queues  # truncated toward zero, as in Java
    hashes = np.array([value], dtype=np.int32)
    assert queue_index_column(hashes, queues).tolist() == [abs(remainder)]
