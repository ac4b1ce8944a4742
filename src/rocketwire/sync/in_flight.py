"""How much submitted messages may take of memory, and what a flush waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from rocketwire.core.sending.collect import OpenBatch
from rocketwire.core.sending.flush import FlushGroup, FlushGroups


class Finished(Protocol):
    """A delivery whose outcome is known."""

    is_open: bool
    group: FlushGroup
    waiters: list[Callable[[], None]] | None


class InFlightLimit:
    """How many submitted messages, and bytes of them, may be without an answer.

    Args:
        messages: so many.
        size: their bytes.
        must_not_wait: whether the calling thread is one that makes room; it never waits for it.
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
        self._waiting: list[tuple[int, int]] = []
        self._groups = FlushGroups()
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)

    def take(self, messages: int, size: int, timeout: float) -> bool:
        """Take room, waiting for it; False if there was none in time."""
        with self.lock:  # a condition is entered at twice the cost
            if not self._waiting and self._fits(messages, size):
                self.held += messages
                self._held_bytes += size
                return True
        return self._take_in_turn((messages, size), timeout)

    def admit(self, messages: int, size: int) -> FlushGroup | None:
        """``take`` room and ``enter`` the group in one; None if there is no room now."""
        with self.lock:
            if self._waiting or not self._fits(messages, size):
                return None
            self.held += messages
            self._held_bytes += size
            group = self._groups.current
            group.count += 1
            return group

    def finish(self, delivery: Finished, messages: int, size: int) -> list[Callable[[], None]]:
        """``give_back`` and ``leave`` in one; returns what wakes those who wait for a delivery."""
        with self.lock:
            self.held -= messages
            self._held_bytes -= size
            if self._waiting or not self.held:
                self._changed.notify_all()
            delivery.is_open = True  # before the group is over: a flush finds it done
            waiters, delivery.waiters = delivery.waiters, None
            delivery.group.leave()
        return waiters or []

    def _take_in_turn(self, wanted: tuple[int, int], timeout: float) -> bool:
        with self._changed:
            if not self._may_enter(wanted) and not self._must_not_wait():
                self._waiting.append(wanted)
                try:
                    if not self._changed.wait_for(lambda: self._may_enter(wanted), timeout):
                        return False
                finally:
                    self._waiting = [other for other in self._waiting if other is not wanted]
                    if self._waiting:
                        self._changed.notify_all()
            self.held += wanted[0]
            self._held_bytes += wanted[1]
            return True

    def _may_enter(self, wanted: tuple[int, int]) -> bool:
        """Whether there is room, and no thread before this one waits for more than there is.

        Else a batch would never get in while single messages take every place that comes free.
        """
        if not self._fits(*wanted):
            return False
        for other in self._waiting:
            if other is wanted:
                break
            if not self._fits(*other):
                return False
        return True

    def _fits(self, messages: int, size: int) -> bool:
        # A batch larger than the limit may go when nothing else is in flight.
        return not self.held or (
            self.held + messages <= self._messages and self._held_bytes + size <= self._bytes
        )

    def give_back(self, messages: int, size: int) -> None:
        """An answer came."""
        with self._changed:
            self.held -= messages
            self._held_bytes -= size
            if self._waiting or not self.held:
                self._changed.notify_all()

    def enter(self) -> FlushGroup:
        """Something was handed over; ``leave`` the group when its outcome is known."""
        with self.lock:
            group = self._groups.current
            group.count += 1
            return group

    def leave(self, group: FlushGroup) -> None:
        """The outcome is known, and a caller that asks for it gets it."""
        with self.lock:
            group.leave()

    def batch_begun(self, batch: OpenBatch) -> None:
        """A batch has its first message."""
        group = self.enter()
        batch.over.add_waiter(lambda: self.leave(group))

    def batch_over(self, batch: OpenBatch) -> None:
        """The messages of a batch have their outcome."""
        self.give_back(batch.count, batch.bytes)

    def flush(self, timeout: float | None) -> bool:
        """Wait until all that was handed over before has its outcome; False: in vain."""
        with self.lock:
            groups = self._groups.close()
        end = None if timeout is None else time.monotonic() + timeout
        for group in groups:
            event = threading.Event()
            group.over.add_waiter(event.set)
            if not event.wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
        return True

    def wait_until_empty(self, timeout: float | None) -> bool:
        """Wait until nothing is in flight."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.held, timeout)
