"""What a worker does when Spark wants no more rows of a task.

For a ``limit`` or ``first`` Spark takes what it needs and closes the connection to the Python
worker in the middle of a batch. The worker is of no use after that: PySpark lets it print the
traceback of a broken pipe and end. Nothing is wrong then, and nobody can act on it, so the worker
ends here instead, without a word.
"""

from __future__ import annotations

import inspect
import os
import select
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType

# Not on every system; nor is a daemon of PySpark that could be left.
_GONE: Final = sum(getattr(select, name, 0) for name in ("POLLERR", "POLLHUP", "POLLRDHUP"))


def until_left(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; ends the process if Spark has left when it takes no more of them."""
    connection = _connection(inspect.currentframe())
    try:
        yield from batches
    except GeneratorExit:
        if connection is not None and is_gone(connection):
            # The pipe is broken: flushing anything at the exit would be the traceback again.
            os._exit(0)
        raise


def _connection(frame: FrameType | None) -> int | None:
    """The descriptor that a PySpark worker answers on; None where this is no such worker."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "pyspark.worker" and "outfile" in frame.f_locals:
            try:
                return int(frame.f_locals["outfile"].fileno())
            except (AttributeError, OSError, ValueError):
                return None
        frame = frame.f_back
    return None


def is_gone(descriptor: int) -> bool:
    """Whether the other side of a connection has closed it."""
    poll = select.poll()
    poll.register(descriptor, _GONE)
    return any(events & (_GONE | select.POLLNVAL) for _, events in poll.poll(0))
