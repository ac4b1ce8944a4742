"""How far Spark is with the parts of a job, told while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from rocketwire.spark.spark_api import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Told how many parts of how many are done.
OnProgress: TypeAlias = Callable[[int, int], None]


@contextmanager
def watched(spark: SparkSession, parts: int, on_progress: OnProgress | None) -> Iterator[None]:
    """Tell how many of so many parts are done, each second; Spark Connect does not say."""
    if on_progress is None or is_remote(spark):
        yield
        return
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        while not over.wait(1.0):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            done = [s.numCompletedTasks for s in stages if s is not None and s.numTasks == parts]
            on_progress(max(done, default=0), parts)

    thread = threading.Thread(target=look, name="rocketwire-lab", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)
    on_progress(parts, parts)
