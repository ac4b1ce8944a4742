"""How fast messages are sent at most, until a stop is asked for."""

from __future__ import annotations

import threading
import time


class Pace:
    """Waits before each message.

    Args:
        rate: messages a second; None for as fast as it goes.
        stop: set when it is to end.
    """

    def __init__(self, rate: float | None, stop: threading.Event) -> None:
        self._pause = None if rate is None else 1.0 / rate
        self._stop = stop
        self._next = time.monotonic()

    def wait(self, count: int = 1) -> bool:
        """Wait until so many further messages may be sent; False if it is to end."""
        if self._pause is not None:
            now = time.monotonic()
            self._stop.wait(max(0.0, self._next - now))
            # What was lost while brokers were slow is not made up for by a rush.
            self._next = max(self._next, now) + self._pause * count
        return not self._stop.is_set()
