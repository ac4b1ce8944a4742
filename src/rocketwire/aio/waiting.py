"""Who waits for what comes back on a connection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from rocketwire.core.effects import Invoke, Oneway
from rocketwire.core.express import Parcel, settle
from rocketwire.errors import RocketMQError
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Command

if TYPE_CHECKING:
    from rocketwire.aio.connection import Connection

#: Answers a request of the peer; None leaves it unanswered.
Responder: TypeAlias = Callable[[Command], Command | None]
Call: TypeAlias = Invoke | Oneway


#: Of classes whose fields are kept by those below them, so that one object can be several things:
#: Python lets only one base class have slots. By a name, because mypy believes a plain ``()``.
SLOTS_BELOW: tuple[str, ...] = ()
#: What a waiter keeps.
WAITER_SLOTS = ("answer", "connection", "deadline", "issued", "opaque", "size", "takes_frame")


class Waiter:
    """Somebody who waits for one request at a time. Told exactly once how it ended."""

    __slots__ = SLOTS_BELOW

    connection: Connection | None
    #: Zero while the request stands in the connection's line.
    opaque: int
    deadline: float
    issued: float
    #: As a session wants it (``wire/session``).
    size: int
    takes_frame: bool
    answer: bytes

    @property
    @abstractmethod
    def owner(self) -> object:
        """Whose request it is, of those who share the connection."""

    @abstractmethod
    def resume(self, value: object) -> None:
        """The reply came, or the oneway request was written (None)."""

    @abstractmethod
    def fail(self, error: RocketMQError) -> None:
        """There will be no reply."""


class Office:
    """Where a producer hands in its parcels of one kind. They keep it, and nothing else of his."""

    __slots__ = ()

    @abstractmethod
    def stored(self, parcels: list[Any], size: int) -> None:
        """Messages with that many bytes are stored; their ``answer`` and ``is_over`` are set."""


class Waiting(Parcel, Waiter):
    """A parcel that waits for its own answer."""

    __slots__ = (
        *[name for name in WAITER_SLOTS if name not in Parcel.__slots__],
        "is_over",
        "office",
    )

    office: Office
    is_over: bool


def deliver(parcels: list[Waiting], now: float) -> None:
    """Parcels were stored, as was read at ``now``."""
    while parcels:
        office = parcels[0].office
        others: list[Waiting] = []
        for parcel in parcels:
            # Of all of them, before the first one's callback can cancel others.
            parcel.is_over = True
            if parcel.office is not office:
                others.append(parcel)
        if others:  # of another producer, or not submitted but awaited
            parcels = [parcel for parcel in parcels if parcel.office is office]
        office.stored(parcels, settle(parcels, now))
        parcels = others


def refuse(command: Command) -> Command:
    """The answer to a request that we do not know."""
    return Command(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"request type {command.code} not supported",
    )
