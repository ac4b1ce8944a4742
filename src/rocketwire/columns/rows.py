"""The columns of a table to be sent, in the layouts of the encoder; and rows that can't be sent.

A bad row is found by whole columns: the price of a check on a million good rows is a few passes
in C. Only for those that fail is a sentence made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.columns.buffers import (
    Bools,
    Int64s,
    as_binary,
    data_of,
    lengths_of,
    nulls_of,
    offsets_of,
    used_bytes,
)
from rocketwire.columns.schema import OUR_PROPERTIES, READ_ONLY_COLUMNS
from rocketwire.core.naming import FORBIDDEN_TOPICS
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import InvalidMessageError
from rocketwire.wire.properties import NAME_END, RESERVED, VALUE_END, Property

#: Columns whose bytes count when a batch is cut into pieces.
SIZED_COLUMNS: Final = (
    "body", "topic", "tags", "keys", "shardingKey", "rowId", "properties", "targetBroker",
)  # fmt: skip

#: What follows a name, what follows a value, and what the join puts between pieces: nothing.
_SEPARATORS: Final = [pa.scalar(text, pa.binary()) for text in (NAME_END, VALUE_END, "")]
#: What may not be a user's property here: RocketMQ's own names, and those that have a column.
_RESERVED: Final = frozenset(
    name.encode() for name in RESERVED | OUR_PROPERTIES | {Property.SHARDING_KEY}
)
_NOT_FOR_USERS: Final = pa.array(sorted(_RESERVED), type=pa.binary())
#: As many properties of one row are looked at as columns of their own.
_MOST_SHARED: Final = 16
_NAMELESS: Final = "a property has an empty name: give it one"
_IS_RESERVED: Final = "property {name!r} is reserved: RocketMQ sets it, or a column of its own does"
_SEPARATED: Final = "property {name!r} contains 0x01 or 0x02: take them out"


@dataclass(frozen=True, slots=True)
class Entries:
    """The properties of all rows: entry names and values, and where each row's entries begin."""

    offsets: Int64s
    names: Any
    values: Any

    def texts(self) -> Any:
        """Both with their separators, as they are sent."""
        return pc.binary_join_element_wise(
            self.names, *_SEPARATORS[:1], self.values, *_SEPARATORS[1:]
        )

    def rows(self) -> Int64s:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int64), np.diff(self.offsets))


