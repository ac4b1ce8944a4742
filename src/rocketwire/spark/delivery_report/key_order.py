"""Whether messages of one sharding key stayed in order.

Looked at are the stored messages of one key and topic from one producer, in the order in which
their answers came: a producer has never two messages of a key in flight, so that is the order in
which they were sent. Two that follow one another are a *pair*. What is counted:

* ``backwards``: both in the same queue, the later one not behind the earlier one. This is an order
  violation.
* ``overlapping``: the later one was begun before the answer to the earlier one came. This is an
  order violation, too, since which is stored first is then left to chance.
* ``moved``: in different queues, between which there is no order. That happens when the queues of a
  topic change, as with Java's producer. It is told apart and is no violation.

Messages of one key from different producers have no order of their own and are not compared. A
computer's clock that is put back makes pairs look wrong which are not.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rocketwire.spark.delivery_report.records import STORED
from rocketwire.spark.delivery_report.tables import TOP_ROWS

#: The moment is on the wall's clock and the latency on another, so they may differ a little.
TOLERANCE: Final = 0.002


def pairs(attempts: DataFrame) -> DataFrame:
    """One row for each pair: ``story``, ``at`` and what is true of it."""
    rows = attempts.where(
        f.col("story").isNotNull() & (f.col("outcome") == STORED) & f.col("offset").isNotNull()
    ).select(
        "story",
        f.xxhash64("topic", "broker", "queue").alias("place"),
        "at",
        "offset",
        (f.col("at") - f.col("latency")).alias("began"),
        f.coalesce("messages", f.lit(1)).alias("messages"),
    )
    in_turn = Window.partitionBy("story").orderBy("at", "offset")
    before = f.lag(f.struct("place", "at", "offset", "messages")).over(in_turn)
    is_same = f.col("before.place") == f.col("place")
    next_offset = f.col("before.offset") + f.col("before.messages")
    return (
        rows.withColumn("before", before)
        .where(f.col("before").isNotNull())
        .select(
            "story",
            "at",
            (is_same & (f.col("offset") < next_offset)).alias("is_backwards"),
            (f.col("began") < f.col("before.at") - TOLERANCE).alias("is_overlapping"),
            (~is_same).alias("is_moved"),
        )
    )


def by_story(compared: DataFrame) -> DataFrame:
    """One row for each key of a producer."""
    return compared.groupBy("story").agg(
        f.count(f.lit(1)).alias("pairs"),
        f.count_if("is_backwards").alias("backwards"),
        f.count_if("is_overlapping").alias("overlapping"),
        f.count_if("is_moved").alias("moved"),
        f.count_if(f.col("is_backwards") | f.col("is_overlapping")).alias("violations"),
        f.min(f.when(f.col("is_backwards") | f.col("is_overlapping"), f.col("at"))).alias(
            "first_violation"
        ),
    )


def totals() -> list[Column]:
    """Figures of everything: of the rows of ``by_story``."""
    names = ("pairs", "backwards", "overlapping", "moved", "violations")
    return [
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names),
        f.count(f.lit(1)).alias("keys"),
        f.count_if(f.col("violations") > 0).alias("violated_keys"),
    ]


def worst(stories: DataFrame, attempts: DataFrame) -> DataFrame:
    """The keys with the most violations or moves, by name."""
    chosen = (
        stories.where((f.col("violations") > 0) | (f.col("moved") > 0))
        .orderBy(f.desc("violations"), f.desc("moved"), "story")
        .limit(TOP_ROWS)
    )
    named = (
        attempts.join(f.broadcast(chosen.select("story")), "story", "left_semi")
        .groupBy("story")
        .agg(
            f.first("client").alias("client"),
            f.first("topic").alias("topic"),
            f.first("key").alias("key"),
        )
    )
    return (
        chosen.join(named, "story")
        .select(
            "topic", "key", "client", "pairs", "violations", "backwards", "overlapping", "moved",
            "first_violation",
        )
        .orderBy(f.desc("violations"), f.desc("moved"), "topic", "key")
    )  # fmt: skip
