"""How a sender makes the background come at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from rocketwire.core.effects import Gate, Op, wait


class Bell:
    """Wakes whoever waits for it; ringing before the waiting counts."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._gate = Gate()

    def ring(self) -> None:
        """Wake the one who waits, or who will wait next."""
        with self._lock:
            gate = self._gate
        gate.open()

    def wait(self, until: float) -> Op[bool]:
        """Wait until it rings (True) or until a moment (False)."""
        with self._lock:
            gate = self._gate
        rang = yield from wait(gate, until)
        if rang:
            with self._lock:
                self._gate = Gate()
        return rang