@dataclass(frozen=True, slots=True)
class SharedEntries:
    """The properties of rows that all have the same names in the same order, as most tables do.

    So they are columns like any other: names are looked at once, and values are not joined entry by
    entry before they are joined row by row.
    """

    columns: tuple[tuple[bytes, Any], ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch to be sent; a column that the table lacks, or that is all null, is None."""

    count: int
    body: Any
    topic: Any | None
    tags: Any | None
    keys: Any | None
    sharding_key: Any | None
    row_id: Any | None
    properties: Entries | SharedEntries | None
    flag: Int64s | None
    delay_level: Int64s | None
    deliver_ms: Int64s | None
    target_broker: Any | None
    target_queue: Int64s | None

    @classmethod
    def of(cls, batch: Any) -> Rows:
        """Read a record batch whose schema was checked."""
        columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}

        def text(name: str) -> Any | None:
            array = columns.get(name)
            return None if array is None or array.null_count == len(array) else as_binary(array)

        was_read = not READ_ONLY_COLUMNS.isdisjoint(columns)
        return cls(
            count=batch.num_rows,
            body=as_binary(columns["body"]),
            topic=text("topic"),
            tags=text("tags"),
            keys=text("keys"),
            sharding_key=text("shardingKey"),
            row_id=text("rowId"),
            properties=_entries(columns.get("properties"), was_read=was_read),
            flag=_integers(columns.get("flag"), 0),
            delay_level=_integers(columns.get("delayLevel"), 0),
            deliver_ms=_milliseconds(columns.get("deliverAt")),
            target_broker=text("targetBroker"),
            target_queue=_integers(columns.get("targetQueueId"), -1),
        )


def _integers(array: Any | None, missing: int) -> Int64s | None:
    if array is None or array.null_count == len(array):
        return None
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_uint64(array.type):
        # What does not fit is out of every range that we check, so any such number will do.
        array = pc.min_element_wise(array, pa.scalar(2**63 - 1, pa.uint64()), skip_nulls=False)
    values: Int64s = array.cast(pa.int64()).fill_null(missing).to_numpy(zero_copy_only=False)
    return values


def _milliseconds(array: Any | None) -> Int64s | None:
    if array is not None and pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array is None or array.null_count == len(array):
        return None
    whole = array.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    return _integers(whole, -1)


def _entries(array: Any | None, *, was_read: bool) -> Entries | SharedEntries | None:
    if array is None or array.null_count == len(array):
        return None
    if array.null_count:
        # A null row may hide entries of its own; taking every row leaves them behind.
        array = array.take(pa.array(np.arange(len(array), dtype=np.int64)))
    offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False), dtype=np.int64)
    inner = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    names, values = (as_binary(part) for part in inner.flatten())
    # Null and empty values are left out: no reader would see them.
    kept = lengths_of(values) > 0
    offsets = offsets - offsets[0]
    if kept.all() and (shared := _shared_names(offsets, names)):
        return _shared_entries(shared, values, was_read=was_read)
    if was_read:
        # What RocketMQ itself set on the message that was read does not belong to the new one.
        kept &= ~_is_reserved(names)
    if not kept.all():
        running = np.zeros(len(kept) + 1, dtype=np.int64)
        np.cumsum(kept, out=running[1:])
        mask = pa.array(kept)
        offsets, names, values = running[offsets], names.filter(mask), values.filter(mask)
    return Entries(offsets, names, values) if len(names) else None


def _shared_names(offsets: Int64s, names: Any) -> tuple[bytes, ...]:
    """The names of the entries of every row, if all rows have the same; else nothing."""
    rows, width = len(offsets) - 1, int(offsets[1])
    if not 0 < width <= _MOST_SHARED or len(names) != rows * width:
        return ()
    lengths = lengths_of(names).reshape(rows, width)
    if (np.diff(offsets) != width).any() or (lengths != lengths[0]).any():
        return ()
    texts = used_bytes(names).reshape(rows, -1)
    if (texts != texts[0]).any():
        return ()
    ends = np.cumsum(lengths[0]).tolist()
    text = texts[0].tobytes()
    found = tuple(text[start:end] for start, end in itertools.pairwise([0, *ends]))
    # Columns are not written in the order of the entries, and readers take the last of one name.
    return found if len(set(found)) == width else ()


def _shared_entries(
    names: tuple[bytes, ...], values: Any, *, was_read: bool
) -> SharedEntries | None:
    # As above: what RocketMQ itself set stays behind.
    wanted = [
        (place, name) for place, name in enumerate(names) if not (was_read and name in _RESERVED)
    ]
    columns = tuple(
        (name, values.take(pa.array(np.arange(place, len(values), len(names), dtype=np.int64))))
        for place, name in wanted
    )
    return SharedEntries(columns) if columns else None


def _is_reserved(names: Any) -> Bools:
    found: Bools = pc.is_in(names, value_set=_NOT_FOR_USERS).to_numpy(zero_copy_only=False)
    return found


BadRows = dict[int, str]
"""Why a row can't be sent, by its index; in the order of the rows."""


def find_bad_rows(rows: Rows, *, max_message_size: int, topic_given: bool) -> BadRows:
    """Every row that breaks a rule, with a sentence that names the column and the remedy.

    Of several faults of one row the first one found is told.
    """
    bad: BadRows = {}
    _check_body(rows, max_message_size, bad)
    if not topic_given:
        _check_topic(rows, bad)
    for name, column in (
        ("tags", rows.tags),
        ("keys", rows.keys),
        ("shardingKey", rows.sharding_key),
        ("rowId", rows.row_id),
    ):
        if column is not None:
            _check_separators(name, column, bad)
    _check_key(rows, bad)
    _check_numbers(rows, bad)
    if rows.properties is not None:
        _check_properties(rows.properties, bad)
    return dict(sorted(bad.items()))


def _blame(bad: BadRows, mask: Bools, sentence: Callable[[int], str]) -> None:
    for row in np.flatnonzero(mask).tolist():
        bad.setdefault(row, sentence(row))


def _check_body(rows: Rows, limit: int, bad: BadRows) -> None:
    lengths = lengths_of(rows.body)
    wrong = (lengths == 0) | (lengths > limit)
    if not wrong.any():
        return
    null = nulls_of(rows.body)
    _blame(bad, null, lambda row: "body is null: every message needs one")
    _blame(bad, lengths == 0, lambda row: "body is empty: RocketMQ takes no empty message")
    _blame(
        bad,
        lengths > limit,
        lambda row: f"body is {lengths[row]} bytes: at most {limit} (max_message_size)",
    )


def _check_topic(rows: Rows, bad: BadRows) -> None:
    if rows.topic is None:
        _blame(bad, np.ones(rows.count, np.bool_), lambda row: "topic is null: name one")
        return
    _blame(bad, nulls_of(rows.topic), lambda row: "topic is null: name one")
    for value in rows.topic.unique().to_pylist():
        if value is None:
            continue
        name = value.decode(errors="replace")
        fault = topic_fault(name)
        if not fault:
            continue
        mask = pc.equal(rows.topic, pa.scalar(value, pa.binary()))
        told = f"topic is {name!r}: {fault}"
        _blame(
            bad,
            pc.fill_null(mask, fill_value=False).to_numpy(zero_copy_only=False),
            lambda row, told=told: told,  # type: ignore[misc]
        )


def topic_fault(name: str) -> str:
    """What keeps a topic from being written to; empty when nothing does."""
    if name in FORBIDDEN_TOPICS:
        return "RocketMQ keeps it for itself"
    try:
        check_topic(name)
    except InvalidMessageError:
        return "1 to 127 letters, digits, %, |, _ or -"
    return ""


def _check_separators(name: str, column: Any, bad: BadRows) -> None:
    data = used_bytes(column)
    # One comparison over all bytes: separators are 1 and 2, and 0 does no harm in between.
    if len(data) == 0 or int(data.min()) > 2:
        return
    offsets = offsets_of(column)
    whole = data_of(column)[: offsets[-1]]
    found = np.flatnonzero(((whole == 1) | (whole == 2))[offsets[0] :]) + offsets[0]
    mask = np.zeros(len(column), dtype=np.bool_)
    mask[np.searchsorted(offsets, found, side="right") - 1] = True
    mask &= ~nulls_of(column)
    _blame(
        bad,
        mask,
        lambda row: f"{name} contains 0x01 or 0x02, which separate properties: take them out",
    )


def _check_key(rows: Rows, bad: BadRows) -> None:
    if rows.sharding_key is None:
        return
    empty = (lengths_of(rows.sharding_key) == 0) & ~nulls_of(rows.sharding_key)
    _blame(bad, empty, lambda row: "shardingKey is empty: give a key, or null for no order")


def _check_numbers(rows: Rows, bad: BadRows) -> None:
    flag, level, moment = rows.flag, rows.delay_level, rows.deliver_ms
    if flag is not None:
        _blame(
            bad,
            (flag < -(2**31)) | (flag >= 2**31),
            lambda row: f"flag is {flag[row]}: it must fit into 32 bits",
        )
    if level is not None:
        _blame(
            bad,
            (level < 0) | (level > 18),
            lambda row: f"delayLevel is {level[row]}: 1 to 18, or 0 for none",
        )
    if moment is not None:
        _blame(bad, moment < -1, lambda row: "deliverAt is before 1970: give a moment to come")
    if level is not None and moment is not None:
        _blame(
            bad,
            (level > 0) & (moment >= 0),
            lambda row: "delayLevel and deliverAt are both given: keep one",
        )
    _check_target(rows, bad)


def _check_target(rows: Rows, bad: BadRows) -> None:
    named = _given(rows.target_broker, rows.count)
    queue = rows.target_queue
    numbered: Bools = np.zeros(rows.count, np.bool_) if queue is None else queue >= 0
    _blame(
        bad,
        named != numbered,
        lambda row: "targetBroker and targetQueueId name a queue together: give both or none",
    )


def _given(column: Any | None, count: int) -> Bools:
    if column is None:
        return np.zeros(count, dtype=np.bool_)
    return lengths_of(column) > 0


def _check_properties(entries: Entries | SharedEntries, bad: BadRows) -> None:
    if isinstance(entries, SharedEntries):
        for shared, values in entries.columns:
            _check_shared(shared, values, bad)
        return
    problems: list[tuple[npt.NDArray[np.bool_], str]] = []
    problems.append((lengths_of(entries.names) == 0, _NAMELESS))
    problems.append((_is_reserved(entries.names), _IS_RESERVED))
    for column in (entries.names, entries.values):
        inside: BadRows = {}
        _check_separators("", column, inside)
        mask = np.zeros(len(column), dtype=np.bool_)
        mask[list(inside)] = True
        problems.append((mask, _SEPARATED))
    if not any(mask.any() for mask, _ in problems):
        return
    rows = entries.rows()
    for mask, sentence in problems:
        for entry in np.flatnonzero(mask).tolist():
            name = (entries.names[entry].as_py() or b"").decode(errors="replace")
            bad.setdefault(int(rows[entry]), sentence.format(name=name))


def _check_shared(name: bytes, column: Any, bad: BadRows) -> None:
    """As above, for a property that all rows have."""
    shown = name.decode(errors="replace")
    sentence = "" if name else _NAMELESS
    sentence = sentence or (_IS_RESERVED if name in _RESERVED else "")
    sentence = sentence or (_SEPARATED if NAME_END in shown or VALUE_END in shown else "")
    inside: BadRows = dict.fromkeys(range(len(column)), "") if sentence else {}
    if not sentence:
        _check_separators("", column, inside)
    for row in inside:
        bad.setdefault(row, (sentence or _SEPARATED).format(name=shown))
