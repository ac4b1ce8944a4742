"""The values that users hold: messages, and by import queues and results. They never change once made.

What a message must look like in order to be sent is checked by ``core/sending/validate.py``, because it
depends on the producer's settings; what can never be right is refused here, at once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypedDict, TypeVar, Unpack

from rocketwire.errors import InvalidMessageError
from rocketwire.frozen import Frozen
from rocketwire.message_queue import MessageQueue
from rocketwire.send_result import SendResult, SendStatus, _make_result

if TYPE_CHECKING:
    from rocketwire.stored_message import StoredMessage  # as by the function below

__all__ = [
    "USUAL",
    "Frozen",
    "Handling",
    "Message",
    "MessageChanges",
    "MessageQueue",
    "SendResult",
    "SendStatus",
    "StoredMessage",
    "TransactionState",
    "_make_result",  # which results were pickled with that older versions wrote
    "epoch_of",
]

_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_set = object.__setattr__
_new = object.__new__
_YEAR_10000: Final = 253_402_300_800.0
_M = TypeVar("_M")


class Handling(NamedTuple):
    """What a message may say about how brokers handle it, and the application's flag."""

    delay_level: int = 0
    deliver_at: float | None = None
    flag: int = 0
    wait_store_ok: bool = True


#: Of every message that says nothing of the kind: one comparison tells those.
USUAL: Final = Handling()


class _MessageFields:
    """The slots of a message, still open: a message is filled as one of these and then frozen.

    Writing through ``object.__setattr__`` instead would double the cost of making a message.
    """

    __slots__ = (
        "body", "handling", "keys", "raw_properties", "sharding_key", "tags", "topic",
    )  # fmt: skip

    topic: str
    body: bytes
    tags: str | None
    keys: str | None
    #: None without any. A plain dict: the garbage collector does not look into one that holds
    #: text only, and a proxy for each of many messages in memory costs more than making them.
    raw_properties: dict[str, str] | None
    sharding_key: str | None
    #: What few messages say.
    handling: Handling


_is_plain: Final = {str}.issuperset
_FIELDS: Final = (
    "topic", "body", "tags", "keys", "properties", "sharding_key", "delay_level", "deliver_at",
    "flag", "wait_store_ok",
)  # fmt: skip


class MessageChanges(TypedDict, total=False):
    """What ``Message.replace`` may change: the arguments of a message."""

    topic: str
    body: bytes | str
    tags: str | None
    keys: str | Iterable[str] | None
    properties: Mapping[str, str] | None
    sharding_key: str | int | None
    delay_level: int
    deliver_at: datetime | float | None
    flag: int
    wait_store_ok: bool


