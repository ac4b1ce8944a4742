"""Large batches field by field, for those who have numpy.

Where items begin is found one by one, because each says where the next one is. Everything that has
a fixed place in a record is then worked out for all of them at once, and records are joined from
pieces. ``plan_columns`` answers None for what it can't do, also for every malformed batch: the plain
loop then says what is wrong with it.

It is a second way of doing what the loop does, and stays for its speed: 1.5 µs a message against 2.4 in
batches of 500. Of fewer than 64 messages it would be the slower one.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rocketwire.embedded.store.batch_append import BatchPlace, BatchRecords
from rocketwire.embedded.store.fields import (
    HEAD_V4_SIZE,
    HOST_V4,
    ITEM_FIELDS,
    ITEM_OVERHEAD,
    ITEM_SIZE,
    MAGIC_V1,
    PREFIXES,
    PROPERTIES_LIMIT,
    PROPERTIES_PREFIX,
    RECORD_FIELDS,
    TOPIC_PREFIX,
    UNIT_FIELDS,
    array_fields,
    structure,
)
from rocketwire.embedded.store.layout import host_flags, tags_code

#: Below so many bytes and messages, setting numpy up costs more than it saves.
WORTH_IT: Final = 4096
_MANY: Final = 64
_SIZE: Final = structure(ITEM_FIELDS[:1])
#: The prefix of the properties as numpy wants it told.
_PREFIX_KIND: Final = f">u{PROPERTIES_PREFIX}"
_TAGS: Final = b"TAGS\x01"


@cache
def load_numpy() -> Any:
    """Numpy if it is installed; loaded by the first large batch, not by every broker."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


@cache
def _head_type() -> Any:
    """The fixed part of a record with IPv4 hosts."""
    return load_numpy().dtype(array_fields(RECORD_FIELDS))


@cache
def _item_type() -> Any:
    """The fixed part of an item."""
    return load_numpy().dtype(array_fields(ITEM_FIELDS))


@cache
def _unit_type() -> Any:
    """A queue unit."""
    return load_numpy().dtype(array_fields(UNIT_FIELDS))


@dataclass(slots=True)
class ColumnsPlan:
    """A batch that was read and found good: one entry per message in each array.

    ``stored`` are the bytes of properties with what the broker adds to them.
    """

    body: bytes
    topic: bytes
    suffix: bytes
    starts: Any
    heads: Any
    body_sizes: Any
    property_sizes: Any
    stored: Any
    sizes: Any
    total: int

    def encode(self, place: BatchPlace) -> BatchRecords:
        """The records."""
        numpy = load_numpy()
        body, count = self.body, len(self.starts)
        offsets = place.physical_offset + numpy.cumsum(self.sizes) - self.sizes
        first, middle = self.starts + ITEM_SIZE, self.starts + ITEM_SIZE + self.body_sizes
        behind = middle + PROPERTIES_PREFIX
        last = behind + self.property_sizes
        # Whole columns at a time: a loop over messages would cost as much as all the rest.
        contents = _cut(body, first, middle)
        properties = _cut(body, behind, last)
        pieces = [b""] * (5 * count)
        pieces[::5] = _rows(self._heads(place, offsets, contents))
        pieces[1::5] = contents
        pieces[2::5] = _rows(self._middles())
        pieces[3::5] = properties
        pieces[4::5] = self._tails()
        codes = self._codes(behind, last, properties)
        units = numpy.empty(count, _unit_type())
        units["physical"], units["size"], units["code"] = offsets, self.sizes, codes
        packed = offsets.astype(">i8").tobytes()
        return BatchRecords(b"".join(pieces), units.tobytes(), packed)

    def _heads(self, place: BatchPlace, offsets: Any, contents: list[bytes]) -> Any:
        """The fixed part of each record, as a matrix of bytes."""
        numpy = load_numpy()
        count = len(self.starts)
        heads = numpy.zeros(count, _head_type())
        heads["size"], heads["body_size"] = self.sizes, self.body_sizes
        heads["magic"] = MAGIC_V1
        heads["crc"] = numpy.array(list(map(zlib.crc32, contents)), numpy.uint32) & 0x7FFFFFFF
        heads["queue"] = place.queue_id
        heads["flag"] = self.heads["flag"]
        heads["queue_offset"] = place.queue_offset + numpy.arange(count)
        heads["physical"] = offsets
        heads["system_flag"] = host_flags(place.system_flag, place.born_host, place.store_host)
        heads["born"], heads["stored"] = place.born_ms, place.store_ms
        heads["born_host"] = numpy.void(place.born_host)
        heads["store_host"] = numpy.void(place.store_host)
        heads["reconsumed"] = place.reconsume_times
        return heads.view(numpy.uint8).reshape(-1, HEAD_V4_SIZE)

    def _tails(self) -> list[bytes]:
        """What follows the client's properties: with a separator where the client left it out."""
        tails = (self.suffix, b"\x02" + self.suffix)
        is_open = self.stored - self.property_sizes > len(self.suffix)
        if not is_open.any():
            return [self.suffix] * len(self.starts)
        return [tails[each] for each in is_open.tolist()]

    def _codes(self, first: Any, last: Any, properties: list[bytes]) -> int | list[int]:
        """The tags code of all, or of each."""
        # Not of the whole batch: bodies are longer than properties, and may say anything.
        mentions = b"".join(properties).count(_TAGS)
        if not mentions:
            return 0
        if mentions == len(properties):
            begin, end = int(first[0]), int(last[0])
            at = self.body.find(_TAGS, begin, end)
            tag = self.body[at - 1 : self.body.find(b"\x02", at, end) + 1]
            # As far from the start in every message, or as far from the end.
            for places in (first + (at - 1 - begin), last - (end - at + 1)):
                if at > begin and len(tag) > len(_TAGS) and self._have(tag, places, first, last):
                    return tags_code(properties[0])
        return list(map(tags_code, properties))

    def _have(self, text: bytes, places: Any, first: Any, last: Any) -> bool:
        """Whether the properties of every message have this text at its place."""
        numpy = load_numpy()
        if ((places < first) | (places + len(text) > last)).any():
            return False
        found = _gather(numpy.frombuffer(self.body, numpy.uint8), places, len(text))
        return bool((found == numpy.frombuffer(text, numpy.uint8)).all())

    def _middles(self) -> Any:
        """What lies between body and properties of each record: the topic, and a length."""
        numpy = load_numpy()
        topic = len(self.topic).to_bytes(TOPIC_PREFIX, "big") + self.topic
        size = len(topic)
        middles = numpy.empty((len(self.starts), size + PROPERTIES_PREFIX), numpy.uint8)
        middles[:, :size] = numpy.frombuffer(topic, numpy.uint8)
        lengths = self.stored.astype(_PREFIX_KIND).view(numpy.uint8)
        middles[:, size:] = lengths.reshape(-1, PROPERTIES_PREFIX)
        return middles


