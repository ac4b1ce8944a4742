"""Where an archive is: its dataset or table, its checkpoint, and what lies beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.checkpoint import Checkpoint, open_checkpoint
from rocketwire.spark.pipelines.packages import check_format, require_format
from rocketwire.spark.pipelines.small_files import (
    HadoopFiles,
    LocalFiles,
    SmallFiles,
    hadoop_files,
    local_path,
    place_beside,
    place_text,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ArchivePlace:
    """Where an archive is.

    Args:
        folder: of the dataset, or the name of a table.
        kind: its format.
        checkpoint: of the stream that writes it.
        beside: the folder that lock and record lie beside of.
        hadoop: the way to them where they are not on a local file system.
    """

    folder: str
    kind: str
    checkpoint: Checkpoint
    beside: str
    hadoop: HadoopFiles | None

    @property
    def files(self) -> SmallFiles:
        """Lock and record."""
        return LocalFiles() if self.hadoop is None else self.hadoop


def default_checkpoint(folder: str | Path) -> str:
    """Beside the archive, under a name that no engine takes for data."""
    return place_beside(place_text(folder), "checkpoint")


def is_table_name(folder: str, kind: str) -> bool:
    """Whether an archive's place names a table of a catalog; Iceberg's mostly do."""
    return kind == "iceberg" and "/" not in folder and "." in folder.strip(".")


def check_place(folder: str, kind: str, checkpoint: str | None) -> None:
    """Refuse what can't be; needs no session.

    Raises:
        ConfigError: it can't.
    """
    check_format(kind)
    if is_table_name(folder, kind) and not checkpoint:
        raise ConfigError(
            f"checkpoint is missing: {folder} is a table, and has no folder to keep it beside; name one"
        )


def open_place(
    spark: SparkSession, folder: str | Path, kind: str, checkpoint: str | Path | None
) -> ArchivePlace:
    """The place of an archive, which need not be there yet.

    Raises:
        ConfigError: the session lacks a package, or can't reach a file system.
    """
    text = place_text(folder)
    progress = None if checkpoint is None else place_text(checkpoint)
    check_place(text, kind, progress)
    require_format(spark, kind)
    known = open_checkpoint(spark, progress or default_checkpoint(text))
    if known.files is None:
        raise ConfigError(
            f"checkpoint {known.folder}: over Spark Connect it must be on a local file system"
        )
    beside = known.folder if is_table_name(text, kind) else text
    local = local_path(beside)
    if local is not None:
        return ArchivePlace(text, kind, known, os.path.abspath(local), None)  # noqa: PTH100 - keeps links
    return ArchivePlace(text, kind, known, beside, hadoop_files(spark, beside))


def kind_of(spark: SparkSession, folder: str | Path, checkpoint: str | Path | None) -> str:
    """The format of an archive, as its checkpoint notes it; Parquet where that is not known."""
    place = place_text(checkpoint) if checkpoint else default_checkpoint(folder)
    note = open_checkpoint(spark, place).note() or {}
    return str(note.get("format", "parquet"))
