"""Properties of rows that all have the same names in the same order, as most topics do.

Then everything is a matrix: one row for each message, one column for each property. Names need
not be looked at one by one: a column's name is that of the first row, if all others agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketwire.columns.buffers import Bytes, Int64s

Words = npt.NDArray[np.uint64]
WORD = 8


def words_of(data: Bytes) -> Words:
    """Every run of eight bytes as a number; unaligned, but gathered in one step per name."""
    padded = np.concatenate([data, np.zeros(WORD, dtype=np.uint8)])
    return np.ndarray((len(data) + 1,), dtype="<u8", buffer=padded, strides=(1,))


@dataclass(frozen=True, slots=True)
class Grid:
    """Where names and values lie: matrices of rows by properties, and each property's name."""

    names: tuple[bytes, ...]
    name_start: Int64s
    name_end: Int64s
    value_end: Int64s


def find_grid(data: Bytes, marks: Int64s, offsets: Int64s) -> Grid | None:
    """The grid of some rows, if they have one.

    Args:
        data: the texts of all rows, one after the other, each ending with a separator.
        marks: where its separators are, which are of both kinds in turn.
        offsets: where each row begins, and the end.
    """
    rows = len(offsets) - 1
    if rows == 0 or len(marks) == 0 or len(marks) % (2 * rows):
        return None
    places = marks.reshape(rows, -1)
    if not bool((places[:, -1] == offsets[1:] - 1).all()):
        return None
    name_end, value_end = places[:, 0::2], places[:, 1::2]
    name_start = np.empty_like(name_end)
    name_start[:, 0] = offsets[:-1]
    name_start[:, 1:] = value_end[:, :-1] + 1
    lengths = name_end - name_start
    widths = lengths[0]
    is_even = bool((lengths == widths).all()) and int(widths.min()) > 0
    if not is_even or not bool((value_end - name_end > 1).all()):
        return None
    if not _names_agree(data, name_start, widths):
        return None
    names = tuple(
        data[start:end].tobytes() for start, end in zip(name_start[0], name_end[0], strict=True)
    )
    # A name that occurs twice in a row is left to those who know which one counts.
    return Grid(names, name_start, name_end, value_end) if len(set(names)) == len(names) else None


def _names_agree(data: Bytes, starts: Int64s, widths: Int64s) -> bool:
    """Whether each property has the same name in all rows, compared eight bytes at a time."""
    words = words_of(data)
    for column, width in enumerate(widths.tolist()):
        mine = starts[:, column]
        for at in range(0, width, WORD):
            # The last word begins early enough to end with the name.
            step = at if width - at >= WORD else max(0, width - WORD)
            found = words[mine + step]
            if width < WORD:
                found = found & np.uint64((1 << (8 * width)) - 1)
            if not bool((found == found[0]).all()):
                return False
    return True
