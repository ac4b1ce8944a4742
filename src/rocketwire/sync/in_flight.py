"""How much submitted messages may take of memory, and what a flush waits for.

Safe at any moment, in a signal handler or a finalizer, too: the thread that holds the lock may take it
again, what waits does so outside of it, and an interrupt takes nothing along.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol

from rocketwire.core.sending.flush import FlushGroup, FlushGroups
from rocketwire.core.sending.open_batch import OpenBatch
from rocketwire.system.latch import Latch

_group_of: Final = attrgetter("group")


class Finished(Protocol):
    """A delivery whose outcome is known."""

    #: Its messages, and their bytes.
    count: int
    room: int
    is_set: bool
    group: FlushGroup
    waiters: list[Callable[[], None]] | None


class _WaitingThread:
    """A thread that waits for room."""

    __slots__ = ("is_let_in", "latch", "messages", "size")

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self.size = size
        self.latch = Latch()
        self.is_let_in = False


class InFlightLimit:
    """How many submitted messages, and bytes of them, may be without an answer.

    Args:
        messages: so many.
        size: their bytes.
        must_not_wait: whether what makes room is the calling thread itself, or waits for it; then it
            never waits for room.
        lock: one that its holder may take again.
    """

    def __init__(
        self,
        messages: int,
        size: int,
        must_not_wait: Callable[[], bool] = lambda: False,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._messages = messages
        self._bytes = size
        self._must_not_wait = must_not_wait
        self._held_bytes = 0
        self.held = 0
        #: Threads that wait for room, in the order in which they came.
        self._waiting: list[_WaitingThread] = []
        #: What waits until nothing is in flight.
        self._quiet: list[Latch] = []
        self._groups = FlushGroups()
        self.lock = threading.RLock() if lock is None else lock

    def take(self, messages: int, size: int, timeout: float) -> bool:
        """Take room, waiting for it; False if there was none in time."""
        is_taken = False
        try:
            with self.lock:
                if not self._waiting and self._fits(messages, size):
                    self.held += messages
                    self._held_bytes += size
                    is_taken = True
            return is_taken or self._take_in_order(_WaitingThread(messages, size), timeout)
        except BaseException:  # the thread was interrupted behind the lock
            if is_taken:
                self.give_back(messages, size)
            raise

    def admit(self, messages: int, size: int) -> FlushGroup | None:
        """``take`` room and ``enter`` the group in one; None if there is no room now."""
        group = None
        try:
            with self.lock:
                if not self._waiting and self._fits(messages, size):
                    self.held += messages
                    self._held_bytes += size
                    group = self._groups.current
                    group.count += 1
        except BaseException:
            if group is not None:
                self.withdraw(group, messages, size)
            raise
        return group

    def withdraw(self, group: FlushGroup, messages: int, size: int) -> None:
        """What was let in by ``admit`` is not handed over after all."""
        self.give_back(messages, size)
        self.leave(group)

    def finish(self, deliveries: Sequence[Finished]) -> list[Callable[[], None]]:
        """``give_back`` and ``leave`` for several in one; returns what wakes those that wait for them.

        Answers come by the hundred. One turn at the lock for each would cost as much as all the rest, and
        the first one would wake a thread that waits for room before there is room for more than one.
        """
        wakers: list[Callable[[], None]] = []
        # Before it is taken off: a finalizer that comes in the midst may take room, too.
        messages = sum([delivery.count for delivery in deliveries])
        size = sum([delivery.room for delivery in deliveries])
        with self.lock:
            self.held -= messages
            self._held_bytes -= size
            if self._waiting or not self.held:
                self._admit()
            for delivery in deliveries:
                delivery.is_set = True  # before the group is over: a flush finds it done
                waiters = delivery.waiters
                if waiters is not None:
                    delivery.waiters = None
                    wakers += waiters
            for group, some in groupby(deliveries, _group_of):
                group.leave(len(list(some)))
        return wakers

    def _take_in_order(self, caller: _WaitingThread, timeout: float) -> bool:
        is_urgent = self._must_not_wait()
        try:
            with self.lock:
                if is_urgent:
                    self._let_in(caller)
                else:
                    self._waiting.append(caller)
                    self._admit()
            if not caller.is_let_in:
                caller.latch.wait(timeout)
            # Inside the try, too: the room is taken by now, and an interrupt may come as this call begins.
            self._leave_queue(caller)
        except BaseException:
            self._leave_queue(caller)
            if caller.is_let_in:
                self.give_back(caller.messages, caller.size)
            raise
        return caller.is_let_in

    def _leave_queue(self, caller: _WaitingThread) -> None:
        if not caller.is_let_in:
            with self.lock:
                if caller in self._waiting:
                    self._waiting.remove(caller)
                self._admit()

    def _let_in(self, caller: _WaitingThread) -> None:
        self.held += caller.messages
        self._held_bytes += caller.size
        caller.is_let_in = True

    def _admit(self) -> None:
        """Let callers in while there is room, and none before one that waits for more than that.

        Else a batch would never get in while single messages take every place that comes free.
        Called under the lock.
        """
        while self._waiting:
            caller = self._waiting[0]
            if not caller.is_let_in:  # else an interrupt came between letting it in and the rest
                if not self._fits(caller.messages, caller.size):
                    break
                self._let_in(caller)
            caller.latch.open()
            if caller in self._waiting:
                self._waiting.remove(caller)
        if not self.held:
            for latch in self._quiet:
                latch.open()

    def _fits(self, messages: int, size: int) -> bool:
        # A batch larger than the limit may go when nothing else is in flight.
        return not self.held or (
            self.held + messages <= self._messages and self._held_bytes + size <= self._bytes
        )

    def give_back(self, messages: int, size: int) -> None:
        """An answer came."""
        with self.lock:
            self.held -= messages
            self._held_bytes -= size
            if self._waiting or not self.held:
                self._admit()

    def enter(self) -> FlushGroup:
        """Something was handed over; ``leave`` the group when its outcome is known."""
        group = None
        try:
            with self.lock:
                group = self._groups.current
                group.count += 1
        except BaseException:
            if group is not None:
                self.leave(group)
            raise
        return group

    def leave(self, group: FlushGroup) -> None:
        """The outcome is known, and a caller that asks for it gets it."""
        with self.lock:
            group.leave()

    def batch_begun(self, batch: OpenBatch) -> None:
        """A batch has its first message."""
        with self.lock:
            batch.over.add_waiter(lambda: self._batch_told(batch))
            group = self._groups.current
            group.count += 1
            batch.group = group

    def _batch_told(self, batch: OpenBatch) -> None:
        if batch.group is not None:
            self.leave(batch.group)

    def batch_over(self, batch: OpenBatch) -> None:
        """The messages of a batch have their outcome."""
        self.give_back(batch.count, batch.bytes)

    def flush(self, timeout: float | None) -> bool:
        """Wait until all that was handed over before has its outcome; False: in vain."""
        with self.lock:
            groups = self._groups.close()
        end = None if timeout is None else time.monotonic() + timeout
        for group in groups:
            latch = Latch()
            group.over.add_waiter(latch.open)
            if not latch.wait(None if end is None else end - time.monotonic()):
                return False
        return True

    def wait_until_empty(self, timeout: float | None) -> bool:
        """Wait until nothing is in flight."""
        latch = Latch()
        end = None if timeout is None else time.monotonic() + timeout
        while self.held:
            try:
                with self.lock:
                    self._quiet.append(latch)
                    self._admit()
                if not latch.wait(None if end is None else end - time.monotonic()):
                    return False
            finally:
                with self.lock:
                    self._quiet = [other for other in self._quiet if other is not latch]
            latch = Latch()
        return True
