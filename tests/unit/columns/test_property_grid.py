"""Rows whose separators are in the same places are seen as a grid, and no others are."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketwire.columns.property_grid import find_even_grid, find_grid

ROW = b"UNIQ_KEY\x01%08d\x02k\x01%02d\x02MSG_REGION\x01DefaultRegion\x02"


def as_arrays(rows):
    data = np.frombuffer(b"".join(rows), dtype=np.uint8)
    return data, np.cumsum([0, *map(len, rows)]).astype(np.int64)


def even(rows):
    return find_even_grid(*as_arrays(rows))


def general(rows):
    data, offsets = as_arrays(rows)
    return find_grid(data, np.flatnonzero((data == 1) | (data == 2)), offsets)


@pytest.mark.parametrize("row", [ROW, ROW.replace(b"Default", "D\u00e9f\u4e16".encode())])
def test_it_gives_the_columns_that_seeking_all_separators_gives(row):
    rows = [row % (number, number % 100) for number in range(50)]
    one, other = even(rows), general(rows)
    assert one.names == other.names == (b"UNIQ_KEY", b"k", b"MSG_REGION")
    data = pa.py_buffer(b"".join(rows))
    for column in range(3):
        assert one.values(data, column).equals(other.values(data, column))
    for chosen in ([0], [2, 0], [0, 1, 2]):
        pairs = zip(one.entries(data, chosen), other.entries(data, chosen), strict=True)
        for mine, theirs in pairs:
            mine.validate(full=True)
            assert sorted(mine.to_pylist()) == sorted(theirs.to_pylist())
    names, values = one.entries(data, [0, 1])
    assert names.to_pylist() == ["UNIQ_KEY", "k"] * 50
    assert values.to_pylist()[-2:] == ["00000049", "49"]


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 4), st.integers(0, len(ROW % (0, 0)) - 1), st.integers(0, 255))
def test_a_byte_that_makes_a_row_another_is_noticed(row, at, value):
    """Whatever byte of whichever later row is changed: only a value may differ."""
    rows = [bytearray(ROW % (number, number)) for number in range(5)]
    in_value = 9 <= at < 17 or 20 <= at < 22 or 34 <= at < 47
    is_same = rows[row][at] == value
    rows[row][at] = value
    found = even([bytes(text) for text in rows])
    assert (found is not None) == (is_same or (in_value and value > 2))


@pytest.mark.parametrize(
    "rows",
    [
        [ROW % (1, 1)],  # a single one is no pattern
        [ROW % (1, 1), ROW % (1, 1) + b"x\x01y\x02"],
        [b"a\x01\x02b\x01c\x02"] * 3,  # an empty value
        [b"\x01a\x02b\x01c\x02"] * 3,  # an empty name
        [b"a\x01b\x02a\x01c\x02"] * 3,  # a name twice
        [b"a\x01b\x02c"] * 3,  # no separator at the end
        [b"a\x02b\x01c\x02d\x01"] * 3,  # the wrong way round
        [b""] * 3,
        [],
    ],
)
def test_what_is_no_even_grid_is_left_to_others(rows):
    assert even(rows) is None
