"""Where the stored records of many pull bodies lie, and their fields of fixed size, as arrays.

All records have one layout (save for IPv6 hosts and long topics, which only shift it), and columns
are gathered in C. Records that need more than looking at (a compressed body, a batch in one record,
lengths that do not agree, properties that are no UTF-8) are left to ``rewrite``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketwire.columns.buffers import Bools, Bytes, Int64s
from rocketwire.columns.record_starts import Found, PullBody
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.record_layout import (
    BOTH_V6,
    HEAD_V4_SIZE,
    INNER_BATCH,
    MAGIC_V2,
    MIN_RECORD,
    OFFSETS,
    V6_EXTRA,
    array_fields,
)

_FIXED: Final = np.dtype(array_fields())
#: What follows each host; it begins later when that is IPv6.
_AFTER_BORN: Final = np.dtype(array_fields("store_ms", "store_host"))
_AFTER_STORE: Final = np.dtype(array_fields("reconsume_times", "body_length"))


class IrregularError(Exception):
    """Lengths within a record do not agree: arrays can't be made of it as it is."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What was made of records one by one: bodies, and why some are as they are stored.

    ``bodies`` is None where nobody asked for them.
    """

    bodies: list[bytes] | None
    reasons: list[str | None]


@dataclass(frozen=True, slots=True)
class Records:
    """Arrays with one element per record; positions count in ``data``.

    ``number`` counts the records as they were found, and is their place in ``decoded``, if they
    were read one by one.
    """

    data: pa.Buffer
    decoded: Decoded | None
    number: Int64s
    source: Int64s
    fixed: npt.NDArray[Any]
    store_ms: Int64s
    reconsume_times: npt.NDArray[np.integer[Any]]
    queue_offset: Int64s
    body_start: Int64s
    body_end: Int64s
    properties_start: Int64s
    properties_end: Int64s
    store_host_start: Int64s

    def __len__(self) -> int:
        return len(self.fixed)

    def keep(self, mask: Bools) -> Records:
        """Only some of the records."""
        arrays = (getattr(self, name) for name in Records.__slots__[2:])
        return Records(self.data, self.decoded, *(array[mask] for array in arrays))


def window(data: Bytes, width: int) -> npt.NDArray[Any]:
    """Every run of ``width`` bytes as a row; rows overlap, and nothing is copied."""
    return np.lib.stride_tricks.as_strided(
        data, shape=(max(0, len(data) - width + 1), width), strides=(1, 1), writeable=False
    )


def needs_reading(fixed: npt.NDArray[Any], *, with_bodies: bool) -> bool:
    """Whether some of the records must be read one by one."""
    flags = fixed["system_flag"]
    special = flags & INNER_BATCH == INNER_BATCH
    if with_bodies:
        special = special | (flags & SystemFlag.COMPRESSED != 0)
    return bool(special.any())


def locate(
    found: Found,
    fixed: npt.NDArray[Any],
    bodies: Sequence[PullBody],
    decoded: Decoded | None = None,
) -> Records:
    """The records of some pull bodies, without those out of their range.

    Args:
        found: where they begin.
        fixed: their fields of fixed width.
        bodies: what they came in.
        decoded: what was made of them one by one, if it was.

    Raises:
        IrregularError: lengths within one do not agree.
    """
    return _within_range(_measure(found, fixed, decoded), bodies)


def fixed_fields(found: Found) -> npt.NDArray[Any]:
    """The fields of fixed width of all records."""
    data, starts = found.data, found.starts
    if len(starts) == 0:
        return np.zeros(0, dtype=_FIXED)
    # As values of one opaque kind they are gathered in half the time that rows of bytes take.
    kind = f"V{HEAD_V4_SIZE}"
    heads = np.ndarray((len(data) - HEAD_V4_SIZE + 1,), kind, data, strides=(1,))[starts]
    return heads.view(_FIXED)


def _fields_at(data: Bytes, starts: Int64s, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    return window(data, kind.itemsize)[starts].view(kind).ravel()


def _measure(found: Found, fixed: npt.NDArray[Any], decoded: Decoded | None) -> Records:
    data, starts = found.data, found.starts
    store_ms = fixed["store_ms"].astype(np.int64)
    reconsume = fixed["reconsume_times"]
    lengths = fixed["body_length"].astype(np.int64)
    hosts_at = starts + OFFSETS["store_host"]
    body_start = starts + HEAD_V4_SIZE
    flags = fixed["system_flag"]
    if bool((flags & BOTH_V6).any()):
        _check_room(fixed, flags)
        born = ((flags & SystemFlag.BORN_HOST_V6) != 0) * V6_EXTRA
        store = ((flags & SystemFlag.STORE_HOST_V6) != 0) * V6_EXTRA
        after_born = _fields_at(data, starts + OFFSETS["store_ms"] + born, _AFTER_BORN)
        moved = starts + OFFSETS["reconsume_times"] + born + store
        after_store = _fields_at(data, moved, _AFTER_STORE)
        store_ms = after_born["store_ms"].astype(np.int64)
        reconsume = after_store["reconsume_times"]
        lengths = after_store["body_length"].astype(np.int64)
        hosts_at = hosts_at + born
        body_start = body_start + born + store
    body_end = body_start + lengths
    text_start = _properties_start(found, fixed, body_start, body_end)
    return Records(
        data=pa.py_buffer(data),
        decoded=decoded,
        number=np.arange(len(starts), dtype=np.int64),
        source=found.source,
        fixed=fixed,
        store_ms=store_ms,
        reconsume_times=reconsume,
        queue_offset=fixed["queue_offset"].astype(np.int64),
        body_start=body_start,
        body_end=body_end,
        properties_start=text_start,
        properties_end=starts + fixed["size"],
        store_host_start=hosts_at,
    )


def _check_room(fixed: npt.NDArray[Any], flags: npt.NDArray[Any]) -> None:
    both = ((flags & SystemFlag.BORN_HOST_V6) != 0) * V6_EXTRA
    both = both + ((flags & SystemFlag.STORE_HOST_V6) != 0) * V6_EXTRA
    if bool((fixed["size"] < MIN_RECORD + both).any()):
        raise IrregularError("a stored record is too small for its IPv6 hosts")


def _properties_start(
    found: Found, fixed: npt.NDArray[Any], body_start: Int64s, body_end: Int64s
) -> Int64s:
    """Where the properties begin; every length on the way is checked before it is used."""
    data = found.data
    stops: Int64s = found.starts + fixed["size"]
    if len(stops) == 0:
        return stops
    wide = fixed["magic"] == MAGIC_V2
    topic_at: Int64s = body_end + 1 + wide if wide.any() else body_end + 1
    if bool(((body_end < body_start) | (topic_at + 2 > stops)).any()):
        raise IrregularError("the lengths within a stored record do not agree")
    topic_length = data[body_end].astype(np.int64)
    if wide.any():
        topic_length = np.where(wide, (topic_length << 8) + data[body_end + 1], topic_length)
    start = topic_at + topic_length + 2
    if bool((start > stops).any()):
        raise IrregularError("the lengths within a stored record do not agree")
    length = np.ndarray((len(data) - 1,), dtype=">u2", buffer=data, strides=(1,))[start - 2]
    if bool((start + length != stops).any()):
        raise IrregularError("the lengths within a stored record do not agree")
    return start


def _within_range(found: Records, bodies: Sequence[PullBody]) -> Records:
    delta = np.array([part.offset_delta for part in bodies], dtype=np.int64)
    if delta.any():
        found.queue_offset[:] += delta[found.source]
    first = np.array([part.first for part in bodies], dtype=np.int64)[found.source]
    end = np.array([part.end for part in bodies], dtype=np.int64)[found.source]
    inside = (found.queue_offset >= first) & (found.queue_offset < end)
    return found if inside.all() else found.keep(inside)
