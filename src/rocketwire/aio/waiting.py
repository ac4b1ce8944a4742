"""Who waits for what comes back on a connection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

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


class Waiter:
    """Somebody who waits for one request at a time. Told exactly once how it ended."""

    __slots__ = ("connection", "deadline", "issued", "opaque")

    connection: Connection | None
    #: Zero while the request stands in the connection's line.
    opaque: int
    deadline: float
    issued: float

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


class Carrier(Waiter):
    """Somebody who waits for a parcel's answer."""

    __slots__ = ()

    parcel: Parcel
    is_over: bool

    @abstractmethod
    def stored(self) -> None:
        """The message is stored; the parcel has the answer, and ``is_over`` is set."""


def deliver(answers: list[tuple[Carrier, bytes]], now: float) -> None:
    """Parcels were stored, as was read at ``now``."""
    parcels: list[Parcel] = []
    for carrier, frame in answers:
        parcel = carrier.parcel
        parcel.answer = frame
        # Of all of them, before the first one's callback can cancel others.
        carrier.is_over = True  # type: ignore[misc]  # the classes below have the slot
        parcels.append(parcel)
    settle(parcels, now)
    for carrier, _ in answers:
        carrier.stored()


def refuse(command: Command) -> Command:
    """The answer to a request that we do not know."""
    return Command(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"request type {command.code} not supported",
    )
