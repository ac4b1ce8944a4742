"""Counts bytecodes, calls of sockets, and memory, of the package's own code in this thread."""

from __future__ import annotations

import gc
import select
import socket
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import rocketwire

_PACKAGE = str(Path(rocketwire.__file__).parent)
_SOCKETS: tuple[type, ...] = (socket.socket,)
if hasattr(select, "poll"):
    _SOCKETS += (type(select.poll()),)


class Tally:
    """A number that somebody counts up."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def bytecodes() -> Iterator[Tally]:
    """Count the bytecodes that are run in frames of the package, in this thread."""
    tally = Tally()

    def inside(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            tally.count += 1
        return inside

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return inside

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield tally
    finally:
        sys.settrace(before)


@contextmanager
def uncounted() -> Iterator[None]:
    """What happens inside is not ours: the other end, which shares the thread."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(profile)
        sys.settrace(trace)


@contextmanager
def socket_calls() -> Iterator[Tally]:
    """Count the calls of sockets and pollers: each is a system call."""
    tally = Tally()

    def called(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            tally.count += isinstance(getattr(function, "__self__", None), _SOCKETS)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield tally
    finally:
        sys.setprofile(before)


def memory_of(make: Callable[[], object]) -> int:
    """Bytes that are held after ``make`` and were not before, as Python's allocator sees them."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return after - before
