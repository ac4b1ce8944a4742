"""Handler threads that wait for messages, and how many of them are awake.

Python runs one thread at a time. Handlers that wait for something (a database, a file) gain by
every further thread; handlers that only compute lose by it, because threads then pass the
interpreter around: with an empty handler four threads handled 62,000 messages a second and one
130,000. So while messages are handled faster than any handler that waits
could, one thread does it alone. Whether that is still so is looked at every few milliseconds.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from rocketwire.core.workload import Work, Workload

_LOOK: Final = 0.005
#: Messages between two looks. A handler that takes less than 50 µs each waits for nothing.
_QUICK: Final = 100


class Crew:
    """The threads that take work from a workload.

    Args:
        workload: what there is to do. Everything here happens under its lock.
        loop: where looks are taken.
    """

    def __init__(
        self, workload: Workload, lock: threading.Lock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._workload = workload
        self._ready = threading.Condition(lock)
        self._loop = loop
        self._is_quick = False
        self._is_watched = False
        self._handled = 0
        # Ordered work is handed out one message after another, and each is told of by itself.
        workload.on_ready = self._ready.notify if workload.ordered else self._rouse

    def wait(self) -> None:
        """Wait until there may be work. The caller holds the lock."""
        self._ready.wait()

    def take(self) -> Work | None:
        """The next work, unless another thread does it all. The caller holds the lock."""
        if self._is_quick and self._workload.in_hand:
            return None
        return self._workload.next_work()

    def wake_all(self) -> None:
        """Let everybody look whether it is time to stop."""
        with self._ready:
            self._ready.notify_all()

    def _rouse(self, count: int) -> None:
        """So many pieces of work can be taken. The lock is held."""
        self._ready.notify(1 if self._is_quick else count)
        if not self._is_watched and (self._is_quick or count > 1):
            self._is_watched = True
            self._handled = self._workload.handled
            self._loop.call_soon_threadsafe(self._look_later)

    def _look_later(self) -> None:
        self._loop.call_later(_LOOK, self._look)

    def _look(self) -> None:
        workload = self._workload
        with self._ready:
            handled = workload.handled
            self._is_quick = handled - self._handled >= _QUICK
            self._handled = handled
            self._is_watched = self._is_quick or workload.has_waiting
            if not self._is_quick and workload.has_waiting:
                self._ready.notify_all()
            if self._is_watched:
                self._look_later()
