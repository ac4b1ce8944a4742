"""The properties of many rows, taken apart by arithmetic on separator positions.

A name is known by its length and its first and last eight bytes, held as numbers; names of up to
16 bytes are told apart exactly that way, and the few longer ones that look alike are compared in
full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.columns.buffers import (
    Bools,
    Bytes,
    Int64s,
    data_of,
    gather_slices,
    lengths_of,
    offsets_of,
)
from rocketwire.columns.property_grid import (
    WORD,
    EvenGrid,
    Grid,
    Words,
    find_even_grid,
    find_grid,
    words_of,
)
from rocketwire.columns.schema import OUR_PROPERTIES, PROPERTIES
from rocketwire.wire.properties import SYSTEM, TRANSIENT_PREFIX, VALUE_END, is_user_property

Included = Literal["user", "all", "none"]

_WORD: Final = WORD
_EXACT: Final = 2 * _WORD
_MASKS: Final[Words] = np.array(
    [(1 << (8 * size)) - 1 for size in range(_WORD + 1)], dtype=np.uint64
)


@dataclass(frozen=True, slots=True)
class _Name:
    """A name as the arrays hold it."""

    text: bytes
    first: np.uint64
    last: np.uint64

    @classmethod
    def of(cls, text: str) -> _Name:
        raw = text.encode()
        first = int.from_bytes(raw[:_WORD], "little")
        last = int.from_bytes(raw[-_WORD:], "little") if len(raw) > _WORD else 0
        return cls(raw, np.uint64(first), np.uint64(last))


class _NameSet:
    """A set of names to look many others up in: a hash table without collisions, in arrays."""

    _BITS: Final = 12

    def __init__(self, names: Iterable[str]) -> None:
        known = [_Name.of(name) for name in sorted(names)]
        self._texts = frozenset(name.text for name in known)
        self._first = np.array([name.first for name in known], dtype=np.uint64)
        self._last = np.array([name.last for name in known], dtype=np.uint64)
        self._lengths = np.array([len(name.text) for name in known], dtype=np.int64)
        self._factor = self._find_factor()
        self._slots = np.zeros(1 << self._BITS, dtype=np.intp)
        self._slots[self._slot(self._first, self._last)] = np.arange(len(known))

    def _find_factor(self) -> np.uint64:
        # Names that agree in both words differ in the middle only; there are none among ours.
        for seed in range(1, 10_000):
            self._factor = np.uint64(seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF | 1)
            if len(np.unique(self._slot(self._first, self._last))) == len(self._first):
                return self._factor
        raise AssertionError("no perfect hash for the names")  # seen at import, if ever

    def _slot(self, first: Words, last: Words) -> npt.NDArray[np.intp]:
        mixed = (first ^ (last * np.uint64(0xFF51AFD7ED558CCD))) * self._factor
        return (mixed >> np.uint64(64 - self._BITS)).astype(np.intp)

    def contains(self, items: _Items) -> Bools:
        place = self._slots[self._slot(items.first, items.last)]
        found: Bools = (
            (self._first[place] == items.first)
            & (self._last[place] == items.last)
            & (self._lengths[place] == items.name_lengths)
        )
        for item in np.flatnonzero(found & (items.name_lengths > _EXACT)).tolist():
            found[item] = items.name(item) in self._texts
        return found


@dataclass(slots=True)
class _Items:
    """All properties of all rows: where name and value lie in ``data``, and the row of each."""

    data: Bytes
    row: Int64s
    name_start: Int64s
    name_end: Int64s
    value_end: Int64s
    name_lengths: Int64s
    first: Words
    last: Words

    def name(self, item: int) -> bytes:
        return self.data[self.name_start[item] : self.name_end[item]].tobytes()

    def keep(self, mask: Bools) -> _Items:
        arrays = (getattr(self, name) for name in _Items.__slots__[1:])
        return _Items(self.data, *(array[mask] for array in arrays))


class TextError(ValueError):
    """The properties hold bytes that are no UTF-8."""


class PropertyTable:
    """Properties of many rows, from which columns are made.

    Args:
        texts: a binary array with the properties text of each row.

    Raises:
        TextError: they are not all UTF-8.
    """

    def __init__(self, texts: Any) -> None:
        self._rows = len(texts)
        self._found: _Items | None = None
        self._grid: Grid | EvenGrid | None = None
        if texts.offset == 0 and offsets_of(texts)[0] == 0:
            self._hold(texts)
            self._grid = find_even_grid(self._data, self._offsets)
        if self._grid is None:
            self._hold(_end_every_row(texts))
            self._marks, self._kinds = _separators(self._data)
            if _take_turns(self._kinds):
                self._grid = find_grid(self._data, self._marks, self._offsets)
        _check_text(self._data)

    def _hold(self, texts: Any) -> None:
        used = offsets_of(texts)
        self._buffer = texts.buffers()[2] if len(texts) else None
        self._data = data_of(texts)[: used[-1]]
        self._offsets = used.astype(np.int64)

    @property
    def _items(self) -> _Items:
        if self._found is None:
            self._found = _split(self._data, self._offsets, self._marks, self._kinds)
        return self._found

    def column(self, name: str) -> Any:
        """The values of one property as a string array, null where a row lacks it."""
        if self._grid is not None:
            return self._grid_column(self._grid, name.encode())
        items, wanted = self._items, _Name.of(name)
        same = (items.first == wanted.first) & (items.name_lengths == len(wanted.text))
        if len(wanted.text) > _WORD:
            same &= items.last == wanted.last
        at = np.flatnonzero(same)
        if len(at) == 0:
            return pa.nulls(self._rows, pa.string())
        rows = items.row[at]
        places = None
        if len(at) != self._rows or bool((np.diff(rows) != 1).any()):
            places = np.full(self._rows, -1, dtype=np.int64)
            places[rows] = np.arange(len(at))  # of several values the last one stays
        starts, ends = items.name_end[at] + 1, items.value_end[at]
        return gather_slices(self._buffer, starts, ends, pa.string(), places=places)

    def mapping(self, included: Included) -> Any:
        """All properties of each row as a map; the user's own ones only, unless ``all``."""
        if self._grid is not None:
            return self._grid_mapping(self._grid, included)
        items = self._items
        if included == "user":
            items = items.keep(~_is_system(items))
        elif included == "none":
            items = items.keep(np.zeros(len(items.row), dtype=np.bool_))
        items = _drop_repeated(items)
        offsets = np.zeros(self._rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(items.row, minlength=self._rows), out=offsets[1:])
        if len(items.row) == 0:
            return self._no_properties()
        names = gather_slices(self._buffer, items.name_start, items.name_end, pa.string())
        values = gather_slices(self._buffer, items.name_end + 1, items.value_end, pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets), names, values).cast(PROPERTIES)

    def _no_properties(self) -> Any:
        offsets = np.zeros(self._rows + 1, dtype=np.int32)
        empty = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets), empty, empty).cast(PROPERTIES)

    def _grid_column(self, grid: Grid | EvenGrid, name: bytes) -> Any:
        if name not in grid.names:
            return pa.nulls(self._rows, pa.string())
        return grid.values(self._buffer, grid.names.index(name))

    def _grid_mapping(self, grid: Grid | EvenGrid, included: Included) -> Any:
        chosen = [
            column
            for column, name in enumerate(grid.names)
            if included == "all" or (included == "user" and not _is_system_name(name))
        ]
        if not chosen:
            return self._no_properties()
        offsets = np.arange(0, (self._rows + 1) * len(chosen), len(chosen), dtype=np.int32)
        names, values = grid.entries(self._buffer, chosen)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values).cast(PROPERTIES)


