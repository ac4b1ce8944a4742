"""Rows of a dataset as messages: which columns or expressions become what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.publish_task import FILE, ORDER, START, SUM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class MessageMapping:
    """How rows become messages; every field is a column's name or a SQL expression."""

    body: str | None = None
    key: str | None = None
    tag: str | None = None
    sharding_key: str | None = None
    properties: Sequence[str] | Mapping[str, str] | None = None
    topic: str | None = None
    order_by: str | None = None

    def check(self, topic: str | None) -> None:
        """Refuse what contradicts itself.

        Raises:
            ConfigError: it does.
        """
        if (topic is None) == (self.topic is None):
            raise ConfigError("give exactly one of topic and topic_expression")
        if self.order_by is not None and self.sharding_key is None:
            raise ConfigError(
                "order_by needs a sharding_key: only messages of one key have an order"
            )

    def described(self) -> dict[str, Any]:
        """The settings that decide what is sent; kept with the state of a job."""
        properties = self.properties
        return {
            "body": self.body,
            "key": self.key,
            "tag": self.tag,
            "shardingKey": self.sharding_key,
            "properties": dict(properties)
            if isinstance(properties, Mapping)
            else properties and list(properties),
            "topicExpression": self.topic,
            "orderBy": self.order_by,
        }

    def apply(self, frame: DataFrame, also: Sequence[str] = ()) -> DataFrame:
        """The columns of messages, and a checksum of each row.

        Args:
            frame: the dataset.
            also: further columns to keep; they are not part of a body made of the whole row.

        Raises:
            ConfigError: an expression can't be resolved.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        columns: dict[str, Column] = {"body": self._body(frame, also)}
        for name, expression in (
            ("keys", self.key),
            ("tags", self.tag),
            ("shardingKey", self.sharding_key),
            ("topic", self.topic),
        ):
            if expression is not None:
                columns[name] = f.expr(expression).cast("string")
        if self.properties:
            columns["properties"] = self._properties()
        if self.order_by is not None:
            columns[ORDER] = f.expr(self.order_by)
        try:
            chosen = frame.select(*(column.alias(name) for name, column in columns.items()), *also)
            names = chosen.columns  # a client of Spark Connect learns only now what is wrong
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"a column or expression can't be found: {reason}") from error
        return chosen.withColumn(SUM, checksum(names))

    def _body(self, frame: DataFrame, also: Sequence[str]) -> Column:
        from pyspark.sql import functions as f

        if self.body is not None:
            column = f.expr(self.body)
            kind = frame.select(column.alias("x")).schema["x"].dataType.simpleString()
            if kind in {"string", "binary"}:
                return column
            if kind.startswith(("struct", "map", "array")):
                return f.to_json(column)
            return column.cast("string")
        own = [name for name in frame.columns if name not in {*also, FILE, START}]
        if not own:
            raise ConfigError("the dataset has no columns to make a body of")
        return f.to_json(f.struct(*(f.col(f"`{name}`") for name in own)))

    def _properties(self) -> Column:
        from pyspark.sql import functions as f

        given = self.properties or ()
        pairs = dict(given) if isinstance(given, Mapping) else {name: f"`{name}`" for name in given}
        parts: list[Column] = []
        for name, expression in pairs.items():
            parts += [f.lit(name), f.expr(expression).cast("string")]
        return f.create_map(*parts)

    def in_order(self, messages: DataFrame, partitions: int) -> DataFrame:
        """Rows of one key together, sorted."""
        spread = messages.repartition(partitions, "shardingKey")
        sorted_rows = spread.sortWithinPartitions(ORDER)
        return sorted_rows.drop(ORDER)


def checksum(columns: Sequence[str]) -> Column:
    """A number for the content of a message, the same when it is sent and when it is read."""
    from pyspark.sql import functions as f

    parts = [f.col("body").cast("binary")]
    for name in ("keys", "tags"):
        # An empty text is not sent, and comes back as null.
        present = f.when(f.col(name) != "", f.col(name)) if name in columns else f.lit(None)
        parts.append(present.cast("string"))
    return f.xxhash64(*parts)
