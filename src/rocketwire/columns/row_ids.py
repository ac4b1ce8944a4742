"""Ids of rows by what is in them, so that a repeat has the id of the first try and no other row has.

A task that is tried again may see its rows in another order, so a row's number is no identity; and
the id of the message that a row came from belongs to several rows after an ``explode`` or a join. An
id is made of a prefix that names the write and the task, a hash of the row's content (with the id of
the message that it came from), and, for rows that are equal, the ordinal among them. Rows of one task
therefore never share an id, whatever their order; a repeat that is cut into tasks otherwise may
survive, and a good row is never taken for a repeat.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.columns.buffers import Int64s, data_of, from_matrix, lengths_of, offsets_of
from rocketwire.columns.property_grid import words_of
from rocketwire.columns.property_text import join, scalar
from rocketwire.columns.rows import Rows

Hashes = npt.NDArray[np.uint64]

#: Rows whose hashes are remembered together. Ids of later ones carry the number of their section, so
#: that memory stays bounded however large a task is.
SECTION: Final = 500_000

_WORD: Final = 8
#: Longer values are hashed one by one: for them hashlib is faster than steps over all rows.
_LONG: Final = 512
_SEED: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_LAST_FACTOR: Final = np.uint64(0xC4CEB9FE1A85EC53)
_HALF: Final = np.uint64(32)
_MASKS: Final[Hashes] = np.array(
    [(1 << (8 * count)) - 1 for count in range(_WORD + 1)], dtype=np.uint64
)
_DIGITS: Final = np.frombuffer(
    b"".join(b"%02x" % value for value in range(256)), dtype=np.uint8
).reshape(256, 2)


def _mix(hashes: Hashes, words: Any) -> Hashes:
    mixed: Hashes = (hashes ^ words) * _FACTOR
    mixed ^= mixed >> _HALF
    return mixed


def hash_values(column: Any, seed: Hashes) -> Hashes:
    """A hash of each value of a binary array, going on from the hash of what came before.

    Null and empty are alike: neither is sent.
    """
    lengths = lengths_of(column)
    starts = np.asarray(offsets_of(column)[:-1], dtype=np.int64)
    short = np.where(lengths <= _LONG, lengths, 0)
    hashes = _mix(seed, lengths.astype(np.uint64))
    if not short.any():
        return _hash_long(column, hashes, np.flatnonzero(lengths > _LONG), starts, lengths)
    words = words_of(data_of(column))
    # As far as all values reach, there is nothing to choose and nothing to mask.
    for step in range(0, int(short.min()) // _WORD * _WORD, _WORD):
        hashes = _mix(hashes, words[starts + step])
    step = int(short.min()) // _WORD * _WORD
    rows = np.flatnonzero(short > step)
    while len(rows):
        left = short[rows] - step
        found = words[starts[rows] + step] & _MASKS[np.minimum(left, _WORD)]
        hashes[rows] = _mix(hashes[rows], found)
        step += _WORD
        rows = rows[left > _WORD]
    return _hash_long(column, hashes, np.flatnonzero(lengths > _LONG), starts, lengths)


def _hash_long(column: Any, hashes: Hashes, rows: Any, starts: Int64s, lengths: Int64s) -> Hashes:
    if len(rows):
        view = data_of(column).data
        digests = b"".join(
            hashlib.sha256(view[start : start + length]).digest()[:_WORD]
            for start, length in zip(starts[rows].tolist(), lengths[rows].tolist(), strict=True)
        )
        hashes[rows] = _mix(hashes[rows], np.frombuffer(digests, dtype="<u8"))
    return hashes


def hash_rows(rows: Rows) -> Hashes:
    """A hash of the content of each row: everything that is sent, and where it came from."""
    hashes = np.full(rows.count, _SEED, dtype=np.uint64)
    for column in (
        rows.body,
        rows.keys,
        rows.tags,
        rows.sharding_key,
        rows.topic,
        rows.row_id,
        rows.target_broker,
    ):
        # A column that is missing counts like one that is null in every row.
        hashes = _mix(hashes, np.uint64(0)) if column is None else hash_values(column, hashes)
    for numbers, none in (
        (rows.flag, 0), (rows.delay_level, 0), (rows.deliver_ms, -1), (rows.target_queue, -1),
    ):  # fmt: skip
        given = np.full(rows.count, none, dtype=np.int64) if numbers is None else numbers
        hashes = _mix(hashes, given.astype(np.uint64))
    return _finish(_mix(hashes, _hash_entries(rows)))


def _hash_entries(rows: Rows) -> Hashes:
    entries = rows.properties
    if entries is None:
        return np.zeros(rows.count, dtype=np.uint64)
    base = np.full(len(entries.names), _SEED, dtype=np.uint64)
    each = _finish(hash_values(entries.values, hash_values(entries.names, base)))
    # A sum does not depend on the order of the entries, which a map does not keep.
    total = np.zeros(len(each) + 1, dtype=np.uint64)
    np.cumsum(each, out=total[1:])
    made: Hashes = total[entries.offsets[1:]] - total[entries.offsets[:-1]]
    return made


def _finish(hashes: Hashes) -> Hashes:
    """Spread what came last over all bits."""
    hashes ^= hashes >> np.uint64(33)
    hashes *= _LAST_FACTOR
    hashes ^= hashes >> np.uint64(29)
    return hashes


class _Seen:
    """Hashes of a section's rows so far, and how often those came that came again."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []
        self._counts: dict[int, int] = {}
        self.rows = 0

    def ordinals(self, hashes: Hashes) -> Int64s:
        """For each row, how many equal ones came before it."""
        self.rows += len(hashes)
        made = np.zeros(len(hashes), dtype=np.int64)
        if not len(hashes):
            return made
        # Equal ones lie together after a stable sort, in the order in which they came.
        order = np.argsort(hashes, kind="stable")
        in_order = hashes[order]
        starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
        different, counts = in_order[starts], np.diff(starts, append=len(hashes))
        known = self._known(different)
        for number in np.flatnonzero(known | (counts > 1)).tolist():
            value, count = int(different[number]), int(counts[number])
            before = self._counts.get(value, 1 if known[number] else 0)
            begin = starts[number]
            made[order[begin : begin + count]] = np.arange(before, before + count)
            self._counts[value] = before + count
        self._add(different)
        return made

    def _known(self, different: Hashes) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(different), dtype=np.bool_)
        for run in self._runs:
            at = np.searchsorted(run, different)
            at[at == len(run)] = 0
            found |= run[at] == different
        return found

    def _add(self, different: Hashes) -> None:
        """Keep few sorted runs, each at least twice as long as the next."""
        self._runs.append(different)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(np.sort(np.concatenate([before, last]), kind="stable"))


