"""Reads back what was published, and compares it part by part."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketwire.spark.offsets import flatten
from rocketwire.spark.pipelines.mapping import checksum
from rocketwire.spark.pipelines.missing import record_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: So long nothing may come before what is missing counts as missing.
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.1


def wait_until_readable(
    count: Callable[[], int],
    rows: int,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until so many messages can be read, or no more come.

    A broker acknowledges what it has stored, and makes it readable a moment later; under load that
    has taken seconds.

    Args:
        count: how many can be read now.
        rows: how many were acknowledged.
        clock: seconds.
        sleep: waits.
    """
    before, since = count(), clock()
    while before < rows and clock() - since < _PATIENCE:
        sleep(_PAUSE)
        if (now := count()) != before:
            before, since = now, clock()


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether the topic holds what was sent.

    ``problems`` names each part that differs, and how; ``repeats`` counts rows that are in the
    topic more than once, which `deduplicate` drops.
    """

    rows: int
    parts: int
    repeats: int
    problems: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether every part is there, whole and unchanged."""
        return not self.problems


def verify(
    spark: SparkSession,
    settings: Mapping[str, str],
    topics: Sequence[str],
    job: str,
    began: Mapping[str, Any],
    parts: Sequence[Mapping[str, Any]],
) -> Verification:
    """Compare what the topics hold with what was acknowledged.

    Args:
        spark: the session.
        settings: options of the data source.
        topics: where the rows went.
        job: what the row ids begin with.
        began: where the topics ended before the job, as far as is known.
        parts: what was acknowledged.
    """
    from pyspark.sql import functions as f

    options = {k: v for k, v in settings.items() if k.lower() != "topic"}
    options |= {"topics": ",".join(topics), "columns": "rowId,body,keys,tags"}
    # What can't be read is told as a problem, with what that leaves out.
    options["failOnDataLoss"] = "false"
    if began:
        options["startingOffsets"] = json.dumps(began)
        options |= record_options(flatten(began), ())
    read = spark.read.format("rocketmq").options(**options).load()
    own = read.where(f.col("rowId").startswith(f"{job}:"))
    row_sum = checksum(own.columns).cast("decimal(38,0)")
    marked = own.select(
        "rowId", f.split_part("rowId", f.lit(":"), f.lit(2)).alias("mark"), row_sum.alias("sum")
    )
    copies = marked.groupBy("mark", "rowId").agg(
        f.count("*").alias("n"), f.first("sum").alias("sum")
    )
    found = {
        row.mark: row
        for row in copies.groupBy("mark")
        .agg(f.count("*").alias("rows"), f.sum("sum").alias("sum"), f.sum("n").alias("copies"))
        .collect()
    }
    problems = [text for part in parts if (text := _compare(part, found.get(part["mark"])))]
    return Verification(
        rows=sum(int(row.rows) for row in found.values()),
        parts=len(parts),
        repeats=sum(int(row.copies - row.rows) for row in found.values()),
        problems=tuple(problems),
    )


def _compare(part: Mapping[str, Any], found: Any) -> str:
    count = 0 if found is None else int(found.rows)
    if count != part["rows"]:
        return f"{part['part']}: {part['rows']} rows were sent, {count} are in the topic"
    if found is not None and part["checksum"] is not None:
        total = int(found.sum) % 2**64
        if total != part["checksum"]:
            return f"{part['part']}: the {count} rows in the topic differ from those sent"
    return ""
