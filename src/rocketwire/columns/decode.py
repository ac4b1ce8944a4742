"""Pull bodies as record batches. Only the columns asked for are decoded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.columns.buffers import Bytes, Int64s, from_matrix, from_offsets, gather_slices
from rocketwire.columns.ids import hex_matrix
from rocketwire.columns.property_columns import Included, PropertyTable, TextError
from rocketwire.columns.record_starts import Found, PullBody, find_records
from rocketwire.columns.records import (
    IrregularError,
    Records,
    fixed_fields,
    locate,
    needs_reading,
    window,
)
from rocketwire.columns.rewrite import read_one_by_one
from rocketwire.columns.schema import (
    READ_SCHEMA,
    ROW_ID_PROPERTY,
    SOURCE_ID_PROPERTY,
    TIMESTAMP,
)
from rocketwire.errors import ConfigError, RemoteProtocolError
from rocketwire.stored_message import FIRST_MS, LAST_MS
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.properties import Property

#: Bytes that are decoded in one go; far below Arrow's 31 bits, and kind to the cache.
_GROUP_BYTES: Final = 4 * 1024 * 1024
#: From so many bytes on a batch ends with the buffer that its bodies lie in, so that they need not
#: be put together first.
_ENOUGH_BYTES: Final = 1024 * 1024

OnBadBody = Literal["raw", "fail", "skip"]
_ON_BAD_BODY: Final = ("raw", "fail", "skip")
_log = logging.getLogger("rocketwire.columns")

_PROPERTY_COLUMNS: Final = {
    "messageId": Property.UNIQ_KEY,
    "rowId": ROW_ID_PROPERTY,
    "sourceRowId": SOURCE_ID_PROPERTY,
    "tags": Property.TAGS,
    "keys": Property.KEYS,
    "shardingKey": Property.SHARDING_KEY,
}


class RecordDecoder:
    """Makes record batches of one schema from pull bodies.

    Args:
        schema: which columns, in which order; a part of ``ALL_COLUMNS``.
        properties: which properties the column ``properties`` holds.
        tags: keep only rows with one of these tags. Brokers filter by hash code, so a row with
            another tag of the same code may have come along.
        on_bad_body: what to do with a message whose body can't be decoded: give it as it is stored
            (``raw``), raise (``fail``), or leave it out (``skip``) and count it in ``skipped``.
    """

    def __init__(
        self,
        schema: pa.Schema = READ_SCHEMA,
        *,
        properties: Included = "user",
        tags: Iterable[str] | None = None,
        on_bad_body: OnBadBody = "raw",
    ) -> None:
        if on_bad_body not in _ON_BAD_BODY:
            raise ConfigError(
                f"on_bad_body is {on_bad_body!r}: give one of {', '.join(_ON_BAD_BODY)}"
            )
        self.schema = schema
        self.skipped = 0
        self._properties: Included = properties
        self._tags = None if tags is None else pa.array(sorted(set(tags)), pa.string())
        self._on_bad_body = on_bad_body
        names = set(schema.names)
        self._parses = bool(names & {*_PROPERTY_COLUMNS, "properties"}) or self._tags is not None
        # What is left out is not decoded, unless something depends on whether it could be.
        self._with_bodies = bool(names & {"body", "undecodable"}) or on_bad_body != "raw"

    def decode(self, bodies: Iterable[PullBody]) -> Iterator[pa.RecordBatch]:
        """One batch for each few megabytes of bodies; batches without rows are left out."""
        for group in _groups(bodies):
            for batch in self._decode_group(group):
                if batch.num_rows:
                    yield batch
        if self.skipped:
            _log.warning(
                "%d messages were left out, because their bodies can't be decoded", self.skipped
            )

    def _decode_group(self, bodies: Sequence[PullBody]) -> Iterator[pa.RecordBatch]:
        found = find_records(bodies)
        if not _is_complete(found, bodies):
            yield from self._decode_incomplete(bodies)
            return
        yield from self._decode_found(found, bodies)

    def _decode_incomplete(self, bodies: Sequence[PullBody]) -> Iterator[pa.RecordBatch]:
        """Body by body, each with what is asked for again because it lacks at its end."""
        for part in bodies:
            found = find_records([part])
            yield from self._decode_found(found, [part])
            if part.accounts is not None and not _is_complete(found, [part]):
                for again in part.accounts.settle(part):
                    yield from self._decode_group([again])

    def _decode_found(self, found: Found, bodies: Sequence[PullBody]) -> Iterator[pa.RecordBatch]:
        fixed = fixed_fields(found)
        if not needs_reading(fixed, with_bodies=self._with_bodies):
            try:
                records = locate(found, fixed, bodies)
                table = _parse(records) if self._parses else None
            except (IrregularError, TextError):
                pass  # one by one, then
            else:
                yield self._batch(records, bodies, table)
                return
        for records in read_one_by_one(bodies, with_bodies=self._with_bodies):
            yield self._batch(records, bodies, _parse(records) if self._parses else None)

    def _batch(
        self, found: Records, bodies: Sequence[PullBody], table: PropertyTable | None
    ) -> pa.RecordBatch:
        columns = _Columns(found, bodies, table, self._properties)
        kept = self._kept(columns)
        if kept is None:
            arrays = [columns.make(name) for name in self.schema.names]
        else:
            # Bodies are chosen before they are put together: there may not be room for them twice.
            fewer = _Columns(found.keep(kept.to_numpy(zero_copy_only=False)), bodies, None, "none")
            arrays = [
                fewer.bodies() if name == "body" else columns.make(name).filter(kept)
                for name in self.schema.names
            ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _kept(self, columns: _Columns) -> Any | None:
        """Which rows are given; None if all are."""
        kept = None
        if self._tags is not None and columns.table is not None:
            kept = pc.is_in(columns.table.column(Property.TAGS), value_set=self._tags)
        if self._on_bad_body != "raw" and columns.found.decoded is not None:
            kept = self._without_bad(columns, kept)
        return None if kept is None or kept.true_count == len(kept) else kept

    def _without_bad(self, columns: _Columns, kept: Any | None) -> Any:
        """Which rows have a body that could be decoded.

        Raises:
            RemoteProtocolError: some have none, and that is not borne.
        """
        good = columns.undecodable().is_null()
        bad = pc.invert(good) if kept is None else pc.and_(pc.invert(good), kept)
        count = bad.true_count
        if count and self._on_bad_body == "fail":
            raise columns.explain(bad.index(True).as_py())
        self.skipped += count
        return good if kept is None else pc.and_(good, kept)


def _is_complete(found: Found, bodies: Sequence[PullBody]) -> bool:
    """Whether every body holds what it should, as far as that is known."""
    counts = np.bincount(found.source, minlength=len(bodies)).tolist()
    return found.is_whole and all(
        part.accounts is None or part.accounts.is_complete(part, count)
        for part, count in zip(bodies, counts, strict=True)
    )


def _groups(bodies: Iterable[PullBody]) -> Iterator[list[PullBody]]:
    group: list[PullBody] = []
    size = 0
    for part in bodies:
        is_elsewhere = size >= _ENOUGH_BYTES and part.buffer is not group[-1].buffer
        if group and (is_elsewhere or size + len(part.body) > _GROUP_BYTES):
            yield group
            group, size = [], 0
        if part.body:
            group.append(part)
            size += len(part.body)
    if group:
        yield group


def _parse(found: Records) -> PropertyTable:
    return PropertyTable(
        gather_slices(found.data, found.properties_start, found.properties_end, pa.binary())
    )


class _Columns:
    """The columns of one group of bodies, each made when asked for."""

    def __init__(
        self,
        found: Records,
        bodies: Sequence[PullBody],
        table: PropertyTable | None,
        included: Included,
    ) -> None:
        self.found = found
        self._bodies = bodies
        self.table = table
        self._included: Included = included

    def make(self, name: str) -> Any:
        # Functions kept in the instance would hold it, and the network's buffers with it, until
        # the garbage collector comes by: that was half of a reader's memory.
        maker = _MAKERS.get(name)
        if maker is not None:
            return maker(self)
        assert self.table is not None  # every other column comes from the properties
        if name == "properties":
            return self.table.mapping(self._included)
        return self.table.column(_PROPERTY_COLUMNS[name])

    def topics(self) -> Any:
        return self._per_body([part.queue.topic for part in self._bodies])

    def brokers(self) -> Any:
        return self._per_body([part.queue.broker for part in self._bodies])

    def bodies(self) -> Any:
        found = self.found
        if found.decoded is not None and found.decoded.bodies is not None:
            chosen = [found.decoded.bodies[number] for number in found.number.tolist()]
            ends = np.cumsum([0, *map(len, chosen)])
            # Of a single body not even a copy is made.
            return from_offsets(ends, b"".join(chosen))
        return gather_slices(found.data, found.body_start, found.body_end, pa.binary())

    def undecodable(self) -> Any:
        found = self.found
        if found.decoded is None:
            return pa.nulls(len(found), pa.string())
        return pa.array([found.decoded.reasons[n] for n in found.number.tolist()], pa.string())

    def explain(self, row: int) -> RemoteProtocolError:
        """Why a row is refused."""
        queue = self._bodies[int(self.found.source[row])].queue
        return RemoteProtocolError(
            f"topic {queue.topic}, broker {queue.broker}, queue {queue.id}, offset "
            f"{int(self.found.queue_offset[row])}: the body can't be decoded: "
            f"{self.undecodable()[row].as_py()}. Set onBadBody to raw to get it as it is stored, or "
            "to skip"
        )

    def _per_body(self, values: list[str]) -> Any:
        """A column that is constant within each body."""
        if len(set(values)) == 1:
            return pa.repeat(pa.scalar(values[0], pa.string()), len(self.found))
        return pa.array(values, pa.string()).take(pa.array(self.found.source))

    def message_ids(self) -> Any:
        assert self.table is not None
        unique = self.table.column(Property.UNIQ_KEY)
        if unique.null_count == 0:
            return unique
        return pc.coalesce(unique, _offset_ids(self.found))


_MAKERS: Final[dict[str, Callable[[_Columns], Any]]] = {
    "topic": _Columns.topics,
    "broker": _Columns.brokers,
    "body": _Columns.bodies,
    "undecodable": _Columns.undecodable,
    "messageId": _Columns.message_ids,
    "queueId": lambda columns: _numbers(columns.found.fixed["queue_id"], pa.int32()),
    "queueOffset": lambda columns: _numbers(columns.found.queue_offset, pa.int64()),
    "bornTimestamp": lambda columns: _moments(columns.found.fixed["born_ms"]),
    "storeTimestamp": lambda columns: _moments(columns.found.store_ms),
    "reconsumeTimes": lambda columns: _numbers(columns.found.reconsume_times, pa.int32()),
    "flag": lambda columns: _numbers(columns.found.fixed["flag"], pa.int32()),
}


def _numbers(values: Any, kind: pa.DataType) -> Any:
    # From the wire's byte order to this machine's.
    return pa.array(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")), kind)


def _moments(milliseconds: Any) -> Any:
    native = np.clip(milliseconds.astype(np.int64), FIRST_MS, LAST_MS)
    return pa.array(native * 1000, pa.int64()).view(TIMESTAMP)


def _offset_ids(found: Records) -> Any:
    """Ids made of the store host and the place in the commit log, for messages without one."""
    wide = (found.fixed["system_flag"] & SystemFlag.STORE_HOST_V6) != 0
    short = _hex_ids(found, found.store_host_start, 8)
    if not wide.any():
        return short
    # A record is long enough for the wide window, whichever host it has: 64 + 20 < 91.
    return pc.if_else(pa.array(wide), _hex_ids(found, found.store_host_start, 20), short)


def _hex_ids(found: Records, host_start: Int64s, width: int) -> Any:
    data = np.frombuffer(found.data, dtype=np.uint8)
    raw: Bytes = np.empty((len(found), width + 8), dtype=np.uint8)
    raw[:, :width] = window(data, width)[host_start]
    offsets = np.ascontiguousarray(found.fixed["physical_offset"])
    raw[:, width:] = offsets.view(np.uint8).reshape(len(found), 8)
    return from_matrix(hex_matrix(raw)).view(pa.string())
