"""A record batch as the bodies of send requests, grouped by queue.

Which queue a row without a key goes to is left to the sender, and so is everything about waiting,
answers and retries. The bytes do not depend on the queue, so a frame can be sent again elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rocketwire.columns.buffers import (
    Bools,
    Int64s,
    from_matrix,
    lengths_of,
    offsets_of,
    split_rows,
)
from rocketwire.columns.hash import java_hash_column, queue_index_column
from rocketwire.columns.ids import MessageIdColumn
from rocketwire.columns.property_text import (
    PropertyPieces,
    join,
    property_pieces,
)
from rocketwire.columns.row_ids import NumberedIds, RowIds
from rocketwire.columns.rows import SIZED_COLUMNS, BadRows, Rows, find_bad_rows
from rocketwire.core.naming import RETRY_PREFIX
from rocketwire.errors import InvalidMessageError, RouteError
from rocketwire.message import MessageQueue
from rocketwire.wire.batch import HEAD_SIZE, ITEM_OVERHEAD, LENGTH_SIZE, item_array_fields
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES, NAME_END, VALUE_END, Property
from rocketwire.wire.send_properties import namespace_field

FRAME_SIZE: Final = 1024 * 1024
MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024
#: Bytes of values that are encoded in one go: a few frames, and far below Arrow's 31 bits.
_PIECE_SIZE: Final = 16 * 1024 * 1024

_HEADER: Final = np.dtype(item_array_fields())


@dataclass(frozen=True, slots=True)
class Frame:
    """The body of one batch request.

    ``queue`` is None when any queue of the topic will do; else the rows must go to that one, in
    the order of the frames. ``rows`` are their indexes in the partition.
    """

    topic: str
    queue: MessageQueue | None
    body: memoryview
    rows: Int64s


@dataclass(frozen=True, slots=True)
class Single:
    """A row that can't share a request: delayed, for a retry topic, or too large for a batch."""

    topic: str
    queue: MessageQueue | None
    body: bytes
    properties: bytes
    flag: int
    row: int
    delay_level: int = 0
    deliver_ms: int = -1


@dataclass(slots=True)
class Encoded:
    """What became of a piece of a batch. ``parts`` keep the order of the rows within each queue.

    ``first_row`` is the index of the piece's first row in its partition; ``bad`` counts likewise.
    """

    source: Any
    first_row: int
    parts: list[Frame | Single] = field(default_factory=list)
    bad: BadRows = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowTargets:
    """Where the rows of a batch go: a number per row, and the topic and queue that it stands for.

    ``codes`` is None when all rows go one way.
    """

    places: list[tuple[str, MessageQueue | None]]
    codes: Int64s | None


