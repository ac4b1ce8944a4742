"""Writing: in tasks, and the end of a job or a micro-batch on the driver."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rocketwire.errors import ConfigError
from rocketwire.spark.client import producer_for
from rocketwire.spark.option_names import in_option_words
from rocketwire.spark.options import ClientOptions, WriteOptions
from rocketwire.spark.settled_worker import settle
from rocketwire.spark.spark_api import (
    HAS_ARROW_STREAM_WRITER,
    DataSourceStreamArrowWriter,
    arrow_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rocketwire.columns.row_ids import RowIds

_log = logging.getLogger("rocketwire.spark")

#: Digits of a query's id that go into row ids: 15 random ones tell queries of one topic apart.
_QUERY_DIGITS: Final = 16
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class Delivered(WriterCommitMessage):
    """What one task wrote. Travels to the driver."""

    partition: int
    rows: int = 0
    bytes: int = 0
    bad_rows: int = 0
    retries: int = 0
    may_repeat: int = 0
    by_broker: dict[str, int] = field(default_factory=dict)


def stream_stamp(query: str, batch: str, partition: int) -> str:
    """What the row ids of a task of a stream begin with."""
    return f"{query.replace('-', '')[:_QUERY_DIGITS]}:{batch}:{partition}:"


def write_partition(
    client: ClientOptions,
    options: WriteOptions,
    batches: Iterator[pa.RecordBatch],
    stamp: str,
    partition: int,
) -> Delivered:
    """Send the rows of one task and wait for every answer; runs on an executor.

    Raises:
        InvalidMessageError: a row is bad; it names partition and row.
        SendFailedError: rows could not be delivered in time.
    """
    with in_option_words():
        return _write_partition(client, options, batches, stamp, partition)


def _write_partition(
    client: ClientOptions,
    options: WriteOptions,
    batches: Iterator[pa.RecordBatch],
    stamp: str,
    partition: int,
) -> Delivered:
    # Only tasks need what encodes; planners and commits do not wait for it.
    from rocketwire.columns.writer import TableWriter
    from rocketwire.spark.bad_rows import BadRowHandling, check_batch

    producer = producer_for(client)
    bad = BadRowHandling(options, partition)
    with TableWriter(
        producer,
        options.topic,
        row_ids=row_ids_of(options, stamp),
        timeout=options.delivery_timeout,
        on_bad_rows=bad.take,
    ) as writer:
        for batch in batches:
            check_batch(batch, options)
            writer.write(batch)
        report = writer.finish()
    settle()
    letters = bad.count if options.on_bad_row == "deadletter" else 0
    rows = report.rows - letters
    return Delivered(
        partition=partition,
        rows=rows,
        bytes=report.bytes,
        bad_rows=bad.count,
        retries=report.retries,
        # What attempts before this one have sent is not known: any of the rows may be there already.
        may_repeat=report.may_repeat if _is_first_attempt() else rows,
        by_broker=dict(report.by_broker),
    )


def row_ids_of(options: WriteOptions, stamp: str) -> RowIds:
    """How the rows of a task get their ids."""
    from rocketwire.columns.row_ids import ContentIds, NoIds

    if options.stamp_rows == "false":
        return NoIds()
    return ContentIds(stamp, keeps_own=options.stamp_rows == "inherit")


def _is_first_attempt() -> bool:
    context = TaskContext.get()
    return context is None or context.attemptNumber() == 0


def summary_of(
    messages: Sequence[WriterCommitMessage | None], options: WriteOptions, **more: Any
) -> dict[str, Any]:
    """One line about a job: what its tasks wrote, together."""
    parts = [message for message in messages if isinstance(message, Delivered)]
    brokers: Counter[str] = Counter()
    for part in parts:
        brokers.update(part.by_broker)
    return {
        "time": time.time(),
        "topic": options.topic,
        **more,
        "partitions": len(messages),
        "rows": sum(part.rows for part in parts),
        "bytes": sum(part.bytes for part in parts),
        "brokers": dict(sorted(brokers.items())),
        "badRows": sum(part.bad_rows for part in parts),
        "retries": sum(part.retries for part in parts),
        "repeatsPossible": sum(part.may_repeat for part in parts),
    }


def check_summary_file(options: WriteOptions) -> None:
    """Refuse a file that can't be written, before any row is sent.

    Raises:
        ConfigError: it can't.
    """
    if options.summary_file is None:
        return
    path = Path(options.summary_file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise ConfigError(
            f"option summaryFile: {path} can't be written: {error.strerror or error}"
        ) from None


def _committed(summary: dict[str, Any], options: WriteOptions) -> None:
    line = json.dumps(summary)
    _log.info("written: %s", line)
    if options.summary_file is not None:
        with Path(options.summary_file).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _aborted(messages: Sequence[WriterCommitMessage | None], options: WriteOptions) -> None:
    # Whatever happens here would hide the cause of the failure from the user.
    try:
        summary = summary_of(messages, options)
        _log.warning(
            "the write was aborted; at least %d rows were acknowledged and stay in the topic",
            summary["rows"],
        )
    except Exception:  # noqa: BLE001
        _log.exception("the write was aborted")


class RocketMQWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, client: ClientOptions, options: WriteOptions, write_id: str) -> None:
        self._client = client
        self._options = options
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """The rows of one task."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        stamp = f"{self._write_id}:{partition}:"
        return write_partition(self._client, self._options, iterator, stamp, partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        _committed(summary_of(messages, self._options, writeId=self._write_id), self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed for good."""
        _aborted(messages, self._options)


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, client: ClientOptions, options: WriteOptions, schema: StructType) -> None:
        self._client = client
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> Delivered:
        """The rows of one task of a micro-batch: record batches, or single rows on PySpark 4.0."""
        if not HAS_ARROW_STREAM_WRITER:
            from rocketwire.spark.gathered_rows import gather

            iterator = gather(iterator, arrow_schema(self._schema))
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        stamp = stream_stamp(query or "query", batch or "0", partition)
        return write_partition(self._client, self._options, iterator, stamp, partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are done; may come twice for one batch."""
        _committed(summary_of(messages, self._options, batch=batchId), self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A task of a micro-batch failed for good."""
        _aborted(messages, self._options)
