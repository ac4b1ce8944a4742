"""Parcels of the fast lane on an event loop.

A parcel is written, and its answer wakes whoever waits; what is between the two is in
``core/express`` and ``connection``. When anything but "stored" comes of it, the waiter becomes the
run of an ordinary operation, and goes on as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from rocketwire.aio.delivery import Room, SingleDelivery
from rocketwire.aio.driver import Awaited, Driver, Run, Told
from rocketwire.aio.waiting import Carrier
from rocketwire.core.effects import Effect
from rocketwire.core.express import Express, Parcel
from rocketwire.errors import RocketMQError
from rocketwire.message import SendResult

_new = object.__new__


class Folded(Carrier, Run[SendResult | None]):
    """A run that has not begun, because its first attempt is in the fast lane."""

    __slots__ = ()

    #: None when it has become an ordinary run.
    express: Express | None

    def _unfold(self) -> Effect | None:
        """Become an ordinary run; its first effect, or None if it is one already."""
        express = self.express
        if express is None:
            return None
        self.express = None  # type: ignore[misc]  # the classes below have the slot
        self._undo = None
        self._op = express.take_over(self.parcel)
        return next(self._op)

    def resume(self, value: object) -> None:
        """Go on with an answer other than "stored"."""
        if not self.is_over:
            self._unfold()
            super().resume(value)

    def fail(self, error: RocketMQError) -> None:
        """Go on with an error."""
        if not self.is_over:
            self._unfold()
            super().fail(error)

    def give_up(self) -> bool:
        """Close it where it stands."""
        if self.is_over:
            return False
        self._unfold()
        return super().give_up()

    def detour(self) -> None:
        """The parcel can't be written now: begin as an ordinary run does."""
        self.connection = None
        self.issued = 0.0
        effect = self._unfold()
        if effect is not None:
            self._advance(self._perform(effect))

    def start_over(self, express: Express) -> None:
        """Things have changed since the parcel was made: begin as if there were no fast lane."""
        self.express = None  # type: ignore[misc]  # the classes below have the slot
        self._undo = None
        self.connection = None
        self.issued = 0.0
        self._op = express.start_over(self.parcel)
        self.resume(None)


class ExpressDelivery(Folded, SingleDelivery):
    """A submitted message in the fast lane."""

    __slots__ = ("express", "parcel")

    def stored(self) -> None:
        """The answer is there."""
        # What the room's and the turn's own methods do, without calling them.
        room, turn = self._room, self._turn
        room.held -= 1
        room.held_bytes -= self._size
        if room._line or room._quiet:  # noqa: SLF001 - our own
            room.give_back(0, 0)
        turn.count -= 1
        if turn.is_closed and not turn.count:
            turn.over.open()
        listeners = self._listeners
        if listeners is not None:
            self._listeners = None
            for listener in listeners:
                self._tell(listener)

    def result(self) -> SendResult:
        """The answer, if it is there."""
        if self._result is None and self._error is None and self.done() and self._error is None:
            self._result = self.parcel.result()
        return super().result()


class ExpressAwaited(Folded, Awaited[SendResult | None]):
    """A send that somebody awaits, in the fast lane."""

    __slots__ = ("express", "parcel")

    @property
    def answer(self) -> asyncio.Future[SendResult]:
        """Where it is stored, or why it is not."""
        return cast("asyncio.Future[SendResult]", self._future)

    def stored(self) -> None:
        """Wake the one who waits."""
        future = self._future
        if future is not None and not future.done():
            future.set_result(self.parcel.result())


class ExpressTold(Folded, Told[SendResult | None]):
    """A message of another thread in the fast lane; its end is told to a function."""

    __slots__ = ("express", "parcel")

    def stored(self) -> None:
        """Tell it."""
        self.settled(self.parcel.result(), None)


def post(
    express: Express,
    parcel: Parcel,
    driver: Driver,
    on_done: Callable[[SendResult | None, Exception | None], object],
    now: float,
) -> None:
    """Write a parcel that another thread has made; ``on_done(result, error)`` is called here."""
    told = _new(ExpressTold)
    told.express = express
    told.parcel = parcel
    told._driver = driver  # noqa: SLF001 - our own
    told._on_done = on_done  # noqa: SLF001
    told.is_over = False
    if not express.is_current(parcel):  # a broker was left while the parcel stood in line
        told.start_over(express)
        return
    connection = driver.connections.get(parcel.stop.address)
    if connection is None or not connection.is_ready or not connection.carry(told, parcel, now):
        told.detour()


def submit(express: Express, parcel: Parcel, driver: Driver, room: Room) -> ExpressDelivery:
    """Hand a parcel over; the room for it is taken.

    Everything is set here rather than in constructors, whose calls would cost as much as all
    these stores.
    """
    delivery = _new(ExpressDelivery)
    delivery.express = express
    delivery.parcel = parcel
    delivery._driver = driver  # noqa: SLF001 - our own
    delivery._room = room  # noqa: SLF001
    turn = delivery._turn = room.turns.current  # noqa: SLF001
    turn.count += 1
    delivery._count = 1  # noqa: SLF001
    delivery._size = len(parcel.message.body)  # noqa: SLF001
    delivery._result = delivery._error = delivery._listeners = None  # noqa: SLF001
    delivery.is_over = False
    connection = driver.connections.get(parcel.stop.address)
    if (
        connection is None
        or not connection.is_ready
        or not connection.carry(delivery, parcel, parcel.began)
    ):
        delivery.detour()
    return delivery


def begin(express: Express, parcel: Parcel, driver: Driver) -> ExpressAwaited:
    """Send a parcel; somebody awaits its ``answer``, and gives it up if he goes."""
    waiter = _new(ExpressAwaited)
    waiter.express = express
    waiter.parcel = parcel
    waiter._driver = driver  # noqa: SLF001 - our own
    waiter._future = driver.loop.create_future()  # noqa: SLF001
    waiter.is_over = False
    connection = driver.connections.get(parcel.stop.address)
    if (
        connection is None
        or not connection.is_ready
        or not connection.carry(waiter, parcel, parcel.began)
    ):
        waiter.detour()
    return waiter
