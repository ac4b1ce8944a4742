"""Topics as a Parquet dataset that grows."""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.columns.schema import READ_COLUMNS
from rocketwire.errors import ConfigError, RocketMQError
from rocketwire.spark.pipelines.archive_batch import ArchiveBatch
from rocketwire.spark.pipelines.archive_lock import only_writer
from rocketwire.spark.pipelines.archive_record import ArchiveRecord
from rocketwire.spark.pipelines.archive_verify import ArchiveVerification, check_archive
from rocketwire.spark.pipelines.bodies import VARIANT, body_reader
from rocketwire.spark.pipelines.checkpoint import (
    checkpoint_note,
    claim_checkpoint,
    local_path,
    stream_digits,
    stream_of,
)
from rocketwire.spark.pipelines.compact import compact
from rocketwire.spark.pipelines.connection import require, source_options
from rocketwire.spark.pipelines.missing import checkpoint_options, look, record_options
from rocketwire.spark.progress import lag
from rocketwire.spark.spark_api import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("rocketwire.spark")

_COMPACT_EVERY: Final = 3600.0
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


def default_checkpoint(folder: str | Path) -> str:
    """Beside the archive, under a name that no engine takes for data."""
    text = str(folder).rstrip("/")
    head, slash, name = text.rpartition("/")
    return f"{head}{slash}.{name}.checkpoint"


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
        folder: the dataset: ``topic=.../date=.../*.parquet``.
        name_servers: of the cluster.
        body: ``raw``, or how to read it: ``text``, ``json``, ``avro``, ``protobuf``: it becomes the
            column ``data``; what does not parse stays in ``_body``, and ``_error`` says why.
        schema: of JSON bodies, as DDL, learned from the topic unless given; of Avro, a file with its
            schema; of Protobuf, a file with the descriptor, a colon, and the message's name.
        registry_header: Avro or Protobuf bodies begin with the five bytes of a schema registry.
        start: where a new archive starts: ``earliest`` or ``latest``.
        checkpoint: the folder that remembers how far it is; beside the dataset unless given.
        follow: go on for ever, instead of until the present end.
        compact_files: join small files of days that are over.
        forget_brokers: brokers that were taken away for good: the archive is whole without them.
        format: ``parquet``; ``delta`` and ``iceberg`` go to Spark, where they are installed.
        options: of the data source ``rocketmq``.
        on_start: called with the running query.

    Raises:
        ConfigError: something is wrong with the arguments.
    """
    require(topic, "topic", "name a topic")
    require(str(folder), "folder", "name the folder of the dataset")
    settings = source_options(name_servers, options)
    bodies = body_reader(spark, body, schema, topic, settings, has_header=registry_header)
    if bodies.schema == VARIANT and format == "parquet":
        raise ConfigError("schema is variant: Parquet files of an archive need columns; give DDL")
    place = str(checkpoint or default_checkpoint(folder))
    claimed = {"topic": topic, "folder": str(folder), "body": body, "format": format}
    note = checkpoint_note(place)
    if note is None or "columns" in note:
        claimed["columns"] = ",".join(READ_COLUMNS) if note is None else note["columns"]
    if local_path(place) is not None:
        claimed["stream"] = stream_of(place)
    elif is_remote(spark):
        raise ConfigError(
            f"checkpoint {place}: over Spark Connect it must be on a local file system"
        )
    claim_checkpoint(place, claimed, force=False)
    # All files of an archive have the columns of its first: engines differ in what they make of more.
    settings.setdefault("columns", claimed.get("columns", _COLUMNS_BEFORE))
    with only_writer(folder, f"archive of {topic}"):
        record = ArchiveRecord.load(folder)
        record.forget(forget_brokers)
        settings |= record_options(record.queues, record.forgotten)
        settings |= checkpoint_options(place, follow=follow)
        note_queues(spark, folder, record, settings, topic)
        read = spark.readStream.format("rocketmq").options(
            **settings, topics=topic, startingOffsets=start
        )
        batch = ArchiveBatch(str(folder), claimed.get("stream", ""), format, bodies)
        run = _Run(batch, topic, place, compacts=compact_files)
        try:
            done = run.go(read.load(), follow=follow, on_start=on_start)
        finally:
            missing = note_queues(spark, folder, record, settings, topic)
        return replace(done, missing=max(missing, run.missing))


def note_queues(
    spark: SparkSession,
    folder: str | Path,
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
    record.save(folder)
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
    place = checkpoint or default_checkpoint(folder)
    return check_archive(spark, folder, place, settings)


class _Run:
    """One run of the stream."""

    def __init__(
        self, batch: ArchiveBatch, topics: str, checkpoint: str, *, compacts: bool
    ) -> None:
        self._batch = batch
        self._topics = [name.strip() for name in topics.split(",")]
        self._checkpoint = checkpoint
        self._compacts = compacts and batch.kind == "parquet"
        self._compacted_at = time.monotonic()
        self._compacted = 0
        self._is_named = threading.Event()
        self._files: dict[int, list[dict[str, Any]]] = {}
        #: Queues that the query could not read at its end, as far as it tells.
        self.missing = 0

    def go(
        self,
        messages: DataFrame,
        *,
        follow: bool,
        on_start: Callable[[StreamingQuery], None] | None,
    ) -> ArchiveResult:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="rocketwire-") as folder:
            told = Path(folder) / "batches.jsonl"
            is_far = is_remote(messages.sparkSession)
            work = replace(self._batch, told=str(told)) if is_far else self._write
            writer = messages.writeStream.foreachBatch(work)
            writer = writer.option("checkpointLocation", self._checkpoint)
            query = (writer if follow else writer.trigger(availableNow=True)).start()
            if not self._batch.stream:
                self._batch = replace(self._batch, stream=stream_digits(str(query.id)))
            self._is_named.set()
            try:
                if on_start is not None:
                    on_start(query)
                query.awaitTermination()
            finally:
                query.stop()
            if told.exists():
                lines = map(json.loads, told.read_text(encoding="utf-8").splitlines())
                self._files = {line["batch"]: line["files"] for line in lines}
        self.missing = lag(query.lastProgress).missing
        if self._compacts:
            self._compact()
        return self._result(query, time.monotonic() - began)

    def _result(self, query: StreamingQuery, seconds: float) -> ArchiveResult:
        files = [file for batch in self._files.values() for file in batch]
        rows = sum(file["rows"] for file in files)
        if not files:
            # Formats of Spark's own, and a server elsewhere, tell of their rows only in this way.
            rows = sum(_rows_of(progress) for progress in query.recentProgress)
        return ArchiveResult(
            rows=rows,
            files=len(files),
            bytes=sum(file["bytes"] for file in files),
            batches=len(self._files),
            compacted=self._compacted,
            seconds=seconds,
            folder=self._batch.folder,
            checkpoint=self._checkpoint,
        )

    def _compact(self) -> None:
        self._compacted += compact(self._batch.folder, topics=self._topics)
        self._compacted_at = time.monotonic()

    def _write(self, batch: DataFrame, number: int) -> None:
        """One micro-batch; repeated under the same number after a crash."""
        self._is_named.wait()
        # All batches before this one are committed, so their files will not be written again.
        if self._compacts and time.monotonic() - self._compacted_at > _COMPACT_EVERY:
            self._compact()
        self._files[number] = self._batch.write(batch, number)


def _rows_of(progress: Any) -> int:
    return int(progress["numInputRows"])
