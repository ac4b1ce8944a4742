"""The same rows through Spark's Kafka connector and through our source: how each is called.

A row has a key, a tag, two properties, and a body that no other row has. Kafka has no tags; there it
is a header, as the properties are. Both sides get rows in the layout of their own, so that no
time goes into making one of the other. Both are read as a user would who never heard of options
for speed: with all columns that they have, and what is wanted is selected afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from bench.kafka_verdict import KAFKA, OURS

#: Hexadecimal digits that one hash gives.
_DIGITS: Final = 128


class Side(Protocol):
    """One of the two."""

    name: str
    format: str
    #: The layout of its rows, for reading them from files.
    schema: str

    def shaped(self, rows: Any) -> Any:
        """Rows of `numbered` in the layout of this side."""
        ...

    def options(self, topic: str) -> dict[str, str]:
        """What a write to a topic needs."""
        ...

    def source(self, topic: str) -> dict[str, str]:
        """What a read of a topic needs."""
        ...

    def wanted(self, frame: Any) -> Any:
        """The columns that a user looks at."""
        ...

    def checksum(self, frame: Any) -> Any:
        """The sum over bodies and keys of what was read or written, as a column."""
        ...


def numbered(spark: Any, rows: int, size: int, partitions: int) -> Any:
    """Rows of which none is like another, before they are laid out."""
    parts = [f"sha2(concat(id, '-{number}'), 512)" for number in range(-(-size // _DIGITS))]
    return spark.range(0, rows, 1, partitions).selectExpr(
        "concat('order-', lpad(id, 9, '0')) AS key",
        "element_at(array('pay', 'ship', 'bill', 'back'), cast(id % 4 AS int) + 1) AS tag",
        "concat('region-', id % 7) AS region",
        "cast(id * 7919 % 100003 AS string) AS amount",
        f"cast(substring(concat({', '.join(parts)}), 1, {size}) AS binary) AS body",
    )


@dataclass(frozen=True)
class KafkaSide:
    """Spark's own connector, on the JVM."""

    address: str
    name: str = KAFKA
    format: str = "kafka"
    schema: str = "key binary, value binary, headers array<struct<key string, value binary>>"

    def shaped(self, rows: Any) -> Any:
        headers = ", ".join(
            f"named_struct('key', '{name}', 'value', cast({name} AS binary))"
            for name in ("tag", "region", "amount")
        )
        return rows.selectExpr(
            "cast(key AS binary) AS key", "body AS value", f"array({headers}) AS headers"
        )

    def options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.address,
            "topic": topic,
            "includeHeaders": "true",
        }

    def source(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.address,
            "subscribe": topic,
            "includeHeaders": "true",
        }

    def wanted(self, frame: Any) -> Any:
        return frame.select("key", "value", "headers", "partition", "offset", "timestamp")

    def checksum(self, frame: Any) -> Any:
        return frame.selectExpr(
            "count(*)", "sum(crc32(value))", "sum(crc32(key))", "sum(crc32(headers[2].value))"
        )


@dataclass(frozen=True)
class OurSide:
    """Rocketwire's source."""

    name_server: str
    name: str = OURS
    format: str = "rocketmq"
    schema: str = "keys string, tags string, properties map<string,string>, body binary"

    def shaped(self, rows: Any) -> Any:
        return rows.selectExpr(
            "key AS keys",
            "tag AS tags",
            "map('region', region, 'amount', amount) AS properties",
            "body",
        )

    def options(self, topic: str) -> dict[str, str]:
        return {"nameServers": self.name_server, "topic": topic}

    def source(self, topic: str) -> dict[str, str]:
        return {"nameServers": self.name_server, "topic": topic}

    def wanted(self, frame: Any) -> Any:
        return frame.select(
            "keys", "tags", "body", "properties", "queueId", "queueOffset", "storeTimestamp"
        )

    def checksum(self, frame: Any) -> Any:
        return frame.selectExpr(
            "count(*)",
            "sum(crc32(body))",
            "sum(crc32(cast(keys AS binary)))",
            "sum(crc32(cast(properties['amount'] AS binary)))",
        )
