"""Message bodies as data: JSON, parsed by a schema that is given or learned from the topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.dataset import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, StructType

#: Bodies from which a schema is learned.
_SAMPLE: Final = 10_000
_SAMPLE_BYTES: Final = 4 * 1024 * 1024
BAD_TEXT: Final = "__rocketwire_bad_text"


def body_schema(
    spark: SparkSession, ddl: str | None, topics: str, settings: Mapping[str, str]
) -> StructType:
    """The schema of JSON bodies: as given, or as the topic's messages show it.

    Args:
        spark: the session.
        ddl: e.g. ``id bigint, name string``.
        topics: a topic, or several with commas.
        settings: options of the data source.

    Raises:
        ConfigError: it is no schema, or there is nothing to learn one from.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if ddl is not None:
        try:
            found = StructType.fromDDL(ddl)
        except PySparkException as error:
            raise ConfigError(f"schema {ddl!r} can't be read: {first_line(error)}") from error
        if not isinstance(found, StructType):
            raise ConfigError(f"schema {ddl!r} has no columns; e.g. id bigint, name string")
        return found
    read = spark.read.format("rocketmq").options(**settings, topics=topics, columns="body")
    sample = read.load().limit(_SAMPLE).select(f.col("body").cast("string"))
    objects = _objects(row[0] for row in sample.toLocalIterator())
    if objects:
        kind = f.schema_of_json(f.lit(f"[{','.join(objects)}]"))
        (row,) = spark.range(1).select(kind.alias("kind")).collect()
        whole = StructType.fromDDL(f"bodies {row.kind}")
        assert isinstance(whole, StructType)  # columns were given
        learned = cast("ArrayType", whole["bodies"].dataType).elementType
        assert isinstance(learned, StructType)  # only objects were shown
    else:
        learned = StructType()
    learned = StructType([field for field in learned.fields if field.name != "_corrupt_record"])
    if not learned.fields:
        raise ConfigError(
            f"no schema can be learned from topic {topics}: it has no JSON objects yet; give schema="
        )
    return learned


def _objects(bodies: Iterable[str | None]) -> list[str]:
    """Bodies that are JSON objects, as many as fit into one question to Spark."""
    found: list[str] = []
    room = _SAMPLE_BYTES
    for body in bodies:
        try:
            is_object = body is not None and isinstance(json.loads(body), dict)
        except ValueError:
            continue
        if is_object and body is not None:
            found.append(body)
            room -= len(body)
        if room <= 0:
            break
    return found


def parsed(frame: DataFrame, schema: StructType) -> DataFrame:
    """The frame with ``data``, the parsed body, and why it is null where it does not parse."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    wide = StructType([*schema.fields, StructField(BAD_TEXT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD_TEXT}
    read = frame.withColumn("data", f.from_json(f.col("body").cast("string"), wide, options))
    is_bad = f.col("data").isNull() | f.col(f"data.{BAD_TEXT}").isNotNull()
    clean = f.struct(*(f.col(f"data.`{field.name}`").alias(field.name) for field in schema.fields))
    return read.withColumns({"data": f.when(~is_bad, clean), "_error": f.when(is_bad, _reason())})


def _reason() -> Column:
    from pyspark.sql import functions as f

    return f.when(f.length("body") == 0, f.lit("the body is empty")).otherwise(
        f.lit("the body is not JSON of the schema")
    )
