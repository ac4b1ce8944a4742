"""The handle of a submitted message, and the room that submitted messages take."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from rocketwire.aio.driver import RUN_SLOTS, Driver, Run
from rocketwire.aio.waiting import SLOTS_BELOW
from rocketwire.core.accumulate import Lot
from rocketwire.core.effects import Gate, Op
from rocketwire.core.turns import Turn, Turns, left_to_parent
from rocketwire.errors import Outcome, SendFailedError
from rocketwire.message import SendResult

_log = logging.getLogger("rocketwire.producer")

#: Whether this code, or the task that it belongs to, was started by a delivery's callback.
in_callback: ContextVar[bool] = ContextVar("rocketwire_in_callback", default=False)


class Room:
    """How much submitted messages may take: their number and their bytes. First come, first served.

    ``held`` is the number of messages submitted and not answered; ``visitors`` counts sends that
    somebody awaits, which take no room but are waited for at the end. ``turns`` tell a flush what
    was submitted before it.
    """

    __slots__ = (
        "_bytes",
        "_line",
        "_loop",
        "_messages",
        "_quiet",
        "held",
        "held_bytes",
        "is_inherited",
        "turns",
        "visitors",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, messages: int, size: int) -> None:
        self._loop = loop
        self._messages = messages
        self._bytes = size
        self.held_bytes = 0
        self._line: deque[tuple[asyncio.Future[bool], int, int]] = deque()
        self._quiet: list[asyncio.Future[bool]] = []
        self.held = 0
        self.visitors = 0
        self.turns = Turns()
        #: Whether this is a forked child, and what is in flight is the parent's.
        self.is_inherited = False

    def take(self, messages: int, size: int) -> bool:
        """Take room if there is any, and nobody waits for it."""
        held, held_bytes = self.held + messages, self.held_bytes + size
        if self._line or ((held > self._messages or held_bytes > self._bytes) and self.held):
            # Somebody larger than the whole room may go in when it is empty.
            return False
        self.held, self.held_bytes = held, held_bytes
        return True

    def is_full(self, size: int) -> bool:
        """Whether one more message would have to wait."""
        is_beyond = self.held >= self._messages or self.held_bytes + size > self._bytes
        return bool(self._line) or (is_beyond and self.held > 0)

    @property
    def in_flight(self) -> int:
        """Messages without an answer."""
        return self.held

    def take_anyway(self, messages: int, size: int) -> None:
        """Take room, be there any or not."""
        self.held += messages
        self.held_bytes += size

    async def wait(self, messages: int, size: int, limit: float) -> bool:
        """Take room when there is some; False if there was none in ``limit`` seconds."""
        future: asyncio.Future[bool] = self._loop.create_future()
        place = (future, messages, size)
        timer = self._loop.call_later(limit, _settle, future, False)  # noqa: FBT003
        self._line.append(place)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.done() and future.result():
                self.give_back(messages, size)
            raise
        finally:
            timer.cancel()
            # Whoever got room keeps his place until now, so that nobody overtakes him.
            self._line.remove(place)
            self._let_in()

    def give_back(self, messages: int, size: int) -> None:
        """An answer came."""
        self.held -= messages
        self.held_bytes -= size
        if self._line:
            self._let_in()
        if self._quiet:
            self.look_around()

    def lot_begun(self, lot: Lot) -> None:
        """A lot has its first message."""
        turn = self.turns.current
        turn.count += 1
        lot.over.add_waiter(turn.leave)

    def lot_over(self, lot: Lot) -> None:
        """The messages of a lot have their outcome."""
        self.give_back(lot.count, lot.bytes)

    def _let_in(self) -> None:
        for future, messages, size in self._line:
            if future.done():
                continue
            held, held_bytes = self.held + messages, self.held_bytes + size
            if (held > self._messages or held_bytes > self._bytes) and self.held:
                return
            self.held, self.held_bytes = held, held_bytes
            future.set_result(True)

    def look_around(self) -> None:
        """Tell those who wait for quiet, if it is."""
        if not self.held:
            for future in self._quiet:
                _settle(future, True)  # noqa: FBT003

    async def quiet(self, limit: float | None, *, visitors: bool = False) -> bool:
        """Wait until nothing is held, and nobody visits either if that matters; False: in vain."""
        end = None if limit is None else self._loop.time() + limit
        while self.in_flight or (visitors and self.visitors):
            future: asyncio.Future[bool] = self._loop.create_future()
            timer = None
            if end is not None:
                left = max(end - self._loop.time(), 0.0)
                timer = self._loop.call_later(left, _settle, future, False)  # noqa: FBT003
            self._quiet.append(future)
            try:
                if not await future:
                    return False
            finally:
                self._quiet.remove(future)
                if timer is not None:
                    timer.cancel()
        return True

    async def flush(self, limit: float | None) -> bool:
        """Wait until all that was submitted before has its outcome; False: in vain."""
        end = None if limit is None else self._loop.time() + limit
        for turn in self.turns.close():
            left = None if end is None else max(end - self._loop.time(), 0.0)
            if turn.count and not await self._opened(turn.over, left):
                return False
        return True

    async def _opened(self, gate: Gate, limit: float | None) -> bool:
        if limit == 0:
            return gate.is_open
        future: asyncio.Future[bool] = self._loop.create_future()
        timer = None
        if limit is not None:
            timer = self._loop.call_later(limit, _settle, future, False)  # noqa: FBT003
        gate.add_waiter(lambda: _settle(future, True))  # noqa: FBT003
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()

    @property
    def has_listeners(self) -> bool:
        """Whether anybody waits for quiet."""
        return bool(self._quiet)


def _settle(future: asyncio.Future[bool], value: bool) -> None:  # noqa: FBT001
    if not future.done():
        future.set_result(value)


class Delivery:
    """A message that was handed over; ``await`` it for the answer.

    No task and no future stands behind it unless somebody waits.
    """

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Whether the answer is there."""

    @abstractmethod
    def exception(self) -> Exception | None:
        """Why the send failed; None if it did not.

        Raises:
            asyncio.InvalidStateError: there is no answer yet.
        """

    @abstractmethod
    def result(self) -> SendResult:
        """The answer, if it is there; ``await`` the delivery to wait for it.

        Raises:
            SendFailedError: the send failed.
            asyncio.InvalidStateError: there is no answer yet.
        """

    @abstractmethod
    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the loop when the answer is there, or now if it is."""

    @abstractmethod
    def cancel(self) -> None:
        """Give the message up, if there is no answer yet.

        Who waits gets a ``SendFailedError``; its outcome says whether the message may be stored
        all the same.
        """

    def __await__(self) -> Generator[Any, None, SendResult]:
        if not self.done():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: Delivery) -> None:
                if not future.done():
                    future.set_result(None)

            self.add_done_callback(wake)
            yield from future
        return self.result()

    def _tell(self, listener: Callable[[Delivery], Any]) -> None:
        token = in_callback.set(True)
        try:
            listener(self)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - see below
            # A user's callback must not harm other answers in the same bytes; one that asks a
            # cancelled future raises what is no Exception.
            _log.exception("a callback of a submitted message failed")
        finally:
            in_callback.reset(token)


class Alone(Run[SendResult | None], Delivery):
    """A message that travels alone: the operation under way itself, so that it costs one object."""

    __slots__ = SLOTS_BELOW

    _room: Room
    turn: Turn
    _count: int
    _size: int
    #: What became of it; None also of a message that is stored and of which nobody has asked.
    _outcome: SendResult | Exception | None
    listeners: list[Callable[[Delivery], Any]] | None

    def done(self) -> bool:
        """Whether the answer is there."""
        if not self.is_over and self._room.is_inherited:
            # Nobody here will ever have the answer; whoever was to be told is so in the parent.
            self._outcome, self.listeners, self.is_over = left_to_parent(), None, True
        return self.is_over

    def result(self) -> SendResult:
        """The answer, if it is there."""
        if not self.done():
            raise _no_answer()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return cast("SendResult", self._outcome)

    def exception(self) -> Exception | None:
        """Why the send failed; None if it did not."""
        if not self.done():
            raise _no_answer()
        return self._outcome if isinstance(self._outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the loop when the answer is there, or now if it is."""
        if self.done():
            self._tell(callback)
        elif self.listeners is None:
            self.listeners = [callback]
        else:
            self.listeners.append(callback)

    def cancel(self) -> None:
        """Give the message up, if there is no answer yet."""
        if not self.done() and self.give_up():
            outcome = Outcome.MAYBE_STORED if self.issued else Outcome.NOT_SENT
            self.settled(None, SendFailedError(f"{outcome.value}: cancelled", outcome=outcome))

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """The answer is there."""
        self._outcome = result if error is None else error
        self._room.give_back(self._count, self._size)
        self.turn.leave()
        self.tell_all()

    def tell_all(self) -> None:
        """Call those who wanted to know."""
        listeners = self.listeners
        if listeners is not None:
            self.listeners = None
            for listener in listeners:
                self._tell(listener)


