"""Counts and latencies by broker, time, queue, key, error and client.

Every function makes a table lazily from the attempts; nothing runs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from rocketwire.spark.delivery_report.findings import BARS_PER_DECADE
from rocketwire.spark.delivery_report.records import (
    ATTEMPT,
    MAYBE_STORED,
    NOT_SENT,
    REJECTED,
    acknowledged,
    waited,
)

#: Rows of the tables whose length would otherwise follow the data.
TOP_ROWS: Final = 1000
#: Below a microsecond nothing is told apart.
_SHORTEST: Final = 1e-6

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
#: A rank is off by one in this many at most.
_FINE: Final = 10_000
_COARSE: Final = 1000


def _counts(among: Column | None = None) -> list[Column]:
    """Counts of all rows, or of those ``among`` them."""
    mine = f.lit(True) if among is None else among  # noqa: FBT003 - a column of it
    is_stored = acknowledged()
    outcome = f.col("outcome")
    return [
        f.count_if(mine).alias("attempts"),
        f.count_if(mine & (f.col("attempt") == 1)).alias("sends"),
        f.count_if(mine & is_stored).alias("acknowledged"),
        f.count_if(mine & ~is_stored).alias("failures"),
        f.count_if(mine & (outcome == REJECTED)).alias("rejected"),
        f.count_if(mine & (outcome == MAYBE_STORED)).alias("maybe_stored"),
        f.count_if(mine & (outcome == NOT_SENT)).alias("not_sent"),
        f.count_if(mine & (f.col("attempt") > 1)).alias("retries"),
        f.coalesce(f.sum(f.when(mine & is_stored, f.col("messages"))), f.lit(0)).alias("messages"),
        f.coalesce(f.sum(f.when(mine & is_stored, f.col("bytes"))), f.lit(0)).alias("bytes"),
    ]


def _with_latency(grouped: DataFrame, keys: Sequence[str], accuracy: int) -> DataFrame:
    """Counts and latency quantiles of groups."""
    quantiles = f.percentile_approx(waited(), list(_QUANTILES.values()), accuracy)
    whole = grouped.groupBy(*keys).agg(
        *_counts(),
        quantiles.alias("quantiles"),
        f.max(waited()).alias("slowest"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
    )
    taken = [f.col("quantiles")[number].alias(name) for number, name in enumerate(_QUANTILES)]
    rest = [name for name in whole.columns if name not in {*keys, "quantiles", "slowest"}]
    moments = {"first_at", "last_at"}
    return whole.select(
        *keys,
        *(name for name in rest if name not in moments),
        *taken,
        "slowest",
        *(name for name in rest if name in moments),
    )


def overview() -> list[Column]:
    """Columns for one row about all attempts among records of any kind.

    Observed while the records are staged, which saves reading them again. Quantiles are text with
    commas: an observation hands numbers and text to Python, and no lists.
    """
    is_attempt = f.col("kind") == ATTEMPT
    at, latency = f.when(is_attempt, f.col("at")), f.when(is_attempt, waited())
    quantiles = f.percentile_approx(latency, list(_QUANTILES.values()), _FINE)
    return [
        *_counts(is_attempt),
        f.array_join(quantiles.cast("array<string>"), ",").alias("quantiles"),
        f.max(latency).alias("slowest"),
        f.min(at).alias("first_at"),
        f.max(at).alias("last_at"),
    ]


def quantiles_of(text: str | None) -> dict[str, float | None]:
    """What ``overview`` tells of quantiles, by name."""
    values = [float(word) for word in text.split(",")] if text else [None] * len(_QUANTILES)
    return dict(zip(_QUANTILES, values, strict=True))


def by_broker(attempts: DataFrame) -> DataFrame:
    """One row a broker."""
    return _with_latency(attempts, ["broker"], _FINE)


def by_minute(attempts: DataFrame) -> DataFrame:
    """One row a broker and minute."""
    minute = f.timestamp_seconds(f.floor(f.col("at") / 60) * 60)
    return _with_latency(attempts.withColumn("minute", minute), ["broker", "minute"], _FINE).drop(
        "first_at", "last_at"
    )


def by_bucket(attempts: DataFrame, brokers: Sequence[str], begin: float, width: float) -> DataFrame:
    """One row for each of some brokers and stretch of time, numbered from ``begin`` on."""
    bucket = f.floor((f.col("at") - begin) / width).cast("int")
    chosen = attempts.where(f.col("broker").isin(*brokers)).withColumn("bucket", bucket)
    return _with_latency(chosen, ["broker", "bucket"], _COARSE)


def by_latency(attempts: DataFrame, brokers: Sequence[str]) -> DataFrame:
    """How often which latency, in bars of equal width on a logarithmic axis.

    Bar ``n`` begins at ``10 ** (n / BARS_PER_DECADE)`` seconds.
    """
    known = attempts.where(f.col("broker").isin(*brokers) & waited().isNotNull())
    height = f.log10(f.greatest(f.col("latency"), f.lit(_SHORTEST)))
    bar = f.floor(height * BARS_PER_DECADE).cast("int").alias("bar")
    return known.groupBy("broker", bar).agg(f.count(f.lit(1)).alias("attempts"))


def by_queue(attempts: DataFrame) -> DataFrame:
    """One row a queue; ``keyed`` are the messages that had to go there, for their sharding key."""
    is_keyed = acknowledged() & f.col("key").isNotNull()
    return (
        attempts.where(f.col("queue").isNotNull())
        .groupBy("topic", "broker", "queue")
        .agg(
            *_counts(),
            f.coalesce(f.sum(f.when(is_keyed, f.col("messages"))), f.lit(0)).alias("keyed"),
        )
    )


def by_topic(attempts: DataFrame) -> DataFrame:
    """One row a topic."""
    return _with_latency(attempts, ["topic"], _FINE)


def by_client(attempts: DataFrame) -> DataFrame:
    """One row a producer."""
    return _with_latency(attempts, ["client"], _COARSE)


def by_key(attempts: DataFrame) -> DataFrame:
    """The sharding keys with the most messages; ``moved`` when not all are in one queue."""
    # Numbers, because text would turn this into a sort of everything.
    place = f.when(acknowledged(), f.xxhash64("broker", "queue"))
    return (
        attempts.where(f.col("key").isNotNull())
        .groupBy("topic", "key")
        .agg(*_counts(), (f.min(place) != f.max(place)).alias("moved"))
        .orderBy(f.desc("messages"), f.desc("attempts"), "topic", "key")
        .limit(TOP_ROWS)
    )


def by_error(attempts: DataFrame) -> DataFrame:
    """Failures that read alike but for numbers and addresses, the most frequent first."""
    text = f.coalesce(f.col("error"), f.lit("no reason was recorded"))
    text = f.regexp_replace(text, r"\d{1,3}(\.\d{1,3}){3}:\d+", "(address)")
    text = f.regexp_replace(text, r"\d+\.\d+|\d{3,}", "#")
    return (
        attempts.where(~acknowledged())
        .groupBy("broker", "outcome", text.alias("error"))
        .agg(
            f.count(f.lit(1)).alias("attempts"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
            f.first("error").alias("example"),
        )
        .orderBy(f.desc("attempts"), "broker", "error")
        .limit(TOP_ROWS)
    )
