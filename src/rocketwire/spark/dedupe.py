"""Drops rows that were written twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketwire.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IDENTITY: Final = "__rocketwire_identity"
_SEEN: Final = "__rocketwire_seen"
_NEEDED: Final = ("rowId", "broker", "queueId", "queueOffset")


def deduplicate(df: DataFrame, within: str = "1 hour") -> DataFrame:
    """Keep one of the rows that have the same ``rowId`` in the same topic.

    A task that was retried sends its rows again, with the same ids as before. Rows without an id
    (of other writers) are told apart by broker, queue and offset, so none of them is dropped. A
    repeat may survive, if the job was cut into tasks otherwise when it was repeated.

    Args:
        df: as read from ``rocketmq``; with the columns rowId, broker, queueId, queueOffset.
        within: in a stream, how much later than the first a repeat may be read; ids are remembered
            that long.

    Raises:
        ConfigError: a column is missing.
    """
    from pyspark.sql import functions as f

    missing = [name for name in _NEEDED if name not in df.columns]
    if missing:
        raise ConfigError(
            f"deduplicate needs the column {missing[0]}: leave it in, and drop it afterwards"
        )
    topic = f.col("topic") if "topic" in df.columns else f.lit("")
    place = f.concat_ws(":", f.lit("@"), "broker", "queueId", "queueOffset")
    # The "@" keeps places apart from ids that happen to look like one.
    identity = f.concat_ws("/", topic, f.coalesce(f.concat(f.lit("#"), "rowId"), place))
    marked = df.withColumn(_IDENTITY, identity)
    if df.isStreaming:
        # By the time of reading: by that of storing, rows of a queue that is read later than others
        # would be late, and Spark drops late rows.
        seen = marked.withColumn(_SEEN, f.current_timestamp()).withWatermark(_SEEN, within)
        kept = seen.dropDuplicatesWithinWatermark([_IDENTITY]).drop(_SEEN)
    else:
        kept = marked.dropDuplicates([_IDENTITY])
    return kept.drop(_IDENTITY)
