"""What a server does later: never early, and in the order in which it is due.

A loop's timers may end a millisecond early. Waiting once more for each of them let those overtake
whose timers ended in time; so there is one timer, for the first, and a line.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count


class Delays:
    """The line of what is to be done later, on the event loop that runs."""

    def __init__(self) -> None:
        #: By moment, and for one moment in the order of the calls.
        self._line: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something, now if there is nothing to wait for."""
        if seconds <= 0:
            action()
            return
        entry = (time.monotonic() + seconds, next(self._numbers), action)
        heapq.heappush(self._line, entry)
        if self._line[0] is entry:
            self._arm()

    def forget(self) -> None:
        """Do nothing of it."""
        self._line.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            left = max(self._line[0][0] - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(left, self._run_due)

    def _run_due(self) -> None:
        try:
            while self._line and self._line[0][0] <= time.monotonic():
                heapq.heappop(self._line)[2]()
        finally:
            self._arm()
