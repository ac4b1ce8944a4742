"""How much submitted messages may take of memory, and what a flush waits for."""

from __future__ import annotations

import asyncio
from collections import deque

from rocketwire.core.effects import Event
from rocketwire.core.sending.flush import FlushGroups
from rocketwire.core.sending.open_batch import OpenBatch


class InFlightLimit:
    """How many submitted messages, and bytes of them, may be without an answer.

    First come, first served. ``held`` is the number of messages submitted and not answered;
    ``awaited`` counts sends that are awaited, which take no room but are waited for at the end.
    ``groups`` tell a flush what was submitted before it.
    """

    __slots__ = (
        "_bytes", "_loop", "_messages", "_quiet", "_waiting", "awaited", "groups", "has_waiters",
        "held", "held_bytes", "is_inherited",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, messages: int, size: int) -> None:
        self._loop = loop
        self._messages = messages
        self._bytes = size
        self.held_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[bool], int, int]] = deque()
        self._quiet: list[asyncio.Future[bool]] = []
        #: Whether anything waits for room, or until nothing is in flight.
        self.has_waiters = False
        self.held = 0
        self.awaited = 0
        self.groups = FlushGroups()
        #: Whether this is a forked child, and what is in flight is the parent's.
        self.is_inherited = False

    def take(self, messages: int, size: int) -> bool:
        """Take room if there is any, and no other submit waits for it."""
        held, held_bytes = self.held + messages, self.held_bytes + size
        if (held > self._messages or held_bytes > self._bytes or self.has_waiters) and (
            # A batch larger than the limit may go when nothing else is in flight.
            self._waiting or (self.held and not self._fits(held, held_bytes))
        ):
            return False
        self.held = held
        self.held_bytes = held_bytes
        return True

    def _fits(self, held: int, held_bytes: int) -> bool:
        return held <= self._messages and held_bytes <= self._bytes

    def take_anyway(self, messages: int, size: int) -> None:
        """Take room beyond the limit, too."""
        self.held += messages
        self.held_bytes += size

    async def wait(self, messages: int, size: int, limit: float) -> bool:
        """Take room when there is some; False if there was none in ``limit`` seconds."""
        future: asyncio.Future[bool] = self._loop.create_future()
        place = (future, messages, size)
        timer = self._loop.call_later(limit, _settle, future, False)  # noqa: FBT003
        self._waiting.append(place)
        self.has_waiters = True
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.done() and future.result():
                self.give_back(messages, size)
            raise
        finally:
            timer.cancel()
            # A submit that got room keeps its place until now, so that none overtakes it.
            self._waiting.remove(place)
            self._let_in()
            self._look_for_waiters()

    def give_back(self, messages: int, size: int) -> None:
        """An answer came."""
        self.held -= messages
        self.held_bytes -= size
        if self.has_waiters:
            self.room_came()

    def room_came(self) -> None:
        """Less is in flight than before: let in what waits for it."""
        self._let_in()
        self.look_around()

    def _look_for_waiters(self) -> None:
        self.has_waiters = bool(self._waiting or self._quiet)

    def batch_begun(self, batch: OpenBatch) -> None:
        """A batch has its first message."""
        group = self.groups.current
        group.count += 1
        batch.over.add_waiter(group.leave)

    def batch_over(self, batch: OpenBatch) -> None:
        """The messages of a batch have their outcome."""
        self.give_back(batch.count, batch.bytes)

    def _let_in(self) -> None:
        for future, messages, size in self._waiting:
            if future.done():
                continue
            held, held_bytes = self.held + messages, self.held_bytes + size
            if self.held and not self._fits(held, held_bytes):
                return
            self.held, self.held_bytes = held, held_bytes
            future.set_result(True)

    def look_around(self) -> None:
        """Wake what waits until nothing is in flight, if that is so."""
        if not self.held:
            for future in self._quiet:
                _settle(future, True)  # noqa: FBT003

    async def quiet(self, limit: float | None, *, awaited: bool = False) -> bool:
        """Wait until nothing is held, nor awaited if that matters; False: in vain."""
        end = None if limit is None else self._loop.time() + limit
        while self.held or (awaited and self.awaited):
            future: asyncio.Future[bool] = self._loop.create_future()
            timer = None
            if end is not None:
                left = max(end - self._loop.time(), 0.0)
                timer = self._loop.call_later(left, _settle, future, False)  # noqa: FBT003
            self._quiet.append(future)
            self.has_waiters = True
            try:
                if not await future:
                    return False
            finally:
                self._quiet.remove(future)
                self._look_for_waiters()
                if timer is not None:
                    timer.cancel()
        return True

    async def flush(self, limit: float | None) -> bool:
        """Wait until all that was submitted before has its outcome; False: in vain."""
        end = None if limit is None else self._loop.time() + limit
        for group in self.groups.close():
            left = None if end is None else max(end - self._loop.time(), 0.0)
            if group.count and not await self._opened(group.over, left):
                return False
        return True

    async def _opened(self, event: Event, limit: float | None) -> bool:
        if limit == 0:
            return event.is_set
        future: asyncio.Future[bool] = self._loop.create_future()
        timer = None
        if limit is not None:
            timer = self._loop.call_later(limit, _settle, future, False)  # noqa: FBT003
        event.add_waiter(lambda: _settle(future, True))  # noqa: FBT003
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()


def _settle(future: asyncio.Future[bool], value: bool) -> None:  # noqa: FBT001
    if not future.done():
        future.set_result(value)
