"""Message bodies as data: text, JSON, Avro or Protobuf, read by Spark's own functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.error_text import first_line
from rocketwire.spark.pipelines.packages import missing_package

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, StructType

KINDS: Final = ("raw", "text", "json", "avro", "protobuf")
#: The schema of JSON bodies that have none.
VARIANT: Final = "variant"
#: Bodies from which a schema is learned.
_SAMPLE: Final = 10_000
_SAMPLE_BYTES: Final = 4 * 1024 * 1024
BAD_TEXT: Final = "__rocketwire_bad_text"
#: A schema registry's magic byte and the number of the schema, before the value.
_HEADER: Final = 5
_PERMISSIVE: Final = {"mode": "PERMISSIVE"}


@dataclass(frozen=True)
class BodyReader:
    """How bodies are read; a plain value, so that it can travel.

    Args:
        kind: one of ``KINDS``.
        schema: of JSON, Spark's schema as JSON, or ``variant``; of Avro, its schema as JSON; of
            Protobuf, the descriptor's bytes in hexadecimal digits, a colon and the message's name.
        has_header: whether the five bytes of a schema registry come first.
    """

    kind: str = "raw"
    schema: str = ""
    has_header: bool = False

    def parsed(self, frame: DataFrame) -> DataFrame:
        """The frame with ``data``, the parsed body, and ``_error``, why that is null.

        Raises:
            ConfigError: the session lacks a package.
        """
        if self.kind == "raw":
            return frame
        if self.kind == "json" and self.schema != VARIANT:
            return self._as_json(frame)
        from pyspark.sql import functions as f

        read = self._with_data(frame)
        why = f.when(f.col("data").isNull(), _reason(f"the body is not {self._name()}"))
        return read.withColumn("_error", why)

    def _with_data(self, frame: DataFrame) -> DataFrame:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            read = frame.withColumn("data", self._data(frame.sparkSession.version))
            read.columns  # noqa: B018 - a client of Spark Connect learns only now what is wrong
        except (PySparkException, Py4JJavaError) as error:
            if "NOT_LOADED" in str(error):
                raise missing_package(self.kind, frame.sparkSession.version) from error
            raise ConfigError(f"body is {self.kind!r}: {first_line(error)}") from error
        return read

    def _name(self) -> str:
        return {"text": "text", "json": "JSON"}.get(self.kind, f"{self.kind} of the schema")

    def _data(self, version: str) -> Column:
        from pyspark.sql import functions as f

        body = self._value()
        if self.kind == "text":
            return body.cast("string")
        if self.kind == "json":
            return f.try_parse_json(body.cast("string"))
        try:
            return self._as_avro(body) if self.kind == "avro" else self._as_protobuf(body)
        except TypeError as error:  # what PySpark makes of a class that Java does not find
            raise missing_package(self.kind, version) from error

    def _value(self) -> Column:
        """The body without a schema registry's header; null where it should have one and has none."""
        from pyspark.sql import functions as f

        if not self.has_header:
            return f.col("body")
        head = f"substring(body, 1, {_HEADER})"
        has_head = f"length({head}) = {_HEADER} AND hex(substring(body, 1, 1)) = '00'"
        # Before Protobuf the registry's writers put the message's place in its file, too: one zero
        # for the first message. No message begins with a zero.
        skipped = f"{_HEADER + 1}"
        if self.kind == "protobuf":
            skipped = f"if(hex(substring(body, {skipped}, 1)) = '00', {_HEADER + 2}, {skipped})"
        return f.expr(f"CASE WHEN {has_head} THEN substring(body, {skipped}) END")

    def _as_avro(self, body: Column) -> Column:
        """Read as the only item of an array.

        Of a record that can't be read, Spark makes one whose fields are null, as they may be in a
        good one; of an array it makes null. Bytes that are left over are noticed, too.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.avro.functions import from_avro

        items = f.concat(f.unhex(f.lit("02")), body, f.unhex(f.lit("00")))
        schema = f'{{"type": "array", "items": {self.schema}}}'
        read = from_avro(items, schema, dict(_PERMISSIVE))
        return f.when(f.size(read) == 1, read.getItem(0))

    def _as_protobuf(self, body: Column) -> Column:
        from pyspark.sql.protobuf.functions import from_protobuf

        descriptor, _, message = self.schema.partition(":")
        content = bytes.fromhex(descriptor)
        return from_protobuf(body, message, options=dict(_PERMISSIVE), binaryDescriptorSet=content)

    def _as_json(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructField, StructType

        schema = StructType.fromJson(json.loads(self.schema))
        wide = StructType([*schema.fields, StructField(BAD_TEXT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD_TEXT}
        read = frame.withColumn("data", f.from_json(f.col("body").cast("string"), wide, options))
        is_bad = f.col("data").isNull() | f.col(f"data.{BAD_TEXT}").isNotNull()
        clean = f.struct(
            *(f.col(f"data.`{field.name}`").alias(field.name) for field in schema.fields)
        )
        why = f.when(is_bad, _reason("the body is not JSON of the schema"))
        return read.withColumns({"data": f.when(~is_bad, clean), "_error": why})


def _reason(text: str) -> Column:
    from pyspark.sql import functions as f

    return f.when(f.length("body") == 0, f.lit("the body is empty")).otherwise(f.lit(text))


def body_reader(
    spark: SparkSession,
    kind: str,
    schema: str | None,
    topics: str,
    settings: Mapping[str, str],
    *,
    has_header: bool = False,
) -> BodyReader:
    """How the bodies of some topics are read.

    Args:
        spark: the session.
        kind: one of ``KINDS``.
        schema: of JSON: DDL such as ``id bigint, name string``, or ``variant``, learned from the
            topic's messages unless given; of Avro: a file with the schema; of Protobuf: a file with
            the descriptor, a colon and the name of the message.
        topics: a topic, or several with commas.
        settings: options of the data source.
        has_header: whether the five bytes of a schema registry come first.

    Raises:
        ConfigError: it is no schema, or there is nothing to learn one from.
    """
    check_kind(kind, schema, has_header=has_header)
    if kind in {"raw", "text"}:
        return BodyReader(kind)
    if kind == "json":
        is_variant = schema is not None and schema.strip().lower() == VARIANT
        text = VARIANT if is_variant else _json_schema(spark, schema, topics, settings).json()
        return BodyReader(kind, text)
    assert schema is not None  # the check saw to it
    reader = BodyReader(kind, schema_file(kind, schema), has_header)
    # A stream would tell of a missing package or a wrong schema only once it runs.
    reader.parsed(spark.range(0).selectExpr("cast(null AS binary) AS body"))
    return reader


def check_kind(kind: str, schema: str | None, *, has_header: bool = False) -> None:
    """Refuse what can't be; needs no session.

    Raises:
        ConfigError: it can't.
    """
    if kind not in KINDS:
        raise ConfigError(f"body is {kind!r}: {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if kind in {"avro", "protobuf"} and not schema:
        what = "its schema" if kind == "avro" else "the descriptor, a colon, and the message's name"
        raise ConfigError(f"body is {kind!r}: give schema=, a file with {what}")
    if has_header and kind not in {"avro", "protobuf"}:
        raise ConfigError(f"registry_header is for avro and protobuf, not for {kind}")


def schema_file(kind: str, text: str) -> str:
    """What the schema of Avro or Protobuf bodies says; needs no session.

    Raises:
        ConfigError: there is no such file, or it is none of this kind.
    """
    if kind == "avro" and text.lstrip().startswith(("{", '"', "[")):
        return text
    path, _, message = text.rpartition(":") if kind == "protobuf" else (text, "", "")
    if kind == "protobuf" and not (path and message):
        raise ConfigError(f"schema {text!r}: write FILE:MESSAGE, e.g. orders.desc:shop.Order")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"schema {path} can't be read: {error.strerror or error}") from None
    if kind == "protobuf":
        return f"{content.hex()}:{message}"
    try:
        return json.dumps(json.loads(content))
    except ValueError:
        raise ConfigError(f"schema {path} is no Avro schema: it is not JSON") from None


def _json_schema(
    spark: SparkSession, ddl: str | None, topics: str, settings: Mapping[str, str]
) -> StructType:
    """The schema of JSON bodies: as given, or as the topic's messages show it."""
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
    learned = _learned(spark, _objects(row[0] for row in sample.toLocalIterator()))
    if learned is None or not learned.fields:
        raise ConfigError(
            f"no schema can be learned from topic {topics}: it has no JSON objects yet; give schema="
        )
    return learned


def _learned(spark: SparkSession, objects: list[str]) -> StructType | None:
    """What Spark makes of some objects. As one array in one literal: its reader of lines needs RDDs."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if not objects:
        return None
    kind = f.schema_of_json(f.lit(f"[{','.join(objects)}]"))
    (row,) = spark.range(1).select(kind.alias("kind")).collect()
    whole: Any = StructType.fromDDL(f"bodies {row.kind}")
    learned = cast("ArrayType", whole["bodies"].dataType).elementType
    assert isinstance(learned, StructType)  # only objects were shown
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
