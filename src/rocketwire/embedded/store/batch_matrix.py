"""Batches of equal-sized messages as one matrix, for those who have numpy.

Programs that send in bulk often send messages of one shape. Then items are rows, fields are
columns, and only the checksum is computed message by message. ``plan_matrix`` answers None for
every other batch: ``batch_columns`` does those whose messages have sizes of their own.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rocketwire.embedded.store.batch_append import BatchPlace, BatchRecords
from rocketwire.embedded.store.layout import (
    HEAD_V4_SIZE,
    MAGIC_V1,
    PROPERTIES_LIMIT,
    host_flags,
    tags_code,
)

#: Below this many bytes, setting numpy up costs more than it saves.
WORTH_IT: Final = 4096


@cache
def load_numpy() -> Any:
    """Numpy if it is installed; loaded by the first large batch, not by every broker."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


@cache
def head_type() -> Any:
    """The fixed part of a record with IPv4 hosts."""
    return load_numpy().dtype(
        [
            ("size", ">i4"), ("magic", ">u4"), ("crc", ">u4"), ("queue", ">i4"), ("flag", "V4"),
            ("queue_offset", ">i8"), ("physical", ">i8"), ("system_flag", ">i4"), ("born", ">i8"),
            ("born_host", "V8"), ("stored", ">i8"), ("store_host", "V8"), ("reconsumed", ">i4"),
            ("prepared", ">i8"), ("body_size", ">i4"),
        ]
    )  # fmt: skip


@dataclass(slots=True)
class MatrixPlan:
    """A batch whose messages have one size each of body and properties."""

    body: bytes
    topic: bytes
    suffix: bytes
    rows: Any
    body_size: int
    properties_size: int
    size: int

    @property
    def total(self) -> int:
        """Bytes of all records."""
        return self.size * len(self.rows)

    def encode(self, place: BatchPlace) -> BatchRecords:
        """The records."""
        numpy = load_numpy()
        count, size, body_size = len(self.rows), self.size, self.body_size
        records = numpy.empty((count, size), numpy.uint8)
        offsets = place.physical_offset + size * numpy.arange(count, dtype=numpy.int64)
        records[:, :HEAD_V4_SIZE] = self._heads(place, offsets)
        at = HEAD_V4_SIZE + body_size
        records[:, HEAD_V4_SIZE:at] = self.rows[:, 20 : 20 + body_size]
        start = at + 3 + len(self.topic)
        shared = bytes((len(self.topic),)) + self.topic + (size - start).to_bytes(2, "big")
        records[:, at:start] = numpy.frombuffer(shared, numpy.uint8)
        end = start + self.properties_size
        records[:, start:end] = self.rows[:, 22 + body_size :]
        if end < size:
            # One byte more than the suffix: the messages lack their last separator.
            joint = b"\x02" if size - end > len(self.suffix) else b""
            records[:, end:] = numpy.frombuffer(joint + self.suffix, numpy.uint8)
        units = pack_units(offsets, size, self._codes())
        packed = offsets.astype(">i8").tobytes()
        return BatchRecords(memoryview(records.reshape(-1)), units, packed)

    def _heads(self, place: BatchPlace, offsets: Any) -> Any:
        """The fixed part of each record, as a matrix of bytes."""
        numpy = load_numpy()
        count, body_size = len(self.rows), self.body_size
        heads = shared_heads(place, count)
        heads["size"], heads["body_size"] = self.size, body_size
        heads["crc"] = self._checksums()
        heads["flag"] = numpy.ascontiguousarray(self.rows[:, 12:16]).view("V4")[:, 0]
        heads["physical"] = offsets
        return heads.view(numpy.uint8).reshape(count, HEAD_V4_SIZE)

    def _checksums(self) -> list[int]:
        body, step, size = memoryview(self.body), self.rows.shape[1], self.body_size
        crc32 = zlib.crc32
        starts = range(20, len(body), step)
        return [crc32(body[at : at + size]) & 0x7FFFFFFF for at in starts]

    def _codes(self) -> int | list[int]:
        """The tags code of all, or of each."""
        mentions = self.body.count(b"TAGS\x01")
        if not mentions:
            return 0
        first = 22 + self.body_size
        step = self.rows.shape[1]
        if mentions == len(self.rows):
            at = self.body.find(b"TAGS\x01", first, step)
            end = self.body.find(b"\x02", at, step)
            columns = self.rows[:, at - 1 : end + 1]
            if at >= first and end > 0 and (columns == columns[0]).all():
                return tags_code(self.body[first:step])
        starts = range(first, len(self.body), step)
        return [tags_code(self.body[at : at + self.properties_size]) for at in starts]


def shared_heads(place: BatchPlace, count: int) -> Any:
    """Heads with everything filled in that does not depend on the message."""
    numpy = load_numpy()
    heads = numpy.zeros(count, head_type())
    heads["magic"] = MAGIC_V1
    heads["queue"] = place.queue_id
    heads["system_flag"] = host_flags(place.system_flag, place.born_host, place.store_host)
    heads["queue_offset"] = place.queue_offset + numpy.arange(count)
    heads["born"], heads["stored"] = place.born_ms, place.store_ms
    heads["born_host"] = numpy.void(place.born_host)
    heads["store_host"] = numpy.void(place.store_host)
    heads["reconsumed"] = place.reconsume_times
    return heads


def pack_units(offsets: Any, sizes: Any, codes: Any) -> bytes:
    """The units of a queue for records at these places."""
    numpy = load_numpy()
    units = numpy.empty(
        len(offsets), numpy.dtype([("at", ">i8"), ("size", ">i4"), ("code", ">i8")])
    )
    units["at"], units["size"], units["code"] = offsets, sizes, codes
    packed: bytes = units.tobytes()
    return packed


def plan_matrix(
    body: bytes, topic: bytes, suffix: bytes, born_host: bytes, store_host: bytes
) -> MatrixPlan | None:
    """Read a batch if all its messages have the same shape; None for any other."""
    step = int.from_bytes(body[:4], "big")
    body_size = int.from_bytes(body[16:20], "big")
    properties_size = int.from_bytes(body[20 + body_size : 22 + body_size], "big")
    if (
        len(body) < WORTH_IT
        or len(body) % max(step, 1)
        or step != 22 + body_size + properties_size
        or not len(born_host) == len(store_host) == 8
        or load_numpy() is None
    ):
        return None
    rows = load_numpy().frombuffer(body, load_numpy().uint8).reshape(-1, step)
    if not _same(rows, body_size, properties_size):
        return None
    stored = properties_size + len(suffix)
    if suffix and properties_size and body[step - 1] != 2:
        stored += 1
    if stored > PROPERTIES_LIMIT:
        return None
    size = HEAD_V4_SIZE + 3 + len(topic) + body_size + stored
    return MatrixPlan(body, topic, suffix, rows, body_size, properties_size, size)


def _same(rows: Any, body_size: int, properties_size: int) -> bool:
    """Whether the sizes, and the presence of the last separator, are those of the first row."""
    lengths = 20 + body_size
    return bool(
        (rows[:, :4] == rows[0, :4]).all()
        and (rows[:, 16:20] == rows[0, 16:20]).all()
        and (rows[:, lengths : lengths + 2] == rows[0, lengths : lengths + 2]).all()
        and (not properties_size or len(set((rows[:, -1] == 2).tolist())) == 1)
    )
