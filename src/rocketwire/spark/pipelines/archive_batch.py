"""One micro-batch of an archive. Over Spark Connect this runs on the server."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.spark.pipelines.archive_files import (
    RESULT_SCHEMA,
    ArchiveTask,
    batch_prefix,
    make_visible,
)
from rocketwire.spark.pipelines.arrow_map import map_in_arrow
from rocketwire.spark.pipelines.bodies import BodyReader
from rocketwire.spark.pipelines.small_files import HadoopFiles, local_path, place_beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The day (UTC) of a time, whatever zone the session shows times in.
_DAY: Final = "date_from_unix_date(int(floor(unix_micros(storeTimestamp) / 86400000000)))"
_TIMES: Final = "spark.sql.parquet.outputTimestampType"


def with_day(rows: DataFrame) -> DataFrame:
    """Rows with the column ``date``, the day of storing (UTC)."""
    from pyspark.sql import functions as f

    return rows.withColumn("date", f.expr(_DAY))


def with_data(rows: DataFrame, bodies: BodyReader) -> DataFrame:
    """Rows whose bodies are read; those that can't be stay in ``_body``."""
    from pyspark.sql import functions as f

    if bodies.kind == "raw":
        return rows
    kept = f.when(f.col("_error").isNotNull(), f.col("body"))
    return bodies.parsed(rows).withColumn("_body", kept).drop("body")


def commit_note(stream: str, batch: int | str) -> str:
    """What a table's history says of a batch."""
    return f"rocketwire {stream} {batch}"


@dataclass(frozen=True)
class ArchiveBatch:
    """Writes a batch; a plain value, so that it can travel.

    Args:
        folder: the dataset.
        stream: names the files of one checkpoint.
        kind: ``parquet`` or ``delta``.
        bodies: how they are read.
        told: a file that gets a line about each batch; None for none.
    """

    folder: str
    stream: str
    kind: str
    bodies: BodyReader = field(default_factory=BodyReader)
    told: str | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write a batch, and tell of it."""
        written = self.write(batch, number)
        if self.told is not None:
            with Path(self.told).open("a", encoding="utf-8") as file:
                file.write(json.dumps(written | {"batch": number}) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def write(self, batch: DataFrame, number: int) -> dict[str, int]:
        """Write a batch under its number; repeated after a crash, it overwrites itself.

        Returns:
            How many rows, files and bytes; nothing for a table, which keeps a history.
        """
        rows = with_data(batch, self.bodies)
        if self.kind == "delta":
            self._append(rows, number)
            return {}
        if local_path(self.folder) is None:
            return self._write_by_spark(rows, number)
        task = ArchiveTask(self.folder, self.stream, number)
        told = map_in_arrow(rows, task, RESULT_SCHEMA).collect()
        files: list[dict[str, Any]] = [json.loads(row.result) for row in told]
        make_visible(self.stream, number, files)
        return {
            "rows": sum(file["rows"] for file in files),
            "files": len(files),
            "bytes": sum(file["bytes"] for file in files),
        }

    def _append(self, rows: DataFrame, number: int) -> None:
        """Add a batch to a Delta table, which knows a repeat by its number."""
        writer = with_day(rows).write.format(self.kind).mode("append")
        writer = writer.partitionBy("topic", "date")
        writer = writer.option("txnAppId", self.stream).option("txnVersion", number)
        writer.option("userMetadata", commit_note(self.stream, number)).save(self.folder)

    def _write_by_spark(self, rows: DataFrame, number: int) -> dict[str, int]:
        """Let Spark write where only Hadoop reaches; then give the files their names.

        Spark would name them anew at each try, so it writes beside the archive.
        """
        session = rows.sparkSession
        files = HadoopFiles(session)
        prefix = batch_prefix(self.stream, number)
        drafts = f"{place_beside(self.folder, 'drafts')}/{prefix}"
        # As all engines read them; Spark's default is older than that.
        session.conf.set(_TIMES, "TIMESTAMP_MICROS")
        writer = with_day(rows).write.mode("overwrite").option("compression", "zstd")
        writer.partitionBy("topic", "date").parquet(drafts)
        below = sorted(files.files_below(drafts).items())
        made = {path: size for path, size in below if path.endswith(".parquet")}
        count = session.read.parquet(drafts).count() if made else 0
        _move_batch(files, drafts, self.folder, prefix, list(made))
        return {"rows": count, "files": len(made), "bytes": sum(made.values())}


def _move_batch(
    files: HadoopFiles, drafts: str, folder: str, prefix: str, paths: list[str]
) -> None:
    """Bring a batch into its place, and remove what an earlier try of it left there."""
    root = folder.rstrip("/")
    for day in sorted({path.rpartition("/")[0] for path in paths}):
        for name in files.names(f"{root}/{day}"):
            if name.startswith(prefix):
                files.remove(f"{root}/{day}/{name}")
    for number, path in enumerate(paths):
        day = path.rpartition("/")[0]
        files.move(f"{drafts}/{path}", f"{root}/{day}/{prefix}{number:05d}.parquet")
    files.remove(drafts)
