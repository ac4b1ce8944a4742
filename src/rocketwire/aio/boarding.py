"""The room of a producer with ``auto_batch``: most messages board the lot of the one before.

A message that has nothing but a body, of the topic of the one before, needs no look at the lanes
of the accumulator, nor at the room: the lot that took the last one *boards*, which means that
somebody has seen to it that there is room for as many as it may still take. What has boarded is
counted when somebody else wants to know how full the room is. A ``submit`` of 1.1 µs becomes one of
0.6 that way, a part of which is the cheaper look at the loop (``client.py``).
"""

from __future__ import annotations

import asyncio

from rocketwire.aio.delivery import BatchedDelivery, Delivery, Room
from rocketwire.core.accumulate import Accumulator, Lot
from rocketwire.message import PLAIN, Message


class BatchRoom(Room):
    """A room in which at most one lot boards.

    ``held`` and ``held_bytes`` lack what has boarded; ``in_flight`` tells all.
    """

    __slots__ = ("_counted", "_left", "_lot", "_overhead", "_too_large")

    def __init__(self, loop: asyncio.AbstractEventLoop, messages: int, size: int) -> None:
        super().__init__(loop, messages, size)
        self._lot: Lot | None = None
        #: How many of the lot's messages are counted, and the bytes that it took when they were.
        self._counted = self._left = 0
        self._overhead = self._too_large = 0

    def begin(self, lot: Lot, batches: Accumulator) -> None:
        """Let messages board an open lot, if there is room for all that it may take."""
        self._count()
        if lot.is_closed or self._line or self._bytes - self.held_bytes < lot.left:
            return
        self._lot = lot
        self._counted, self._left = len(lot.messages), lot.left
        self._overhead, self._too_large = batches.overhead, batches.largest
        lot.limit = min(batches.most, self._counted + self._messages - self.held)

    def board(self, message: Message) -> Delivery | None:
        """Put a message into the lot that boards; None if another way has to be found for it."""
        lot = self._lot
        if lot is None or message.topic != lot.topic or message.extras is not PLAIN:
            return None
        messages, size = lot.messages, len(message.body)
        place, left = len(messages), lot.left - size - self._overhead
        if place >= lot.limit or left < 0 or not 0 < size < self._too_large:
            return None
        messages.append(message)
        lot.left = left
        delivery = BatchedDelivery()
        delivery._lot = lot  # noqa: SLF001 - our own
        delivery._place = place  # noqa: SLF001
        delivery._outcome = None  # noqa: SLF001
        return delivery

    def _count(self) -> None:
        """Nobody boards any more; who has is counted."""
        lot = self._lot
        if lot is not None:
            self._lot, lot.limit = None, 0
            count = lot.count - self._counted
            size = self._left - lot.left - count * self._overhead
            lot.bytes += size
            self.held += count
            self.held_bytes += size

    @property
    def in_flight(self) -> int:
        """Messages without an answer."""
        self._count()
        return self.held

    def take(self, messages: int, size: int) -> bool:
        """Take room if there is any, and nobody waits for it."""
        self._count()
        return super().take(messages, size)

    def is_full(self, size: int) -> bool:
        """Whether one more message would have to wait."""
        self._count()
        return super().is_full(size)

    def give_back(self, messages: int, size: int) -> None:
        """An answer came."""
        self._count()
        super().give_back(messages, size)

    def lot_over(self, lot: Lot) -> None:
        """The messages of a lot have their outcome."""
        self._count()  # it may be the one that boarded last
        super().lot_over(lot)
