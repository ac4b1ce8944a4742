"""A stream without the repeats of its source, in the order in which its messages were stored.

Spark finds repeats by their ids after a shuffle, which mixes the rows; those of one sharding key are
put together again, and in order. Spark refuses to sort a stream, because that would have to last for
ever; within each batch is all that is wanted here, so its check is turned off for the moment of the
start, after the user's own statement has passed it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from rocketwire.errors import ConfigError
from rocketwire.spark.dedupe import deduplicate
from rocketwire.spark.pipelines.error_text import first_line
from rocketwire.spark.spark_api import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECK: Final = "spark.sql.streaming.unsupportedOperationCheck"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PLACE: Final = ("topic", "broker", "queueId", "queueOffset")


def start_without_repeats(
    spark: SparkSession,
    messages: DataFrame,
    within: str,
    change: Callable[[DataFrame], DataFrame],
    start: Callable[[DataFrame], StreamingQuery],
) -> StreamingQuery:
    """Start what a change makes of a stream's messages, each of them once.

    Args:
        spark: the session.
        messages: the stream.
        within: how much later than the first a repeat may be read.
        change: the user's.
        start: starts the query that writes.

    Raises:
        ConfigError: Spark can't run the change as a stream.
    """
    once = deduplicate(messages, within)
    _check(change(once))
    changed = change(_in_order(spark, once))
    with _unchecked(spark):
        return start(changed)


def _in_order(spark: SparkSession, messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    # Rows without a key have no order to keep, and are spread.
    together = f.coalesce("shardingKey", f.concat_ws(":", *_PLACE))
    return messages.repartition(_partitions(spark), together).sortWithinPartitions(*_PLACE)


def _partitions(spark: SparkSession) -> int:
    """As many tasks as can run at once: more cost time, and need no less memory."""
    wanted = int(spark.conf.get(_PARTITIONS) or 1)
    if is_remote(spark):
        return wanted
    return max(1, min(wanted, spark.sparkContext.defaultParallelism))


def _check(changed: DataFrame) -> None:
    """Let Spark say what it can't do as a stream."""
    from pyspark.errors import PySparkException

    try:
        if is_remote(changed.sparkSession):
            # Spark checks when a query is started, before it reads anything.
            changed.writeStream.format("noop").trigger(processingTime="1 day").start().stop()
            return
        jvm: Any = changed.sparkSession._jvm  # noqa: SLF001 - there is no public way to ask
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        checker.checkForStreaming(changed._jdf.queryExecution().analyzed(), append)  # noqa: SLF001
    except PySparkException as error:
        raise ConfigError(f"the statement can't run as a stream: {first_line(error)}") from error


@contextlib.contextmanager
def _unchecked(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_CHECK, "true")
    spark.conf.set(_CHECK, "false")
    try:
        yield
    finally:
        spark.conf.set(_CHECK, before or "true")
