"""Topics as a dataset or a table that grows."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.columns.schema import READ_COLUMNS
from rocketwire.errors import ConfigError, RocketMQError
from rocketwire.spark.pipelines.archive_lock import only_writer
from rocketwire.spark.pipelines.archive_place import (
    ArchivePlace,
    default_checkpoint,
    is_table_name,
    kind_of,
    open_place,
)
from rocketwire.spark.pipelines.archive_record import ArchiveRecord
from rocketwire.spark.pipelines.archive_sinks import Added, Drive, sink_for
from rocketwire.spark.pipelines.archive_verify import ArchiveVerification, check_archive
from rocketwire.spark.pipelines.bodies import VARIANT, body_reader
from rocketwire.spark.pipelines.checkpoint import local_checkpoint, rounds
from rocketwire.spark.pipelines.connection import require, source_options
from rocketwire.spark.pipelines.missing import checkpoint_options, look, record_options
from rocketwire.spark.pipelines.small_files import LocalFiles, local_path, place_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("rocketwire.spark")

#: The columns of archives whose checkpoint does not say which they have.
_COLUMNS_BEFORE: Final = (
    "topic,broker,queueId,queueOffset,messageId,rowId,tags,keys,shardingKey,body,properties,"
    "bornTimestamp,storeTimestamp,reconsumeTimes,flag"
)


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What a run added."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    compacted: int = 0
    seconds: float = 0.0
    folder: str = ""
    checkpoint: str = ""
    #: How many queues of the topics can't be read; what is in them is not archived.
    missing: int = 0


def archive(  # noqa: PLR0913 - each is one decision of the user
    spark: SparkSession,
    topic: str,
    folder: str | Path,
    *,
    name_servers: str | Sequence[str] | None = None,
    body: str = "raw",
    schema: str | None = None,
    registry_header: bool = False,
    start: str = "earliest",
    checkpoint: str | Path | None = None,
    follow: bool = False,
    compact_files: bool = True,
    forget_brokers: Sequence[str] = (),
    format: str = "parquet",  # noqa: A002 - Spark's word for it
    options: Mapping[str, str] | None = None,
    on_start: Callable[[StreamingQuery], None] | None = None,
) -> ArchiveResult:
    """Add what is new in a topic to a dataset, partitioned by topic and day of storing (UTC).

    Args:
        spark: the session.
        topic: which, or several with commas.
        folder: the dataset: ``topic=.../date=.../*.parquet``; or the folder of a Delta or Iceberg
            table, or the name of an Iceberg table, ``catalog.schema.table``. On this machine, or
            wherever Spark's Hadoop reaches (``s3a://bucket/archive``).
        name_servers: of the cluster.
        body: ``raw``, or how to read it: ``text``, ``json``, ``avro``, ``protobuf``: it becomes the
            column ``data``; what does not parse stays in ``_body``, and ``_error`` says why.
        schema: of JSON bodies, as DDL, learned from the topic unless given; of Avro, a file with its
            schema; of Protobuf, a file with the descriptor, a colon, and the message's name.
        registry_header: Avro or Protobuf bodies begin with the five bytes of a schema registry.
        start: where a new archive starts: ``earliest`` or ``latest``.
        checkpoint: the folder that remembers how far it is; beside the dataset unless given. A table
            by name needs one.
        follow: go on for ever, instead of until the present end.
        compact_files: join small Parquet files of days that are over.
        forget_brokers: brokers that were taken away for good: the archive is whole without them.
        format: ``parquet``, ``delta`` or ``iceberg``; the session needs the package of the last two.
        options: of the data source ``rocketmq``.
        on_start: called with the running query.

    Raises:
        ConfigError: something is wrong with the arguments, or the session lacks a package.
    """
    began = time.monotonic()
    require(topic, "topic", "name a topic")
    require(str(folder), "folder", "name the folder of the dataset")
    settings = source_options(name_servers, options)
    place = open_place(spark, folder, format, checkpoint)
    bodies = body_reader(spark, body, schema, topic, settings, has_header=registry_header)
    if bodies.schema == VARIANT and format == "parquet":
        raise ConfigError("schema is variant: Parquet files of an archive need columns; give DDL")
    claimed = _claim(place, topic, body, settings)
    # All files of an archive have the columns of its first: engines differ in what they make of more.
    settings.setdefault("columns", claimed.get("columns", _COLUMNS_BEFORE))
    with only_writer(place.beside, f"archive of {topic}", place.hadoop):
        record = ArchiveRecord.load(place.files, place.beside)
        record.forget(forget_brokers)
        settings |= record_options(record.queues, record.forgotten)
        note_queues(spark, record, settings, topic)
        drive = Drive(place.checkpoint.folder, follow, on_start)
        added = Added()
        try:
            for _ in rounds(place.checkpoint, follow=follow):
                reading = settings | checkpoint_options(place.checkpoint, follow=follow)
                read = spark.readStream.format("rocketmq").options(
                    **reading, topics=topic, startingOffsets=start
                )
                stream = claimed["stream"]
                sink = sink_for(spark, place, stream, bodies, topic, compacts=compact_files)
                added += sink.run(read.load(), drive)
        finally:
            record.begun(place.checkpoint.begins(earliest=start == "earliest"))
            missing = note_queues(spark, record, settings, topic)
    return ArchiveResult(
        **dataclasses.asdict(added),
        seconds=time.monotonic() - began,
        folder=place.folder,
        checkpoint=place.checkpoint.folder,
        missing=max(missing, drive.missing),
    )


def check_use(
    topic: str,
    folder: str,
    *,
    format: str,  # noqa: A002 - as `archive` has it
    checkpoint: str | None,
    body: str,
    forget_brokers: Sequence[str],
    options: Mapping[str, str],
) -> None:
    """Refuse what an archive that is there can't be used for; needs no session.

    One that is not on this machine is looked into once there is a session.

    Raises:
        ConfigError: the archive was begun otherwise, or never read from a broker.
    """
    text = place_text(folder)
    progress = place_text(checkpoint) if checkpoint else default_checkpoint(text)
    known = local_checkpoint(progress)
    if known is not None:
        known.check(_use(topic, text, body, format, options))
    beside = local_path(progress if is_table_name(text, format) else text)
    if beside is not None:
        record = ArchiveRecord.load(LocalFiles(), os.path.abspath(beside))  # noqa: PTH100 - keeps links
        record.forget(forget_brokers)


def _use(
    topic: str, folder: str, body: str, kind: str, options: Mapping[str, str]
) -> dict[str, Any]:
    # What brokers leave out is not missing: a check of the archive must know of it.
    chosen = {
        name.lower(): value.strip()
        for name, value in options.items()
        if name.lower() in {"tags", "sql"} and value.strip() not in {"", "*"}
    }
    return {"topic": topic, "folder": folder, "body": body, "format": kind, "filter": chosen}


def _claim(
    place: ArchivePlace, topic: str, body: str, options: Mapping[str, str]
) -> dict[str, Any]:
    """Note what the checkpoint is used for; what it can't be used for is refused."""
    claimed = _use(topic, place.folder, body, place.kind, options)
    note = place.checkpoint.note()
    if note is None or "columns" in note:
        claimed["columns"] = ",".join(READ_COLUMNS) if note is None else note["columns"]
    claimed["stream"] = place.checkpoint.stream()
    place.checkpoint.claim(claimed)
    return claimed


def note_queues(
    spark: SparkSession,
    record: ArchiveRecord,
    settings: Mapping[str, str],
    topic: str,
) -> int:
    """Put into the record what can be read now; returns how many queues can't be."""
    try:
        bounds, missing = look(spark, settings, topic, record.queues)
    except RocketMQError as error:
        _log.warning("which queues there are can't be looked up from here: %s", error)
        return 0
    record.update(bounds.end, missing)
    record.save()
    return len(missing)


def verify_archive(
    spark: SparkSession,
    folder: str | Path,
    *,
    name_servers: str | Sequence[str] | None = None,
    checkpoint: str | Path | None = None,
    options: Mapping[str, str] | None = None,
) -> ArchiveVerification:
    """Check that an archive holds every message of its ranges once.

    Args:
        spark: the session.
        folder: the dataset.
        name_servers: of the cluster.
        checkpoint: as it was given to `archive`.
        options: of the data source ``rocketmq``.
    """
    settings = source_options(name_servers, options)
    place = open_place(spark, folder, kind_of(spark, folder, checkpoint), checkpoint)
    return check_archive(spark, place, settings)


__all__ = ["ArchiveResult", "archive", "default_checkpoint", "verify_archive"]
