"""Flushing in the background: on a timer, and for senders who wait for it.

One sync serves all senders whose message was written before it began; a later one waits
for the next one, which begins when this one ends. The event loop never waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rocketwire.embedded.store import MessageStore, StoreError
from rocketwire.embedded.store.flush import FlushJob

_log: Final = logging.getLogger("rocketwire.embedded")
#: Seconds after which a sender is told that its message is stored and not synced.
_TIMEOUT: Final = 5.0


class GroupCommit:
    """Runs a store's flush jobs, one at a time, in a thread of its own.

    Args:
        store: what to flush.
        loop: where the store is used.
        interval: seconds between two flushes of everything.
    """

    def __init__(
        self, store: MessageStore, loop: asyncio.AbstractEventLoop, interval: float
    ) -> None:
        self._store = store
        self._loop = loop
        self._interval = interval
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[int, float, Callable[[bool], None]]] = deque()
        self._running = False
        self._stopped = False
        self._failing = False
        self._timer = loop.call_later(interval, self._tick)
        #: How many syncs were done, and how many senders they served.
        self.syncs = 0
        self.served = 0

    def wait(self, log_end: int, done: Callable[[bool], None]) -> None:
        """Call back once the log is synced up to an offset: with False when that took too long."""
        self._waiting.append((log_end, self._loop.time() + _TIMEOUT, done))
        if not self._running:
            self._begin(everything=False)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)
        now = self._loop.time()
        while self._waiting and self._waiting[0][1] < now:
            self._waiting.popleft()[2](False)  # noqa: FBT003 - the answer to "is it synced?"
        if not self._running and self._store.log.end != self._store.checkpointed:
            self._begin(everything=True)

    def _begin(self, *, everything: bool) -> None:
        try:
            job = self._store.begin_flush(queues=everything)
        except StoreError as error:
            self._failed(error)
            return
        self._running = True
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="rocketwire-flush")
        future = self._thread.submit(job.run)
        future.add_done_callback(lambda _: self._hand_back(job))

    def _hand_back(self, job: FlushJob) -> None:
        # The loop may be closed when a broker is killed in the middle of a sync.
        if not self._stopped:
            try:
                self._loop.call_soon_threadsafe(self._end, job)
            except RuntimeError:
                _log.debug("the event loop ended during a flush")

    def _end(self, job: FlushJob) -> None:
        if self._stopped:
            return
        self._running = False
        self.syncs += 1
        try:
            self._store.end_flush(job)
        except StoreError as error:
            self._failed(error)
            return
        self._failing = False
        while self._waiting and self._waiting[0][0] <= job.log_end:
            self.served += 1
            self._waiting.popleft()[2](True)  # noqa: FBT003
        if self._waiting:
            self._begin(everything=False)

    def _failed(self, error: StoreError) -> None:
        """Say so once; it is tried again with every tick."""
        if not self._failing:
            _log.warning("flush failed and is tried again: %s", error)
        self._failing = True

    def stop(self) -> None:
        """Stop; senders that wait get no answer any more. A sync under way is waited for."""
        self._stopped = True
        self._timer.cancel()
        self._waiting.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
