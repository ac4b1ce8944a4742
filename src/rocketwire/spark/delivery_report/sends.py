"""Whole sends, put together from their attempts: retries, repeats, and those that failed.

Nearly all sends are one attempt that was stored. Only the others are looked at, so that the ids of
everything need not be shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from rocketwire.spark.delivery_report.records import (
    FAILED,
    MAYBE_STORED,
    NOT_SENT,
    REJECTED,
    STORED,
    acknowledged,
)


def eventful(attempts: DataFrame) -> DataFrame:
    """The attempts of sends that did not simply succeed."""
    marked = attempts.where(f.col("message_id").isNotNull())
    # A first attempt that was stored, but less safely than asked for, is followed by another and
    # looks like all the others. It is sought by those that lack what came before.
    lonely = (
        marked.where(f.col("attempt") == 2)
        .select("send")
        .join(marked.where(f.col("attempt") == 1).select("send"), "send", "left_anti")
        .distinct()
    )
    first = attempts.where((f.col("attempt") == 1) & f.col("message_id").isNull())
    return marked.unionByName(first.join(lonely, "send", "left_semi").select(*marked.columns))


def routes(steps: DataFrame) -> DataFrame:
    """Where retries went: one row for each pair of brokers.

    ``origin`` is null where the attempt before was not recorded. ``acknowledged`` counts the
    retries that were stored.
    """
    before = steps.select(
        "send", (f.col("attempt") + 1).alias("attempt"), f.col("broker").alias("origin")
    ).dropDuplicates(["send", "attempt"])
    after = steps.where(f.col("attempt") > 1)
    return (
        after.join(before, ["send", "attempt"], "left")
        .groupBy("origin", f.col("broker").alias("target"))
        .agg(f.count(f.lit(1)).alias("retries"), f.count_if(acknowledged()).alias("acknowledged"))
        .orderBy(f.desc("retries"), "origin", "target")
    )


def outcomes(steps: DataFrame) -> DataFrame:
    """One row for each eventful send.

    ``outcome`` is ``stored`` or the worst of its attempts. ``maybe_duplicate``: stored, and an
    earlier attempt was or may have been stored, too. ``broker`` and ``error`` are the last ones.
    """
    outcome = f.col("outcome")
    last = f.max_by(f.struct("broker", "error", "at", "message_id"), "attempt")
    rows = steps.groupBy("send").agg(
        f.first("client").alias("client"),
        f.first("topic").alias("topic"),
        f.max("attempt").alias("attempts"),
        f.max("messages").alias("messages"),
        f.count_if(acknowledged()).alias("stored"),
        f.count_if(outcome == MAYBE_STORED).alias("maybe"),
        f.count_if(outcome == REJECTED).alias("rejected"),
        f.count_if(outcome == NOT_SENT).alias("not_sent"),
        last.alias("last"),
    )
    worst = (
        f.when(f.col("stored") > 0, STORED)
        .when(f.col("maybe") > 0, MAYBE_STORED)
        .when(f.col("rejected") > 0, REJECTED)
        .when(f.col("not_sent") > 0, NOT_SENT)
        .otherwise(FAILED)
    )
    twice = (f.col("stored") > 1) | ((f.col("stored") > 0) & (f.col("maybe") > 0))
    return rows.select(
        worst.alias("outcome"),
        twice.alias("maybe_duplicate"),
        "attempts",
        "messages",
        "client",
        "topic",
        f.col("last.broker").alias("broker"),
        f.col("last.error").alias("error"),
        f.col("last.at").alias("last_at"),
        f.col("last.message_id").alias("message_id"),
    )


#: How an eventful send may end.
_ENDS: Final = (STORED, MAYBE_STORED, REJECTED, NOT_SENT, FAILED)


def tallies() -> list[Column]:
    """How many eventful sends ended how: figures of the rows of ``outcomes``."""
    figures: list[Column] = []
    for number, end in enumerate(_ENDS):
        mine = f.col("outcome") == end
        parts = {
            "sends": f.count_if(mine),
            "messages": f.coalesce(f.sum(f.when(mine, f.col("messages"))), f.lit(0)),
            "maybe_duplicates": f.count_if(mine & f.col("maybe_duplicate")),
            "retried": f.count_if(mine & (f.col("attempts") > 1)),
        }
        figures += [column.alias(f"{name}_{number}") for name, column in parts.items()]
    return figures


def tallied(seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What ``tallies`` told, an entry for each way to end that occurred, the most frequent first."""
    names = ("sends", "messages", "maybe_duplicates", "retried")
    found = [
        {"outcome": end} | {name: seen[f"{name}_{number}"] for name in names}
        for number, end in enumerate(_ENDS)
    ]
    return sorted((one for one in found if one["sends"]), key=lambda one: -int(one["sends"]))
