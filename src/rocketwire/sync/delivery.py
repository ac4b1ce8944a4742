"""The handle of a submitted message, and the room that submitted messages take."""

from __future__ import annotations

import logging
import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rocketwire.core.accumulate import Lot
from rocketwire.core.effects import Gate
from rocketwire.core.turns import Turn, Turns, left_to_parent
from rocketwire.message import SendResult

_log = logging.getLogger("rocketwire.producer")


#: Its fields are kept by the classes below it, so that a message in the fast lane can be its own
#: delivery. By a name, because mypy believes a plain ``()``.
_SLOTS_BELOW: tuple[str, ...] = ()


class Delivery:
    """A message that was handed over. Far lighter than a Future: nothing until somebody waits."""

    __slots__ = _SLOTS_BELOW

    #: Opens when the answer is there.
    _gate: Gate
    _outcome: SendResult | Exception | None
    _callbacks: CallbackThread

    @abstractmethod
    def _look(self) -> SendResult | Exception:
        """What became of the message; called when the gate is open."""

    def _await_end(self, timeout: float | None) -> SendResult | Exception:
        if not self.done():
            event = threading.Event()
            self._gate.add_waiter(event.set)
            if not event.wait(timeout):
                raise TimeoutError(f"no answer within {timeout} s; the send goes on")
        if self._outcome is None:
            self._outcome = self._look()
        return self._outcome

    def done(self) -> bool:
        """Whether the answer is there."""
        if self._gate.is_open:
            return True
        if self._callbacks.is_inherited:
            # Nobody here will ever have the answer.
            self._leave_to_parent()
        return self._gate.is_open

    def _leave_to_parent(self) -> None:
        self._outcome = left_to_parent()
        self._gate = Gate()  # whoever waits at the old one does so in the parent
        self._gate.open()

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait for the answer.

        Raises:
            SendFailedError: the send failed.
            TimeoutError: no answer yet; the send goes on.
        """
        outcome = self._await_end(timeout)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the answer; the error, or None.

        Raises:
            TimeoutError: no answer yet; the send goes on.
        """
        outcome = self._await_end(timeout)
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the callback thread when the answer is there."""
        self.done()  # in a forked child it is, if it was not before
        self._gate.add_waiter(lambda: self._callbacks.run(lambda: callback(self)))


class SingleDelivery(Delivery):
    """A message that travels alone."""

    __slots__ = ("_callbacks", "_gate", "_outcome")

    def __init__(self, callbacks: CallbackThread) -> None:
        self._gate = Gate()
        self._outcome = None
        self._callbacks = callbacks

    def _look(self) -> SendResult | Exception:
        return RuntimeError("a delivery without an outcome")  # can't be: settle sets one

    def settle(self, result: SendResult | None, error: Exception | None) -> None:
        """The answer is there."""
        self._outcome = result if error is None else error
        self._gate.open()


class BatchedDelivery(Delivery):
    """A message that travels with others: its place among them, and nothing else."""

    __slots__ = ("_callbacks", "_gate", "_lot", "_outcome", "_place")

    def __init__(self, lot: Lot, place: int, callbacks: CallbackThread) -> None:
        self._gate = lot.over
        self._outcome = None
        self._callbacks = callbacks
        self._lot = lot
        self._place = place

    def _look(self) -> SendResult | Exception:
        return self._lot.outcome(self._place)


class CallbackThread:
    """Runs users' callbacks, one after another, off the thread that reads answers."""

    def __init__(self) -> None:
        self._prepare()
        #: Whether this is a forked child, and the deliveries that it serves are the parent's.
        self.is_inherited = False

    def _prepare(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def disown(self) -> None:
        """In a forked child: what is queued is the parent's."""
        self._prepare()
        self.is_inherited = True

    def run(self, callback: Callable[[], Any]) -> None:
        """Call it soon."""
        with self._lock:
            if not self._is_over:
                self._queue.put(callback)
                if self._thread is None:
                    self._thread = _start(self._main)
                return
        # After the shutdown: a thread for this one alone, because nobody would end another.
        _start(lambda: _call(callback))

    def is_current(self) -> bool:
        """Whether the caller is a callback."""
        return self._thread is not None and self._thread is threading.current_thread()

    def stop(self, timeout: float) -> None:
        """Run what is queued, then end; from within a callback without waiting for that."""
        with self._lock:
            self._is_over = True
            thread = self._thread
        if thread is not None:
            self._queue.put(None)
            if not self.is_current():
                thread.join(timeout)

    def _main(self) -> None:
        while (callback := self._queue.get()) is not None:
            _call(callback)


def _start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, name="rocketwire-callbacks", daemon=True)
    thread.start()
    return thread


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except BaseException:  # noqa: BLE001 - not even sys.exit() may end the thread of the others
        _log.exception("a callback of a submitted message failed")


