"""How a send makes background work begin at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from rocketwire.core.effects import Gate, Op, wait


class WakeUp:
    """Wakes the one operation that waits for it; a wake-up before the wait counts, too."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._gate = Gate()

    def wake(self) -> None:
        """Wake what waits, or what waits next."""
        with self._lock:
            gate = self._gate
        gate.open()

    def wait(self, until: float) -> Op[bool]:
        """Wait until woken (True) or until a moment (False)."""
        with self._lock:
            gate = self._gate
        woken = yield from wait(gate, until)
        if woken:
            with self._lock:
                self._gate = Gate()
        return woken
