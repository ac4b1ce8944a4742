"""Ids of rows by what is in them, so that a repeat has the id of the first try and no other row has.

A task that is tried again may see its rows in another order, so a row's number is no identity; and
the id of the message that a row came from belongs to several rows after an ``explode`` or a join. An
id is made of a prefix that names the write and the task, a hash of the row's content (with the id of
the message that it came from), and, for rows that are equal, the ordinal among them. Rows of one task
therefore never share an id, whatever their order; a repeat that is cut into tasks otherwise may
survive, and a good row is never taken for a repeat.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.columns.buffers import Bools, Int64s, from_matrix, lengths_of
from rocketwire.columns.property_text import join, scalar
from rocketwire.columns.rows import Rows, SharedEntries
from rocketwire.columns.value_hash import Hashes, finish, hash_values, mix

#: Rows whose hashes are remembered together. Ids of later ones carry the number of their section, so
#: that memory stays bounded however large a task is.
SECTION: Final = 500_000

#: As many slots as a section has rows: most hashes have one for themselves.
_SLOT_BITS: Final = 19
_SEED: Final = np.uint64(0x9E3779B97F4A7C15)
#: The four digits of each two bytes.
_DIGITS: Final = np.frombuffer(b"".join(b"%04x" % value for value in range(1 << 16)), dtype="V4")
#: How many digits an id has.
_WIDTH: Final = 16


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
        hashes = mix(hashes, np.uint64(0)) if column is None else hash_values(column, hashes)
    for numbers, none in (
        (rows.flag, 0), (rows.delay_level, 0), (rows.deliver_ms, -1), (rows.target_queue, -1),
    ):  # fmt: skip
        given = np.full(rows.count, none, dtype=np.int64) if numbers is None else numbers
        hashes = mix(hashes, given.astype(np.uint64))
    return finish(mix(hashes, _hash_entries(rows)))


def _hash_entries(rows: Rows) -> Hashes:
    entries = rows.properties
    if entries is None:
        return np.zeros(rows.count, dtype=np.uint64)
    # A sum does not depend on the order of the entries, which a map does not keep.
    if isinstance(entries, SharedEntries):
        added: Hashes = np.zeros(rows.count, dtype=np.uint64)
        for name, column in entries.columns:
            added += finish(hash_values(column, np.full(rows.count, _hash_name(name))))
        return added
    base = np.full(len(entries.names), _SEED, dtype=np.uint64)
    each = finish(hash_values(entries.values, hash_values(entries.names, base)))
    total = np.zeros(len(each) + 1, dtype=np.uint64)
    np.cumsum(each, out=total[1:])
    made: Hashes = total[entries.offsets[1:]] - total[entries.offsets[:-1]]
    return made


@lru_cache(maxsize=256)
def _hash_name(name: bytes) -> np.uint64:
    """The same hash that a column of names gives this one."""
    made: np.uint64 = hash_values(pa.array([name], pa.binary()), np.full(1, _SEED))[0]
    return made


class _Seen:
    """Hashes of a section's rows so far, and how often those came that came again."""

    def __init__(self) -> None:
        #: A hash in the slot that its first bits name; 0 where none is yet.
        self._slots = np.zeros(1 << _SLOT_BITS, dtype=np.uint64)
        #: Those that found another one in their slot: sorted runs.
        self._runs: list[Hashes] = []
        self._again = np.zeros(0, dtype=np.uint64)
        self._times = np.zeros(0, dtype=np.int64)
        self.rows = 0

    def ordinals(self, hashes: Hashes) -> Int64s:
        """For each row, how many equal ones came before it."""
        self.rows += len(hashes)
        made = np.zeros(len(hashes), dtype=np.int64)
        if not len(hashes):
            return made
        different = np.sort(hashes)
        repeated = different[1:][different[1:] == different[:-1]]
        if len(repeated):
            different = np.concatenate(
                [different[:1], different[1:][different[1:] != different[:-1]]]
            )
        known = different[self._keep(different)]
        if len(known) or len(repeated):
            self._number(hashes, np.union1d(repeated, known), known, made)
        return made

    def _number(self, hashes: Hashes, repeated: Hashes, known: Hashes, made: Int64s) -> None:
        """The ordinals of rows whose hash came before, or comes several times now."""
        rows = np.flatnonzero(np.isin(hashes, repeated))
        # Equal ones lie together after a stable sort, in the order in which they came.
        rows = rows[np.argsort(hashes[rows], kind="stable")]
        starts = np.searchsorted(hashes[rows], repeated)
        counts = np.diff(starts, append=len(rows))
        before = np.isin(repeated, known).astype(np.int64)
        at = np.searchsorted(self._again, repeated)
        counted = _held_at(self._again, at, repeated)
        before[counted] = self._times[at[counted]]
        made[rows] = np.arange(len(rows)) + np.repeat(before - starts, counts)
        self._times[at[counted]] += counts[counted]
        new = ~counted
        if new.any():
            self._again = np.insert(self._again, at[new], repeated[new])
            self._times = np.insert(self._times, at[new], (before + counts)[new])

    def _keep(self, different: Hashes) -> Bools:
        """Remember these, of which none is like another; tells which of them came before."""
        slots = (different >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)
        held = self._slots[slots]
        known: Bools = held == different
        free = held == 0
        self._slots[slots[free]] = different[free]
        # Another one may be in the slot, from before or of these.
        outside = np.flatnonzero(self._slots[slots] != different)
        if len(outside):
            values = different[outside]
            known[outside] = self._is_outside(values)
            self._add(values[~known[outside]])
        return known

    def _is_outside(self, hashes: Hashes) -> Bools:
        found = np.zeros(len(hashes), dtype=np.bool_)
        for run in self._runs:
            found |= _held_at(run, np.searchsorted(run, hashes), hashes)
        return found

    def _add(self, different: Hashes) -> None:
        """Keep few sorted runs, each at least twice as long as the next."""
        if not len(different):
            return
        self._runs.append(different)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(np.sort(np.concatenate([before, last]), kind="stable"))


def _held_at(run: Hashes, at: npt.NDArray[np.intp], hashes: Hashes) -> Bools:
    """Whether each hash is in a sorted run, given where it would be."""
    if not len(run):
        return np.zeros(len(hashes), dtype=np.bool_)
    found: Bools = run[np.minimum(at, len(run) - 1)] == hashes
    return found


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
        matrix = np.empty((len(hashes), len(self._prefix) + _WIDTH), dtype=np.uint8)
        matrix[:, : len(self._prefix)] = np.frombuffer(self._prefix, dtype=np.uint8)
        digits = _DIGITS[hashes.astype(">u8").view(">u2")].view(np.uint8)
        matrix[:, len(self._prefix) :] = digits.reshape(len(hashes), _WIDTH)
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
