"""Messages as pulls bring them: read when somebody looks at them.

A consumer that is far behind gets tens of thousands of messages a second, most handlers look at the
body only, and reading a record with all its properties costs ten times as much as everything else
that happens to it here. So a pull's answer is only cut into records; what is in them waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from struct import Struct
from typing import Any, Final, NamedTuple, cast

from rocketwire.core.naming import without_namespace
from rocketwire.core.pull import Fetched, TagFilter, message_of, read_pull
from rocketwire.message import MessageQueue, StoredMessage
from rocketwire.wire.codes import ResponseCode, SystemFlag
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import PullReply, decode_pull_reply
from rocketwire.wire.properties import Property
from rocketwire.wire.stored_message import MAGIC_V1, MAGIC_V2, MIN_RECORD, decode_record

#: Size, magic number, queue offset and system flag of a record; the length of a body after IPv4
#: hosts, and where it begins.
_START: Final = Struct(">iI12xq8xi")
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 84
_BODY_AT: Final = 88
_INNER: Final = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH
#: A body with none of these lies in the record as it is, at its usual place.
_NOT_PLAIN: Final = (
    SystemFlag.COMPRESSED | SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6 | _INNER
)
_unpack_start = _START.unpack_from
_MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))
_set = object.__setattr__


class Origin(NamedTuple):
    """What the records of one pull have in common."""

    data: bytes
    queue: MessageQueue
    delta: int
    namespace: str | None
    is_retry: bool


class ReceivedMessage(StoredMessage):
    """A stored message whose fields are filled when one of them is first asked for."""

    __slots__ = ("_record",)

    #: The pull that it came with, where it begins there, and how many bytes it takes. One slot for
    #: all three: filling slots is half of what a message costs that nobody looks at.
    _record: tuple[Origin, int, int]

    @property
    def weight(self) -> int:
        """Bytes that it takes in memory, about."""
        return self._record[2]

    def __getattr__(self, name: str) -> Any:
        """Python comes here for a slot that is not filled yet."""
        if name == "body":
            return _fill_body(self)
        if name in _FIELDS:
            _fill(self)
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = StoredMessage.__hash__

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self).__qualname__, "StoredMessage", 1)


_FIELDS: Final = tuple(spec.name for spec in fields(StoredMessage))
_new = ReceivedMessage.__new__
# The slots' own setters: a frozen class lets nobody else in, and they cost half of setattr.
_set_offset = cast("Any", StoredMessage).__dict__["offset"].__set__
_set_record = cast("Any", ReceivedMessage).__dict__["_record"].__set__


def _fill_body(message: ReceivedMessage) -> bytes:
    origin, position, size = message._record  # noqa: SLF001
    data = origin.data
    _, _, _, flag = _unpack_start(data, position)
    (length,) = _LENGTH.unpack_from(data, position + _LENGTH_AT)
    if flag & _NOT_PLAIN or not 0 <= length <= size - MIN_RECORD:
        _fill(message)
        return cast("bytes", object.__getattribute__(message, "body"))
    body = data[position + _BODY_AT : position + _BODY_AT + length]
    _set(message, "body", body)
    return body


def _fill(message: ReceivedMessage) -> None:
    """Read everything. Two threads may do so at once: both write the same."""
    origin, position, _ = message._record  # noqa: SLF001
    record, _ = decode_record(origin.data, position)
    topic = record.properties.get(Property.RETRY_TOPIC) if origin.is_retry else None
    found = message_of(record, origin.queue, origin.delta)
    for name in _FIELDS:
        _set(message, name, getattr(found, name))
    _set(message, "topic", without_namespace(topic or found.topic, origin.namespace))
    _set(message, "queue", origin.queue)


def receive(
    reply: Reply, queue: MessageQueue, offset: int, tags: TagFilter, origin: Origin
) -> Fetched:
    """What a broker's answer to a pull says, its messages unread where that is possible.

    Raises:
        BrokerError: it is a refusal.
        RemoteProtocolError: something in it is not a record.
    """
    if reply.code != ResponseCode.SUCCESS:
        return _dress(read_pull(reply, queue, offset, tags), reply, origin)
    told = decode_pull_reply(reply.ext)
    # Not _replace, which takes four times as long.
    origin = Origin(reply.body, origin.queue, told.offset_delta, origin.namespace, origin.is_retry)
    messages = _cut(origin, offset)
    if messages is None:
        return _dress(read_pull(reply, queue, offset, tags), reply, origin)
    if tags.tags:
        messages = [message for message in messages if tags.accepts(message)]
    return _fetched(queue, messages, told)


def _fetched(queue: MessageQueue, messages: list[StoredMessage], told: PullReply) -> Fetched:
    return Fetched(
        queue,
        tuple(messages),
        told.next_offset,
        told.min_offset,
        told.max_offset,
        None,
        told.suggested_broker_id,
    )


def _cut(origin: Origin, offset: int) -> list[StoredMessage] | None:
    """The messages of an answer, unread; None where it has something out of the ordinary."""
    data, delta = origin.data, origin.delta
    position, end = 0, len(data)
    last = end - MIN_RECORD
    messages: list[StoredMessage] = []
    while position <= last:
        size, magic, place, flag = _unpack_start(data, position)
        if size < MIN_RECORD or magic not in _MAGICS or flag & _INNER == _INNER:
            return None
        message = _new(ReceivedMessage)
        _set_offset(message, place + delta)
        _set_record(message, (origin, position, size))
        messages.append(message)
        position += size
    if position != end:
        return None
    if messages and messages[0].offset < offset:
        return [message for message in messages if message.offset >= offset]
    return messages


def _dress(found: Fetched, reply: Reply, origin: Origin) -> Fetched:
    """Messages that were read already, under the name of the topic that they were sent to."""
    if not found.messages or not (origin.is_retry or origin.namespace):
        return found
    topics: dict[int, str] = {}
    if origin.is_retry:
        data, position = reply.body, 0
        while position < len(data):
            record, position = decode_record(data, position)
            place = record.queue_offset + origin.delta
            topics[place] = record.properties.get(Property.RETRY_TOPIC) or record.topic
    return replace(
        found,
        messages=tuple(
            replace(
                message,
                topic=without_namespace(
                    topics.get(message.offset, message.topic), origin.namespace
                ),
                queue=origin.queue,
            )
            for message in found.messages
        ),
    )


def weigh(messages: Sequence[StoredMessage]) -> int:
    """Bytes that messages take, about: without looking into them."""
    try:
        return sum([m._record[2] for m in cast("Sequence[ReceivedMessage]", messages)])  # noqa: SLF001
    except AttributeError:  # some were read at once
        return sum([m.weight if type(m) is ReceivedMessage else len(m.body) for m in messages])


def tried_again(message: StoredMessage) -> StoredMessage:
    """The same message, counted as tried once more."""
    again = replace(message, reconsume_times=message.reconsume_times + 1)
    if isinstance(message, ReceivedMessage):
        for name in ReceivedMessage.__slots__:
            if hasattr(message, name):
                _set(again, name, getattr(message, name))
    return again


def broker_property(message: StoredMessage, name: str) -> str | None:
    """What a broker noted in a stored message; None where that is not known any more."""
    if not isinstance(message, ReceivedMessage) or not hasattr(message, "_record"):
        return None
    origin, position, _ = message._record  # noqa: SLF001
    record, _ = decode_record(origin.data, position)
    return record.properties.get(name)
