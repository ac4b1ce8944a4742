"""The part of publishing that runs in tasks: send the rows of one partition, and tell."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from rocketwire.errors import RocketMQError
from rocketwire.spark.options import ClientOptions, WriteOptions
from rocketwire.spark.writer import write_partition

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

FILE: Final = "__rocketwire_file"
START: Final = "__rocketwire_start"
SUM: Final = "__rocketwire_sum"
ORDER: Final = "__rocketwire_order"
RESULT_SCHEMA: Final = "result string"
_TICK: Final = 0.1

#: How rows fall into parts: by input file, by ordered partition, or all into one.
Parting = Literal["files", "ordered", "whole"]


class ResultLines(AccumulatorParam[list[str]]):
    """Collects what tasks tell as they end, while others still run."""

    def zero(self, value: list[str]) -> list[str]:
        """Nothing yet."""
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        """Put two collections together."""
        value1.extend(value2)
        return value1


def part_mark(part: str) -> str:
    """A part's name as it goes into row ids."""
    return hashlib.blake2s(part.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class PublishTask:
    """Everything that a task needs; travels to executors."""

    client: ClientOptions
    options: WriteOptions
    job: str
    parting: Parting
    partitions: int
    done: frozenset[str]
    rate: float | None
    told: Accumulator[list[str]] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the rows of one partition; yields one row that tells what became of them."""
        first = next(batches, None)
        while first is not None and first.num_rows == 0:
            first = next(batches, None)
        if first is None:
            return
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        part = self._part(first, partition)
        if part in self.done:
            return
        began = time.time()
        rows = _Rows(part, self, partition)
        stamp = f"{self.job}:{part_mark(part)}:"
        stream = _paced(rows.strip(itertools.chain([first], batches)), self.rate)
        delivered = write_partition(self.client, self.options, stream, stamp, partition)
        line = json.dumps(
            {
                "part": part,
                "mark": part_mark(part),
                "rows": delivered.rows,
                "bytes": delivered.bytes,
                "badRows": delivered.bad_rows,
                "retries": delivered.retries,
                "repeatsPossible": delivered.may_repeat,
                "brokers": delivered.by_broker,
                "checksum": None if delivered.bad_rows else rows.checksum,
                "seconds": time.time() - began,
            }
        )
        if self.told is not None:
            self.told.add([line])
        yield pa.record_batch({"result": [line]})

    def _part(self, batch: pa.RecordBatch, partition: int) -> str:
        if self.parting == "files":
            return f"{batch.column(FILE)[0].as_py()}@{batch.column(START)[0].as_py()}"
        if self.parting == "ordered":
            return f"ordered/{partition}/{self.partitions}"
        return f"whole/{partition}/{self.partitions}"


class _Rows:
    """Takes our own columns off the batches, and sums up what they say."""

    def __init__(self, part: str, task: PublishTask, partition: int) -> None:
        self._part = part
        self._task = task
        self._partition = partition
        self.checksum = 0

    def strip(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._check(batch)
            sums = batch.column(SUM).to_numpy(zero_copy_only=False).astype(np.int64)
            self.checksum = (self.checksum + int(sums.sum(dtype=np.int64))) % 2**64
            yield batch.drop_columns([n for n in (FILE, START, SUM) if n in batch.schema.names])

    def _check(self, batch: pa.RecordBatch) -> None:
        """A partition is one part by the way we make Spark cut files; if not, parts would lie."""
        if self._task.parting != "files" or batch.num_rows == 0:
            return
        for name in (FILE, START):
            column = batch.column(name)
            if column[0] != column[-1] or len(column.unique()) != 1:
                raise RocketMQError(
                    f"partition {self._partition} holds rows of several input files; "
                    "don't change spark.sql.files settings while it runs"
                )


def _paced(batches: Iterator[pa.RecordBatch], rate: float | None) -> Iterator[pa.RecordBatch]:
    """The same rows, no faster than so many a second."""
    if rate is None:
        yield from batches
        return
    began, sent = time.monotonic(), 0
    step = max(1, int(rate * _TICK))
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            early = began + sent / rate - time.monotonic()
            if early > 0:
                time.sleep(early)
            piece = batch.slice(start, step)
            sent += piece.num_rows
            yield piece


def decode_lines(lines: list[str]) -> list[dict[str, Any]]:
    """What tasks told."""
    return [json.loads(line) for line in lines]
