"""Where the stored records of many pull bodies lie, and their fields of fixed size, as arrays.

Records that need more than looking at are rewritten first: a compressed body is made whole, a
batch in one record becomes its messages, properties that are no UTF-8 are mended. After that all
records have one layout (save for IPv6 hosts and long topics, which only shift it), and columns
are gathered in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketwire.columns.buffers import Bools, Bytes, Int64s
from rocketwire.columns.walk import Found, PullBody, explain, find_in_texts, find_records
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.compression import decompress
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
from rocketwire.wire.stored_message import (
    MAX_BODY,
    Record,
    encode_record,
    iter_records,
    unwrap_inner_batch,
)

_FIXED: Final = np.dtype(array_fields())
#: What follows each host; it begins later when that is IPv6.
_AFTER_BORN: Final = np.dtype(array_fields("store_ms", "store_host"))
_AFTER_STORE: Final = np.dtype(array_fields("reconsume_times", "body_length"))


@dataclass(frozen=True, slots=True)
class Records:
    """Arrays with one element per record; positions count in ``data``."""

    data: pa.Buffer
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
        arrays = (getattr(self, name) for name in Records.__slots__[1:])
        return Records(self.data, *(array[mask] for array in arrays))


def window(data: Bytes, width: int) -> npt.NDArray[Any]:
    """Every run of ``width`` bytes as a row; rows overlap, and nothing is copied."""
    return np.lib.stride_tricks.as_strided(
        data, shape=(max(0, len(data) - width + 1), width), strides=(1, 1), writeable=False
    )


def locate(bodies: Sequence[PullBody], *, mend_text: bool = False) -> Records:
    """Find all records of some pull bodies.

    Args:
        bodies: together shorter than 2^31 bytes.
        mend_text: replace what is no UTF-8 in properties.

    Raises:
        RemoteProtocolError: something there is not a record.
    """
    if mend_text:
        # All are written anew, so nothing is left that would need it.
        found = find_in_texts([_rewrite(part.body, mend_text=True) for part in bodies])
        fixed = _fixed_fields(found.data, found.starts)
    else:
        found, fixed = _made_plain(find_records(bodies), bodies)
    return _within_range(_measure(found, fixed, bodies), bodies)


def _made_plain(found: Found, bodies: Sequence[PullBody]) -> tuple[Found, npt.NDArray[Any]]:
    """The records, those that are compressed or hold a batch written anew."""
    fixed = _fixed_fields(found.data, found.starts)
    flags = fixed["system_flag"]
    special = (flags & SystemFlag.COMPRESSED != 0) | (flags & INNER_BATCH == INNER_BATCH)
    if not bool(special.any()):
        return found, fixed
    touched = set(found.source[special].tolist())
    again = find_in_texts(
        [
            _rewrite(part.body) if number in touched else part.body
            for number, part in enumerate(bodies)
        ]
    )
    return again, _fixed_fields(again.data, again.starts)


def _fixed_fields(data: Bytes, starts: Int64s) -> npt.NDArray[Any]:
    if len(starts) == 0:
        return np.zeros(0, dtype=_FIXED)
    # As values of one opaque kind they are gathered in half the time that rows of bytes take.
    found = np.ndarray((len(data) - HEAD_V4_SIZE + 1,), f"V{HEAD_V4_SIZE}", data, strides=(1,))[
        starts
    ]
    return found.view(_FIXED)


def _fields_at(data: Bytes, starts: Int64s, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    return window(data, kind.itemsize)[starts].view(kind).ravel()


def _measure(found: Found, fixed: npt.NDArray[Any], bodies: Sequence[PullBody]) -> Records:
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
    text_start = _properties_start(found, fixed, (body_start, body_end), bodies)
    return Records(
        data=pa.py_buffer(data),
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
        raise RemoteProtocolError("a stored record is too small for its IPv6 hosts")


def _properties_start(
    found: Found,
    fixed: npt.NDArray[Any],
    body: tuple[Int64s, Int64s],
    bodies: Sequence[PullBody],
) -> Int64s:
    """Where the properties begin; every length on the way is checked before it is used."""
    data = found.data
    stops: Int64s = found.starts + fixed["size"]
    body_start, body_end = body
    if len(stops) == 0:
        return stops
    wide = fixed["magic"] == MAGIC_V2
    topic_at: Int64s = body_end + 1 + wide if wide.any() else body_end + 1
    if bool(((body_end < body_start) | (topic_at + 2 > stops)).any()):
        raise explain([part.body for part in bodies])
    topic_length = data[body_end].astype(np.int64)
    if wide.any():
        topic_length = np.where(wide, (topic_length << 8) + data[body_end + 1], topic_length)
    start = topic_at + topic_length + 2
    if bool((start > stops).any()):
        raise explain([part.body for part in bodies])
    length = np.ndarray((len(data) - 1,), dtype=">u2", buffer=data, strides=(1,))[start - 2]
    if bool((start + length != stops).any()):
        raise explain([part.body for part in bodies])
    return start


def _within_range(found: Records, bodies: Sequence[PullBody]) -> Records:
    delta = np.array([part.offset_delta for part in bodies], dtype=np.int64)
    if delta.any():
        found.queue_offset[:] += delta[found.source]
    first = np.array([part.first for part in bodies], dtype=np.int64)[found.source]
    end = np.array([part.end for part in bodies], dtype=np.int64)[found.source]
    inside = (found.queue_offset >= first) & (found.queue_offset < end)
    return found if inside.all() else found.keep(inside)


def _rewrite(data: bytes | memoryview, *, mend_text: bool = False) -> bytes:
    return b"".join(
        _encode(part, mend_text=mend_text)
        for record in iter_records(data)
        for part in unwrap_inner_batch(record)
    )


def _encode(record: Record, *, mend_text: bool) -> bytes:
    properties = record.properties_raw
    if mend_text:
        properties = properties.decode(errors="replace").encode()[:32767]
    body = decompress(record.body, record.system_flag, MAX_BODY)
    return encode_record(
        topic=record.topic,
        body=body,
        properties=properties,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        born_ms=record.born_ms,
        born_host=record.born_host,
        store_ms=record.store_ms,
        store_host=record.store_host,
        flag=record.flag,
        system_flag=record.system_flag & ~SystemFlag.COMPRESSED,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
        body_crc=0,
    )
