"""Whole tables to topics and topics to tables, for those who have Arrow and no Spark."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from rocketwire.columns.client_parts import parts_of
from rocketwire.columns.decode import OnBadBody, RecordDecoder
from rocketwire.columns.deliver import DeliveryReport
from rocketwire.columns.encode import Encoded, Single, first_bad_row
from rocketwire.columns.fetch import FetchPolicy, QueueSpan, fetch_spans
from rocketwire.columns.property_columns import Included
from rocketwire.columns.row_ids import NumberedIds
from rocketwire.columns.rows import BadRows
from rocketwire.columns.schema import check_written_schema, select_columns
from rocketwire.columns.writer import TableWriter
from rocketwire.core.reading.expected import Expected, check_expected, complete_queues
from rocketwire.core.reading.pull import tag_filter
from rocketwire.core.reading.topics import Position, resolve
from rocketwire.core.side_by_side import run_together
from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.sync.producer import Producer
from rocketwire.sync.reader import Reader

OnBadRow = Literal["fail", "drop"]


@dataclass(frozen=True, slots=True)
class TableSent:
    """What became of a table.

    ``bad_rows`` says why rows were left out, by their index; ``may_repeat`` counts rows that may
    be in the topic twice, because an answer was lost and they were sent again.
    """

    rows: int
    bytes: int
    retries: int
    may_repeat: int
    by_broker: Mapping[str, int]
    bad_rows: Mapping[int, str]


def send_table(
    producer: Producer,
    table: Any,
    topic: str | None = None,
    *,
    on_bad_row: OnBadRow = "fail",
    stamp: str | bool = False,
    timeout: float = 120.0,
) -> TableSent:
    """Send every row of a table as a message, and wait for all answers.

    Rows with a ``shardingKey`` go to the queue that Java would choose, in order; all others go
    around brokers that are slow or dead.

    Args:
        producer: a running one.
        table: an Arrow table, record batch or reader, or anything that has Arrow's stream
            interface, such as a polars or pandas data frame.
        topic: where to; without it, the column ``topic`` says for each row.
        on_bad_row: ``fail`` before anything of the bad row's batch is sent, or ``drop`` it.
        stamp: give each row an identity (column ``rowId`` when read back) of this text and the
            row's index; True makes up a text.
        timeout: how long a row may be without an answer.

    Raises:
        ConfigError: a column is missing, unknown or of a wrong type.
        InvalidMessageError: a row can't be sent; it is named.
        SendFailedError: rows could not be delivered in time.
    """
    reader = as_batches(table)
    check_written_schema(reader.schema, topic_given=topic is not None)
    bad: BadRows = {}

    def take_bad_rows(encoded: Encoded) -> list[Single]:
        if on_bad_row == "fail":
            raise first_bad_row(encoded.bad, "the table")
        bad.update(encoded.bad)
        return []

    with TableWriter(
        producer,
        topic,
        row_ids=NumberedIds(_stamp(stamp)),
        timeout=timeout,
        on_bad_rows=take_bad_rows,
    ) as writer:
        for batch in reader:
            writer.write(batch)
        return _sent(writer.finish(), bad)


def _stamp(stamp: str | bool) -> str | None:  # noqa: FBT001 - as the user gave it
    if stamp is True:
        return f"{secrets.token_hex(8)}:"
    return stamp if isinstance(stamp, str) else None


def _sent(report: DeliveryReport, bad: BadRows) -> TableSent:
    return TableSent(
        rows=report.rows,
        bytes=report.bytes,
        retries=report.retries,
        may_repeat=report.may_repeat,
        by_broker=dict(report.by_broker),
        bad_rows=bad,
    )


def as_batches(table: Any) -> pa.RecordBatchReader:
    """Whatever holds columns, as a reader of record batches.

    Raises:
        ConfigError: it holds none.
    """
    if isinstance(table, pa.RecordBatchReader):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(table.schema, [table])
    if isinstance(table, pa.Table):
        return table.to_reader()
    if hasattr(table, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(table)
    if isinstance(table, Mapping):
        return pa.table(dict(table)).to_reader()
    raise ConfigError(
        f"table is a {type(table).__name__}: give an Arrow table, a data frame that Arrow "
        "understands, or a mapping of columns"
    )


def read_table(  # noqa: PLR0913 - each may be said of a read
    reader: Reader,
    topic: str | Sequence[MessageQueue],
    *,
    start: Position = "earliest",
    end: Position | None = None,
    columns: Iterable[str] | None = None,
    tags: str | None = None,
    properties: Included = "user",
    on_bad_body: OnBadBody = "raw",
    timeout: float = 120.0,
    expected_brokers: Expected | None = None,
) -> pa.Table:
    """The messages of a topic as an Arrow table; in order per queue.

    Args:
        reader: a running one.
        topic: a topic, or some of its queues.
        start: ``earliest``, ``latest``, an aware datetime, epoch seconds, or offsets by queue.
        end: where to stop, likewise; by default what is the end of each queue now.
        columns: which, in which order; all by default. What is left out is not decoded.
        tags: ``TagA || TagB``; all by default.
        properties: which properties the column of that name holds: ``user``, ``all``, ``none``.
        on_bad_body: what to do with a message whose body can't be decoded: give it as it is stored
            (``raw``; the column ``undecodable``, if it is asked for, says why), ``fail``, or
            ``skip`` it.
        timeout: how long reading may go without progress.
        expected_brokers: names of the topic's brokers, or how many there are; one that is missing is
            an error. Without it, those that the reader saw minutes ago count.

    Raises:
        MissingQueuesError: a broker that the topic is known to have is missing.
        DataLossError: messages vanished while they were read.
    """
    batches = read_batches(
        reader, topic, start=start, end=end, columns=columns, tags=tags, properties=properties,
        on_bad_body=on_bad_body, timeout=timeout, expected_brokers=expected_brokers,
    )  # fmt: skip
    return batches.read_all()


def read_batches(  # noqa: PLR0913 - as above
    reader: Reader,
    topic: str | Sequence[MessageQueue],
    *,
    start: Position = "earliest",
    end: Position | None = None,
    columns: Iterable[str] | None = None,
    tags: str | None = None,
    properties: Included = "user",
    on_bad_body: OnBadBody = "raw",
    timeout: float = 120.0,
    expected_brokers: Expected | None = None,
) -> pa.RecordBatchReader:
    """Like `read_table`, batch by batch, for topics larger than memory."""
    chosen = tag_filter(tags)
    decoder = RecordDecoder(
        select_columns(columns),
        properties=properties,
        tags=chosen.tags or None,
        on_bad_body=on_bad_body,
    )
    group = reader._config.group  # noqa: SLF001 - brokers should see the reader's own group
    policy = FetchPolicy(timeout=timeout, tags=chosen, group=group)
    queues = _queues(reader, topic, expected_brokers)
    spans = _resolve(reader, queues, start, end, group)
    bodies = fetch_spans(parts_of(reader), spans, policy)
    return pa.RecordBatchReader.from_batches(decoder.schema, decoder.decode(bodies))


def _queues(
    reader: Reader, topic: str | Sequence[MessageQueue], expected: Expected | None
) -> list[MessageQueue]:
    if not isinstance(topic, str):
        return list(topic)
    parts, wanted = parts_of(reader), check_expected(expected)
    deadline = parts.clock() + parts.request_timeout
    return list(parts.run(complete_queues(parts.instance, topic, deadline, wanted)))


def _resolve(
    reader: Reader,
    queues: list[MessageQueue],
    start: Position,
    end: Position | None,
    group: str,
) -> Iterator[QueueSpan]:
    parts = parts_of(reader)
    deadline = parts.clock() + parts.request_timeout
    places: dict[tuple[MessageQueue, bool], int] = {}

    def find(queue: MessageQueue, position: Position, *, is_end: bool) -> Any:
        places[queue, is_end] = yield from resolve(parts.instance, queue, position, group, deadline)

    asked = [find(queue, start, is_end=False) for queue in queues]
    asked += [find(queue, "latest" if end is None else end, is_end=True) for queue in queues]
    parts.run(run_together(asked))
    for queue in queues:
        yield QueueSpan(queue, places[queue, False], places[queue, True])


__all__ = [
    "TableSent",
    "as_batches",
    "read_batches",
    "read_table",
    "send_table",
]
