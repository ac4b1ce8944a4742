"""Ending on request: Ctrl-C and SIGTERM become an event that a command waits for."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def stop_requested() -> Iterator[threading.Event]:
    """An event that is set by the first Ctrl-C, SIGTERM or SIGHUP.

    Further ones are ignored until the block ends, so that cleaning up is never cut short.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    names = [n for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]
    before = {n: signal.signal(getattr(signal, n), handle) for n in names}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
