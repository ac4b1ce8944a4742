"""The handle of a submitted message."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from rocketwire.core.effects import Event
from rocketwire.core.sending.flush import left_to_parent
from rocketwire.core.sending.open_batch import OpenBatch
from rocketwire.errors import ClientClosedError
from rocketwire.message import SendResult
from rocketwire.setting_values import limit
from rocketwire.sync.callbacks import CallbackThread
from rocketwire.system.latch import Latch

#: Its fields are kept by the classes below it. A variable, because mypy takes a literal ``()`` to mean that there are no fields.
_SLOTS_BELOW: tuple[str, ...] = ()


class _Answered(Protocol):
    """An event, or a delivery that is its own."""

    is_set: bool

    def add_waiter(self, wake: Callable[[], None]) -> None: ...


class Delivery:
    """A message that was handed over. Far lighter than a Future: nothing until a caller waits."""

    __slots__ = _SLOTS_BELOW

    _outcome: SendResult | Exception | None
    _callbacks: CallbackThread

    @property
    @abstractmethod
    def _event(self) -> _Answered:
        """Is set when the answer is there."""

    @abstractmethod
    def _look(self) -> SendResult | Exception:
        """What became of the message; called when the event is set."""

    def _await_end(self, timeout: float | str | None) -> SendResult | Exception:
        if not self.done():
            if self._callbacks.must_not_wait():
                raise RuntimeError(
                    "result() or exception() here would wait for ever: the answer can't come before "
                    "this hook or signal handler has returned; add_done_callback() instead"
                )
            self._wait(timeout)
        if self._outcome is None:
            self._outcome = self._look()
        return self._outcome

    def _wait(self, timeout: float | str | None) -> None:
        longest = limit(timeout)
        latch = Latch()
        self._event.add_waiter(latch.open)
        try:
            if not latch.wait(longest):
                raise TimeoutError(f"no answer within {longest} s; the send goes on")
        except ClientClosedError:
            if not self.done():  # else this is a forked child, and the answer is the parent's
                raise

    def done(self) -> bool:
        """Whether the answer is there."""
        if self._event.is_set:
            return True
        if self._callbacks.is_inherited:
            # The answer never comes in this process.
            self._leave_to_parent()
        return self._event.is_set

    @abstractmethod
    def _leave_to_parent(self) -> None:
        """In a forked child: the answer is the parent's."""

    def result(self, timeout: float | str | None = None) -> SendResult:
        """Wait for the answer.

        Raises:
            SendFailedError: the send failed.
            TimeoutError: no answer yet; the send goes on.
        """
        outcome = self._await_end(timeout)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self, timeout: float | str | None = None) -> Exception | None:
        """Wait for the answer; the error, or None.

        Raises:
            TimeoutError: no answer yet; the send goes on.
        """
        outcome = self._await_end(timeout)
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the callback thread when the answer is there."""
        self.done()  # in a forked child it is, if it was not before
        self._event.add_waiter(lambda: self._callbacks.run(lambda: callback(self)))


class BatchedDelivery(Delivery):
    """A message that travels with others: its place among them, and nothing else."""

    __slots__ = ("_batch", "_callbacks", "_event", "_outcome", "_place")

    _event: Event

    def __init__(self, batch: OpenBatch, place: int, callbacks: CallbackThread) -> None:
        self._event = batch.over
        self._outcome = None
        self._callbacks = callbacks
        self._batch = batch
        self._place = place

    def _look(self) -> SendResult | Exception:
        return self._batch.outcome(self._place)

    def _leave_to_parent(self) -> None:
        self._outcome = left_to_parent()
        self._event = Event()  # what waits for the old one does so in the parent
        self._event.set()
