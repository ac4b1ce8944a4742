"""Python data sources to measure ours by: the least that one can do, and the plain way by rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from rocketwire.columns.decode import RecordDecoder
from rocketwire.columns.record_starts import PullBody
from rocketwire.columns.schema import select_columns
from rocketwire.message import MessageQueue
from rocketwire.spark.schema import read_schema

QUEUES = 2
MICRO_BATCH = 100
ENDLESS = 10**9


class CountingSource(DataSource):
    """The least that an Arrow source and sink can do."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> Any:
        return read_schema(self._columns())

    def _columns(self) -> list[str] | None:
        text = self.options.get("columns")
        return text.split(",") if text else None

    def writer(self, schema: Any, overwrite: bool) -> CountingWriter:
        return CountingWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> CountingStreamWriter:
        return CountingStreamWriter()

    def reader(self, schema: Any) -> PrebuiltReader:
        return PrebuiltReader(int(self.options["rows"]), self._columns())

    def streamReader(self, schema: Any) -> SmallStream:
        batches = int(self.options.get("batches", ENDLESS))
        return SmallStream(int(self.options.get("rows", "0")), self._columns(), batches)


class CountingWriter(DataSourceArrowWriter):
    """Counts rows."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for batch in iterator:
            _ = batch.num_rows
        return WriterCommitMessage()


class CountingStreamWriter(DataSourceStreamArrowWriter):
    """Counts rows of micro-batches."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for batch in iterator:
            _ = batch.num_rows
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - the name that Spark uses
        """Nothing to do."""

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803 - the name that Spark uses
        """Nothing to do."""


def prebuilt(columns: list[str] | None, rows: int) -> Any:
    """A batch as our source makes it; a worker makes it once."""
    return _prebuilt(tuple(columns) if columns else None, rows)


@cache
def _prebuilt(columns: tuple[str, ...] | None, rows: int) -> Any:
    from bench.pull_server import Stock

    decoder = RecordDecoder(select_columns(columns))
    body = Stock(0, rows).take(0, rows)
    (batch,) = decoder.decode([PullBody(MessageQueue("bench", "b", 0), body)])
    return batch


class PrebuiltReader(DataSourceReader):
    """Yields one batch again and again."""

    def __init__(self, rows: int, columns: list[str] | None) -> None:
        self._rows, self._columns = rows, columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(QUEUES)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = prebuilt(self._columns, 10_000)
        for _ in range(self._rows // QUEUES // batch.num_rows):
            yield batch


class SmallStream(DataSourceStreamReader):
    """So many rows a batch, perhaps none, from one task: the floor of any Python source."""

    def __init__(self, rows: int, columns: list[str] | None, batches: int) -> None:
        self._rows, self._columns, self._batches = rows, columns, batches

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: Any = None
    ) -> dict[str, int]:
        return {"n": min((start or {"n": 0})["n"] + 1, self._batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter([prebuilt(self._columns, self._rows)] if self._rows else [])


class RowSource(DataSource):
    """The plain way to read: a message, a tuple, a row."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return "keys string, body binary"

    def reader(self, schema: Any) -> RowReader:
        return RowReader(self.options["nameservers"], int(self.options["rows"]))


class RowReader(DataSourceReader):
    """Reads so many messages of each queue, one by one."""

    def __init__(self, name_server: str, rows: int) -> None:
        self._name_server, self._rows = name_server, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(QUEUES)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str | None, bytes]]:
        from rocketwire.sync.reader import Reader

        left = self._rows // QUEUES
        with Reader(self._name_server) as reader:
            queue = reader.queues("bench")[partition.value]
            for message in reader.read(queue, end={queue: left}):
                yield message.keys, message.body