def _check_text(data: Bytes) -> None:
    if len(data) and int(data.max()) >= 0x80:
        try:
            data.tobytes().decode()
        except UnicodeDecodeError as error:
            raise TextError(str(error)) from None


def _end_every_row(texts: Any) -> Any:
    """Some brokers leave the last separator out: put it back where it is missing."""
    lengths = lengths_of(texts)
    offsets = offsets_of(texts)
    data = data_of(texts)
    missing = lengths > 0
    missing[missing] = data[offsets[1:][missing] - 1] != ord(VALUE_END)
    if not missing.any():
        return texts if texts.offset == 0 and offsets[0] == 0 else pa.concat_arrays([texts])
    ends = pa.scalar(VALUE_END, pa.binary()), pa.scalar("", pa.binary())
    return pc.binary_join_element_wise(texts, pc.if_else(pa.array(missing), *ends), ends[1])


def _separators(data: Bytes) -> tuple[Int64s, Bytes]:
    """Where the separators are, and which of the two each is."""
    marks = np.flatnonzero(data <= 2)
    kinds = data[marks]
    if len(kinds) and int(kinds.min()) == 0:
        marks, kinds = marks[kinds > 0], kinds[kinds > 0]
    return marks, kinds


def _take_turns(kinds: Bytes) -> bool:
    """Whether every name is followed by one value, and nothing is left over."""
    return len(kinds) % 2 == 0 and bool((kinds[0::2] == 1).all()) and bool((kinds[1::2] == 2).all())