class BatchEncoder:
    """Turns the record batches of one partition into frames, one after the other.

    Args:
        topic: where all rows go; None to read it from the column ``topic``.
        queues: the writable queues of a topic in Java's order; asked once per topic and batch.
        ids: makes the message ids.
        row_ids: makes the row ids; rows have only their own by default.
        namespace: of version 1, which every message names.
        max_message_size: the largest body of a request.
        frame_size: how large frames should be.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        queues: Callable[[str], Sequence[MessageQueue]],
        ids: MessageIdColumn,
        row_ids: RowIds | None = None,
        namespace: str | None = None,
        max_message_size: int = MAX_MESSAGE_SIZE,
        frame_size: int = FRAME_SIZE,
    ) -> None:
        self._topic = topic
        self._queues = queues
        self._ids = ids
        self._row_ids = NumberedIds(None) if row_ids is None else row_ids
        self._constant = namespace_field(namespace)
        self._max_message_size = max_message_size
        self._frame_size = min(frame_size, max_message_size)
        self.rows_seen = 0

    def encode(self, batch: Any) -> Iterator[Encoded]:
        """Encode a batch, piece by piece, so that memory stays bounded whatever its size."""
        for _, piece in split_rows(batch, SIZED_COLUMNS, _PIECE_SIZE):
            yield self._encode_piece(piece)

    def _encode_piece(self, batch: Any) -> Encoded:
        first, self.rows_seen = self.rows_seen, self.rows_seen + batch.num_rows
        numbers = np.arange(first, first + batch.num_rows, dtype=np.int64)
        rows = Rows.of(batch)
        bad = find_bad_rows(
            rows, max_message_size=self._max_message_size, topic_given=self._topic is not None
        )
        # Row ids count all rows, so they are made before the bad ones are taken out.
        row_ids, source_ids = self._row_ids.make(rows, first)
        pieces = property_pieces(
            rows, self._ids, row_ids=row_ids, source_ids=source_ids, constant=self._constant
        )
        self._blame_long_properties(pieces, bad)
        targets = self._row_targets(rows, bad)
        blamed = {first + row: why for row, why in sorted(bad.items())}
        encoded = Encoded(batch, first, bad=blamed)
        if len(bad) == rows.count:
            return encoded
        if bad:
            good = np.ones(rows.count, dtype=np.bool_)
            good[list(bad)] = False
            rows, pieces, targets = _keep(batch, pieces, targets, good)
            numbers = numbers[good]
        encoded.parts = self._cut(rows, pieces, targets, numbers)
        return encoded

    def _blame_long_properties(self, pieces: PropertyPieces, bad: BadRows) -> None:
        for row in np.flatnonzero(pieces.sizes > MAX_PROPERTIES_BYTES).tolist():
            bad.setdefault(
                row,
                f"properties take {pieces.sizes[row]} bytes with keys, tags and ids: "
                f"at most {MAX_PROPERTIES_BYTES}",
            )

    def _row_targets(self, rows: Rows, bad: BadRows) -> RowTargets:
        if self._topic is not None:
            topics = [self._topic]
            topic_codes = np.zeros(rows.count, dtype=np.int64)
        else:
            topics, topic_codes = _distinct(rows.topic, rows.count)
        if rows.sharding_key is None and rows.target_broker is None:
            plain: list[tuple[str, MessageQueue | None]] = [(topic, None) for topic in topics]
            return RowTargets(plain, topic_codes if len(topics) > 1 else None)
        return _Pinning(self._queues).targets(rows, topics, topic_codes, bad)

    def _cut(
        self, rows: Rows, pieces: PropertyPieces, targets: RowTargets, numbers: Int64s
    ) -> list[Frame | Single]:
        bodies = lengths_of(rows.body)
        sizes = bodies + pieces.sizes + ITEM_OVERHEAD
        alone = _own_requests(rows, targets, sizes, self._max_message_size)
        order = None
        if targets.codes is not None and bool((np.diff(targets.codes) < 0).any()):
            # Radix sort: 16 bits are sorted several times faster than 64.
            narrow = (
                targets.codes.astype(np.uint16) if len(targets.places) < 2**16 else targets.codes
            )
            order = np.argsort(narrow, kind="stable")
        joined = _join_items(rows, bodies, sizes, pieces)
        codes = targets.codes
        if order is not None and codes is not None:
            joined = joined.take(pa.array(order))
            codes, alone, numbers = codes[order], alone[order], numbers[order]
        made = _Singles(rows, pieces, order) if alone.any() else None
        return list(self._frames(joined, targets, codes, numbers, (alone, made)))

    def _frames(
        self,
        joined: Any,
        targets: RowTargets,
        codes: Int64s | None,
        numbers: Int64s,
        alone: tuple[Bools, _Singles | None],
    ) -> Iterator[Frame | Single]:
        offsets = offsets_of(joined)
        view = memoryview(joined.buffers()[2])
        mask, singles = alone
        edges = _edges(codes, mask, len(joined))
        for start, stop in itertools.pairwise(edges):
            topic, queue = targets.places[int(codes[start]) if codes is not None else 0]
            if singles is not None and mask[start]:
                for at in range(start, stop):
                    yield singles.make(at, topic, queue, int(numbers[at]))
                continue
            for low, high in _greedy(offsets, start, stop, self._frame_size):
                body = view[int(offsets[low]) : int(offsets[high])]
                yield Frame(topic, queue, body, numbers[low:high])


def _own_requests(rows: Rows, targets: RowTargets, sizes: Int64s, limit: int) -> Bools:
    """Which rows brokers take in no batch: ``core.sending.validate.needs_own_request`` by columns."""
    alone = sizes > limit
    retried = np.array([topic.startswith(RETRY_PREFIX) for topic, _ in targets.places], np.bool_)
    if retried.any():
        alone |= True if targets.codes is None else retried[targets.codes]
    if rows.delay_level is not None:
        alone |= rows.delay_level > 0
    if rows.deliver_ms is not None:
        alone |= rows.deliver_ms >= 0
    return alone


def _edges(codes: Int64s | None, alone: Bools, count: int) -> list[int]:
    """Where a run of rows ends that may share frames."""
    changes = np.zeros(max(0, count - 1), dtype=np.bool_)
    if codes is not None:
        changes |= codes[1:] != codes[:-1]
    if alone.any():
        changes |= alone[1:] != alone[:-1]
    return [0, *(np.flatnonzero(changes) + 1).tolist(), count] if count else [0]


def _greedy(offsets: Any, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        fits = int(np.searchsorted(offsets, int(offsets[start]) + size, side="right")) - 1
        end = min(stop, max(start + 1, fits))
        yield start, end
        start = end


def _join_items(rows: Rows, bodies: Int64s, sizes: Int64s, pieces: PropertyPieces) -> Any:
    """All rows in the layout of a batch: the data buffer of the result is the batch body."""
    header = np.zeros(rows.count, dtype=_HEADER)
    header["size"] = sizes
    header["body"] = bodies
    if rows.flag is not None:
        header["flag"] = rows.flag
    heads = from_matrix(header.view(np.uint8).reshape(rows.count, HEAD_SIZE))
    return join(heads, rows.body, *pieces.pieces)


class _Singles:
    """Makes the requests of rows that go alone. There are few, so this is done row by row."""

    def __init__(self, rows: Rows, pieces: PropertyPieces, order: Any | None) -> None:
        self._rows = rows
        self._texts = join(*pieces.pieces)
        self._order = order

    def make(self, at: int, topic: str, queue: MessageQueue | None, number: int) -> Single:
        rows = self._rows
        row = at if self._order is None else int(self._order[at])
        level = 0 if rows.delay_level is None else int(rows.delay_level[row])
        moment = -1 if rows.deliver_ms is None else int(rows.deliver_ms[row])
        text: bytes = self._texts[row].as_py()[LENGTH_SIZE:]
        if level > 0:
            text += f"{Property.DELAY}{NAME_END}{level}{VALUE_END}".encode()
        elif moment >= 0:
            text += f"{Property.TIMER_DELIVER_MS}{NAME_END}{moment}{VALUE_END}".encode()
        flag = 0 if rows.flag is None else int(rows.flag[row])
        body = rows.body[row].as_py()
        return Single(topic, queue, body, text, flag, number, level, moment)


class _Pinning:
    """Finds the queue of rows that have a sharding key or name a queue."""

    def __init__(self, queues: Callable[[str], Sequence[MessageQueue]]) -> None:
        self._queues = queues
        self._targets: list[tuple[str, MessageQueue | None]] = []

    def targets(
        self, rows: Rows, topics: list[str], topic_codes: Int64s, bad: BadRows
    ) -> RowTargets:
        keyed = _present(rows.sharding_key, rows.count)
        aimed = _present(rows.target_broker, rows.count)
        hashes = None
        if rows.sharding_key is not None and keyed.any():
            hashes = java_hash_column(rows.sharding_key.cast(pa.string(), safe=False))
        codes = np.zeros(rows.count, dtype=np.int64)
        for number, topic in enumerate(topics):
            mine = topic_codes == number
            if bad:
                mine[list(bad)] = False
            codes[mine & ~keyed & ~aimed] = self._code_of(topic, None)
            if hashes is not None and (chosen := mine & keyed & ~aimed).any():
                queues = self._writable(topic)
                base = len(self._targets)
                self._targets += [(topic, queue) for queue in queues]
                codes[chosen] = base + queue_index_column(hashes[chosen], len(queues))
            if (chosen := mine & aimed).any():
                self._aim(rows, topic, chosen, codes, bad)
        return RowTargets(self._targets, codes)

    def _code_of(self, topic: str, queue: MessageQueue | None) -> int:
        self._targets.append((topic, queue))
        return len(self._targets) - 1

    def _writable(self, topic: str) -> Sequence[MessageQueue]:
        queues = self._queues(topic)
        if not queues:
            raise RouteError(f"topic {topic} has no writable queue")
        return queues

    def _aim(self, rows: Rows, topic: str, chosen: Bools, codes: Int64s, bad: BadRows) -> None:
        known = {(queue.broker, queue.id): queue for queue in self._writable(topic)}
        found: dict[tuple[str, int], int] = {}
        # _check_target saw to it that both columns are there.
        assert rows.target_queue is not None
        assert rows.target_broker is not None
        for row in np.flatnonzero(chosen).tolist():
            name = rows.target_broker[row].as_py().decode(errors="replace")
            aim = (name, int(rows.target_queue[row]))
            if aim not in known:
                bad.setdefault(row, f"topic {topic} has no queue {aim[1]} on broker {name}")
                continue
            if aim not in found:
                found[aim] = self._code_of(topic, known[aim])
            codes[row] = found[aim]


def _present(column: Any | None, count: int) -> Bools:
    return np.zeros(count, dtype=np.bool_) if column is None else lengths_of(column) > 0


def _distinct(column: Any | None, count: int) -> tuple[list[str], Int64s]:
    if column is None:
        return [""], np.zeros(count, dtype=np.int64)
    encoded = column.dictionary_encode()
    names = [(value or b"").decode(errors="replace") for value in encoded.dictionary.to_pylist()]
    codes: Int64s = encoded.indices.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return names or [""], codes


def _keep(
    batch: Any, pieces: PropertyPieces, targets: RowTargets, good: Bools
) -> tuple[Rows, PropertyPieces, RowTargets]:
    """Only the good rows of everything that was made."""
    codes = None if targets.codes is None else targets.codes[good]
    return (
        Rows.of(batch.filter(pa.array(good))),
        pieces.keep(good),
        RowTargets(targets.places, codes),
    )


def first_bad_row(bad: BadRows, what: str) -> InvalidMessageError:
    """The error for bad rows, with the index of the first."""
    row, why = next(iter(bad.items()))
    more = f" (bad rows in all: {len(bad)})" if len(bad) > 1 else ""
    return InvalidMessageError(f"{what}, row {row}: {why}{more}")
