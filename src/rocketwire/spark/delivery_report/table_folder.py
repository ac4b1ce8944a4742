"""The folder that the tables go to."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from rocketwire.errors import ConfigError
from rocketwire.spark.spark_api import is_remote
from rocketwire.version import __version__

_log = logging.getLogger("rocketwire.spark")

_MARK: Final = "_rocketwire_report.json"
#: Columns with a moment: seconds since 1970 while we calculate, timestamps in the tables.
_MOMENTS: Final = frozenset(
    {"at", "until", "begin", "end", "first_at", "last_at", "first_violation"}
)


class TableFolder:
    """Writes tables as Parquet, one folder each, and gives them back for reading.

    Args:
        spark: the session.
        folder: a path here, or an address of any file system that Spark knows.

    Raises:
        ConfigError: there is something in the folder that no report put there.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder.rstrip("/")
        self.paths: dict[str, str] = {}
        #: How many rows each table has.
        self.rows: dict[str, int] = {}
        #: The figures that were asked for with it.
        self.seen: dict[str, dict[str, Any]] = {}
        local = local_path(folder)
        if local is not None:
            self._claim(local)

    def _claim(self, folder: Path) -> None:
        """Refuse to overwrite tables that are not of this report."""
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"tables {str(folder)!r} is no folder: give the path of one")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
            raise ConfigError(
                f"tables {str(folder)!r} has other things in it: give an empty or a new folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).write_text(json.dumps({"made by": f"rocketwire {__version__}"}) + "\n")

    def put(self, name: str, table: DataFrame, *figures: Column) -> DataFrame:
        """Write a table over an older one; returns it as written, with moments as numbers.

        Args:
            name: of the table.
            table: its rows.
            figures: aggregates of them, which ``seen`` has afterwards.
        """
        # Looked at on the way: asking the written table would be another query, and planning and
        # compiling one takes longer than most tables do.
        seen = Observation()
        rows = f.count(f.lit(1)).alias("rows")
        written = self._write(name, table.observe(seen, rows, *figures))
        self.seen[name] = seen.get
        self.rows[name] = seen.get["rows"]
        return written

    def top(self, name: str, column: str, limit: int, *ties: str) -> list[dict[str, Any]]:
        """The rows of a written table that have most of something, with moments as numbers.

        Args:
            name: of the table.
            column: what counts.
            limit: how many rows at most.
            ties: columns that decide between rows with as much, the lowest first.
        """
        path = local_path(self.paths[name])
        if path is None:
            table = self._moments_as_numbers(self._spark.read.parquet(unglobbed(self.paths[name])))
            rows = table.orderBy(f.desc(column), *ties).limit(limit).collect()
            return [row.asDict() for row in rows]
        return _top_of_files(path, column, limit, ties) if self.rows[name] else []

    def _write(self, name: str, table: DataFrame) -> DataFrame:
        path = f"{self._folder}/{name}"
        moments = {
            column: f.timestamp_micros((f.col(column) * 1_000_000).cast("bigint"))
            for column in table.columns
            if column in _MOMENTS
        }
        shown = table.withColumns(moments) if moments else table
        shown.write.mode("overwrite").parquet(path)
        self.paths[name] = path
        return self._moments_as_numbers(
            self._spark.read.schema(shown.schema).parquet(unglobbed(path))
        )

    def _moments_as_numbers(self, table: DataFrame) -> DataFrame:
        names = [column for column in table.columns if column in _MOMENTS]
        if not names:  # which Spark Connect does not take for nothing
            return table
        return table.withColumns({name: f.col(name).cast("double") for name in names})

    def discard(self, name: str) -> None:
        """Remove a table that was only needed for the others."""
        path = self.paths.pop(name)
        if is_remote(self._spark):
            # A client of Spark Connect reaches no file system of its server but a shared one.
            if (place := local_path(path)) is not None:
                shutil.rmtree(place, ignore_errors=True)
            return
        try:
            # The only way to a remote file system that needs no further package.
            jvm = self._spark.sparkContext._jvm  # noqa: SLF001
            settings = self._spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
            place = jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
            place.getFileSystem(settings).delete(place, True)  # noqa: FBT003 - Java's
        except Exception as error:  # noqa: BLE001 - a report is not lost for what it leaves behind
            _log.warning("%s could not be removed: %s", path, error)


def _top_of_files(path: Path, column: str, limit: int, ties: Sequence[str]) -> list[dict[str, Any]]:
    """As ``TableFolder.top``, without Spark; holds few rows at a time, however many there are."""
    order = [(column, "descending"), *((name, "ascending") for name in ties)]
    best: pa.Table | None = None
    for batch in dataset.dataset(path, format="parquet").to_batches():
        found = pa.Table.from_batches([batch])
        both = found if best is None else pa.concat_tables([best, found])
        best = both.sort_by(order).slice(0, limit).combine_chunks()
    if best is None:
        return []
    for name in _MOMENTS.intersection(best.column_names):
        whole = best[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        seconds = pc.divide(whole.cast(pa.float64()), 1e6)
        best = best.set_column(best.column_names.index(name), name, seconds)
    rows: list[dict[str, Any]] = best.to_pylist()
    return rows


def local_path(text: str) -> Path | None:
    """A place on this machine's own file system; None if it is on another."""
    for prefix in ("file://", "file:"):
        if text.startswith(prefix):
            return Path(text.removeprefix(prefix))
    return None if "://" in text else Path(text)


def unglobbed(path: str) -> str:
    """A path that Spark takes literally, whatever characters it has."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
