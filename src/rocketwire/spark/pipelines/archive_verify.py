"""Checks an archive: every message of its ranges once, nothing missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark.client import Cluster, reader_for
from rocketwire.spark.completeness import describe_missing
from rocketwire.spark.offsets import StreamOffset, nest
from rocketwire.spark.option_values import EARLIEST
from rocketwire.spark.pipelines.archive_place import ArchivePlace
from rocketwire.spark.pipelines.archive_record import ArchiveRecord
from rocketwire.spark.pipelines.archive_sinks import read_archive
from rocketwire.spark.pipelines.checkpoint import Checkpoint
from rocketwire.spark.pipelines.connection import checked
from rocketwire.spark.pipelines.missing import look, record_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class ArchiveVerification:
    """What was found. ``problems`` is empty when the archive is whole."""

    rows: int
    queues: int
    problems: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing is missing, and nothing there twice."""
        return not self.problems


def check_archive(
    spark: SparkSession, place: ArchivePlace, settings: Mapping[str, str]
) -> ArchiveVerification:
    """Compare an archive with itself, with its checkpoint and with the brokers.

    Args:
        spark: the session.
        place: of the archive.
        settings: options of the data source.

    Raises:
        ConfigError: there is no archive.
    """
    frame = read_archive(spark, place.folder, place.kind)
    if frame is None and place.checkpoint.is_surely_missing:
        raise ConfigError(
            f"folder {place.folder}: there is no archive, and no checkpoint "
            f"{place.checkpoint.folder} of one"
        )
    if frame is not None:
        frame = frame.selectExpr(
            "cast(topic AS string) AS topic", "broker", "queueId", "queueOffset"
        )
    found = {} if frame is None else _spans(frame)
    problems = [] if frame is None else _repeats(frame, found)
    record = ArchiveRecord.load(place.files, place.beside)
    chosen = (place.checkpoint.note() or {}).get("filter")
    if chosen:
        problems += _against_topic(spark, frame, place.checkpoint, record, {**settings, **chosen})
    else:
        problems += [] if frame is None else _gaps(frame, found)
        problems += _against_checkpoint(found, place.checkpoint, record.begins)
    problems += _against_brokers(found, settings)
    problems += _against_record(spark, record, found, settings)
    rows = sum(span["count"] for span in found.values())
    return ArchiveVerification(rows, len(found), tuple(problems))


def _spans(frame: DataFrame) -> dict[MessageQueue, dict[str, int]]:
    from pyspark.sql import functions as f

    rows = (
        frame.groupBy("topic", "broker", "queueId")
        .agg(
            f.min("queueOffset").alias("low"),
            f.max("queueOffset").alias("high"),
            f.count("*").alias("count"),
            f.countDistinct("queueOffset").alias("different"),
        )
        .collect()
    )
    return {
        MessageQueue(row.topic, row.broker, row.queueId): {
            "low": row.low, "high": row.high, "count": row["count"], "different": row.different,
        }
        for row in sorted(rows)
    }  # fmt: skip


def _named(queue: MessageQueue) -> str:
    return f"topic {queue.topic}, broker {queue.broker}, queue {queue.id}"


def _of(frame: DataFrame, queue: MessageQueue) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.where(
        (f.col("topic") == queue.topic)
        & (f.col("broker") == queue.broker)
        & (f.col("queueId") == queue.id)
    )


def _repeats(frame: DataFrame, found: Mapping[MessageQueue, dict[str, int]]) -> list[str]:
    from pyspark.sql import functions as f

    texts: list[str] = []
    for queue, span in found.items():
        if span["count"] == span["different"]:
            continue
        counted = _of(frame, queue).groupBy("queueOffset").agg(f.count("*").alias("times"))
        rows = counted.where("times > 1").orderBy("queueOffset").limit(_LISTED).collect()
        shown = ", ".join(f"{row.queueOffset} ({row.times} times)" for row in rows[:10])
        texts.append(f"{_named(queue)}: {span['count'] - span['different']} repeats, at {shown}")
    return texts


def _gaps(frame: DataFrame, found: Mapping[MessageQueue, dict[str, int]]) -> list[str]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    texts: list[str] = []
    for queue, span in found.items():
        if span["high"] - span["low"] + 1 == span["different"]:
            continue
        before = f.lag("queueOffset").over(Window.orderBy("queueOffset"))
        jumps = _of(frame, queue).select("queueOffset", before.alias("before"))
        rows = jumps.where("queueOffset > before + 1").orderBy("queueOffset").limit(_LISTED)
        texts += [
            f"{_named(queue)}: offsets {row.before + 1} to {row.queueOffset - 1} are missing"
            for row in rows.collect()
        ]
    return texts


