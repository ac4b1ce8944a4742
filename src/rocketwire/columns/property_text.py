"""The properties of many rows as the pieces of one big join.

Nothing is joined here: `encode` puts the pieces between header and body of each row, so that the
properties are copied once, straight into the batch body.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.columns.buffers import (
    Bools,
    Bytes,
    Int64s,
    data_of,
    from_matrix,
    from_offsets,
    lengths_of,
    offsets_of,
    used_bytes,
)
from rocketwire.columns.ids import MessageIdColumn
from rocketwire.columns.rows import Entries, Rows
from rocketwire.columns.schema import ROW_ID_PROPERTY, SOURCE_ID_PROPERTY
from rocketwire.wire.properties import Property

#: The int16 before the properties of a message in a batch.
LENGTH_SIZE: Final = 2
#: Values of one length up to so many bytes are laid beside the ids.
_WIDEST: Final = 128
_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"


def scalar(value: bytes) -> Any:
    """A constant as a piece of a join."""
    return pa.scalar(value, pa.binary())


_END: Final = scalar(_VALUE_END)
_NOTHING: Final = scalar(b"")


def join(*pieces: Any) -> Any:
    """Concatenate row by row; null where any piece is null."""
    return pc.binary_join_element_wise(*pieces, _NOTHING)


@dataclass(slots=True)
class PropertyPieces:
    """The properties of each row as pieces to be joined, with their length before them.

    Constants that follow one another become one piece. Those after the ids, and columns there whose
    values have one length (row ids do), are a part of the block that holds the ids: each piece less
    is a step less for every row.
    """

    sizes: Int64s
    pieces: list[Any]

    def keep(self, good: Bools) -> PropertyPieces:
        """Only some of the rows."""
        mask = pa.array(good)
        kept = [p.filter(mask) if isinstance(p, pa.Array) else p for p in self.pieces]
        return PropertyPieces(self.sizes[good], kept)


@dataclass(frozen=True, slots=True)
class _Even:
    """A column whose values have one length, and the same as a matrix."""

    column: Any
    matrix: Bytes


class _Collector:
    """Collects properties one after the other: bytes that all rows share, and columns."""

    def __init__(self, rows: int) -> None:
        self.sizes: Int64s = np.zeros(rows, dtype=np.int64)
        self._parts: list[Any] = []

    def add_text(self, name: str, column: Any | None) -> None:
        """A property whose value is a column; rows where it is null or empty go without."""
        if column is None:
            return
        head = name.encode() + _NAME_END
        lengths = lengths_of(column)
        present = lengths > 0
        if present.all():
            self._parts += (head, _even(column, lengths), _VALUE_END)
            self.sizes += lengths + (len(head) + 1)
        elif present.any():
            whole = join(scalar(head), column, _END)
            self._parts.append(pc.if_else(pa.array(present), whole, _NOTHING))
            self.sizes += np.where(present, lengths + (len(head) + 1), 0)

    def add_constant(self, text: bytes) -> None:
        """Properties that are the same for all rows, already encoded."""
        self._parts.append(text)
        self.sizes += len(text)

    def add_entries(self, entries: Entries | None) -> None:
        """The properties that the user gave as a map."""
        if entries is None:
            return
        texts = entries.texts
        # Entries of one row lie side by side, so a row's text is a wider slice of their bytes.
        per_row = offsets_of(texts)[entries.offsets]
        self._parts.append(from_offsets(per_row, data_of(texts)))
        self.sizes += np.diff(per_row)

    def finish(self, ids: MessageIdColumn) -> PropertyPieces:
        """All pieces, the ids first."""
        begin, others = self._begin()
        head = Property.UNIQ_KEY.encode() + _NAME_END
        after = _VALUE_END + b"".join(
            bytes(part.matrix.shape[1]) if isinstance(part, _Even) else part for part in begin
        )
        block = ids.make(len(self.sizes), before=bytes(LENGTH_SIZE) + head, after=after)
        at = block.shape[1] - len(after) + len(_VALUE_END)
        sizes = self.sizes + (at - LENGTH_SIZE)
        block[:, :LENGTH_SIZE] = sizes.astype(">i2").view(np.uint8).reshape(len(sizes), LENGTH_SIZE)
        for part in begin:
            if isinstance(part, _Even):
                width = part.matrix.shape[1]
                block[:, at : at + width] = part.matrix
                at += width
            else:
                at += len(part)
        return PropertyPieces(sizes, [from_matrix(block), *_joined(others)])

    def _begin(self) -> tuple[list[bytes | _Even], list[Any]]:
        """The parts that have one length in all rows, up to the first that has not; and the others."""
        parts = self._parts
        count = next(
            (at for at, part in enumerate(parts) if not isinstance(part, bytes | _Even)),
            len(parts),
        )
        return parts[:count], parts[count:]


def _even(column: Any, lengths: Int64s) -> Any:
    width = int(lengths[0]) if len(lengths) else 0
    if not width or width > _WIDEST or bool((lengths != width).any()):
        return column
    return _Even(column, used_bytes(column).reshape(len(lengths), width))


def _joined(parts: list[Any]) -> list[Any]:
    """Pieces of a join, neighbouring bytes as one."""
    joined: list[Any] = []
    for is_bytes, run in itertools.groupby(parts, lambda part: isinstance(part, bytes)):
        if is_bytes:
            joined.append(scalar(b"".join(run)))
        else:
            joined += [part.column if isinstance(part, _Even) else part for part in run]
    return joined


def property_pieces(
    rows: Rows,
    ids: MessageIdColumn,
    *,
    row_ids: Any | None = None,
    source_ids: Any | None = None,
    constant: bytes = b"",
) -> PropertyPieces:
    """All properties of a batch.

    Args:
        rows: the batch.
        ids: makes the message ids.
        row_ids: the identity of each row; None for none.
        source_ids: the identity of the message that each row was made from; None for none.
        constant: properties of all rows, already encoded.
    """
    made = _Collector(rows.count)
    made.add_constant(constant)
    made.add_text(ROW_ID_PROPERTY, row_ids)
    made.add_text(SOURCE_ID_PROPERTY, source_ids)
    made.add_text(Property.KEYS, rows.keys)
    made.add_text(Property.TAGS, rows.tags)
    made.add_text(Property.SHARDING_KEY, rows.sharding_key)
    made.add_entries(rows.properties)
    return made.finish(ids)
