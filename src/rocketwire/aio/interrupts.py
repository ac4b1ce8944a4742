"""A Ctrl-C that comes while a client is on its way out because of an earlier one."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType


@contextmanager
def answer_interrupts(call: Callable[[], object]) -> Iterator[None]:
    """Within it, the second Ctrl-C calls this. One after that is raised as ever.

    Python raises ``KeyboardInterrupt`` in whatever code runs at that moment, and so does asyncio's
    runner, which at the first one cancels its main task. Raised inside the loop's code it loses a
    wake-up, inside a lock's code the release: what waits for these would wait for ever.

    Args:
        call: safe on any thread and in a signal handler.
    """
    theirs = _python_s_own()
    if theirs is None:
        yield
        return

    def ours(number: int, frame: FrameType | None) -> None:
        if _is_first(theirs):
            theirs(number, frame)
        else:
            signal.signal(signal.SIGINT, theirs)
            call()

    signal.signal(signal.SIGINT, ours)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is ours:
            signal.signal(signal.SIGINT, theirs)


def _python_s_own() -> Callable[[int, FrameType | None], object] | None:
    """What Python or ``asyncio.run`` does at a Ctrl-C; None where a program has a way of its own."""
    if threading.current_thread() is not threading.main_thread():
        return None  # only the main thread may set one
    handler = signal.getsignal(signal.SIGINT)
    is_pythons = handler is signal.default_int_handler
    return handler if callable(handler) and (is_pythons or _runner_of(handler)) else None


def _runner_of(handler: object) -> asyncio.Runner | None:
    owner = getattr(handler.func, "__self__", None) if isinstance(handler, partial) else None
    return owner if isinstance(owner, asyncio.Runner) else None


def _is_first(handler: object) -> bool:
    """Whether a runner has heard of none yet: something else has cancelled its task."""
    return getattr(_runner_of(handler), "_interrupt_count", 1) == 0
