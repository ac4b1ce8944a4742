"""What a worker does when Spark wants no more rows of a task.

For a ``limit`` or ``first`` Spark takes what it needs and closes the connection to the Python
worker in the middle of a batch. The worker is of no use after that: PySpark lets it print the
traceback of a broken pipe and end. Nothing is wrong then, and nobody can act on it, so the worker
ends here instead, without a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext


def until_left(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; ends the process if Spark has left when it takes no more of them."""
    try:
        yield from batches
    except GeneratorExit as end:
        # A worker closes its generators in a ``finally``. Where that is because a row could not be
        # written, Python notes the error that is being handled as the context of this one. Asking
        # the task first: elsewhere a broken pipe is no reason to end the process.
        if TaskContext.get() is not None and isinstance(end.__context__, ConnectionError):
            # The pipe is broken: flushing anything at the exit would be the traceback again.
            os._exit(0)
        raise
