"""What handlers have to do: which messages next, for whom, and what becomes of the queue.

Concurrent: any message of any queue, queues in turn. Ordered: a queue is in one worker's hand at a
time, only while its lock is ours, and a failure keeps it back for a moment while others go on.

Handlers may run on threads, so everything here happens under one lock. ``on_ready`` is called with
the lock held and must only wake somebody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from rocketwire.core.process_queue import ProcessQueue
from rocketwire.core.received import weigh
from rocketwire.message import StoredMessage


class Limits(NamedTuple):
    """How much is held at most: per queue, and altogether."""

    queue_messages: int = 1000
    queue_bytes: int = 16 * 1024 * 1024
    queue_span: int = 2000
    messages: int = 10_000
    bytes: int = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Work:
    """Messages of one queue in one handler's hand."""

    process_queue: ProcessQueue
    messages: list[StoredMessage]
    epoch: int
    began: float
    #: Whether it took too long and was taken care of without its handler.
    is_abandoned: bool = False


class Workload:
    """Everything that is held for handlers."""

    def __init__(
        self,
        *,
        lock: AbstractContextManager[Any],
        clock: Callable[[], float],
        ordered: bool,
        batch: int = 1,
        limits: Limits | None = None,
        needs_lock: bool = True,
    ) -> None:
        """Nothing to do yet.

        Args:
            lock: guards all of it; who calls ``next_work`` must hold it.
            clock: the injected clock.
            ordered: one worker per queue, in order.
            batch: messages that a handler gets at once, at most.
            limits: see ``Limits``.
            needs_lock: whether an ordered queue must be locked on the broker.
        """
        self.lock = lock
        self.on_ready: Callable[[int], None] = _ignore
        self.ordered = ordered
        self.batch = batch
        self._clock = clock
        self._limits = limits or Limits()
        self._needs_lock = ordered and needs_lock
        self._line: deque[ProcessQueue] = deque()
        self._works: set[Work] = set()
        self.held = 0
        self.held_bytes = 0
        #: Messages whose handlers succeeded.
        self.handled = 0

    # -- coming in ---------------------------------------------------------------------------

    def put(self, queue: ProcessQueue, messages: Sequence[StoredMessage], next_offset: int) -> None:
        """A pull brought these messages, or none, and ends at an offset."""
        with self.lock:
            if queue.is_dropped:
                return
            before = queue.held_bytes
            queue.add(messages, next_offset)
            self.held += len(messages)
            self.held_bytes += queue.held_bytes - before
            self._list(queue)

    def restart(self, queue: ProcessQueue, offset: int) -> None:
        """A queue goes on somewhere else."""
        with self.lock:
            self.held -= queue.held
            self.held_bytes -= queue.held_bytes
            queue.restart(offset)

    def drop(self, queue: ProcessQueue) -> None:
        """A queue is not ours any more: hand out nothing further of it."""
        with self.lock:
            if queue.is_dropped:
                return
            queue.is_dropped = True
            held, size = queue.held, queue.held_bytes
            queue.forget_waiting()
            self.held -= held - queue.held
            self.held_bytes -= size - queue.held_bytes
        queue.bell.ring()

    def full(self, queue: ProcessQueue) -> str | None:
        """Why a queue may not be pulled just now; None if it may.

        A queue that holds nothing may always be pulled: those of others must not stop it.
        """
        limits = self._limits
        with self.lock:
            why: str | None = None
            if queue.held >= limits.queue_messages:
                why = f"{queue.held} messages are held of it"
            elif queue.held_bytes >= limits.queue_bytes:
                why = f"{queue.held_bytes} bytes are held of it"
            elif not self.ordered and queue.span >= limits.queue_span:
                why = f"its first message is not handled, {queue.span} offsets back"
            elif queue.held and self.held >= limits.messages:
                why = f"{self.held} messages are held altogether"
            elif queue.held and self.held_bytes >= limits.bytes:
                why = f"{self.held_bytes} bytes are held altogether"
            queue.is_full = why is not None
            return why

    def room(self, queue: ProcessQueue) -> int:
        """How many messages of a queue may come yet."""
        limits = self._limits
        own = limits.queue_messages - queue.held
        return max(1, min(own, limits.messages - self.held))

    # -- going out ---------------------------------------------------------------------------

    def next_work(self) -> Work | None:
        """The next messages for a handler. The caller holds the lock."""
        line = self._line
        while line:
            queue = line.popleft()
            queue.is_listed = False
            if not self._may_hand_out(queue):
                continue
            waiting = queue.waiting
            if self.batch == 1:
                messages = [waiting.popleft()]
            else:
                count = min(self.batch, len(waiting))
                messages = [waiting.popleft() for _ in range(count)]
            queue.in_hand += 1
            if waiting and not self.ordered:
                queue.is_listed = True
                line.append(queue)
            work = Work(queue, messages, queue.epoch, self._clock())
            self._works.add(work)
            return work
        return None

    def _may_hand_out(self, queue: ProcessQueue) -> bool:
        if queue.is_dropped or not queue.waiting:
            return False
        if not self.ordered:
            return True
        now = self._clock()
        if self._needs_lock and now >= queue.locked_until:
            return False
        return not queue.in_hand and now >= queue.resume_at

    def _list(self, queue: ProcessQueue) -> None:
        """Put a queue into the line if a worker could take something of it."""
        if not queue.is_listed and self._may_hand_out(queue):
            queue.is_listed = True
            self._line.append(queue)
        if queue.is_listed:
            self.on_ready(1 if self.ordered else -(-len(queue.waiting) // self.batch))

    def look_again(self, queue: ProcessQueue) -> None:
        """Something changed for a queue: its lock came back, or its pause is over."""
        with self.lock:
            self._list(queue)

    def resume(self, queue: ProcessQueue, moment: float) -> None:
        """A rest that was to end at a moment is over, be the clock a little behind it."""
        with self.lock:
            if queue.resume_at <= moment:
                queue.resume_at = 0.0
            self._list(queue)

    # -- coming back -------------------------------------------------------------------------

    def finish(self, work: Work) -> bool:
        """A handler is done, and the messages with it; False if they had been taken from it."""
        with self.lock:
            if work.is_abandoned:
                return False
            self._settle(work, work.messages)
            self.handled += len(work.messages)
            if self.ordered:
                self._close(work)
            elif work in self._works:
                # Nothing becomes free by it, so that nobody need be woken.
                self._works.remove(work)
                work.process_queue.put_down()
            return True

    def settle(self, work: Work, message: StoredMessage) -> None:
        """One message of a piece of work is taken care of otherwise."""
        with self.lock:
            self._settle(work, (message,))

    def close(self, work: Work) -> None:
        """Nobody cares for a piece of work any more; its messages were settled or put back."""
        with self.lock:
            self._close(work)

    def put_back(
        self, work: Work, messages: Sequence[StoredMessage], resume_at: float = 0.0
    ) -> None:
        """Hand messages out again, before all others of their queue, not before a moment."""
        with self.lock:
            queue = work.process_queue
            queue.resume_at = max(queue.resume_at, resume_at)
            if work.epoch == queue.epoch:
                if queue.is_dropped:
                    queue.held -= len(messages)
                    size = weigh(messages)
                    queue.held_bytes -= size
                    self.held -= len(messages)
                    self.held_bytes -= size
                else:
                    queue.waiting.extendleft(reversed(messages))

    def release(self, work: Work) -> None:
        """A handler did not get to it: as if it had never been handed out."""
        if not work.is_abandoned:
            self.put_back(work, work.messages)
            self.close(work)

    def _settle(self, work: Work, messages: Sequence[StoredMessage]) -> None:
        queue = work.process_queue
        if work.epoch != queue.epoch:
            return
        self.held -= len(messages)
        self.held_bytes -= queue.settle(messages)
        if queue.is_full and self._has_room(queue):
            queue.is_full = False
            queue.bell.ring()

    def _has_room(self, queue: ProcessQueue) -> bool:
        # Half empty, not one below the limit: a pull for each message would be dear.
        limits = self._limits
        return (
            queue.held * 2 <= limits.queue_messages
            and queue.held_bytes * 2 <= limits.queue_bytes
            and (self.ordered or queue.span * 2 <= limits.queue_span)
            and (not queue.held or self.held * 2 <= limits.messages)
        )

    def _close(self, work: Work) -> None:
        if work not in self._works:
            return
        self._works.discard(work)
        work.process_queue.put_down()
        self._list(work.process_queue)

    # -- looking -----------------------------------------------------------------------------

    def overdue(self, before: float) -> list[Work]:
        """Work that began before a moment and is not done."""
        with self.lock:
            return [w for w in self._works if w.began < before and not w.is_abandoned]

    def abandon(self, work: Work) -> bool:
        """Take work away from a handler that does not end; False if it just has."""
        with self.lock:
            if work.is_abandoned or work not in self._works:
                return False
            work.is_abandoned = True
            return True

    @property
    def in_hand(self) -> int:
        """Pieces of work that handlers have."""
        return len(self._works)


def _ignore(_: int) -> None:
    """Nobody waits for work."""
