"""Columns as Spark knows them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rocketwire.columns.schema import READ_COLUMNS, check_written_schema, select_columns
from rocketwire.errors import ConfigError


def read_schema(columns: Sequence[str] | None) -> StructType:
    """The columns of a read."""
    return from_arrow_schema(select_columns(columns))


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Which columns a user's own schema asks for.

    Raises:
        ConfigError: one is unknown, or has another type than it is read with.
    """
    names = tuple(schema.names)
    wanted = {field.name: field.dataType for field in read_schema(READ_COLUMNS).fields}
    select_columns(names)
    for field in schema.fields:
        if field.dataType != wanted[field.name]:
            raise ConfigError(
                f"schema: column {field.name} is read as {wanted[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; cast it after reading"
            )
    return names


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches with these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def check_write(schema: StructType, *, topic_given: bool) -> None:
    """Refuse rows that can't be written, by their columns.

    Raises:
        ConfigError: a column is missing, unknown or of a wrong type.
    """
    fields = []
    for field in schema.fields:
        try:
            kind = to_arrow_schema(StructType([field]), timezone="UTC").field(0).type
        except Exception as error:
            raise ConfigError(
                f"column {field.name} is {field.dataType.simpleString()}, which has no Arrow form; "
                "drop it, or put it into the body"
            ) from error
        fields.append(pa.field(field.name, kind))
    check_written_schema(pa.schema(fields), topic_given=topic_given)
