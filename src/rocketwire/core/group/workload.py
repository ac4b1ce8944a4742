"""What handlers have to do: which messages next, for which worker, and what becomes of the queue.

Concurrent: any message of any queue, queues in turn. Ordered: a queue is in one worker's hand at a
time, only while its lock is ours, and a failure keeps it back for a moment while others go on.

Handlers may run on threads, so everything here happens under one lock. ``on_ready`` is called with
the lock held and must only wake one worker. A worker that takes work wakes the next while there is
more: so all are awake where handlers are slow, and one may have done it all before others have got
up.

The exception is ``go_on``. A lock for every message made threads with quick handlers do little but
wait for one another, so a worker that has a piece of work may take the next message of its queue
without it, for a moment. Messages that wait stay where all can take them: nobody waits behind a
slow one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.lazy_message import grown_by, weigh


class Limits(NamedTuple):
    """How much is held at most: per queue, and altogether."""

    queue_messages: int = 1000
    queue_bytes: int = 16 * 1024 * 1024
    queue_span: int = 2000
    messages: int = 10_000
    bytes: int = 64 * 1024 * 1024


#: How long a handler goes on with one queue before it looks for others. Short: what it has done
#: is settled then.
SLICE: Final = 0.001


@dataclass(slots=True, eq=False)
class Work:
    """Messages of one queue in one handler's hand.

    A handler of single messages has one of them in ``messages`` at a time, and those that it is
    done with in ``done``. Each moves by one call that no other thread can come between.
    """

    process_queue: ProcessQueue
    messages: list[StoredMessage]
    epoch: int
    began: float
    #: What the handler is called with first: a message, or a list of them.
    given: Any
    #: Where further messages are taken from; None for a handler of lists.
    source: deque[StoredMessage] | None = None
    #: When to look for others.
    until: float = 0.0
    #: Handled, and not settled yet.
    done: list[StoredMessage] = field(default_factory=list)
    #: Whether it took too long and was taken care of without its handler.
    is_abandoned: bool = False
    #: Whether a program has it and has not decided about it: nobody else takes it away.
    is_open: bool = False
    #: Told when nobody cares for it any more.
    on_closed: Callable[[], None] | None = None
    #: Offsets of those of its messages that were taken care of otherwise, or put back.
    cared_for: frozenset[int] = frozenset()


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
            lock: guards all of it; callers of ``next_work`` must hold it.
            clock: the injected clock.
            ordered: one worker per queue, in order.
            batch: messages that a handler gets at once, at most.
            limits: see ``Limits``.
            needs_lock: whether an ordered queue must be locked on the broker.
        """
        self.lock = lock
        self.on_ready: Callable[[], None] = _ignore
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

    def put(
        self,
        queue: ProcessQueue,
        messages: Sequence[StoredMessage],
        next_offset: int,
        size: int | None = None,
    ) -> None:
        """A pull brought these messages, or none, and ends at an offset; ``size`` if it is known."""
        with self.lock:
            if queue.is_dropped:
                return
            before = queue.held_bytes
            queue.add(messages, next_offset, size)
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
        queue.wake_up.wake()

    def full(self, queue: ProcessQueue) -> str | None:
        """Why a queue may not be pulled just now; None if it may.

        A queue that holds nothing may always be pulled: those of others must not stop it.
        """
        limits = self._limits
        with self.lock:
            self._settle_all_done()
            own, others = self._grown(queue)
            own_bytes, all_bytes = queue.held_bytes + own, self.held_bytes + own + others
            why: str | None = None
            if queue.held >= limits.queue_messages:
                why = f"{queue.held} messages are held of it"
            elif own_bytes >= limits.queue_bytes:
                why = f"{own_bytes} bytes are held of it"
            elif not self.ordered and queue.span >= limits.queue_span:
                why = f"its first message is not handled, {queue.span} offsets back"
            elif queue.held and self.held >= limits.messages:
                why = f"{self.held} messages are held altogether"
            elif queue.held and all_bytes >= limits.bytes:
                why = f"{all_bytes} bytes are held altogether"
            queue.is_full = why is not None
            return why

    def _grown(self, queue: ProcessQueue) -> tuple[int, int]:
        """Bytes that bodies take beyond what is stored, since handlers looked: a queue's, others'.

        What waits is counted as it is stored, for nobody has decompressed it.
        """
        own = others = 0
        for work in self._works:
            grown = grown_by([*work.messages, *work.done])
            if work.process_queue is queue:
                own += grown
            else:
                others += grown
        return own, others

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
            messages = self._take(queue) if self._may_hand_out(queue) else None
            if messages:
                return self._hand_out(queue, messages)
        return None

    def next_open(self) -> Work | None:
        """The next message for a program that acknowledges it itself. The caller holds the lock."""
        work = self.next_work()
        if work is not None:
            work.is_open = True
        return work

    def let_go_open(self, queue: ProcessQueue) -> None:
        """A queue is gone: what a program still has of it counts no more."""
        with self.lock:
            gone = [w for w in self._works if w.is_open and w.process_queue is queue]
            for work in gone:
                work.is_abandoned = True
        for work in gone:
            self.put_back(work, work.messages)
            self.close(work)

    def _take(self, queue: ProcessQueue) -> list[StoredMessage]:
        """Up to a batch of messages; none if others have just taken the last ones."""
        waiting = queue.waiting
        try:
            if self.batch == 1:
                return [waiting.popleft()]
        except IndexError:
            return []
        # Handlers of lists take nothing without the lock.
        return [waiting.popleft() for _ in range(min(self.batch, len(waiting)))]

    def _hand_out(self, queue: ProcessQueue, messages: list[StoredMessage]) -> Work:
        queue.in_hand += 1
        if queue.waiting and not self.ordered:
            queue.is_listed = True
            self._line.append(queue)
        now = self._clock()
        if self._line:
            self.on_ready()
        if self.batch == 1:
            until = now + SLICE
            work = Work(queue, messages, queue.epoch, now, messages[0], queue.waiting, until)
        else:
            work = Work(queue, messages, queue.epoch, now, messages)
        self._works.add(work)
        return work

    def go_on(self, work: Work) -> StoredMessage | None:
        """A handler is done with a message: the next one for it, None if it should ``finish``.

        Only for the thread that has the work, and without the lock.
        """
        source, messages = work.source, work.messages
        if source is None:
            return None
        now = self._clock()
        try:
            work.done.append(messages.pop())
            if now >= work.until or (self._needs_lock and now >= work.process_queue.locked_until):
                return None
            message = source.popleft()
        except IndexError:  # it was taken away, or there is nothing more
            return None
        # In this order: the search for handlers that hang must not find it with the old moment.
        work.began = now
        messages.append(message)
        return message

    def _may_hand_out(self, queue: ProcessQueue) -> bool:
        if queue.is_dropped or queue.is_paused or not queue.waiting:
            return False
        if not self.ordered:
            return True
        now = self._clock()
        if self._needs_lock and now >= queue.locked_until:
            return False
        return not queue.in_hand and now >= queue.resume_at

    def _list(self, queue: ProcessQueue) -> None:
        """Put a queue into the line, and wake a worker, if there is something to take."""
        self._line_up(queue)
        if queue.is_listed:
            self.on_ready()

    def _line_up(self, queue: ProcessQueue) -> None:
        if not queue.is_listed and self._may_hand_out(queue):
            queue.is_listed = True
            self._line.append(queue)

    def look_again(self, queue: ProcessQueue) -> None:
        """Something changed for a queue: its lock came back, or its pause is over."""
        with self.lock:
            self._list(queue)

    def hold_back(self, queue: ProcessQueue, barred: frozenset[str], *, is_paused: bool) -> None:
        """Pause a queue or let it go on, as a whole or for messages of some topics."""
        with self.lock:
            if (queue.is_paused, queue.barred) == (is_paused, barred):
                return
            queue.hold_back(barred, is_paused=is_paused)
            self._list(queue)
        queue.wake_up.wake()

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
            self._settle_done(work)
            if work.messages:
                self._settle(work, work.messages)
                self.handled += len(work.messages)
            if work in self._works:
                # No worker is woken, even if a queue is free again: this one looks for more.
                self._works.remove(work)
                work.process_queue.put_down()
                if self.ordered:
                    self._line_up(work.process_queue)
            return True

    def settle(self, work: Work, message: StoredMessage) -> None:
        """One message of a piece of work is taken care of otherwise."""
        with self.lock:
            work.cared_for |= {message.offset}
            self._settle(work, (message,))

    def close(self, work: Work) -> None:
        """A piece of work is over; its messages were settled or put back."""
        with self.lock:
            self._close(work)

    def put_back(
        self, work: Work, messages: Sequence[StoredMessage], resume_at: float = 0.0
    ) -> None:
        """Hand messages out again, before all others of their queue, not before a moment."""
        with self.lock:
            work.cared_for |= {message.offset for message in messages}
            queue = work.process_queue
            if work.epoch == queue.epoch:
                queue.resume_at = max(queue.resume_at, resume_at)
                if queue.is_dropped:
                    queue.held -= len(messages)
                    size = weigh(messages)
                    queue.held_bytes -= size
                    self.held -= len(messages)
                    self.held_bytes -= size
                else:
                    queue.put_first(messages)

    def hand_out_again(self, work: Work) -> None:
        """Caring for messages went wrong: those that nobody cared for are as if they had just come."""
        self.put_back(work, [m for m in work.messages if m.offset not in work.cared_for])
        self.close(work)
        self.look_again(work.process_queue)

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
            queue.wake_up.wake()

    def _settle_done(self, work: Work) -> None:
        """Settle what a handler is done with, even if it is at the next message already."""
        done = work.done
        # Its thread may append meanwhile, and nobody but us takes away.
        if count := len(done):
            self._settle(work, done[:count])
            self.handled += count
            del done[:count]

    def _settle_all_done(self) -> None:
        for work in self._works:
            if work.done:
                self._settle_done(work)

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
        self._settle_done(work)
        work.process_queue.put_down()
        self._list(work.process_queue)
        if work.on_closed is not None:
            work.on_closed()

    # -- looking -----------------------------------------------------------------------------

    def floors(self, queues: Iterable[ProcessQueue]) -> dict[MessageQueue, int]:
        """How far queues are handled, without a gap."""
        with self.lock:
            self._settle_all_done()
            return {queue.queue: queue.floor for queue in queues}

    def overdue(self, before: float) -> dict[Work, tuple[StoredMessage, ...]]:
        """Work that began before a moment and is not done, and which messages it is about."""
        with self.lock:
            late = [w for w in self._works if w.began < before and not w.is_abandoned]
            found = {work: tuple(work.messages) for work in late}
            return {work: messages for work, messages in found.items() if messages}

    def abandon(self, work: Work, overdue: Sequence[StoredMessage]) -> Work | None:
        """Take from a handler that does not end what it has; None if it just has ended.

        Args:
            work: what the handler has.
            overdue: which messages it was found with. It may be at another by now.

        Returns:
            Work in its place, which the handler knows nothing of.
        """
        with self.lock:
            if work.is_abandoned or work.is_open or work not in self._works:
                return None
            messages = self._take_from_hand(work, overdue)
            if not messages:
                return None
            self._settle_done(work)
            work.is_abandoned = True
            taken = Work(work.process_queue, messages, work.epoch, work.began, None)
            taken.is_abandoned = True
            self._works.remove(work)
            self._works.add(taken)
            return taken

    @staticmethod
    def _take_from_hand(work: Work, overdue: Sequence[StoredMessage]) -> list[StoredMessage]:
        if work.source is None:
            return list(work.messages)  # the handler may still be reading its list
        try:
            # The thread that pops it has it: this one, or the one that comes from its handler.
            message = work.messages.pop()
        except IndexError:
            return []
        if message is overdue[0]:
            return [message]
        # The handler was done, and has just begun with this one. Should it be done with it, too, at
        # this moment, and find its hand empty, it comes to ``finish``, which settles what is there.
        work.messages.append(message)
        return []

    @property
    def in_hand(self) -> int:
        """Pieces of work that handlers have."""
        return len(self._works)


def _ignore() -> None:
    """No worker waits for work."""
