"""Rows that Spark hands over one by one, gathered into Arrow.

Only the stream writer of PySpark 4.0 needs it: all others take Arrow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from rocketwire.columns.schema import READ_ONLY_COLUMNS, WRITTEN_COLUMNS

#: Rows of a batch, as many as Spark would put into one.
_ROWS: Final = 10_000


def gather(rows: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Record batches of the columns that are written.

    Args:
        rows: tuples with a value for each field of the schema.
        schema: of the rows. Its read-only columns are kept by name only, because that they are
            there says that the rows were read.
    """
    fields = [pa.field(f.name, _kind(f)) for f in schema]
    waiting = iter(rows)
    while chunk := list(itertools.islice(waiting, _ROWS)):
        columns = zip(*chunk, strict=True)
        arrays = [_array(field, values) for field, values in zip(fields, columns, strict=True)]
        yield pa.record_batch(arrays, schema=pa.schema(fields))


def _kind(field: pa.Field) -> pa.DataType:
    return pa.null() if field.name in READ_ONLY_COLUMNS else field.type


def _array(field: pa.Field, values: tuple[Any, ...]) -> pa.Array:
    if field.name not in WRITTEN_COLUMNS:
        return pa.nulls(len(values), field.type)
    kind = field.type
    if pa.types.is_map(kind):
        values = tuple(None if value is None else list(value.items()) for value in values)
    elif pa.types.is_timestamp(kind):
        values = tuple(map(_in_utc, values))
    elif pa.types.is_binary(kind):
        values = tuple(None if value is None else bytes(value) for value in values)
    return pa.array(values, kind)


def _in_utc(value: datetime | None) -> datetime | None:
    # Spark gives the time of this process's own zone, without saying so.
    return None if value is None else value.astimezone(UTC)