def _split(data: Bytes, offsets: Int64s, marks: Int64s, kinds: Bytes) -> _Items:
    """Take the texts of all rows apart. Every row ends with a separator, or is empty."""
    if _take_turns(kinds):
        name_end, value_end = marks[0::2], marks[1::2]
        name_start = _after(value_end)
    else:
        # Stray separators: an item's name ends at its first 0x01, whatever follows.
        value_end, candidates = marks[kinds == 2], marks[kinds == 1]
        name_start = _after(value_end)
        place = np.searchsorted(candidates, name_start)
        name_end = np.append(candidates, len(data))[place]
    sound = (name_end > name_start) & (value_end > name_end + 1)
    ends_before = np.searchsorted(value_end, offsets)
    row = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(ends_before))
    if not sound.all():
        row, name_start = row[sound], name_start[sound]
        name_end, value_end = name_end[sound], value_end[sound]
    lengths = name_end - name_start
    first, last = _words(data, name_start, name_end, lengths)
    return _Items(data, row, name_start, name_end, value_end, lengths, first, last)


def _after(ends: Int64s) -> Int64s:
    starts = np.zeros(len(ends), dtype=np.int64)
    starts[1:] = ends[:-1] + 1
    return starts


def _words(data: Bytes, starts: Int64s, ends: Int64s, lengths: Int64s) -> tuple[Words, Words]:
    """The first and the last eight bytes of each name as numbers; the last only if it is longer."""
    if len(starts) == 0:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64)
    words = words_of(data)
    first = words[starts] & _MASKS[np.minimum(lengths, _WORD)]
    last = np.zeros(len(starts), dtype=np.uint64)
    longer = np.flatnonzero(lengths > _WORD)
    if len(longer):
        last[longer] = words[ends[longer] - _WORD]
    return first, last


_SYSTEM_NAMES: Final = _NameSet(SYSTEM | OUR_PROPERTIES)
_TRANSIENT: Final = _Name.of(TRANSIENT_PREFIX)


def _is_system_name(name: bytes) -> bool:
    text = name.decode()
    return not is_user_property(text) or text in OUR_PROPERTIES


def _is_system(items: _Items) -> Bools:
    found = _SYSTEM_NAMES.contains(items)
    for item in np.flatnonzero(items.first == _TRANSIENT.first).tolist():
        found[item] |= items.name(item).startswith(_TRANSIENT.text)
    return found


def _drop_repeated(items: _Items) -> _Items:
    """Of several values of one name in one row, keep the last."""
    repeated = np.zeros(len(items.row), dtype=np.bool_)
    at = np.arange(len(items.row) - 1, dtype=np.int64)
    distance = 1
    while len(at):
        # Compare each item with the one ``distance`` further on, as long as that is in its row.
        at = at[at + distance < len(items.row)]
        at = at[items.row[at] == items.row[at + distance]]
        other = at + distance
        same = (items.first[at] == items.first[other]) & (items.last[at] == items.last[other])
        same &= items.name_lengths[at] == items.name_lengths[other]
        for place in np.flatnonzero(same & (items.name_lengths[at] > _EXACT)).tolist():
            same[place] = items.name(int(at[place])) == items.name(int(other[place]))
        repeated[at[same]] = True
        distance += 1
    return items.keep(~repeated) if repeated.any() else items
