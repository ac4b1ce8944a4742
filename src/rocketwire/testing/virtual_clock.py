"""A clock that stands still until it is moved, and what is to happen at which moment of it.

Tests with it take no time and always run the same way.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count


class Timer:
    """Something to be done at a moment. ``cancel`` it as long as it has not been done."""

    __slots__ = ("_action", "pausable", "when")

    def __init__(self, when: float, action: Callable[[], None], *, pausable: bool) -> None:
        self.when = when
        self.pausable = pausable
        self._action: Callable[[], None] | None = action

    @property
    def pending(self) -> bool:
        """Whether it is still to be done."""
        return self._action is not None

    def cancel(self) -> None:
        """Never do it; harmless when it is done."""
        self._action = None

    def fire(self) -> None:
        """Do it now, once."""
        action, self._action = self._action, None
        if action is not None:
            action()


class VirtualClock:
    """Time as a number. Call it to read it.

    >>> clock = VirtualClock()
    >>> seen = []
    >>> timer = clock.call_at(1.5, lambda: seen.append(clock()))
    >>> clock.run_until(10.0)
    >>> seen, clock()
    ([1.5], 10.0)
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._order = count()
        self._queue: list[tuple[float, int, Timer]] = []
        self._paused_until = -math.inf

    def __call__(self) -> float:
        """The moment that it is."""
        return self._now

    def call_at(self, when: float, action: Callable[[], None], *, pausable: bool = False) -> Timer:
        """Have something done at a moment; things of one moment are done in the order given.

        Args:
            when: the moment; one that has passed means now.
            action: what to do.
            pausable: whether it waits while the process is paused.
        """
        timer = Timer(max(when, self._now), action, pausable=pausable)
        if timer.when < math.inf:
            heapq.heappush(self._queue, (timer.when, next(self._order), timer))
        return timer

    def pause_until(self, moment: float) -> None:
        """From now until then nothing pausable is done; afterwards all of it, in its order.

        It is how a stopped process, a long garbage collection or a blocked event loop looks: the
        network goes on, but nobody reads from it.
        """
        self._paused_until = max(self._paused_until, moment)

    def advance(self, seconds: float) -> None:
        """Let some time pass, and do what falls into it."""
        self.run_until(self._now + seconds)

    def run_until(self, moment: float) -> None:
        """Do everything up to and including a moment, and stop there."""
        while self._queue and self._queue[0][0] <= moment:
            self.step()
        self._now = max(self._now, moment)

    def run_while(self, condition: Callable[[], bool]) -> None:
        """Go on while a condition holds and something is left to be done."""
        while condition() and self.step():
            pass

    def step(self) -> bool:
        """Do the next thing; False when there is none."""
        if not self._queue:
            return False
        when, order, timer = heapq.heappop(self._queue)
        if not timer.pending:
            return True
        if timer.pausable and when < self._paused_until:
            heapq.heappush(self._queue, (self._paused_until, order, timer))
            return True
        self._now = max(self._now, when)
        timer.fire()
        return True
