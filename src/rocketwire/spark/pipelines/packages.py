"""Packages that a session may lack, and which of their versions fits which Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.error_text import first_line
from rocketwire.spark.spark_api import version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS: Final = ("parquet", "delta", "iceberg")
_NAMES: Final = {"delta": "Delta Lake", "iceberg": "Apache Iceberg"}
#: The newest for each Spark; those that are missing were not there when this was written.
_TABLES: Final[Mapping[str, Mapping[tuple[int, ...], str]]] = {
    "delta": {
        (4, 0): "io.delta:delta-spark_4.0_2.13:4.4.0",
        (4, 1): "io.delta:delta-spark_4.1_2.13:4.4.0",
        (4, 2): "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {
        (4, 0): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        (4, 1): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
}
_EXTENSIONS: Final = "spark.sql.extensions"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def package_for(kind: str, version: str) -> str | None:
    """The package that a Spark needs for a format or a kind of body; None if none is known.

    Args:
        kind: ``delta``, ``iceberg``, ``avro`` or ``protobuf``.
        version: of Spark.
    """
    if kind in _TABLES:
        return _TABLES[kind].get(version_of(version))
    return f"org.apache.spark:spark-{kind}_2.13:{version}"


def session_settings(kind: str) -> dict[str, str]:
    """What a session needs beside the package, to write a format."""
    if kind != "delta":
        return {}
    return {_EXTENSIONS: _DELTA_EXTENSION, _CATALOG: _DELTA_CATALOG}


def check_format(kind: str) -> None:
    """Refuse a format that there is not; needs no session.

    Raises:
        ConfigError: there is not.
    """
    if kind not in FORMATS:
        raise ConfigError(f"format is {kind!r}: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")


def require_format(spark: SparkSession, kind: str) -> None:
    """Refuse a format that the session can't write.

    Raises:
        ConfigError: a package or a setting is missing; the text says which.
    """
    check_format(kind)
    if kind == "parquet":
        return
    if not _is_found(spark, kind):
        raise _lacking(kind, spark.version)
    missing = {
        name: value
        for name, value in session_settings(kind).items()
        if value not in (spark.conf.get(name, "") or "")
    }
    if missing:
        text = ", ".join(f"{name}={value}" for name, value in missing.items())
        raise ConfigError(f"format is {kind!r}: this session must be started with {text}")


def _is_found(spark: SparkSession, kind: str) -> bool:
    """Whether Spark finds a data source of this name; what it makes of the rest does not matter."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        spark.read.format(kind).load("rocketwire/no/such/table").schema  # noqa: B018 - asks Spark
    except PySparkException as error:
        text = str(error)
        return "DATA_SOURCE_NOT_FOUND" not in text and "plugin class" not in text
    except Py4JJavaError as error:
        raise _unfit(kind, spark.version, first_line(error)) from error
    return True


def _lacking(kind: str, version: str) -> ConfigError:
    begin = f"format is {kind!r}: this session lacks {_NAMES[kind]}; "
    package = package_for(kind, version)
    if package is None:
        spark, newest = max(_TABLES[kind].items())
        shown = ".".join(map(str, spark))
        return ConfigError(
            f"{begin}none for Spark {version} is known to this release, the newest is {newest} for "
            f"Spark {shown}"
        )
    settings = {"spark.jars.packages": package} | session_settings(kind)
    return ConfigError(
        f"{begin}start it with " + ", ".join(f"{name}={value}" for name, value in settings.items())
    )


def _unfit(kind: str, version: str, words: str) -> ConfigError:
    package = package_for(kind, version)
    wanted = f"; the one for Spark {version} is {package}" if package else ""
    return ConfigError(
        f"format is {kind!r}: the session's {_NAMES[kind]} does not fit it ({words}){wanted}"
    )


def missing_package(kind: str, version: str) -> ConfigError:
    """The error of a session that can't read a kind of body."""
    return ConfigError(
        f"body is {kind!r}: this session lacks Spark's package for it; start it with "
        f"spark.jars.packages={package_for(kind, version)}"
    )
