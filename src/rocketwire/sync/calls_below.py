"""Whether this thread is in the midst of a call of a client: a signal handler, a hook or a finalizer asks.

Asked of the stack, and only by what would wait for itself. A mark of each thread would cost every send and submit,
and an interrupt between the mark and the work could leave it set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def codes(*methods: Callable[..., Any]) -> frozenset[CodeType]:
    """What the frames of these methods run.

    To be asked of a class of ours, once: a subclass may wrap its own methods, and a test replace them.
    """
    return frozenset([method.__code__ for method in methods])


def calls_below(client: object, methods: frozenset[CodeType]) -> int:
    """How many times over this thread is in the midst of one of these methods of a client."""
    count = 0
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - its documented use
    while frame is not None:
        count += frame.f_code in methods and frame.f_locals.get("self") is client
        frame = frame.f_back
    return count
