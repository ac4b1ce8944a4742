"""The columns that a topic has as a table: names, types, and which of them may be written.

One set of names serves Arrow, pandas, polars and Spark alike; they are in camelCase because
Spark's users write them in SQL beside those of its other sources.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from rocketwire.errors import ConfigError

#: The user property in which a row's identity travels. It is short because every row pays for it.
ROW_ID_PROPERTY: Final = "_row"
#: Likewise the identity of the message that a row was made from, by a writer of ours.
SOURCE_ID_PROPERTY: Final = "_src"
#: Properties that have a column of their own, and are no user's.
OUR_PROPERTIES: Final = frozenset({ROW_ID_PROPERTY, SOURCE_ID_PROPERTY})

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
PROPERTIES: Final = pa.map_(pa.string(), pa.string())

READ_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("messageId", pa.string()),
        ("rowId", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("shardingKey", pa.string()),
        ("body", pa.binary()),
        ("properties", PROPERTIES),
        ("bornTimestamp", TIMESTAMP),
        ("storeTimestamp", TIMESTAMP),
        ("reconsumeTimes", pa.int32()),
        ("flag", pa.int32()),
        ("sourceRowId", pa.string()),
    ]
)
READ_COLUMNS: Final[tuple[str, ...]] = tuple(READ_SCHEMA.names)
#: Those, and what is there when it is asked for: why a body is given as it is stored.
ALL_SCHEMA: Final = READ_SCHEMA.append(pa.field("undecodable", pa.string()))
ALL_COLUMNS: Final[tuple[str, ...]] = tuple(ALL_SCHEMA.names)

#: Accepted when written and ignored, so that what was read can be written as it is.
READ_ONLY_COLUMNS: Final[frozenset[str]] = frozenset(
    {
        "broker", "queueId", "queueOffset", "messageId", "bornTimestamp", "storeTimestamp",
        "reconsumeTimes", "sourceRowId", "undecodable",
    }
)  # fmt: skip


def _is_text(kind: Any) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(matches(kind) for matches in kinds)


def _is_body(kind: Any) -> bool:
    return (
        _is_text(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_integer(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind))


def _is_moment(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def _is_properties(kind: Any) -> bool:
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        fields = kind.value_type
        return fields.num_fields == 2 and _is_text(fields[0].type) and _is_text(fields[1].type)
    return False


@dataclass(frozen=True, slots=True)
class WrittenColumn:
    """What a column must be in order to be written."""

    accepts: Callable[[Any], bool]
    wanted: str


WRITTEN_COLUMNS: Final[dict[str, WrittenColumn]] = {
    "body": WrittenColumn(_is_body, "binary or string"),
    "topic": WrittenColumn(_is_text, "string"),
    "tags": WrittenColumn(_is_text, "string"),
    "keys": WrittenColumn(_is_text, "string"),
    "shardingKey": WrittenColumn(_is_text, "string"),
    "rowId": WrittenColumn(_is_text, "string"),
    "delayLevel": WrittenColumn(_is_integer, "int"),
    "deliverAt": WrittenColumn(_is_moment, "timestamp with a time zone"),
    "properties": WrittenColumn(_is_properties, "map<string,string>"),
    "flag": WrittenColumn(_is_integer, "int"),
    "targetBroker": WrittenColumn(_is_text, "string"),
    "targetQueueId": WrittenColumn(_is_integer, "int"),
}


def select_columns(names: Iterable[str] | None) -> pa.Schema:
    """The part of the read schema with these columns, in the order given.

    Raises:
        ConfigError: a name is unknown or given twice.
    """
    if names is None:
        return READ_SCHEMA
    chosen = list(names)
    for name in chosen:
        if name not in ALL_COLUMNS:
            raise ConfigError(f"columns: {_unknown(name, ALL_COLUMNS)}")
        if chosen.count(name) > 1:
            raise ConfigError(f"columns: {name!r} is given twice; name each column once")
    if not chosen:
        raise ConfigError(f"columns: none given; choose from {', '.join(ALL_COLUMNS)}")
    return pa.schema([ALL_SCHEMA.field(name) for name in chosen])


def check_written_schema(schema: pa.Schema, *, topic_given: bool) -> None:
    """Refuse a table that can't be sent, with a sentence that names the column.

    Args:
        schema: the table's schema.
        topic_given: whether the topic is known without a column.

    Raises:
        ConfigError: a column is missing, unknown, doubled or of a wrong type.
    """
    names = list(schema.names)
    for field in schema:
        _check_field(field, names)
    if "body" not in names:
        raise ConfigError(
            "column body is missing: it holds the message, as binary or string; "
            "e.g. SELECT to_json(struct(*)) AS body"
        )
    if not topic_given and "topic" not in names:
        raise ConfigError("no topic: give the option topic, or a column topic")
    targets = {"targetBroker", "targetQueueId"} & set(names)
    if len(targets) == 1:
        raise ConfigError(
            f"column {targets.pop()} is alone: targetBroker and targetQueueId name a queue together"
        )


def _check_field(field: pa.Field, names: list[str]) -> None:
    name, kind = field.name, field.type
    if names.count(name) > 1:
        raise ConfigError(f"column {name} occurs {names.count(name)} times; keep one of them")
    if name in READ_ONLY_COLUMNS:
        return
    rule = WRITTEN_COLUMNS.get(name)
    if rule is None:
        raise ConfigError(
            f"column {_unknown(name, (*WRITTEN_COLUMNS, *sorted(READ_ONLY_COLUMNS)))}; "
            "drop it, or put it into the body"
        )
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (rule.accepts(kind) or pa.types.is_null(kind)):
        raise ConfigError(f"column {name} is {kind}: it must be {rule.wanted}; cast it")


def _unknown(name: str, known: Iterable[str]) -> str:
    by_folded = {item.lower(): item for item in known}
    near = difflib.get_close_matches(name.lower(), by_folded, n=1)
    hint = (
        f"did you mean {by_folded[near[0]]!r}?"
        if near
        else f"known: {', '.join(by_folded.values())}"
    )
    return f"{name!r} is unknown; {hint}"