class Finished(Protocol):
    """Somebody whose outcome is known."""

    is_open: bool
    turn: Turn
    waiters: list[Callable[[], None]] | None


class Room:
    """How much may be in flight: messages and bytes.

    Args:
        messages: so many.
        size: their bytes.
        must_not_wait: whether the caller is one of those who make room; he never waits for it.
    """

    def __init__(
        self, messages: int, size: int, must_not_wait: Callable[[], bool] = lambda: False
    ) -> None:
        self._messages = messages
        self._bytes = size
        self._must_not_wait = must_not_wait
        self._held_bytes = 0
        self.held = 0
        #: What threads wait for, in the order in which they came.
        self._line: list[tuple[int, int]] = []
        self._turns = Turns()
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)

    def take(self, messages: int, size: int, timeout: float) -> bool:
        """Take room, waiting for it; False if there was none in time."""
        with self.lock:  # a condition is entered at twice the cost
            if not self._line and self._fits(messages, size):
                self.held += messages
                self._held_bytes += size
                return True
        return self._take_in_turn((messages, size), timeout)

    def _take_in_turn(self, wanted: tuple[int, int], timeout: float) -> bool:
        with self._changed:
            if not self._may_enter(wanted) and not self._must_not_wait():
                self._line.append(wanted)
                try:
                    if not self._changed.wait_for(lambda: self._may_enter(wanted), timeout):
                        return False
                finally:
                    self._line = [other for other in self._line if other is not wanted]
                    if self._line:
                        self._changed.notify_all()
            self.held += wanted[0]
            self._held_bytes += wanted[1]
            return True

    def _may_enter(self, wanted: tuple[int, int]) -> bool:
        """Whether there is room, and nobody before us waits for more than there is.

        Else a batch would never get in while single messages take every place that comes free.
        """
        if not self._fits(*wanted):
            return False
        for other in self._line:
            if other is wanted:
                break
            if not self._fits(*other):
                return False
        return True

    def _fits(self, messages: int, size: int) -> bool:
        # Somebody larger than the whole room may go in when it is empty.
        return not self.held or (
            self.held + messages <= self._messages and self._held_bytes + size <= self._bytes
        )

    def give_back(self, messages: int, size: int) -> None:
        """An answer came."""
        with self._changed:
            self.held -= messages
            self._held_bytes -= size
            if self._line or not self.held:
                self._changed.notify_all()

    def post(self, size: int) -> Turn | None:
        """``take`` room for one message and ``enter`` in one; None if there is no room now."""
        with self.lock:
            if self.held >= self._messages or self._held_bytes + size > self._bytes or self._line:
                return None
            self.held += 1
            self._held_bytes += size
            turn = self._turns.current
            turn.count += 1
            return turn

    def finish(self, turn: Turn, size: int) -> None:
        """``give_back`` and ``leave`` in one, for one message."""
        with self.lock:
            self.held -= 1
            self._held_bytes -= size
            if self._line or not self.held:
                self._changed.notify_all()
            turn.leave()

    def finish_all(self, those: Sequence[Finished], size: int) -> list[Callable[[], None]]:
        """``finish`` for several at once; returns what wakes those who wait for them."""
        waiters: list[Callable[[], None]] = []
        with self.lock:
            self.held -= len(those)
            self._held_bytes -= size
            if self._line or not self.held:
                self._changed.notify_all()
            for one in those:
                one.is_open = True  # before the turn is over: a flush finds it done
                if one.waiters is not None:
                    waiters += one.waiters
                    one.waiters = None
                one.turn.leave()
        return waiters

    def enter(self) -> Turn:
        """Something was handed over; ``leave`` the turn when its outcome is known."""
        with self.lock:
            turn = self._turns.current
            turn.count += 1
            return turn

    def leave(self, turn: Turn) -> None:
        """The outcome is known, and whoever asks for it gets it."""
        with self.lock:
            turn.leave()

    def lot_begun(self, lot: Lot) -> None:
        """A lot has its first message."""
        turn = self.enter()
        lot.over.add_waiter(lambda: self.leave(turn))

    def lot_over(self, lot: Lot) -> None:
        """The messages of a lot have their outcome."""
        self.give_back(lot.count, lot.bytes)

    def flush(self, timeout: float | None) -> bool:
        """Wait until all that was handed over before has its outcome; False: in vain."""
        with self.lock:
            turns = self._turns.close()
        end = None if timeout is None else time.monotonic() + timeout
        for turn in turns:
            event = threading.Event()
            turn.over.add_waiter(event.set)
            if not event.wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
        return True

    def wait_until_empty(self, timeout: float | None) -> bool:
        """Wait until nothing is in flight."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.held, timeout)