def _against_checkpoint(
    found: Mapping[MessageQueue, dict[str, int]],
    checkpoint: Checkpoint,
    begins: Mapping[MessageQueue, int],
) -> tuple[str, ...]:
    """What the stream has committed must be in the archive, from its first message to its last."""
    offset = checkpoint.last_offsets()
    if offset is None:
        return ()
    texts: list[str] = []
    end = StreamOffset.from_json(offset)
    for queue, stop in sorted(end.offsets.items()):
        begin = begins.get(queue, end.begins.get(queue))
        span: Any = found.get(queue)
        if span is None:
            gaps = [] if begin is None else [(begin, stop)]
        else:
            low = span["low"] if begin is None else begin
            gaps = [(low, span["low"]), (span["high"] + 1, stop)]
        texts += [
            f"{_named(queue)}: offsets {low} to {high - 1} are missing"
            for low, high in gaps
            if low < high
        ]
    return tuple(texts)


def _against_topic(
    spark: SparkSession,
    frame: DataFrame | None,
    checkpoint: Checkpoint,
    record: ArchiveRecord,
    settings: Mapping[str, str],
) -> list[str]:
    """What an archive of filtered messages lacks: offsets do not tell, so the topic is read again.

    Messages that have expired since, and those of brokers that are away, can't be compared.
    """
    from pyspark.sql import functions as f

    offset = checkpoint.last_offsets()
    if offset is None:
        return []
    end = StreamOffset.from_json(offset)
    cluster = Cluster(reader_for(checked(settings)))
    topics = sorted({queue.topic for queue in end.offsets})
    there = {queue for topic in topics for queue in cluster.queues_of(topic) or ()}
    ends = {queue: stop for queue, stop in end.offsets.items() if queue in there}
    if not ends:
        return []
    begins = {q: record.begins.get(q, end.begins.get(q, EARLIEST)) for q in ends}
    place = ("topic", "broker", "queueId", "queueOffset")
    options = dict(settings) | {
        "topics": ",".join(sorted({queue.topic for queue in ends})),
        "columns": ",".join(place),
        "startingOffsets": json.dumps(nest(begins)),
        "endingOffsets": json.dumps(nest(ends)),
        "failOnDataLoss": "false",
    }
    lost = spark.read.format("rocketmq").options(**options).load()
    lost = lost if frame is None else lost.join(frame, list(place), "left_anti")
    at = f.col("queueOffset")
    counted = lost.groupBy(*place[:3]).agg(
        f.count("*").alias("n"), f.min(at).alias("low"), f.max(at).alias("high")
    )
    return [
        f"{_named(MessageQueue(row.topic, row.broker, row.queueId))}: {row.n} messages of the offsets "
        f"{row.low} to {row.high} are missing"
        for row in counted.orderBy(*place[:3]).limit(_LISTED).collect()
    ]


def _against_record(
    spark: SparkSession,
    record: ArchiveRecord,
    found: Mapping[MessageQueue, dict[str, int]],
    settings: Mapping[str, str],
) -> list[str]:
    """Queues that can't be read now, or could not be when the archive was last run."""
    known = record.queues | set(found)
    topics = sorted({queue.topic for queue in known | record.missing})
    if not topics:
        return []
    given = dict(settings) | record_options(known, record.forgotten)
    _, missing = look(spark, given, ",".join(topics), ())
    texts = [f"{described}: not archived, and can't be compared" for described in _told(missing)]
    back = record.missing - set(missing)
    back = {queue for queue in back if queue.broker not in record.forgotten}
    if back:
        reason = "it could not be read when the archive was last run; run it again"
        texts += _told(dict.fromkeys(back, reason))
    return texts


def _told(missing: Mapping[MessageQueue, str]) -> list[str]:
    """What is missing, a line for each broker and reason."""
    groups: dict[tuple[str, str, str], dict[MessageQueue, str]] = {}
    for queue, why in missing.items():
        groups.setdefault((queue.topic, queue.broker, why), {})[queue] = why
    return [describe_missing(groups[key]) for key in sorted(groups)]


def _against_brokers(
    found: Mapping[MessageQueue, dict[str, int]], settings: Mapping[str, str]
) -> list[str]:
    """The archive can't have more than the broker ever had."""
    bounds = Cluster(reader_for(checked(settings))).bounds(found)
    return [
        f"{_named(queue)}: the archive goes to {span['high']}, the broker only to "
        f"{bounds.end[queue] - 1}: was the topic made anew?"
        for queue, span in found.items()
        if queue in bounds.end and span["high"] >= bounds.end[queue]
    ]
