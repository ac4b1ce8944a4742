"""Parcels of the fast lane on an event loop.

A parcel is written, and its answer wakes whoever waits; what is between the two is in
``core/express`` and ``connection``. The parcel is the delivery itself, or the one who waits: one
object for a message. When anything but "stored" comes of it, it becomes the run of an ordinary
operation, and goes on as one.
"""

from __future__ import annotations

import asyncio

from rocketwire.aio.delivery import Alone, Delivery, Room
from rocketwire.aio.driver import Driver, Run
from rocketwire.aio.waiting import Office, Waiting
from rocketwire.core.effects import Effect, Op
from rocketwire.core.express import Express
from rocketwire.core.turns import Turn
from rocketwire.errors import RocketMQError
from rocketwire.message import Message, SendResult


class PostOffice(Office):
    """What the parcels of one producer have in common."""

    __slots__ = ("driver", "express")

    def __init__(self, express: Express, driver: Driver) -> None:
        self.express = express
        self.driver = driver

    def hand_in(self, parcel: Folded, now: float) -> None:
        """Write a parcel, or go another way with it."""
        parcel.office = self
        parcel.is_over = False
        connection = self.driver.connections.get(parcel.stop.address)
        if connection is None or not connection.is_ready or not connection.carry(parcel, now):
            parcel.detour()


class Folded(Waiting, Run[SendResult | None]):
    """A run that has not begun, because its first attempt is in the fast lane.

    ``takes_frame`` tells whether that is still so.
    """

    __slots__ = ("_op", "_undo")

    office: PostOffice
    _op: Op[SendResult | None]

    @property
    def _driver(self) -> Driver:  # type: ignore[override]  # a run that keeps it once for all
        return self.office.driver

    def _unfold(self) -> Effect:
        """Become an ordinary run; returns its first effect."""
        self.takes_frame = False
        self._undo = None
        if self.connection is not None:
            self.connection.tell_written()  # the fault table must know what it hears the end of
        self._op = self.office.express.take_over(self)
        return next(self._op)

    def resume(self, value: object) -> None:
        """Go on with an answer other than "stored"."""
        if not self.is_over:
            if self.takes_frame:
                self._unfold()
            super().resume(value)

    def fail(self, error: RocketMQError) -> None:
        """Go on with an error."""
        if not self.is_over:
            if self.takes_frame:
                self._unfold()
            super().fail(error)

    def give_up(self) -> bool:
        """Close it where it stands."""
        if self.is_over:
            return False
        if self.takes_frame:
            self._unfold()
        return super().give_up()

    def detour(self) -> None:
        """The parcel can't be written now: begin as an ordinary run does."""
        self.connection = None
        self.issued = 0.0
        self._advance(self._perform(self._unfold()))

    def start_over(self) -> None:
        """Things have changed since the parcel was made: begin as if there were no fast lane."""
        self.takes_frame = False
        self._undo = None
        self.connection = None
        self.issued = 0.0
        self._op = self.office.express.start_over(self)
        self.resume(None)


class ExpressDelivery(Folded, Alone):
    """A submitted message in the fast lane."""

    __slots__ = ("_outcome", "listeners", "turn")

    office: SubmitOffice
    turn: Turn
    _count = 1

    @property
    def _room(self) -> Room:  # type: ignore[override]
        return self.office.room

    @property
    def _size(self) -> int:  # type: ignore[override]  # asked for only while it has its message
        return len(self.message.body)

    def result(self) -> SendResult:
        """The answer, if it is there."""
        if self._outcome is None and self.done() and self._outcome is None:
            self._outcome = self.receipt()
        return super().result()


class SubmitOffice(PostOffice):
    """For messages that are handed over."""

    __slots__ = ("room",)

    def __init__(self, express: Express, driver: Driver, room: Room) -> None:
        super().__init__(express, driver)
        self.room = room

    def submit(self, message: Message, *, has_room: bool = False) -> Delivery | None:
        """Hand a message over; None if there is no room, or something unusual about it.

        Args:
            message: the message.
            has_room: whether the caller has taken room for it.

        Raises:
            InvalidMessageError: something is wrong with the message.
        """
        room, size = self.room, len(message.body)
        if not has_room and room.is_full(size):
            return None
        parcel = self.express.prepare(message, ExpressDelivery)
        if parcel is None:
            return None
        if not has_room:
            room.held += 1
            room.held_bytes += size
        turn = parcel.turn = room.turns.current
        turn.count += 1
        parcel._outcome = parcel.listeners = None  # noqa: SLF001 - our own
        # What ``hand_in`` does, without calling it.
        parcel.office = self
        parcel.is_over = False
        connection = self.driver.connections.get(parcel.stop.address)
        if (
            connection is None
            or not connection.is_ready
            or not connection.carry(parcel, parcel.began)
        ):
            parcel.detour()
        return parcel

    def stored(self, parcels: list[ExpressDelivery], size: int) -> None:
        """Give their room back, and tell those who want to know."""
        self.room.give_back(len(parcels), size)
        turn, left = parcels[0].turn, 0
        told: list[ExpressDelivery] = []
        for delivery in parcels:
            if delivery.turn is not turn:
                turn.leave(left)
                turn, left = delivery.turn, 0
            left += 1
            if delivery.listeners is not None:
                told.append(delivery)
        turn.leave(left)
        for delivery in told:
            delivery.tell_all()


class ExpressAwaited(Folded):
    """A send that somebody awaits, in the fast lane."""

    __slots__ = ("future",)

    future: asyncio.Future[SendResult | None]

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """Wake the one who waits."""
        if not self.future.done():
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(result)


class SendOffice(PostOffice):
    """For sends that somebody awaits."""

    __slots__ = ()

    def begin(self, message: Message) -> ExpressAwaited | None:
        """Send a message; somebody awaits its ``future``, and gives it up if he goes.

        None if there is something unusual about it.

        Raises:
            InvalidMessageError: something is wrong with the message.
        """
        parcel = self.express.prepare(message, ExpressAwaited)
        if parcel is not None:
            parcel.future = self.driver.loop.create_future()
            self.hand_in(parcel, parcel.began)
        return parcel

    def stored(self, parcels: list[ExpressAwaited], size: int) -> None:
        """Wake those who wait."""
        for parcel in parcels:
            if not parcel.future.done():
                parcel.future.set_result(parcel.receipt())