class SingleDelivery(Alone):
    """A message that travels alone, or a batch that was made by the caller, as an operation."""

    __slots__ = (*RUN_SLOTS, "_count", "_outcome", "_room", "_size", "listeners", "turn")

    def __init__(
        self, driver: Driver, op: Op[SendResult | None], room: Room, count: int, size: int
    ) -> None:
        # What Run.__init__ does: a call of it costs as much as all these stores together.
        self._driver = driver
        self._op = op
        self._undo = None
        self.connection = None
        self.issued = 0.0
        self.is_over = False
        self._room = room
        turn = self.turn = room.turns.current
        turn.count += 1
        self._count = count
        self._size = size
        self._outcome = None
        self.listeners = None


class BatchedDelivery(Delivery):
    """A message that travels with others: its place among them, and nothing else.

    What became of it is looked up when somebody asks, so that an answer for a thousand messages
    costs no more than one for one.
    """

    # Set by whoever makes one: a constructor would cost as much again.
    __slots__ = ("_lot", "_outcome", "_place")

    _lot: Lot
    _place: int
    _outcome: SendResult | Exception | None

    @staticmethod
    def of(lot: Lot, place: int) -> BatchedDelivery:
        """The delivery of the message at that place."""
        delivery = BatchedDelivery()
        delivery._lot, delivery._place, delivery._outcome = lot, place, None
        return delivery

    def _look(self) -> SendResult | Exception:
        outcome = self._outcome
        if outcome is None:
            if not self._lot.over.is_open:
                raise _no_answer()
            outcome = self._outcome = self._lot.outcome(self._place)
        return outcome

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._outcome is not None or self._lot.over.is_open

    def result(self) -> SendResult:
        """The answer, if it is there."""
        outcome = self._look()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self) -> Exception | None:
        """Why the send failed; None if it did not."""
        outcome = self._look()
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the loop when the answer is there, or now if it is."""
        if self._outcome is not None:
            self._tell(callback)
        else:
            self._lot.over.add_waiter(partial(self._tell, callback))

    def cancel(self) -> None:
        """Give the message up, if there is no answer yet.

        It is not sent if the others have not left yet. Who waits is told when they have arrived.
        """
        if not self.done():
            is_back = self._lot.withdraw(self._place)
            outcome = Outcome.NOT_SENT if is_back else Outcome.MAYBE_STORED
            self._outcome = SendFailedError(f"{outcome.value}: cancelled", outcome=outcome)


def _no_answer() -> asyncio.InvalidStateError:
    return asyncio.InvalidStateError("no answer yet: await the delivery")
