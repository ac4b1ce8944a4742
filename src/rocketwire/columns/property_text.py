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
from rocketwire.columns.rows import Entries, Rows, SharedEntries
from rocketwire.columns.schema import ROW_ID_PROPERTY, SOURCE_ID_PROPERTY
from rocketwire.wire.batch import LENGTH_SIZE
from rocketwire.wire.properties import NAME_END, VALUE_END, Property

#: Values of one length up to so many bytes are laid beside the ids.
_WIDEST: Final = 128
_NAME_END: Final = NAME_END.encode()
_VALUE_END: Final = VALUE_END.encode()


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

    Constants that follow one another become one piece. Properties whose values have one length in all
    rows (row ids do, tags often) come first, in the block that holds the ids: each piece less is a
    step less for every row.
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
        #: Bytes that all rows share, and matrices: what has one length in all rows.
        self._begin: list[bytes | Bytes] = []
        self._others: list[Any] = []

    def add_text(self, name: bytes, column: Any | None) -> None:
        """A property whose value is a column; rows where it is null or empty go without."""
        if column is None:
            return
        head = name + _NAME_END
        lengths = lengths_of(column)
        present = lengths > 0
        if present.all():
            even = _even(column, lengths)
            if even is None:
                self._others += (head, column, _VALUE_END)
            else:
                self._begin += (head, even, _VALUE_END)
            self.sizes += lengths + (len(head) + 1)
        elif present.any():
            whole = join(scalar(head), column, _END)
            self._others.append(pc.if_else(pa.array(present), whole, _NOTHING))
            self.sizes += np.where(present, lengths + (len(head) + 1), 0)

    def add_constant(self, text: bytes) -> None:
        """Properties that are the same for all rows, already encoded."""
        self._begin.append(text)
        self.sizes += len(text)

    def add_entries(self, entries: Entries | SharedEntries | None) -> None:
        """The properties that the user gave as a map."""
        if entries is None:
            return
        if isinstance(entries, SharedEntries):
            for name, column in entries.columns:
                self.add_text(name, column)
            return
        texts = entries.texts()
        # Entries of one row lie side by side, so a row's text is a wider slice of their bytes.
        per_row = offsets_of(texts)[entries.offsets]
        self._others.append(from_offsets(per_row, data_of(texts)))
        self.sizes += np.diff(per_row)

    def finish(self, ids: MessageIdColumn) -> PropertyPieces:
        """All pieces, the ids first."""
        begin, others = self._begin, self._others
        # The name of the first that has not one length is the same in all rows, too.
        if others and isinstance(others[0], bytes):
            begin, others = [*begin, others[0]], others[1:]
        head = Property.UNIQ_KEY.encode() + _NAME_END
        after = _VALUE_END + b"".join(
            part if isinstance(part, bytes) else bytes(part.shape[1]) for part in begin
        )
        block = ids.make(len(self.sizes), before=bytes(LENGTH_SIZE) + head, after=after)
        at = block.shape[1] - len(after) + len(_VALUE_END)
        sizes = self.sizes + (at - LENGTH_SIZE)
        block[:, :LENGTH_SIZE] = sizes.astype(">i2").view(np.uint8).reshape(len(sizes), LENGTH_SIZE)
        for part in begin:
            if isinstance(part, bytes):
                at += len(part)
            else:
                block[:, at : at + part.shape[1]] = part
                at += part.shape[1]
        return PropertyPieces(sizes, [from_matrix(block), *_joined(others)])


def _even(column: Any, lengths: Int64s) -> Bytes | None:
    """The values as a matrix, if all have one length."""
    width = int(lengths[0]) if len(lengths) else 0
    if not width or width > _WIDEST or bool((lengths != width).any()):
        return None
    return used_bytes(column).reshape(len(lengths), width)


def _joined(parts: list[Any]) -> list[Any]:
    """Pieces of a join, neighbouring bytes as one."""
    joined: list[Any] = []
    for is_bytes, run in itertools.groupby(parts, lambda part: isinstance(part, bytes)):
        pieces = list(run)
        joined += [scalar(b"".join(pieces))] if is_bytes else pieces
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
    made.add_text(ROW_ID_PROPERTY.encode(), row_ids)
    made.add_text(SOURCE_ID_PROPERTY.encode(), source_ids)
    made.add_text(Property.KEYS.encode(), rows.keys)
    made.add_text(Property.TAGS.encode(), rows.tags)
    made.add_text(Property.SHARDING_KEY.encode(), rows.sharding_key)
    made.add_entries(rows.properties)
    return made.finish(ids)