class RowIds(Protocol):
    """Makes the ids of a task's rows, one batch after the other."""

    def make(self, rows: Rows, first_row: int) -> tuple[Any | None, Any | None]:
        """The id of each row, and that of the message it was made from; None for none.

        Args:
            rows: the batch.
            first_row: the index of its first row in the task.
        """
        ...


class NoIds:
    """No row gets an id; the one of the message that it was made from stays readable."""

    def make(self, rows: Rows, first_row: int) -> tuple[Any | None, Any | None]:
        """See `RowIds`."""
        return None, rows.row_id


class NumberedIds:
    """Ids of a prefix and the row's number, for a table whose rows keep their order.

    A row's own id stays as it is. Without a prefix, rows have their own ids only.
    """

    def __init__(self, prefix: str | None) -> None:
        self._prefix = prefix

    def make(self, rows: Rows, first_row: int) -> tuple[Any | None, Any | None]:
        """See `RowIds`."""
        if self._prefix is None:
            return rows.row_id, None
        numbers = pa.array(np.arange(first_row, first_row + rows.count, dtype=np.int64))
        digits = numbers.cast(pa.string()).view(pa.binary())
        return _own_or(rows.row_id, join(scalar(self._prefix.encode()), digits)), None


class ContentIds:
    """Ids by what is in the rows.

    Args:
        prefix: what they begin with: the write and the task.
        keeps_own: whether a row's own ``rowId`` stays as it is, instead of being the id of the
            message that the row came from.
    """

    def __init__(self, prefix: str, *, keeps_own: bool = False) -> None:
        self._prefix = prefix.encode()
        self._keeps_own = keeps_own
        self._section = 0
        self._seen = _Seen()

    def make(self, rows: Rows, first_row: int) -> tuple[Any | None, Any | None]:
        """See `RowIds`."""
        made = self._of(hash_rows(rows))
        if self._keeps_own:
            return _own_or(rows.row_id, made), None
        return made, rows.row_id

    def _of(self, hashes: Hashes) -> Any:
        if self._seen.rows >= SECTION:
            self._section, self._seen = self._section + 1, _Seen()
        ordinals = self._seen.ordinals(hashes)
        digits = _DIGITS[hashes.astype(">u8").view(np.uint8).reshape(len(hashes), _WORD)]
        matrix = np.empty((len(hashes), len(self._prefix) + 2 * _WORD), dtype=np.uint8)
        matrix[:, : len(self._prefix)] = np.frombuffer(self._prefix, dtype=np.uint8)
        matrix[:, len(self._prefix) :] = digits.reshape(len(hashes), 2 * _WORD)
        made = from_matrix(matrix)
        if self._section:
            made = join(made, scalar(b"s%d" % self._section))
        if not ordinals.any():
            return made
        numbers = join(scalar(b":"), pa.array(ordinals).cast(pa.string()).view(pa.binary()))
        return join(made, pc.if_else(pa.array(ordinals > 0), numbers, scalar(b"")))


def _own_or(own: Any | None, made: Any) -> Any:
    if own is None:
        return made
    present = lengths_of(own) > 0
    return own if present.all() else pc.if_else(pa.array(present), own, made)
