"""What a Python process of Spark does once, at the end of its first task.

After every task PySpark has a worker look through all of its objects for garbage. Nearly all of them
are modules, classes and functions, some 85,000 with pyspark, pandas and pyarrow, which takes 40 ms of
a core: as long as reading 40,000 rows. They live as long as the process, so they are put where the
garbage collector does not look (``gc.freeze``); what tasks leave behind is still found.
"""

from __future__ import annotations

import gc
import sys

_settled = False


def settle() -> None:
    """Spare the collector what is here now, in a worker of Spark; nothing in any other process."""
    global _settled  # noqa: PLW0603 - it is about the process
    if _settled or not is_worker():
        return
    _settled = True
    gc.collect()  # garbage that is there now would stay for ever
    gc.freeze()


def is_worker() -> bool:
    """Whether this process was forked by PySpark for tasks, or for planning."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"
