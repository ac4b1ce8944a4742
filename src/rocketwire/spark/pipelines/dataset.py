"""Datasets to publish: finding their format, reading them, and knowing their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.error_text import first_line
from rocketwire.spark.pipelines.small_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json",
    ".jsonl": "json", ".ndjson": "json", ".orc": "orc", ".txt": "text", ".log": "text",
    ".avro": "avro",
}  # fmt: skip
_PACKED: Final = (".gz", ".bz2", ".zst", ".snappy", ".xz", ".lz4")


def read_dataset(
    spark: SparkSession,
    dataset: Any,
    *,
    format: str | None = None,  # noqa: A002 - Spark's word for it
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A data frame, a path, or a table's name, as a data frame.

    Raises:
        ConfigError: it can't be read, or its format can't be told.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if not isinstance(dataset, (str, Path)):
        if not hasattr(dataset, "inputFiles"):
            raise ConfigError(
                f"dataset is a {type(dataset).__name__}: give a path, a table or a data frame"
            )
        return dataset  # type: ignore[no-any-return]  # a DataFrame, by its method
    text = str(dataset)
    try:
        if format is None and spark.catalog.tableExists(text):
            return spark.read.table(text)
    except PySparkException:  # not the name of a table at all
        pass
    kind = format or guess_format(text)
    settings = {"header": "true"} if kind == "csv" else {}
    if kind == "csv" and ".tsv" in text:
        settings["sep"] = "\t"
    try:
        return spark.read.format(kind).options(**{**settings, **(options or {})}).load(text)
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(f"dataset {text} can't be read as {kind}: {first_line(error)}") from error


def guess_format(path: str) -> str:
    """The format of a file, or of the first file in a folder, by its name.

    Raises:
        ConfigError: the name does not tell.
    """
    local = Path(path.removeprefix("file://"))
    names = [path]
    if local.is_dir():
        names = [str(p) for p in sorted(local.rglob("*")) if not p.name.startswith((".", "_"))]
    for name in names:
        parts = [suffix.lower() for suffix in Path(name).suffixes]
        known = [part for part in parts if part not in _PACKED and part in _FORMATS]
        if known:
            return _FORMATS[known[-1]]
    if "://" not in path and "*" not in path and not local.exists():
        raise ConfigError(f"dataset {path}: there is no such file, folder or table")
    raise ConfigError(f"dataset {path}: its name does not tell its format; give format=")


def check_dataset(path: str) -> None:
    """Refuse a file of this machine that is not there; needs no session.

    Raises:
        ConfigError: it is not. A name without an ending that is known may be a table's.
    """
    place = local_path(path)
    if place is None or place.exists() or any(sign in path for sign in "*?[{,"):
        return
    if "/" in path or place.suffix.lower() in _FORMATS:
        raise ConfigError(f"dataset {path}: there is no such file, folder or table")


def fingerprint(spark: SparkSession, files: list[str]) -> dict[str, Any]:
    """Size and time of change of each file, wherever it is."""
    if not files:
        return {}
    listed = (
        spark.read.format("binaryFile").load(files).select("path", "modificationTime", "length")
    )
    return {
        row.path: [row.length, int(row.modificationTime.timestamp() * 1000)]
        for row in listed.collect()
    }
