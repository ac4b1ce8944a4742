"""When brokers were avoided.

A period begins when a producer isolates a broker and ends when the same producer takes it back.
Isolating again in between only prolongs it. One without an end lasts until the time that was told
with it, and no longer than the records of its producer.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from rocketwire.spark.delivery_report.records import ISOLATED, RETURNED


def periods(records: DataFrame) -> DataFrame:
    """One row for each period: which producer avoided which broker, when, and why at first.

    ``verdicts`` is how often the producer found the broker wanting within it; ``is_open`` when no
    return was recorded.
    """
    events = records.where(f.col("kind").isin(ISOLATED, RETURNED))
    line = Window.partitionBy("client", "broker").orderBy("at", f.col("kind").desc())
    is_return = (f.col("kind") == RETURNED).cast("int")
    # A return belongs to the period that it ends, not to the one after it.
    number = f.sum(is_return).over(line.rowsBetween(Window.unboundedPreceding, 0)) - is_return
    is_isolation = f.col("kind") == ISOLATED
    grouped = (
        events.withColumn("period", number)
        .groupBy("client", "broker", "period")
        .agg(
            f.min(f.when(is_isolation, f.col("at"))).alias("begin"),
            f.max(f.when(~is_isolation, f.col("at"))).alias("returned"),
            f.max(f.when(is_isolation, f.col("until"))).alias("until"),
            f.min_by("reason", f.when(is_isolation, f.col("at"))).alias("reason"),
            f.count_if(is_isolation).alias("verdicts"),
        )
        .where(f.col("begin").isNotNull())
    )
    return _with_ends(grouped, records)


def _with_ends(grouped: DataFrame, records: DataFrame) -> DataFrame:
    last = records.where(f.col("at").isNotNull()).groupBy("client").agg(f.max("at").alias("last"))
    end = f.coalesce("returned", f.least(f.coalesce("until", "last"), "last"))
    return grouped.join(last, "client").select(
        "broker",
        "client",
        "begin",
        f.greatest(end, "begin").alias("end"),
        (f.greatest(end, "begin") - f.col("begin")).alias("seconds"),
        "reason",
        "verdicts",
        f.col("returned").isNull().alias("is_open"),
    )


def joined(rows: DataFrame, gap: float) -> DataFrame:
    """Per broker the times when at least one producer avoided it.

    Args:
        rows: the periods.
        gap: those that are not farther apart become one, so that their number has a limit.
    """
    line = Window.partitionBy("broker").orderBy("begin", "end")
    before = f.max("end").over(line.rowsBetween(Window.unboundedPreceding, -1))
    is_new = (before.isNull() | (f.col("begin") > before + gap)).cast("int")
    number = f.sum("is_new").over(line.rowsBetween(Window.unboundedPreceding, 0))
    return (
        rows.withColumn("is_new", is_new)
        .withColumn("island", number)
        .groupBy("broker", "island")
        .agg(
            f.min("begin").alias("begin"),
            f.max("end").alias("end"),
            f.count(f.lit(1)).alias("periods"),
            f.count_distinct("client").alias("clients"),
            f.min_by("reason", "begin").alias("reason"),
        )
        .drop("island")
        .orderBy("broker", "begin")
    )


def by_broker(rows: DataFrame) -> DataFrame:
    """Per broker how often and how long it was avoided, and the reason given for most time."""
    times = (
        joined(rows, 0.0)
        .groupBy("broker")
        .agg(f.sum(f.col("end") - f.col("begin")).alias("avoided_seconds"))
    )
    counts = rows.groupBy("broker").agg(
        f.count(f.lit(1)).alias("periods"),
        f.count_distinct("client").alias("clients"),
        f.max_by("reason", "seconds").alias("reason"),
        f.max("seconds").alias("longest"),
    )
    return counts.join(times, "broker")
