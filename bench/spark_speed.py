"""Spark: our source and sink beside the fastest that a Python one can be, in one session.

``python -m bench.spark_speed [--rows N] [--rounds N]``. What is compared:

* writing cached rows to an acking server, beside an Arrow writer that only counts;
* reading into ``noop``, beside a reader that yields prebuilt Arrow batches of the same columns;
* both beside the plain row-by-row way (``foreachPartition`` with a producer, row tuples);
* a micro-batch of 100 rows, beside one of an empty Python source.

CPU is that of the JVM and all Python workers, not of the servers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from bench.acker import acker
from rocketwire.columns.decode import RecordDecoder
from rocketwire.columns.schema import select_columns
from rocketwire.columns.walk import PullBody
from rocketwire.message import Message, MessageQueue
from rocketwire.spark import register, session
from rocketwire.spark.schema import read_schema

ROOT = Path(__file__).parents[1]
QUEUES = 2
PER_PULL = 1000


class CountingSource(DataSource):
    """The least that an Arrow writer and reader can do."""

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

    def reader(self, schema: Any) -> PrebuiltReader:
        return PrebuiltReader(int(self.options["rows"]), self._columns())

    def streamReader(self, schema: Any) -> EmptyStream:
        return EmptyStream()


class CountingWriter(DataSourceArrowWriter):
    """Counts rows."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for batch in iterator:
            _ = batch.num_rows
        return WriterCommitMessage()


class PrebuiltReader(DataSourceReader):
    """Yields one batch again and again."""

    def __init__(self, rows: int, columns: list[str] | None) -> None:
        self._rows, self._columns = rows, columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(QUEUES)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from bench.pull_server import Stock

        queue = MessageQueue("bench", "b", 0)
        decoder = RecordDecoder(select_columns(self._columns))
        body = Stock(0, 10_000).take(0, 10_000)
        (batch,) = decoder.decode([PullBody(queue, body)])
        for _ in range(self._rows // QUEUES // batch.num_rows):
            yield batch


class EmptyStream(DataSourceStreamReader):
    """One row a batch, from one task: the floor of any Python source."""

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: Any = None
    ) -> dict[str, int]:
        return {"n": (start or {"n": 0})["n"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter([])


def cpu_of_children() -> float:
    """Seconds of CPU of all processes below this one, living and ended."""
    tick = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(path.name)] = int(fields[1])
            times[int(path.name)] = sum(int(value) for value in fields[11:15]) / tick
    total = 0.0
    for pid, seconds in times.items():
        above = pid
        while above in parents and above != os.getpid():
            if above in _SERVERS:
                break
            above = parents[above]
        else:
            total += seconds if above == os.getpid() and pid != os.getpid() else 0.0
    return total


_SERVERS: set[int] = set()


@contextmanager
def pull_server(rows: int, per_pull: int = PER_PULL) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.pull_server", str(QUEUES), str(rows // QUEUES), str(per_pull)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    _SERVERS.add(process.pid)
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().split()[1]}"
    finally:
        process.kill()
        process.wait()


def measure(work: Callable[[], Any], rows: int) -> tuple[float, float]:
    """Rows a second, and CPU seconds a million rows."""
    cpu, began = cpu_of_children(), time.perf_counter()
    work()
    return rows / (time.perf_counter() - began), (cpu_of_children() - cpu) / rows * 1e6


def rounds(jobs: dict[str, Callable[[], Any]], rows: int, count: int) -> dict[str, Any]:
    """All jobs in turn, several times; the median of each."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()  # warm
    for _ in range(count):
        for name, job in jobs.items():
            found[name].append(measure(job, rows))
    return {
        name: {
            "rows_a_second": round(median(r for r, _ in seen)),
            "cpu_a_million": round(median(c for _, c in seen), 2),
        }
        for name, seen in found.items()
    }


def send_rows(name_server: str) -> Callable[[Iterator[Any]], None]:
    def send(rows: Iterator[Any]) -> None:
        from rocketwire.sync.producer import Producer

        with Producer(name_server, group="rows") as producer:
            waiting = []
            for row in rows:
                waiting.append(Message("bench", bytes(row.body), keys=row.keys))
                if len(waiting) == 500:
                    producer.send(waiting)
                    waiting = []
            if waiting:
                producer.send(waiting)

    return send


def writing(spark: Any, rows: int, count: int) -> dict[str, Any]:
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "cast(repeat('x', 200) AS binary) AS body", "concat('order-', lpad(id, 9, '0')) AS keys"
    )
    frame = frame.cache()
    frame.count()
    with acker(brokers=2, queues=4) as server:
        _SERVERS.add(server.pid)
        options = {"nameServers": server.name_server, "topic": "bench"}

        def save(kind: str, **more: str) -> Callable[[], None]:
            return lambda: frame.write.format(kind).options(**options, **more).mode("append").save()

        jobs = {
            "counting": save("counting"),
            "rocketmq": save("rocketmq"),
            "rocketmq, stampRows=false": save("rocketmq", stampRows="false"),
        }
        found = rounds(jobs, rows, count)
        few = frame.limit(rows // 10).repartition(2).cache()
        few.count()
        speed, cpu = measure(
            lambda: few.foreachPartition(send_rows(server.name_server)), rows // 10
        )
        found["foreachPartition"] = {"rows_a_second": round(speed), "cpu_a_million": round(cpu, 2)}
    frame.unpersist()
    return found


def reading(spark: Any, rows: int, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with pull_server(rows) as name_server:
        for what, columns in (("keys,body", "keys,body"), ("all columns", None)):
            more = {"columns": columns} if columns else {}

            def load(kind: str, more: dict[str, str] = more, **options: str) -> Callable[[], None]:
                def run() -> None:
                    frame = spark.read.format(kind).options(**more, **options).load()
                    frame.write.format("noop").mode("overwrite").save()

                return run

            jobs = {
                f"prebuilt, {what}": load("counting", rows=str(rows)),
                f"rocketmq, {what}": load("rocketmq", nameServers=name_server, topic="bench"),
            }
            found |= rounds(jobs, rows, count)
    return found


def ratios(found: dict[str, Any]) -> dict[str, float]:
    def rate(name: str) -> float:
        return float(found[name]["rows_a_second"])

    return {
        "write / counting": rate("rocketmq") / rate("counting"),
        "write unstamped / counting": rate("rocketmq, stampRows=false") / rate("counting"),
        "write / foreachPartition": rate("rocketmq") / rate("foreachPartition"),
        "read keys,body / prebuilt": rate("rocketmq, keys,body") / rate("prebuilt, keys,body"),
        "read all / prebuilt": rate("rocketmq, all columns") / rate("prebuilt, all columns"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with tempfile.TemporaryDirectory() as folder:
        spark = session("bench", master="local[2]", memory="4g", config={"spark.local.dir": folder})
        register(spark)
        from bench.spark_speed import CountingSource as ByReference

        spark.dataSource.register(ByReference)
        found = writing(spark, chosen.rows, chosen.rounds) | reading(
            spark, chosen.rows, chosen.rounds
        )
        spark.stop()
    for name, figures in found.items():
        print(
            f"{name:28} {figures['rows_a_second']:>12,} rows/s  {figures['cpu_a_million']:6.2f} s CPU a million"
        )
    shown = {name: round(value, 2) for name, value in ratios(found).items()}
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
