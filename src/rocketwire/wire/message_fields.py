"""What each field of a stored message is, read out of the record's bytes.

Nothing here raises for what a sender wrote, however malformed: a message that stopped its
reader would stop the queue for ever. What can't be decoded is handed over as it is stored, and
``undecodable`` says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, cast

from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage, utc_from_ms
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.compression import decompress_or_explain
from rocketwire.wire.properties import (
    NAME_END,
    Property,
    decode_properties_bytes,
    number_in,
    property_in,
)
from rocketwire.wire.property_shapes import Shapes, own_of, shapes_of
from rocketwire.wire.record_layout import (
    BOTH_V6,
    HEAD_SIZES,
    HEAD_V4_SIZE,
    HEADS,
    INNER_BATCH,
    MAGIC_V1,
    MIN_RECORD,
    NOT_PLAIN,
    OFFSETS,
    parts_of,
    picked,
)
from rocketwire.wire.stored_message import (
    MAX_BODY,
    unpack_host,
)

_unpack_body = picked("system_flag", "body_length").unpack_from
_unpack_lengths = picked("magic", "system_flag", "body_length").unpack_from
_unpack_int = Struct(">i").unpack_from

_UNIQ_KEY: Final = (Property.UNIQ_KEY + NAME_END).encode()
_RETRY_TOPIC: Final = (Property.RETRY_TOPIC + NAME_END).encode()
#: Topics of which it was said that some bodies can't be decoded.
_warned: set[str] = set()
_MOST_WARNINGS: Final = 1000
_log = logging.getLogger("rocketwire.reader")

Reader = Callable[["Source", StoredMessage, int, int], Any]


class Source:
    """Bytes that hold records, and what those have in common.

    Args:
        data: the records.
        queue: the queue that was asked; None where each record tells its own.
        broker: the one that gave them, where there is no queue.
        delta: what is added to stored offsets.
        shown: makes the name that users know out of a topic's; None leaves it.
        is_retry: whether the records are in a retry topic and tell the topic that they came from.
        limit: the largest body that is made whole.
    """

    __slots__ = ("broker", "data", "delta", "is_retry", "limit", "queue", "shapes", "shown")

    #: Set below, once there are functions to name.
    readers: dict[str, Reader]

    def __init__(
        self,
        data: bytes,
        queue: MessageQueue | None = None,
        broker: str = "",
        delta: int = 0,
        shown: Callable[[str], str] | None = None,
        is_retry: bool = False,  # noqa: FBT001, FBT002
        limit: int = MAX_BODY,
    ) -> None:
        self.data = data
        self.queue = queue
        self.broker = broker
        self.delta = delta
        self.shown = shown
        self.is_retry = is_retry
        self.limit = limit
        self.shapes: Shapes | None = None

    def split(self, message: StoredMessage, position: int, size: int, body: int) -> dict[str, Any]:
        """Take the properties apart, once for all fields that come from them; the fields so far."""
        data, stop = self.data, position + size
        fields: dict[str, Any] = message.__dict__
        start = 0
        if body >= 0:
            body_at = position + HEAD_V4_SIZE
            body_end = body_at + body
            # Nearly every handler looks at the body, too, and by itself it costs twice as much.
            fields["body"] = data[body_at:body_end]
            start = body_end + 3 + data[body_end]
            if start > stop or data[start - 2] << 8 | data[start - 1] != stop - start:
                start = 0
        raw = data[start or properties_at(data, position, size) : stop]
        shapes = self.shapes
        if shapes is None:
            shapes = self.shapes = shapes_of("" if self.queue is None else self.queue.topic)
        shape = shapes.shape
        try:
            found = shape.match(raw.decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            other = shapes.match(raw)
            if other is None:
                everything = fields["_all"] = shapes.split(raw)
                fields["tags"] = everything.get(Property.TAGS)
                fields["keys"] = everything.get(Property.KEYS)
                fields["properties"] = own_of(everything)
                return fields
            shape, found = other
        fields["tags"], fields["keys"] = found.group(shape.tags, shape.keys)
        fields["properties"] = shape.own(found)
        return fields

    def over(self, data: bytes) -> Source:
        """The same over other bytes."""
        return Source(
            data, self.queue, self.broker, self.delta, self.shown, self.is_retry, self.limit
        )


def _body(source: Source, message: StoredMessage, position: int, size: int) -> bytes:
    length = message._record[3]  # noqa: SLF001
    if length < 0:
        flag, length = _unpack_body(source.data, position)
        # Where a topic is long, the body lies in its usual place all the same.
        if flag & NOT_PLAIN or not 0 <= length <= size - MIN_RECORD:
            return _odd_body(source, message, position, size)[0]
    start = position + HEAD_V4_SIZE
    body = source.data[start : start + length]
    message.__dict__["body"] = body
    return body


def _undecodable(source: Source, message: StoredMessage, position: int, size: int) -> str | None:
    flag, _ = _unpack_body(source.data, position)
    if not flag & (SystemFlag.COMPRESSED | INNER_BATCH) and parts_of(source.data, position, size):
        message.__dict__["undecodable"] = None
        return None
    return _odd_body(source, message, position, size)[1]


def _odd_body(
    source: Source, message: StoredMessage, position: int, size: int
) -> tuple[bytes, str | None]:
    """The body of a record that is compressed, or broken, or has IPv6 hosts; and what is wrong."""
    stored, flag, whole = stored_body(source.data, position, size)
    body, why = stored, None
    if flag & INNER_BATCH == INNER_BATCH:
        why = "it is marked as a batch of messages and is none"
    elif flag & SystemFlag.COMPRESSED:
        body, why = decompress_or_explain(stored, flag, source.limit)
    if not whole:
        why = why or "the lengths within its record do not agree"
    if why is not None:
        _warn_once(source, message.offset, why)
    message.__dict__["body"] = body
    message.__dict__["undecodable"] = why
    return body, why


def _warn_once(source: Source, offset: int, why: str) -> None:
    """Say so of the first of a topic: there may be millions, and each says it of itself."""
    topic = source.broker if source.queue is None else source.queue.topic
    if topic not in _warned and len(_warned) < _MOST_WARNINGS:
        _warned.add(topic)
        _log.warning(
            "%s, offset %d: the body is given as it is stored: %s (from now on only "
            "message.undecodable says so)",
            source.queue or topic,
            offset,
            why,
        )


def stored_body(data: bytes, position: int, size: int) -> tuple[bytes, int, bool]:
    """A body as it is stored, its flags, and whether the record is sound.

    Of a record that is not, what its length says, or all that follows the fixed fields.
    """
    parts = parts_of(data, position, size)
    flag, _ = _unpack_body(data, position)
    if parts is not None:
        return data[parts.body : parts.body_end], flag, True
    stop = position + size
    start = min(position + HEAD_SIZES[flag >> 4 & 3], stop)
    (length,) = _unpack_int(data, start - 4)
    end = start + length if 0 <= length <= stop - start - 3 else stop
    return data[start:end], flag, False


def properties_at(data: bytes, position: int, size: int) -> int:
    """Where the properties of a record begin; at its end if its lengths do not agree."""
    magic, flag, length = _unpack_lengths(data, position)
    stop = position + size
    if magic == MAGIC_V1 and not flag & BOTH_V6 and 0 <= length <= size - MIN_RECORD:
        topic_end = _topic_end(data, position + HEAD_V4_SIZE + length, stop)
        if topic_end:
            return topic_end + 2
    parts = parts_of(data, position, size)
    return stop if parts is None else parts.properties


def _topic_end(data: bytes, start: int, stop: int) -> int:
    """Where a topic ends whose length is in one byte; 0 if the properties do not fill the rest."""
    end: int = start + 1 + data[start]
    fits = end + 2 <= stop and data[end] << 8 | data[end + 1] == stop - end - 2
    return end if fits else 0


def _one_property(
    source: Source, message: StoredMessage, position: int, size: int, name: bytes
) -> str | None:
    """One property, without taking the others apart."""
    data, length, start = source.data, message._record[3], 0  # noqa: SLF001
    if length >= 0:
        start = _topic_end(data, position + HEAD_V4_SIZE + length, position + size)
    start = start + 2 if start else properties_at(data, position, size)
    return property_in(data, start, position + size, name)


def all_properties(
    source: Source, message: StoredMessage, position: int, size: int
) -> dict[str, str]:
    """All properties, the user's and RocketMQ's."""
    try:
        return cast("dict[str, str]", message.__dict__["_all"])
    except KeyError:
        data = source.data
        found = decode_properties_bytes(data[properties_at(data, position, size) : position + size])
        message.__dict__["_all"] = found
        return found


def _from_properties(name: str, make: Callable[[dict[str, str]], Any]) -> Reader:
    def read(source: Source, message: StoredMessage, position: int, size: int) -> Any:
        value = make(all_properties(source, message, position, size))
        message.__dict__[name] = value
        return value

    return read


def _deliver_at(properties: dict[str, str]) -> float | None:
    """When a timer was to deliver it: as asked, or as the broker worked it out."""
    for name in (Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS):
        if (moment := number_in(properties.get(name), -1)) >= 0:
            return moment / 1000
    return None


def _transaction_id(properties: dict[str, str]) -> str | None:
    unique_id = properties.get(Property.UNIQ_KEY)
    if properties.get(Property.TRAN_MSG) == "true" and unique_id:
        return unique_id
    return properties.get(Property.TRANSACTION_ID)


def _message_id(source: Source, message: StoredMessage, position: int, size: int) -> str:
    found = _one_property(source, message, position, size, _UNIQ_KEY)
    value = found or message.offset_message_id
    message.__dict__["message_id"] = value
    return value


def _topic(source: Source, message: StoredMessage, position: int, size: int) -> str:
    data, length, end = source.data, message._record[3], 0  # noqa: SLF001
    start = position + HEAD_V4_SIZE + length
    if length >= 0:
        end = _topic_end(data, start, position + size)
    if end:
        name = data[start + 1 : end].decode("utf-8", "replace")
    elif (parts := parts_of(data, position, size)) is not None:
        name = data[parts.topic : parts.topic_end].decode("utf-8", "replace")
    else:
        name = "" if source.queue is None else source.queue.topic
    if source.is_retry:
        name = _one_property(source, message, position, size, _RETRY_TOPIC) or name
    if source.shown is not None:
        name = source.shown(name)
    message.__dict__["topic"] = name
    return name


def _queue(source: Source, message: StoredMessage, position: int, _: int) -> MessageQueue:
    queue = source.queue
    if queue is None:
        (number,) = _unpack_int(source.data, position + OFFSETS["queue_id"])
        queue = MessageQueue(message.topic, source.broker, number)
    message.__dict__["queue"] = queue
    return queue


def _from_head(name: str, field: str, make: Callable[[Any], Any] | None = None) -> Reader:
    """A reader of one fixed field, wherever the families of hosts put it."""
    unpack, place = picked(field).unpack_from, list(OFFSETS).index(field)
    is_early = OFFSETS[field] <= OFFSETS["born_host"] and field != "born_host"

    def read(source: Source, message: StoredMessage, position: int, size: int) -> Any:
        (value,) = unpack(source.data, position)
        if not is_early and message._record[3] < 0:  # noqa: SLF001 - else its hosts are IPv4
            hosts = hosts_of(source.data, position, size)
            if hosts:
                value = HEADS[hosts].unpack_from(source.data, position)[place]
        if make is not None:
            value = make(value)
        message.__dict__[name] = value
        return value

    return read


def hosts_of(data: bytes, position: int, size: int) -> int:
    """Which hosts are IPv6, as far as the record has room for them."""
    hosts: int = _unpack_body(data, position)[0] >> 4 & 3
    return hosts if size >= HEAD_SIZES[hosts] else 0


def _offset_message_id(source: Source, message: StoredMessage, position: int, size: int) -> str:
    data = source.data
    fields = HEADS[hosts_of(data, position, size)].unpack_from(data, position)
    place: int = fields[6]
    value = str((fields[11] + place.to_bytes(8, "big", signed=True)).hex().upper())
    message.__dict__["offset_message_id"] = value
    return value


Source.readers = {
    "topic": _topic,
    "body": _body,
    "sharding_key": _from_properties("sharding_key", lambda p: p.get(Property.SHARDING_KEY)),
    "delay_level": _from_properties("delay_level", lambda p: number_in(p.get(Property.DELAY), 0)),
    "deliver_at": _from_properties("deliver_at", _deliver_at),
    "flag": _from_head("flag", "flag"),
    "wait_store_ok": _from_properties("wait_store_ok", lambda p: p.get(Property.WAIT) != "false"),
    "queue": _queue,
    "message_id": _message_id,
    "offset_message_id": _offset_message_id,
    "born_at": _from_head("born_at", "born_ms", utc_from_ms),
    "stored_at": _from_head("stored_at", "store_ms", utc_from_ms),
    "born_host": _from_head("born_host", "born_host", unpack_host),
    "store_host": _from_head("store_host", "store_host", unpack_host),
    "reconsume_times": _from_head("reconsume_times", "reconsume_times"),
    "commit_log_offset": _from_head("commit_log_offset", "physical_offset"),
    "transaction_id": _from_properties("transaction_id", _transaction_id),
    "undecodable": _undecodable,
}