class Message(_MessageFields, Frozen):
    """A message to be sent.

    Args:
        topic: where it goes.
        body: bytes, or text which is encoded as UTF-8.
        tags: one word that readers filter by.
        keys: a word, or several, under which the broker indexes the message. A blank separates
            keys, as in Java.
        properties: any further text by name; names that RocketMQ reserves are refused.
        sharding_key: messages of one key are sent in order, to one queue. An int counts as its
            decimal text.
        delay_level: 1 to 18 (1 s to 2 h), 0 for none.
        deliver_at: an aware datetime or epoch seconds (brokers since 5.0).
        flag: 32 bits for the application.
        wait_store_ok: whether the broker waits for its flush and replication before it answers.

    >>> Message("orders", "paid", tags="pay", keys=["order-42", "customer-7"]).keys
    'order-42 customer-7'
    """

    __slots__ = ()

    def __new__(  # noqa: PLR0913 - these are the fields of a message
        cls,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | int | None = None,
        delay_level: int = 0,
        deliver_at: datetime | float | None = None,
        flag: int = 0,
        wait_store_ok: bool = True,
    ) -> Self:
        """Refuses what can never be sent."""
        self = _MessageFields()  # cheaper than by object.__new__
        self.topic = topic if type(topic) is str else _plain(topic)
        self.body = body if type(body) is bytes else _as_bytes(body)
        self.tags = tags if tags is None or type(tags) is str else _plain(tags)
        self.keys = keys if keys is None or type(keys) is str else _join_keys(keys)
        self.raw_properties = _copied(properties) if properties else None
        self.sharding_key = (
            sharding_key
            if sharding_key is None or type(sharding_key) is str
            else _plain(str(sharding_key) if type(sharding_key) is int else sharding_key)
        )
        if delay_level == 0 and deliver_at is None and flag == 0 and wait_store_ok is True:
            self.handling = USUAL
        else:
            moment = None if deliver_at is None else epoch_of(deliver_at, "deliver_at")
            self.handling = Handling(delay_level, moment, flag, wait_store_ok)
        if cls is not Message:
            return _copy(self, _new(cls))
        self.__class__ = cls  # the same slots, and from now on frozen
        return self  # type: ignore[return-value]  # a cast would be a call for each message

    if TYPE_CHECKING:  # what is written to the slots before it is frozen can only be read here

        @property
        def topic(self) -> str: ...  # type: ignore[override]  # noqa: D102
        @property
        def body(self) -> bytes: ...  # type: ignore[override]  # noqa: D102
        @property
        def tags(self) -> str | None: ...  # type: ignore[override]  # noqa: D102
        @property
        def keys(self) -> str | None: ...  # type: ignore[override]  # noqa: D102
        @property
        def sharding_key(self) -> str | None: ...  # type: ignore[override]  # noqa: D102

    @property
    def properties(self) -> Mapping[str, str]:
        """Any further text by name."""
        found = self.raw_properties
        return _NO_PROPERTIES if found is None else MappingProxyType(found)

    @property
    def delay_level(self) -> int:
        """1 to 18, 0 for none."""
        return self.handling.delay_level

    @property
    def deliver_at(self) -> float | None:
        """Seconds since 1970."""
        return self.handling.deliver_at

    @property
    def flag(self) -> int:
        """32 bits for the application."""
        return self.handling.flag

    @property
    def wait_store_ok(self) -> bool:
        """Whether the broker waits for its flush and replication before it answers."""
        return self.handling.wait_store_ok

    def _state(self) -> tuple[Any, ...]:
        return tuple(
            dict(v) if isinstance(v, Mapping) else v
            for v in (getattr(self, name) for name in _FIELDS)
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._state() == other._state()

    def __hash__(self) -> int:
        return hash((self.topic, self.body, self.tags, self.keys, self.sharding_key))

    def __repr__(self) -> str:
        shown = [repr(self.topic), f"{len(self.body)} bytes"]
        names = ("tags", "keys", "sharding_key", "delay_level", "deliver_at")
        shown += [f"{name}={value!r}" for name in names if (value := getattr(self, name))]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_message, (dict(zip(_FIELDS, self._state(), strict=True)),)

    def replace(self, **changes: Unpack[MessageChanges]) -> Message:
        """A copy with some fields changed."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        return Message(**{**fields, **changes})


Message.__new__.__qualname__ = "Message"  # what an error about an unknown option begins with


def _copy(fields: _MessageFields, message: _M) -> _M:
    """For classes derived from ``Message``, which may have more than its slots."""
    for name in _MessageFields.__slots__:
        _set(message, name, getattr(fields, name))
    return message


def _make_message(fields: dict[str, Any]) -> Message:
    return Message(**fields)


def _as_bytes(body: object) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessageError(
                f"body has a lone surrogate at {error.start}, which UTF-8 can't carry: "
                "give bytes, or mend the text"
            ) from None
    if isinstance(body, (bytearray, memoryview, bytes)):
        return bytes(body)
    raise InvalidMessageError(
        f"body is a {type(body).__name__}: give bytes, or str to be encoded as UTF-8"
    )


def _plain(text: Any) -> Any:
    """The characters of text that is of a class of its own, whatever that makes of them in a format.

    ``class Colour(str, Enum)`` is equal to its value, and written as ``Colour.RED``.
    """
    return str.__str__(text) if isinstance(text, str) else text


def _join_keys(keys: object) -> str | None:
    if isinstance(keys, str):
        return str.__str__(keys)
    if not isinstance(keys, Iterable):
        raise InvalidMessageError(f"keys is {keys!r}: give a str or an iterable of str")
    items = list(keys)
    for item in items:
        if not isinstance(item, str):
            raise InvalidMessageError(f"keys contains {item!r}: every key is a str")
        if " " in item:
            raise InvalidMessageError(
                f"keys contains {item!r}: a key has no blank in it, blanks separate keys"
            )
    return " ".join(items) or None


def _copied(properties: Mapping[str, str]) -> dict[str, str]:
    try:
        found = dict(properties)
    except (TypeError, ValueError):
        raise InvalidMessageError(
            f"properties is a {type(properties).__name__}: give a mapping of text to text"
        ) from None
    if _is_plain(map(type, found.values())):  # names are written as they are
        return found
    return {_plain(name): _plain(value) for name, value in found.items()}


def epoch_of(moment: object, what: str) -> float:
    """Seconds since 1970 of an aware datetime, or of a number of them.

    Raises:
        InvalidMessageError: it is neither; ``what`` is the name by which it is blamed.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidMessageError(
                f"{what} is {moment!r} without a time zone: "
                "say which, e.g. datetime(..., tzinfo=UTC)"
            )
        return moment.timestamp()
    if isinstance(moment, (int, float)) and not isinstance(moment, bool):
        if not 0 <= moment < _YEAR_10000:  # also what is no number at all
            raise InvalidMessageError(
                f"{what} is {moment!r}: seconds since 1970, not milliseconds, before the year 10000"
            )
        return float(moment)
    raise InvalidMessageError(f"{what} is {moment!r}: give an aware datetime or seconds since 1970")


class TransactionState(enum.Enum):
    """What is known of a transaction. Checkers answer with one of these, too."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"


def __getattr__(name: str) -> Any:
    """Messages that were read back are another module's; here for those who know them from here."""
    if name == "StoredMessage":
        from rocketwire.stored_message import StoredMessage

        return StoredMessage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
