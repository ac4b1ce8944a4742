"""How a send makes background work begin at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from rocketwire.core.effects import Event, Op, wait


class WakeUp:
    """Wakes the one operation that waits for it; a wake-up before the wait counts, too."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._event = Event()

    def wake(self) -> None:
        """Wake what waits, or what waits next."""
        with self._lock:
            event = self._event
        event.set()

    def wait(self, until: float) -> Op[bool]:
        """Wait until woken (True) or until a moment (False)."""
        with self._lock:
            event = self._event
        woken = yield from wait(event, until)
        if woken:
            with self._lock:
                self._event = Event()
        return woken
