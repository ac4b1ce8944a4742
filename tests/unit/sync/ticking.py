"""Signals that come all the time."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ticking(most: int) -> Iterator[list[int]]:
    """A signal every 10 ms, up to so many."""
    ticks: list[int] = []

    def tick(*_: object) -> None:
        ticks.append(len(ticks))
        if len(ticks) >= most:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        yield ticks
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
