"""Submitted messages in the fast lane: parcels that the background writes.

A parcel is its own delivery: one object for a message. Loaded with the asyncio shell, when the
first message is submitted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketwire.aio.driver import Driver
from rocketwire.aio.express import Folded, PostOffice
from rocketwire.core.express import Express
from rocketwire.core.turns import Turn, left_to_parent
from rocketwire.message import Message, SendResult
from rocketwire.sync.delivery import CallbackThread, Delivery, Room

_log = logging.getLogger("rocketwire.producer")


class PostedDelivery(Folded, Delivery):
    """A message that travels alone, by the fast lane.

    Instead of having a gate it is one, which opens under the room's lock.
    """

    __slots__ = ("_outcome", "is_open", "turn", "waiters")

    office: PostingOffice
    turn: Turn
    is_open: bool
    waiters: list[Callable[[], None]] | None

    @property
    def _callbacks(self) -> CallbackThread:  # type: ignore[override]  # one for all of them
        return self.office.callbacks

    @property
    def _gate(self) -> PostedDelivery:  # type: ignore[override]
        return self

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the answer is there, or now if it is."""
        if not self.is_open:  # looked at first: in a forked child nobody may ever unlock the room
            with self.office.room.lock:
                if not self.is_open:
                    self.waiters = [*(self.waiters or ()), wake]
                    return
        wake()

    def _leave_to_parent(self) -> None:
        self._outcome, self.waiters, self.is_open = left_to_parent(), None, True

    def _look(self) -> SendResult | Exception:
        return self.receipt()

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """The answer is there, and came as that of an ordinary send."""
        self._outcome = result if error is None else error
        self.office.close([self], len(self.message.body))


class PostingOffice(PostOffice):
    """Where a blocking producer's messages are written by its background."""

    __slots__ = ("callbacks", "room")

    def __init__(self, express: Express, room: Room, callbacks: CallbackThread) -> None:
        self.express = express
        self.room = room
        self.callbacks = callbacks

    def prepare(self, message: Message) -> PostedDelivery | None:
        """A parcel but for its ``turn``; None if there is something unusual about the message.

        Raises:
            InvalidMessageError: something is wrong with the message.
        """
        parcel = self.express.prepare(message, PostedDelivery)
        if parcel is not None:
            parcel.office = self
            parcel._outcome = parcel.waiters = None  # noqa: SLF001 - our own
            parcel.is_over = parcel.is_open = False
        return parcel

    def relay(self, parcel: PostedDelivery, driver: Driver, now: float) -> None:
        """Write a parcel, on the background's thread."""
        self.driver = driver
        if self.express.is_current(parcel):
            self.hand_in(parcel, now)
        else:  # a broker was left while the parcel stood in line
            parcel.start_over()

    def stored(self, parcels: list[PostedDelivery], size: int) -> None:
        """Their answers are there."""
        self.close(parcels, size)

    def close(self, deliveries: list[PostedDelivery], size: int) -> None:
        """Give their room back, and wake those who wait."""
        for wake in self.room.finish_all(deliveries, size):
            try:
                wake()
            except Exception:  # noqa: BLE001 - others wait for answers in the same bytes
                _log.exception("whoever waited for a submitted message could not be told")
