"""Pulls that wait for a message: held until one comes, or until their time is up.

A message wakes the pulls of its queue at the end of the event loop's turn, so that one answer
has everything that came in that turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rocketwire.embedded.call import Call


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that has found nothing so far. ``retry`` tells whether it has been answered."""

    call: Call
    retry: Callable[[bool], bool]
    timer: asyncio.TimerHandle | None = None


class HeldPulls:
    """All held pulls, by topic and queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._arrived: set[tuple[str, int]] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether no more can be held."""
        return self._count >= self._limit

    def topics(self) -> set[str]:
        """Those that pulls are held for."""
        return {topic for topic, _ in self._held}

    def hold(self, key: tuple[str, int], pull: HeldPull, seconds: float) -> None:
        """Keep a pull until something comes."""
        self._held.setdefault(key, []).append(pull)
        self._count += 1
        pull.timer = self._loop.call_later(seconds, self._time_up, key, pull)

    def arrived(self, topic: str, queue_id: int) -> None:
        """A message has come."""
        key = (topic, queue_id)
        if key in self._held:
            if not self._arrived:
                self._loop.call_soon(self._wake)
            self._arrived.add(key)

    def _wake(self) -> None:
        keys, self._arrived = self._arrived, set()
        for key in keys:
            waiting = self._held.pop(key, [])
            still = [pull for pull in waiting if not self._settle(pull, last=False)]
            if still:
                self._held.setdefault(key, []).extend(still)

    def _settle(self, pull: HeldPull, *, last: bool) -> bool:
        """Try again; whether the pull is done with."""
        if not pull.call.connection.open or pull.retry(last):
            if pull.timer is not None:
                pull.timer.cancel()
            self._count -= 1
            return True
        return False

    def _time_up(self, key: tuple[str, int], pull: HeldPull) -> None:
        waiting = self._held.get(key, [])
        if pull in waiting:
            waiting.remove(pull)
            if not waiting:
                del self._held[key]
            self._settle(pull, last=True)

    def forget(self, *, connection: object) -> None:
        """A connection is closed: its pulls are of no use any more."""
        for key in list(self._held):
            waiting = self._held[key]
            gone = [p for p in waiting if p.call.connection is connection]
            for pull in gone:
                if pull.timer is not None:
                    pull.timer.cancel()
                waiting.remove(pull)
                self._count -= 1
            if not waiting:
                del self._held[key]

    def clear(self) -> None:
        """Forget all of them, unanswered."""
        for waiting in self._held.values():
            for pull in waiting:
                if pull.timer is not None:
                    pull.timer.cancel()
        self._held.clear()
        self._count = 0
