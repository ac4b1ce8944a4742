"""Columns as Spark knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rocketwire.columns.schema import (
    ALL_COLUMNS,
    READ_ONLY_COLUMNS,
    check_written_schema,
    select_columns,
)
from rocketwire.errors import ConfigError
from rocketwire.spark.options import WriteOptions
from rocketwire.spark.spark_api import arrow_schema

_ROW_ID: Final = "rowId"
#: Says that a column was read by this source. Spark keeps it through selections, joins and unions.
_MARK: Final = {"rocketmq": "read"}


def read_schema(columns: Sequence[str] | None) -> StructType:
    """The columns of a read."""
    fields = from_arrow_schema(select_columns(columns)).fields
    for field in fields:
        if field.name == _ROW_ID:
            field.metadata = dict(_MARK)
    return StructType(fields)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Which columns a user's own schema asks for.

    Raises:
        ConfigError: one is unknown, or has another type than it is read with.
    """
    names = tuple(schema.names)
    wanted = {field.name: field.dataType for field in read_schema(ALL_COLUMNS).fields}
    select_columns(names)
    for field in schema.fields:
        if field.dataType != wanted[field.name]:
            raise ConfigError(
                f"schema: column {field.name} is read as {wanted[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; cast it after reading"
            )
    return names


def check_write(schema: StructType, *, topic_given: bool) -> None:
    """Refuse rows that can't be written, by their columns.

    Raises:
        ConfigError: a column is missing, unknown or of a wrong type.
    """
    fields = []
    for field in schema.fields:
        try:
            kind = arrow_schema(StructType([field])).field(0).type
        except Exception as error:
            raise ConfigError(
                f"column {field.name} is {field.dataType.simpleString()}, which has no Arrow form; "
                "drop it, or put it into the body"
            ) from error
        fields.append(pa.field(field.name, kind))
    check_written_schema(pa.schema(fields), topic_given=topic_given)


def check_row_ids(schema: StructType, options: WriteOptions) -> None:
    """Refuse a column ``rowId`` of which is not known whether its ids may be given to rows.

    The id of a message that was read belongs to all rows that are made of it, so rows get ids of
    their own, and that one becomes ``sourceRowId``. Ids of the user's own would be lost by that.

    Raises:
        ConfigError: the column is the user's own, and the options do not say what it is for.
    """
    if options.stamp_rows == "inherit" or _ROW_ID not in schema.names:
        return
    was_read = not READ_ONLY_COLUMNS.isdisjoint(schema.names)
    if not was_read and schema[_ROW_ID].metadata.get("rocketmq") != _MARK["rocketmq"]:
        raise ConfigError(
            "column rowId was not read from a topic: set the option stampRows to inherit to keep "
            "these ids (rows with the same one are repeats of each other), or drop the column"
        )


def check_loop(schema: StructType, options: WriteOptions) -> None:
    """Refuse rows that would go back to the topics that they were read from.

    Raises:
        ConfigError: by their columns they would, all of them.
    """
    if options.topic is None and is_from_topic(schema.names) and not options.allow_loop:
        raise ConfigError(
            "columns topic and queueOffset: each row would be written back to the topic that it was "
            "read from. Give the option topic, drop the column queueOffset if the column topic is a "
            "target, or set allowLoop to true"
        )


def is_from_topic(names: Sequence[str]) -> bool:
    """Whether rows with these columns still say which topic they were read from."""
    return {"topic", "queueOffset"} <= set(names)
