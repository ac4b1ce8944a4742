"""Messages that were read back, whose fields are read when they are asked for.

How they are read out of a broker's bytes is ``wire``'s business; here is what users hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from rocketwire.message import Message, MessageQueue


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """A message that was read back.

    One that a broker gave keeps the bytes that came, and reads a field when it is first asked for.
    No field raises, whatever was stored: a ``body`` that can't be decoded (damaged, compressed in
    a way that is not known or installed here, larger than 64 MiB) is given as it is stored, and
    ``undecodable`` says why; times beyond the calendar are its first or last days.
    """

    #: What reads it, where its record begins there, how many bytes that takes, and how many of them
    #: are the body if that lies there as it is (else less than 0): in one slot, because filling slots is half
    #: of what a message costs that nobody looks at. Fields that were read are in ``__dict__``, where
    #: Python finds them before the descriptors that read them.
    __slots__ = ("__dict__", "_record", "offset")
    _record: ClassVar[tuple[Any, int, int, int]]  # a slot of each message, not one of its fields

    topic: str
    body: bytes
    tags: str | None
    keys: str | None
    properties: Mapping[str, str]
    sharding_key: str | None
    delay_level: int
    deliver_at: float | None
    flag: int
    wait_store_ok: bool
    queue: MessageQueue
    offset: int
    message_id: str
    offset_message_id: str
    born_at: datetime
    stored_at: datetime
    born_host: str
    store_host: str
    reconsume_times: int
    commit_log_offset: int
    transaction_id: str | None = None
    undecodable: str | None = None

    def __hash__(self) -> int:
        return hash((self.queue, self.offset, self.message_id))

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_stored, (type(self), {name: getattr(self, name) for name in STORED_FIELDS})

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    def replace(self, **changes: Any) -> StoredMessage:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def reply(self, body: bytes | str, properties: Mapping[str, str] | None = None) -> Reply:
        """A reply to this request, for a handler to return.

        Args:
            body: bytes, or text which is encoded as UTF-8.
            properties: any further text by name.
        """
        return Reply(body, properties=properties, to=self)

    def to_message(self, topic: str | None = None) -> Message:
        """The message as it could be sent again: what only brokers set is dropped.

        Its delay is dropped, too: that is over. A body that could not be decoded goes as it is.

        Args:
            topic: where to; by default where it came from.
        """
        return Message(
            self.topic if topic is None else topic,
            self.body,
            tags=self.tags,
            keys=self.keys,
            properties=self.properties,
            sharding_key=self.sharding_key,
            flag=self.flag,
            wait_store_ok=self.wait_store_ok,
        )


class Reply:
    """Returned by a handler that answers a request.

    Args:
        body: bytes, or text which is encoded as UTF-8.
        properties: any further text by name; names that RocketMQ reserves are refused.
        to: the request; by default the message that the handler was called with.
    """

    __slots__ = ("body", "properties", "to")

    def __init__(
        self,
        body: bytes | str,
        *,
        properties: Mapping[str, str] | None = None,
        to: StoredMessage | None = None,
    ) -> None:
        content = Message("reply", body, properties=properties)
        self.body = content.body
        self.properties = content.properties
        self.to = to

    def __repr__(self) -> str:
        return f"Reply({len(self.body)} bytes)"


STORED_FIELDS: Final = tuple(spec.name for spec in dataclasses.fields(StoredMessage))


def _make_stored(kind: type[StoredMessage], fields: dict[str, Any]) -> StoredMessage:
    return kind(**fields)


class _Unread:
    """A field of a stored message that nobody has asked for yet.

    What it reads is kept in the message's ``__dict__``, and so comes before it from then on.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, message: Any, owner: type | None = None) -> Any:
        if message is None:
            return self
        source, position, size, _ = message._record  # noqa: SLF001 - they are one thing
        return source.readers[self._name](source, message, position, size)


class _UnreadProperty(_Unread):
    """One of those that come together when the properties are split: a call less than others."""

    __slots__ = ()

    def __get__(self, message: Any, owner: type | None = None) -> Any:
        if message is None:
            return self
        source, position, size, body = message._record  # noqa: SLF001
        return source.split(message, position, size, body)[self._name]


_SPLIT: Final = frozenset({"tags", "keys", "properties"})
for _name in STORED_FIELDS:
    if _name in _SPLIT:
        setattr(StoredMessage, _name, _UnreadProperty(_name))
    elif _name != "offset":
        setattr(StoredMessage, _name, _Unread(_name))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The first and the last moment that every time zone can show, in milliseconds.
FIRST_MS: Final = -62_135_510_400_000  # 0001-01-02
LAST_MS: Final = 253_402_128_000_000  # 9999-12-30
#: Before this moment, in 2096, seconds as a float are exact to less than half a microsecond, and Python
#: makes a datetime of them in a third of the time that a timedelta and a sum take.
_EXACT_MS: Final = 4_000_000_000_000


def clamp_ms(milliseconds: int) -> int:
    """The nearest milliseconds that a calendar has, of any 64 bits that a sender wrote."""
    return min(max(milliseconds, FIRST_MS), LAST_MS)


def utc_from_ms(milliseconds: int) -> datetime:
    """A moment as RocketMQ writes it, as an aware datetime; the nearest that a calendar has."""
    if 0 <= milliseconds < _EXACT_MS:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    return _EPOCH + timedelta(milliseconds=clamp_ms(milliseconds))
