"""One timer for all that waits on a loop with a deadline: most of it ends long before.

A timer for each wait, set and taken back, would cost as much as everything else that a wait costs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol

#: Looking at every wait, spaced by this much for each of them, takes a tenth of the time at most.
_SPACING: Final = 1e-6
#: Loops round timers to a millisecond, so that one may come early; then this is the next wait.
_SHORTEST: Final = 0.001


class Overdue(Protocol):
    """What waits until a deadline."""

    deadline: float

    def overdue(self) -> None:
        """The deadline has come."""


class Deadlines:
    """What waits now.

    Args:
        loop: where the timer runs.
        clock: the clock on which deadlines are.
    """

    __slots__ = ("_at", "_clock", "_loop", "_timer", "_waits")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._waits: dict[Overdue, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf

    def add(self, wait: Overdue) -> None:
        """Tell it when its deadline has come, unless it is taken back before."""
        self._waits[wait] = None
        if wait.deadline < self._at:
            self._arm(wait.deadline, self._clock())

    def take_back(self, wait: Overdue) -> None:
        """It has ended; twice is harmless."""
        self._waits.pop(wait, None)

    def _arm(self, moment: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = moment
        self._timer = self._loop.call_later(max(moment - now, _SHORTEST), self._look)

    def _look(self) -> None:
        self._timer, self._at = None, math.inf
        now, waits = self._clock(), self._waits
        try:
            for wait in [wait for wait in waits if wait.deadline <= now]:
                if waits.pop(wait, self) is None:  # else one before it has ended it
                    wait.overdue()
        finally:  # one that ends the program, say: the others wait no longer for that
            first = min([wait.deadline for wait in waits], default=math.inf)
            if first < self._at:
                self._arm(max(first, now + _SPACING * len(waits)), now)
