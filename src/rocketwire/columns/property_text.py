"""The properties of many rows as the pieces of one big join.

Nothing is joined here: `encode` puts the pieces between header and body of each row, so that the
properties are copied once, straight into the batch body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.columns.buffers import (
    Bools,
    Int64s,
    data_of,
    from_matrix,
    from_offsets,
    lengths_of,
    offsets_of,
)
from rocketwire.columns.ids import MessageIdColumn
from rocketwire.columns.rows import Entries, Rows
from rocketwire.columns.schema import ROW_ID_PROPERTY, SOURCE_ID_PROPERTY
from rocketwire.wire.properties import Property

#: The int16 before the properties of a message in a batch.
LENGTH_SIZE: Final = 2
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

    Constants that follow one another become one piece, and those after the ids a part of the
    block that holds the ids: each piece less is a copy less for every row.
    """

    sizes: Int64s
    pieces: list[Any]

    def keep(self, good: Bools) -> PropertyPieces:
        """Only some of the rows."""
        mask = pa.array(good)
        kept = [p.filter(mask) if isinstance(p, pa.Array) else p for p in self.pieces]
        return PropertyPieces(self.sizes[good], kept)


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
            self._parts += (head, column, _VALUE_END)
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
        shared, *others = self._runs()
        head = Property.UNIQ_KEY.encode() + _NAME_END
        block = ids.make(
            len(self.sizes), before=bytes(LENGTH_SIZE) + head, after=_VALUE_END + shared
        )
        sizes = self.sizes + (block.shape[1] - LENGTH_SIZE - len(shared))
        block[:, :LENGTH_SIZE] = sizes.astype(">i2").view(np.uint8).reshape(len(sizes), LENGTH_SIZE)
        pieces = [scalar(part) if isinstance(part, bytes) else part for part in others]
        return PropertyPieces(sizes, [from_matrix(block), *pieces])

    def _runs(self) -> list[Any]:
        """The parts with neighbouring bytes joined; bytes come first, if only empty ones."""
        joined: list[Any] = [b""]
        for part in self._parts:
            if isinstance(part, bytes) and isinstance(joined[-1], bytes):
                joined[-1] += part
            else:
                joined.append(part)
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
