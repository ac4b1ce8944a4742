"""What becomes of rows that can't be sent, and of those that would go round in circles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from rocketwire.columns.encode import Encoded, Single, first_bad_row
from rocketwire.columns.schema import OUR_PROPERTIES
from rocketwire.errors import InvalidMessageError
from rocketwire.spark.option_names import in_camel_case
from rocketwire.spark.options import WriteOptions
from rocketwire.spark.schema import is_from_topic
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES, RESERVED, Property

if TYPE_CHECKING:
    import pyarrow as pa

#: How much of a reason is kept.
_REASON: Final = 1000
#: Before the name of a property of the row that a dead letter needs for itself.
_ROWS_OWN: Final = "row."
#: Room for what a broker adds to the properties of a message.
_SPARE: Final = 1024


class BadRowHandling:
    """Fails, drops, or makes dead letters, as the options say."""

    def __init__(self, options: WriteOptions, partition: int) -> None:
        self._options = options
        self._partition = partition
        self.count = 0

    def take(self, encoded: Encoded) -> list[Single]:
        """What to send in place of a piece's bad rows.

        Raises:
            InvalidMessageError: a bad row fails the task.
        """
        if self._options.on_bad_row == "fail":
            raise first_bad_row(encoded.bad, f"partition {self._partition}")
        self.count += len(encoded.bad)
        if self._options.on_bad_row == "drop":
            return []
        return [self._letter(encoded, row, why) for row, why in encoded.bad.items()]

    def _letter(self, encoded: Encoded, row: int, why: str) -> Single:
        """The row as it is, as far as it can be sent, and why it could not be."""
        why = in_camel_case(why)
        source = encoded.source.slice(row - encoded.first_row, 1).to_pylist()[0]
        body = source.get("body")
        if isinstance(body, str):
            body = body.encode()
        # A body that is missing, empty or too large is the usual fault: say so in its place.
        if not body or why.startswith("body is"):
            body = why.encode()
        own = {
            "reason": why[:_REASON],
            "partition": str(self._partition),
            "rowIndex": str(row),
            "topic": str(self._options.topic or source.get("topic") or ""),
        }
        named = {
            Property.KEYS: source.get("keys"),
            Property.TAGS: source.get("tags"),
            Property.SHARDING_KEY: source.get("shardingKey"),
        }
        text = _joined([own, named, _users(source.get("properties"), own)])
        assert self._options.dead_letter_topic is not None  # the options saw to it
        return Single(self._options.dead_letter_topic, None, body, text, _flag(source), row)


def _flag(source: Mapping[str, Any]) -> int:
    flag = source.get("flag")
    return flag if isinstance(flag, int) and -(2**31) <= flag < 2**31 else 0


def _users(given: Any, own: Mapping[str, str]) -> dict[str, Any]:
    """Properties of the row but those that only RocketMQ may set.

    One that has the name of a property which says why gets another name.
    """
    entries = dict(given) if given else {}
    taken = RESERVED | OUR_PROPERTIES | {Property.SHARDING_KEY}
    return {
        f"{_ROWS_OWN}{name}" if name in own else name: value
        for name, value in entries.items()
        if name and name not in taken
    }


def _joined(groups: Iterable[Mapping[str, Any]]) -> bytes:
    """All properties that fit, the most telling first."""
    made = b""
    for group in groups:
        for name, value in group.items():
            if value is None or value == "":
                continue
            item = f"{_clean(name)}\x01{_clean(str(value))}\x02".encode("utf-8", "replace")
            if len(made) + len(item) <= MAX_PROPERTIES_BYTES - _SPARE:
                made += item
    return made


def _clean(value: str) -> str:
    return value.replace("\x01", " ").replace("\x02", " ")


def check_batch(batch: pa.RecordBatch, options: WriteOptions) -> None:
    """Refuse rows that would go back to the topic that they were read from.

    Raises:
        InvalidMessageError: one would, and nobody said that it may.
    """
    if options.allow_loop or options.topic is None or not is_from_topic(batch.schema.names):
        return
    topics = batch.column("topic")
    if topics.null_count == len(topics):
        return
    if pc.any(pc.equal(topics, options.topic)).as_py():
        raise InvalidMessageError(
            f"rows that were read from topic {options.topic} would be written back to it: write to "
            "another topic, drop the columns topic and queueOffset, or set allowLoop to true"
        )
