"""What threads wait at, safe at any moment: in a signal handler, a hook or a finalizer, too.

``threading``'s events and conditions hold a lock of their own while they work. A handler that comes in
that very moment and uses the same one waits for the code that it has interrupted, and an interrupt
that is raised there may leave a lock behind. Here all is done by single steps of the interpreter.
"""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock
from contextlib import suppress


class Latch:
    """Opens once. One thread waits at it, any may open it."""

    __slots__ = ("_lock", "is_open")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()
        self.is_open = False

    def open(self) -> None:
        """Let the thread that waits go on; opening twice is harmless."""
        self.is_open = True
        with suppress(RuntimeError):  # it was open
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open; False if it was not in ``timeout`` seconds."""
        if not self.is_open and self._lock.acquire(timeout=_limit(timeout)):
            self.open()
        return self.is_open


class Bell:
    """Wakes one thread, again and again; a ring before the wait counts, too."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Let the thread go on that waits, or the next one that does."""
        with suppress(RuntimeError):  # it has rung, and was not heard yet
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a ring, which is used up by that; False if none came in ``timeout`` seconds."""
        return self._lock.acquire(timeout=_limit(timeout))


def _limit(timeout: float | None) -> float:
    return -1 if timeout is None else min(max(timeout, 0.0), TIMEOUT_MAX)
