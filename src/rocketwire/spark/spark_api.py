"""What the installed PySpark has of the data source API; the rest of the code asks here.

Before 4.2 a reader is not told where a batch starts, can't limit it and does not see the trigger;
4.0 has no stream writer that takes Arrow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa


def version_of(text: str) -> tuple[int, ...]:
    """Major and minor version as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


VERSION: Final = version_of(pyspark.__version__)

#: Whether a reader is told where a batch starts and how much it may hold.
HAS_LIMITS: Final = VERSION >= (4, 2)
#: Whether a stream can be written in Arrow; else rows come one by one.
HAS_ARROW_STREAM_WRITER: Final = VERSION >= (4, 1)

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """Nothing of that name in this PySpark."""

    class ReadAllAvailable(ReadLimit):
        """Nothing of that name in this PySpark."""

    class ReadMaxRows(ReadLimit):
        """Nothing of that name in this PySpark."""

    class SupportsTriggerAvailableNow:
        """Nothing of that name in this PySpark."""


if TYPE_CHECKING or HAS_ARROW_STREAM_WRITER:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    DataSourceStreamArrowWriter = DataSourceStreamWriter


def is_remote(spark: Any) -> bool:
    """Whether a session is a client of Spark Connect."""
    return ".connect." in type(spark).__module__


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of rows with these columns, times in UTC."""
    options: dict[str, Any] = {"timezone": "UTC"} if HAS_LIMITS else {}
    return to_arrow_schema(schema, **options)


__all__ = [
    "HAS_ARROW_STREAM_WRITER",
    "HAS_LIMITS",
    "VERSION",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "is_remote",
    "version_of",
]
