"""One micro-batch of an archive. Over Spark Connect this runs on the server."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketwire.spark.pipelines.archive_files import RESULT_SCHEMA, ArchiveTask, make_visible
from rocketwire.spark.pipelines.arrow_map import map_in_arrow
from rocketwire.spark.pipelines.bodies import BodyReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ArchiveBatch:
    """Writes a batch; a plain value, so that it can travel.

    Args:
        folder: the dataset.
        stream: names the files of one checkpoint.
        kind: ``parquet``, or a format that Spark has.
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
        files = self.write(batch, number)
        if self.told is not None:
            with Path(self.told).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"batch": number, "files": files}) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def write(self, batch: DataFrame, number: int) -> list[dict[str, Any]]:
        """Write a batch under its number; repeated after a crash, it overwrites itself."""
        rows = self._with_data(batch)
        if self.kind != "parquet":
            self._write_elsewhere(rows, number)
            return []
        task = ArchiveTask(self.folder, self.stream, number)
        told = map_in_arrow(rows, task, RESULT_SCHEMA).collect()
        files = [json.loads(row.result) for row in told]
        make_visible(self.folder, self.stream, number, files)
        return files

    def _with_data(self, batch: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        if self.bodies.kind == "raw":
            return batch
        read = self.bodies.parsed(batch)
        kept = f.when(f.col("_error").isNotNull(), f.col("body"))
        return read.withColumn("_body", kept).drop("body")

    def _write_elsewhere(self, rows: DataFrame, number: int) -> None:
        """Delta and Iceberg have transactions of their own; Delta knows a repeat by its number."""
        from pyspark.sql import functions as f

        dated = rows.withColumn("date", f.to_date("storeTimestamp"))
        writer = dated.write.format(self.kind).mode("append").partitionBy("topic", "date")
        writer = writer.option("txnAppId", self.stream).option("txnVersion", number)
        writer.save(self.folder)
