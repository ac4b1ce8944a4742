"""Messages that travel together, from the first one until all of them have their outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from rocketwire.core.effects import Event
from rocketwire.core.sending.attempt import RELEASED
from rocketwire.core.sending.flush import FlushGroup
from rocketwire.core.sending.order import KeySlot
from rocketwire.core.sending.results import share
from rocketwire.errors import SendFailedError
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.wire.properties import Property, decode_properties_bytes

#: How many things are kept of each message.
WIDTH: Final = 3
#: Fields of a message, or of its namespace, that stand among its properties when they are encoded.
_NO_PROPERTIES: Final = ("WAIT", "INSTANCE_ID")
#: Topic, wait flag, time limit, and for ordered messages their queue as far as it is known.
Kind: TypeAlias = tuple[str, bool, float, MessageQueue | bool]


class BatchKind:
    """The batches of one kind: at most one is open, any number is under way."""

    __slots__ = ("key", "open", "under_way")

    def __init__(self, key: Kind) -> None:
        self.key = key
        self.open: OpenBatch | None = None
        self.under_way: set[OpenBatch] = set()


class OpenBatch:
    """Messages that travel together. ``over`` opens when all of them have their outcome.

    Unless a hook or their order needs the messages themselves, only what travels of them is kept: a
    thousand messages that live until their answer comes cost more time, of the garbage collector and of
    memory that is far away by then, than collecting and encoding them.

    Args:
        kind: of its messages.
        size: how many bytes it may take.
        keeps: whether the messages themselves are kept.
    """

    __slots__ = (
        "_count",
        "_groups",
        "bytes",
        "first",
        "group",
        "is_begun",
        "is_closed",
        "keeps",
        "kind",
        "left",
        "over",
        "parts",
        "ready",
        "slots",
        "timeout",
        "told",
        "topic",
        "wait_store_ok",
        "withdrawn",
    )  # fmt: skip

    def __init__(self, kind: BatchKind, size: int, *, keeps: bool) -> None:
        self.kind = kind
        self.topic, self.wait_store_ok, self.timeout, _ = kind.key
        #: Its first message, which stands for all where their kind matters.
        self.first: Message = RELEASED
        self.keeps = keeps
        #: Of each message: itself, or its body where messages are not kept; its encoded properties but
        #: the id; its flag. All in one list, because one ``+=`` adds all three: an interrupt can't leave a
        #: part of a message behind.
        self.parts: list[Any] = []
        self._count = 0
        #: How many bytes it still takes.
        self.left = size
        #: Of the bodies alone: what they take of the in-flight limit. Known when it is over.
        self.bytes = 0
        self.slots: dict[str, KeySlot] = {}
        self.ready = Event()
        #: Whether ``deliver`` sees to it.
        self.is_begun = False
        self.is_closed = False
        self.over = Event()
        #: What a flush that waits for it knows it by.
        self.group: FlushGroup | None = None
        self.withdrawn: set[int] = set()
        #: Places of messages whose end hooks hear of, or have heard of.
        self.told: set[int] = set()
        self._groups: list[tuple[Sequence[int], SendResult | Exception]] = []

    @property
    def count(self) -> int:
        """How many messages it has, or had."""
        return self._count or len(self.parts) // WIDTH

    def message(self, place: int) -> Message:
        """One of its messages, or an equal one that is made again from its encoded parts."""
        if self.keeps:
            return self.parts[place * WIDTH]  # type: ignore[no-any-return]
        if not place:
            return self.first
        body, fields, flag = self.parts[place * WIDTH : (place + 1) * WIDTH]
        own = decode_properties_bytes(fields)
        for name in _NO_PROPERTIES:
            own.pop(name, None)
        tags, keys = own.pop(Property.TAGS, None), own.pop(Property.KEYS, None)
        wait = self.wait_store_ok
        return Message(
            self.topic, body, tags=tags, keys=keys, properties=own, flag=flag, wait_store_ok=wait
        )

    def columns(self, places: Sequence[int]) -> list[list[Any]]:
        """What is kept of some of its messages: messages or bodies, properties, flags."""
        columns = [self.parts[number::WIDTH] for number in range(WIDTH)]
        if len(places) < self.count:
            columns = [[column[place] for place in places] for column in columns]
        return columns

    def withdraw(self, place: int) -> bool:
        """Take a message back; False if it is on its way, or its fate is known."""
        if self.is_closed:
            return False
        self.withdrawn.add(place)
        return True

    def places(self) -> Sequence[int]:
        """The places of the messages that are to be sent."""
        everything = range(self.count)
        if not self.withdrawn:
            return everything
        return [place for place in everything if place not in self.withdrawn]

    def settle(self, places: Sequence[int], outcome: SendResult | Exception) -> None:
        """What became of some of the messages, which went in one request."""
        self._groups.append((places, outcome))

    def finish(self, error: Exception) -> None:
        """Everything is known; ``error`` is the outcome of those that have none yet."""
        self._count = self.count
        self.settle(range(self._count), error)
        if self.parts:
            kept = self.parts[::WIDTH]
            self.bytes = sum(map(len, [m.body for m in kept] if self.keeps else kept))
        # A caller that keeps the delivery of one message does not keep the bodies of all.
        self.parts, self.first = [], RELEASED

    def outcome(self, place: int) -> SendResult | Exception:
        """What became of one message; only when the batch is over."""
        for places, outcome in self._groups:
            if place in places:
                if isinstance(outcome, SendFailedError):
                    return _own_copy(outcome)
                if isinstance(outcome, Exception) or len(places) == 1:
                    return outcome
                return share(outcome, places.index(place))
        raise LookupError(f"a batch of {self.count} messages has none at {place}")

    def look(self, place: int) -> SendResult | Exception | None:
        """What is known by now of one message."""
        return next((outcome for places, outcome in self._groups if place in places), None)


def _own_copy(error: SendFailedError) -> SendFailedError:
    """The same error for another message: one that is raised twice would mix up two stories."""
    copy = type(error)(str(error), attempts=error.attempts, outcome=error.outcome)
    copy.__cause__ = error.__cause__
    return copy
