"""Turn the body of a batch send into records.

A batch is read in two steps, because records hold their own place in the log: ``plan_batch``
tells how large they will be, and ``encode`` of the plan makes them once their place is known. This
module has the plain loop, which does any batch; where numpy is installed, ``batch_columns`` does
large ones field by field.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Protocol

from rocketwire.embedded.store.failures import MessageRefusedError
from rocketwire.embedded.store.fields import (
    HEADS,
    ITEM,
    ITEM_OVERHEAD,
    ITEM_SIZE,
    MAGIC_V1,
    PREFIXES,
    PROPERTIES_LIMIT,
    PROPERTIES_PREFIX,
    PROPERTIES_SIZE,
    TOPIC_PREFIX,
    UNIT,
)
from rocketwire.embedded.store.layout import host_flags, tags_code


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """What all records of a batch share, and where the first one goes."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    system_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int = 0


@dataclass(slots=True)
class BatchRecords:
    """The bytes to append, the queue units, and each record's log offset.

    The offsets are packed as eight bytes each, because message ids are made of that.
    """

    data: bytes | memoryview
    units: bytes
    offsets: bytes


class BatchPlan(Protocol):
    """A batch that was read and found good."""

    @property
    def total(self) -> int:
        """Bytes of all its records."""

    def encode(self, place: BatchPlace) -> BatchRecords:
        """Its records, for their place in the log."""


@dataclass(slots=True)
class LoopPlan:
    """A batch of any messages. An item is its start, flag, and sizes of body and properties."""

    body: bytes
    topic: bytes
    suffix: bytes
    items: list[tuple[int, int, int, int]] = field(default_factory=list)
    total: int = 0

    def encode(self, place: BatchPlace) -> BatchRecords:
        """The records, one after the other."""
        body, suffix = self.body, self.suffix
        topic = len(self.topic).to_bytes(TOPIC_PREFIX, "big") + self.topic
        head = HEADS[len(place.born_host), len(place.store_host)]
        flags = host_flags(place.system_flag, place.born_host, place.store_host)
        pack, crc32, unit, short = head.pack, zlib.crc32, UNIT.pack, PROPERTIES_SIZE.pack
        parts: list[bytes] = []
        units: list[bytes] = []
        offsets: list[int] = []
        physical, queue_offset = place.physical_offset, place.queue_offset
        fixed = head.size + PREFIXES + len(self.topic)
        for start, flag, body_size, properties_size in self.items:
            first = start + ITEM_SIZE
            middle = first + body_size
            behind = middle + PROPERTIES_PREFIX
            content = body[first:middle]
            properties = body[behind : behind + properties_size]
            code = tags_code(properties)
            if suffix:
                joint = b"\x02" if properties and properties[-1] != 2 else b""
                properties = b"".join((properties, joint, suffix))
            size = fixed + body_size + len(properties)
            parts += (
                pack(
                    size, MAGIC_V1, crc32(content) & 0x7FFFFFFF, place.queue_id, flag,
                    queue_offset, physical, flags, place.born_ms, place.born_host,
                    place.store_ms, place.store_host, place.reconsume_times, 0, body_size,
                ),
                content,
                topic,
                short(len(properties)),
                properties,
            )  # fmt: skip
            units.append(unit(physical, size, code))
            offsets.append(physical)
            physical += size
            queue_offset += 1
        packed = struct.pack(f">{len(offsets)}q", *offsets)
        return BatchRecords(b"".join(parts), b"".join(units), packed)


def plan_batch(body: bytes, topic: bytes, suffix: bytes, head_size: int) -> LoopPlan:
    """Read the items of a batch.

    Args:
        body: what the client sent.
        topic: at most 127 bytes.
        suffix: properties that the broker adds to each message.
        head_size: bytes of a record before its body.

    Raises:
        MessageRefusedError: the body is not a batch, or a message in it can't be stored.
    """
    plan = LoopPlan(body, topic, suffix)
    items = plan.items
    position, end, total = 0, len(body), 0
    fixed = head_size + PREFIXES + len(topic)
    unpack, short = ITEM.unpack_from, PROPERTIES_SIZE.unpack_from
    try:
        while position < end:
            size, _, _, flag, body_size = unpack(body, position)
            if body_size < 0:
                raise _broken(len(items), body_size)
            (properties_size,) = short(body, position + ITEM_SIZE + body_size)
            if size != ITEM_OVERHEAD + body_size + properties_size or position + size > end:
                raise _broken(len(items), size)
            stored = properties_size + _extra(body, position + size, properties_size, suffix)
            if stored > PROPERTIES_LIMIT:
                raise MessageRefusedError(
                    f"message {len(items)} of the batch has {properties_size} bytes of "
                    f"properties: at most {PROPERTIES_LIMIT - len(suffix) - 1} fit"
                )
            items.append((position, flag, body_size, properties_size))
            total += fixed + body_size + stored
            position += size
    except struct.error:
        raise _broken(len(items), end - position) from None
    if not items:
        raise MessageRefusedError("the batch has no message in it")
    plan.total = total
    return plan


def _broken(number: int, size: int) -> MessageRefusedError:
    return MessageRefusedError(
        f"message {number} of the batch is malformed: a size field or what is left is {size}"
    )


def _extra(body: bytes, end: int, properties_size: int, suffix: bytes) -> int:
    """Bytes that the suffix adds: one more where the client left out the last separator."""
    if not suffix:
        return 0
    return len(suffix) + (1 if properties_size and body[end - 1] != 2 else 0)
