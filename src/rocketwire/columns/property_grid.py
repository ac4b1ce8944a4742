"""Properties of rows that all have the same names in the same order, as most topics do.

Then everything is a matrix: one row for each message, one column for each property. Names need
not be looked at one by one: a column's name is that of the first row, if all others agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketwire.columns.buffers import Bytes, Int64s, from_matrix, from_offsets, gather_slices

Words = npt.NDArray[np.uint64]
WORD = 8
#: Rows that are compared as one: enough that a row's own cost does not show.
_ABREAST: Final = 16


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

    def values(self, data: pa.Buffer, column: int) -> Any:
        """One property of all rows, as strings."""
        starts, ends = self.name_end[:, column] + 1, self.value_end[:, column]
        return gather_slices(data, starts, ends, pa.string())

    def entries(self, data: pa.Buffer, chosen: list[int]) -> tuple[Any, Any]:
        """Names and values of some properties, row after row."""
        starts, middles = self.name_start[:, chosen], self.name_end[:, chosen]
        ends = self.value_end[:, chosen]
        names = gather_slices(data, starts.ravel(), middles.ravel(), pa.string())
        values = gather_slices(data, middles.ravel() + 1, ends.ravel(), pa.string())
        return names, values


@dataclass(frozen=True, slots=True)
class EvenGrid:
    """The same where all rows have their separators in the same places.

    Then a property is a block of fixed width, and nothing needs to be said of each row.
    """

    names: tuple[bytes, ...]
    rows: int
    width: int
    #: Where each value begins and ends in its row.
    spans: tuple[tuple[int, int], ...]

    def _blocks(self, data: pa.Buffer, chosen: list[int]) -> list[Bytes]:
        matrix = np.frombuffer(data, dtype=np.uint8, count=self.rows * self.width)
        matrix = matrix.reshape(self.rows, self.width)
        return [matrix[:, slice(*self.spans[column])] for column in chosen]

    def values(self, data: pa.Buffer, column: int) -> Any:
        """One property of all rows, as strings."""
        start, stop = self.spans[column]
        # As values of one opaque kind, which numpy copies faster than rows of bytes.
        kind = f"V{stop - start}"
        values = np.ndarray((self.rows,), kind, data, offset=start, strides=(self.width,))
        return from_matrix(values.copy().reshape(-1, 1)).view(pa.string())

    def entries(self, data: pa.Buffer, chosen: list[int]) -> tuple[Any, Any]:
        """Names and values of some properties, row after row."""
        names = [self.names[column] for column in chosen]
        text = np.tile(np.frombuffer(b"".join(names), dtype=np.uint8), self.rows)
        blocks = self._blocks(data, chosen)
        return (
            self._periodic(text, [len(name) for name in names]),
            self._periodic(np.concatenate(blocks, axis=1), [block.shape[1] for block in blocks]),
        )

    def _periodic(self, data: Bytes, lengths: list[int]) -> Any:
        """Strings whose lengths repeat from row to row."""
        ends = np.cumsum(lengths, dtype=np.int32)
        offsets = np.zeros(self.rows * len(lengths) + 1, dtype=np.int32)
        each = np.arange(self.rows, dtype=np.int32)[:, None] * ends[-1]
        offsets[1:] = (each + ends).ravel()
        return from_offsets(offsets, np.ascontiguousarray(data), pa.string())


def find_even_grid(data: Bytes, offsets: Int64s) -> EvenGrid | None:
    """The grid of rows whose separators are all in the same places, if they are.

    Nothing is sought there but in the first row; the others are only compared with it.

    Args:
        data: the texts of all rows, one after the other.
        offsets: where each row begins, and the end.
    """
    rows, width = len(offsets) - 1, int(offsets[1] - offsets[0]) if len(offsets) > 1 else 0
    if rows < 2 or width < 4 or not bool((np.diff(offsets) == width).all()):
        return None
    first = data[:width]
    marks = np.flatnonzero(first <= 2)
    if len(marks) % 2 or len(marks) == 0 or int(marks[-1]) != width - 1:
        return None
    name_end, value_end = marks[0::2], marks[1::2]
    name_start = np.concatenate([[0], value_end[:-1] + 1])
    is_sound = bool((first[name_end] == 1).all()) and bool((first[value_end] == 2).all())
    if not is_sound or not bool(((name_end > name_start) & (value_end > name_end + 1)).all()):
        return None
    names = tuple(
        first[start:end].tobytes() for start, end in zip(name_start, name_end, strict=True)
    )
    spans = tuple(zip((name_end + 1).tolist(), value_end.tolist(), strict=True))
    if len(set(names)) < len(names) or not _are_even(data.reshape(rows, width), spans):
        return None
    return EvenGrid(names, rows, width, spans)


def _are_even(matrix: Bytes, spans: tuple[tuple[int, int], ...]) -> bool:
    """Whether rows differ in their values only, and no value holds a separator.

    The least and the greatest byte of each place tell: two passes, whatever the rows hold.
    """
    least, greatest = _over_rows(np.minimum, matrix), _over_rows(np.maximum, matrix)
    is_value = np.zeros(matrix.shape[1], dtype=np.bool_)
    for start, stop in spans:
        is_value[start:stop] = True
    return bool(np.where(is_value, least > 2, least == greatest).all())


def _over_rows(function: np.ufunc, matrix: Bytes) -> Bytes:
    """Reduce all rows to one, several side by side: numpy is fast along long rows only."""
    rows, width = matrix.shape
    found: Bytes = matrix[-1]
    if whole := rows - rows % _ABREAST:
        wide = matrix[:whole].reshape(-1, _ABREAST * width)
        found = function(found, function.reduce(wide, axis=0).reshape(_ABREAST, width))
        found = function.reduce(found, axis=0)
    if whole < rows:
        found = function(found, function.reduce(matrix[whole:], axis=0))
    return found


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
    # A name that occurs twice in a row is left to code that knows which one counts.
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