def plan_columns(
    body: bytes, topic: bytes, suffix: bytes, born_host: bytes, store_host: bytes
) -> ColumnsPlan | None:
    """Read a batch of messages of any sizes; None for what the plain loop must look at."""
    if len(body) < WORTH_IT or not len(born_host) == len(store_host) == HOST_V4:
        return None
    numpy = load_numpy()
    places = None if numpy is None else _starts(body)
    if not places or len(places) < _MANY:
        return None
    data = numpy.frombuffer(body, numpy.uint8)
    starts = numpy.array(places, numpy.int64)
    heads = _gather(data, starts, ITEM_SIZE).view(_item_type())[:, 0]
    item_sizes = heads["size"].astype(numpy.int64)
    body_sizes = heads["body_size"].astype(numpy.int64)
    if ((body_sizes < 0) | (body_sizes > item_sizes - ITEM_OVERHEAD)).any():
        return None
    lengths = _gather(data, starts + ITEM_SIZE + body_sizes, PROPERTIES_PREFIX)
    property_sizes = lengths.view(_PREFIX_KIND)[:, 0].astype(numpy.int64)
    if (item_sizes != ITEM_OVERHEAD + body_sizes + property_sizes).any():
        return None
    stored = property_sizes + len(suffix)
    if suffix:
        stored += (property_sizes > 0) & (data[starts + item_sizes - 1] != 2)
    if (stored > PROPERTIES_LIMIT).any():
        return None
    sizes = HEAD_V4_SIZE + PREFIXES + len(topic) + body_sizes + stored
    return ColumnsPlan(
        body, topic, suffix, starts, heads, body_sizes, property_sizes, stored, sizes,
        int(sizes.sum()),
    )  # fmt: skip


def _starts(body: bytes) -> list[int] | None:
    """Where each item begins; None if they do not end where the batch does."""
    unpack = _SIZE.unpack_from
    # A size at the very end may be cut off.
    position, end = 0, len(body) - ITEM_OVERHEAD
    found: list[int] = []
    while position <= end:
        found.append(position)
        (size,) = unpack(body, position)
        if size < ITEM_OVERHEAD:
            return None
        position += size
    return found if position == len(body) else None


def _cut(body: bytes, starts: Any, ends: Any) -> list[bytes]:
    """The parts of a batch between these places."""
    return [body[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _rows(matrix: Any) -> list[bytes]:
    """Each row of a matrix of bytes."""
    packed: bytes = matrix.tobytes()
    step = matrix.shape[1]
    return [packed[at : at + step] for at in range(0, len(packed), step)]


def _gather(data: Any, places: Any, width: int) -> Any:
    """So many bytes at each place, as rows."""
    numpy = load_numpy()
    return data[places[:, None] + numpy.arange(width)]
