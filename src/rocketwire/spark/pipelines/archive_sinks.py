"""What an archive's stream writes to, and what a run of it has added there."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rocketwire.spark.pipelines.archive_batch import (
    ArchiveBatch,
    commit_note,
    with_data,
    with_day,
)
from rocketwire.spark.pipelines.archive_place import ArchivePlace, is_table_name
from rocketwire.spark.pipelines.bodies import BodyReader
from rocketwire.spark.pipelines.compact import compact
from rocketwire.spark.pipelines.small_files import local_path
from rocketwire.spark.progress import lag
from rocketwire.spark.spark_api import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_COMPACT_EVERY: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Added:
    """What a run added."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    compacted: int = 0

    def __add__(self, other: Added) -> Added:
        """Both together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Added(*(mine + more for mine, more in pairs))


@dataclass
class Drive:
    """Runs the stream of an archive to its end."""

    checkpoint: str
    follow: bool
    on_start: Callable[[StreamingQuery], None] | None
    #: Queues that the query could not read at its end, as far as it tells.
    missing: int = 0

    def __call__(self, writer: DataStreamWriter, table: str | None = None) -> StreamingQuery:
        """Start, and wait."""
        writer = writer.option("checkpointLocation", self.checkpoint)
        if not self.follow:
            writer = writer.trigger(availableNow=True)
        query = writer.start() if table is None else writer.toTable(table)
        try:
            if self.on_start is not None:
                self.on_start(query)
            query.awaitTermination()
        finally:
            query.stop()
        self.missing = lag(query.lastProgress).missing
        return query


class Sink(Protocol):
    """Where the rows go."""

    def run(self, messages: DataFrame, drive: Drive) -> Added:
        """Write a stream; returns what that added."""
        ...


class FileSink:
    """A dataset of Parquet files."""

    def __init__(self, batch: ArchiveBatch, topics: Sequence[str], *, compacts: bool) -> None:
        self._batch = batch
        self._topics = topics
        self._compacts = compacts
        self._compacted_at = time.monotonic()
        self._compacted = 0
        self._written: dict[int, dict[str, int]] = {}

    def run(self, messages: DataFrame, drive: Drive) -> Added:
        """Write a stream; returns what that added."""
        with tempfile.TemporaryDirectory(prefix="rocketwire-") as folder:
            told = Path(folder) / "batches.jsonl"
            is_far = is_remote(messages.sparkSession)
            work = replace(self._batch, told=str(told)) if is_far else self._write
            query = drive(messages.writeStream.foreachBatch(work))
            if told.exists():
                lines = map(json.loads, told.read_text(encoding="utf-8").splitlines())
                self._written = {line["batch"]: line for line in lines}
        if self._compacts:
            self._compact()
        return self._added(query)

    def _added(self, query: StreamingQuery) -> Added:
        written = self._written.values()
        rows = sum(batch["rows"] for batch in written)
        if not written:
            # A server elsewhere tells of its rows only in this way.
            rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        return Added(
            rows=rows,
            files=sum(batch["files"] for batch in written),
            bytes=sum(batch["bytes"] for batch in written),
            batches=len(written),
            compacted=self._compacted,
        )

    def _compact(self) -> None:
        self._compacted += compact(self._batch.folder, topics=self._topics)
        self._compacted_at = time.monotonic()

    def _write(self, batch: DataFrame, number: int) -> None:
        """One micro-batch; repeated under the same number after a crash."""
        # All batches before this one are committed, so their files will not be written again.
        if self._compacts and time.monotonic() - self._compacted_at > _COMPACT_EVERY:
            self._compact()
        self._written[number] = self._batch.write(batch, number)


class DeltaSink:
    """A Delta table; a batch that it has is not added again."""

    def __init__(self, spark: SparkSession, batch: ArchiveBatch) -> None:
        self._spark = spark
        self._batch = batch

    def run(self, messages: DataFrame, drive: Drive) -> Added:
        """Write a stream; returns what that added, by the table's history."""
        before = max((row.version for row in self._commits(-1)), default=-1)
        drive(messages.writeStream.foreachBatch(self._batch))
        metrics = [row.operationMetrics for row in self._commits(before)]
        return Added(
            rows=sum(int(found["numOutputRows"]) for found in metrics),
            files=sum(int(found["numFiles"]) for found in metrics),
            bytes=sum(int(found["numOutputBytes"]) for found in metrics),
            batches=len(metrics),
        )

    def _commits(self, after: int) -> list[Any]:
        """Commits of this stream, after a version."""
        from pyspark.sql import functions as f

        if read_archive(self._spark, self._batch.folder, "delta") is None:
            return []
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self._batch.folder}`")
        mine = f.col("userMetadata").startswith(commit_note(self._batch.stream, ""))
        return history.where(mine & (f.col("version") > after)).collect()


class IcebergSink:
    """An Iceberg table, written by Iceberg's own sink, which skips a batch that it has."""

    def __init__(self, spark: SparkSession, folder: str, bodies: BodyReader) -> None:
        self._spark = spark
        self._table = iceberg_table(spark, folder)
        self._bodies = bodies

    def run(self, messages: DataFrame, drive: Drive) -> Added:
        """Write a stream; returns what that added, by the table's snapshots."""
        rows = with_day(with_data(messages, self._bodies))
        self._create(rows)
        before = {row.snapshot_id for row in self._snapshots()}
        writer = rows.writeStream.format("iceberg").outputMode("append")
        # Rows of several topics and days come mixed; else Iceberg wants them sorted.
        query = drive(writer.option("fanout-enabled", "true"), self._table)
        mine = [
            row.summary
            for row in self._snapshots()
            if row.snapshot_id not in before
            and row.summary.get("spark.sql.streaming.queryId") == str(query.id)
        ]
        return Added(
            rows=sum(int(found.get("added-records", 0)) for found in mine),
            files=sum(int(found.get("added-data-files", 0)) for found in mine),
            bytes=sum(int(found.get("added-files-size", 0)) for found in mine),
            batches=len(mine),
        )

    def _create(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as f

        if self._spark.catalog.tableExists(self._table):
            return
        empty = self._spark.createDataFrame([], rows.schema)
        writer = empty.writeTo(self._table).using("iceberg")
        writer.partitionedBy(f.col("topic"), f.col("date")).create()

    def _snapshots(self) -> list[Any]:
        self._spark.sql(f"REFRESH TABLE {self._table}")
        return self._spark.table(f"{self._table}.snapshots").collect()


def iceberg_table(spark: SparkSession, folder: str) -> str:
    """The name under which Spark finds an Iceberg table; a folder gets a catalog of its own."""
    if is_table_name(folder, "iceberg"):
        return folder
    head, _, name = _absolute(folder).rpartition("/")
    mark = hashlib.blake2s(head.encode(), digest_size=4).hexdigest()
    catalog = f"rocketwire_{mark}"
    key = f"spark.sql.catalog.{catalog}"
    spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{key}.type", "hadoop")
    spark.conf.set(f"{key}.warehouse", head)
    # The stream's own session writes the table: this one must look at it anew.
    spark.conf.set(f"{key}.cache-enabled", "false")
    return f"{catalog}.`{name}`"


def read_archive(spark: SparkSession, folder: str, kind: str) -> DataFrame | None:
    """The rows of an archive; None while there are none.

    Raises:
        PySparkException: it can't be read for another reason.
    """
    from pyspark.errors import AnalysisException

    try:
        if kind == "iceberg":
            table = iceberg_table(spark, folder)
            return spark.table(table) if spark.catalog.tableExists(table) else None
        frame = spark.read.format(kind).load(folder)
        frame.columns  # noqa: B018 - a client of Spark Connect learns only now what is wrong
    except AnalysisException as error:
        if not is_absence(error):
            raise
        return None
    return frame


def is_absence(error: Exception) -> bool:
    """Whether an error says that there are no files yet."""
    text = str(error)
    absent = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_TABLE_NOT_FOUND",
              "DELTA_MISSING_DELTA_TABLE", "DELTA_PATH_DOES_NOT_EXIST")  # fmt: skip
    return any(name in text for name in absent)


def sink_for(
    spark: SparkSession,
    place: ArchivePlace,
    stream: str,
    bodies: BodyReader,
    topics: str,
    *,
    compacts: bool,
) -> Sink:
    """What an archive in a place is written to."""
    if place.kind == "iceberg":
        return IcebergSink(spark, place.folder, bodies)
    if place.kind == "delta":
        return DeltaSink(spark, ArchiveBatch(_absolute(place.folder), stream, "delta", bodies))
    is_local = local_path(place.folder) is not None
    names = [name.strip() for name in topics.split(",")]
    batch = ArchiveBatch(place.folder, stream, "parquet", bodies)
    return FileSink(batch, names, compacts=compacts and is_local)


def _absolute(folder: str) -> str:
    """A folder as Spark's JVM finds it, wherever it was started."""
    local = local_path(folder)
    if local is None:
        return folder.rstrip("/")
    return os.path.abspath(local)  # noqa: PTH100 - keeps links
