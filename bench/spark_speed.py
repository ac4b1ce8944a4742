"""Spark: our source and sink beside the fastest that a Python one can be, in one session.

``python -m bench.spark_speed [--rows N] [--rounds N] [--without real]``. What is compared:

* writing cached rows to an acking server, beside an Arrow writer that only counts;
* reading into ``noop``, beside a reader that yields prebuilt Arrow batches of the same columns;
* both beside the plain row-by-row way (``foreachPartition`` with a producer, row tuples);
* micro-batches of 100 rows, beside those of an empty Python source or sink with as many tasks;
* CPU a million rows beside what Spark's Kafka connector took on this kind of machine;
* memory of the Python workers, also that of one that reads a queue of 2 M rows of 200 bytes or of
  200,000 rows of 10 kB as one partition;
* ``read_table`` beside Java's pull loop on a real broker (``bench.pull_race``).

CPU is that of the JVM and all Python workers, not of the servers. Ends with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import pull_race
from bench import pull_server as pulls
from bench.acker import acker
from bench.spark_processes import cpu_of_children, forget_peaks, leave_out, peak_of_workers
from bench.spark_sources import MICRO_BATCH, QUEUES
from rocketwire.message import Message
from rocketwire.spark import register, session

ROOT = Path(__file__).parents[1]
PER_PULL = 1000
#: As many columns, and of like kinds, as Spark's Kafka source has.
LIKE_KAFKA = "keys,body,topic,queueId,queueOffset,storeTimestamp,flag"
#: Micro-batches of one query that count, and queries of each kind, which take turns: what Spark
#: itself does in a batch differs from minute to minute by more than what is measured.
MICRO_BATCHES = 15
MICRO_ROUNDS = 4


@dataclass(frozen=True)
class Line:
    """One demand: a figure, and the bound that it must keep."""

    what: str
    figure: float
    least: float | None = None
    most: float | None = None
    unit: str = ""

    @property
    def is_held(self) -> bool:
        return (self.least is None or self.figure >= self.least) and (
            self.most is None or self.figure <= self.most
        )

    def __str__(self) -> str:
        bound = f"at least {self.least}" if self.least is not None else f"at most {self.most}"
        word = "held" if self.is_held else "MISSED"
        return f"{self.what:52} {self.figure:8.2f} {self.unit:4} ({bound}) {word}"


@contextmanager
def pull_server(
    rows: int, per_pull: int = PER_PULL, *, queues: int = QUEUES, size: int = 200
) -> Iterator[str]:
    with pulls.pull_server(rows // queues, per_pull, queues=queues, size=size) as server:
        leave_out(server.pid)
        yield server.name_server


def measure(work: Callable[[], Any], rows: int) -> dict[str, float]:
    """Rows a second, and CPU seconds a million rows."""
    cpu, began = cpu_of_children(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return {"rate": rows / seconds, "cpu": (cpu_of_children() - cpu) / rows * 1e6}


def rounds(jobs: dict[str, Callable[[], Any]], rows: int, count: int) -> dict[str, Any]:
    """All jobs in turn, several times; the median of each, and the largest worker."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()  # warm
    for _ in range(count):
        for name, job in jobs.items():
            forget_peaks()
            found[name].append(measure(job, rows) | {"memory": peak_of_workers()})
    return {
        name: {key: median(one[key] for one in seen) for key in ("rate", "cpu")}
        | {"memory": max(one["memory"] for one in seen)}
        for name, seen in found.items()
    }


# -- writing ------------------------------------------------------------------------------------


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


def cached_rows(spark: Any, rows: int) -> Any:
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "cast(repeat('x', 200) AS binary) AS body", "concat('order-', lpad(id, 9, '0')) AS keys"
    )
    frame = frame.cache()
    frame.count()
    return frame


def writing(spark: Any, rows: int, count: int) -> dict[str, Any]:
    frame = cached_rows(spark, rows)
    with acker(brokers=2, queues=4) as server:
        leave_out(server.pid)
        options = {"nameServers": server.name_server, "topic": "bench"}

        def save(kind: str, **more: str) -> Callable[[], None]:
            return lambda: frame.write.format(kind).options(**options, **more).mode("append").save()

        jobs = {
            "write: counting": save("counting"),
            "write: rocketmq": save("rocketmq"),
            "write: rocketmq, stampRows=false": save("rocketmq", stampRows="false"),
        }
        found = rounds(jobs, rows, count)
    frame.unpersist()
    return found


# -- reading ------------------------------------------------------------------------------------


def to_noop(spark: Any, kind: str, **options: str) -> Callable[[], None]:
    def run() -> None:
        frame = spark.read.format(kind).options(**options).load()
        frame.write.format("noop").mode("overwrite").save()

    return run


def reading(spark: Any, rows: int, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with pull_server(rows) as name_server:
        where = {"nameServers": name_server, "topic": "bench"}
        for what, columns in (("keys, body", "keys,body"), ("all", None), ("seven", LIKE_KAFKA)):
            more = {"columns": columns} if columns else {}
            jobs = {
                f"read: prebuilt, {what}": to_noop(spark, "counting", rows=str(rows), **more),
                f"read: rocketmq, {what}": to_noop(spark, "rocketmq", **where, **more),
            }
            found |= rounds(jobs, rows, count)
    return found


def whole_partitions(spark: Any, rows: int) -> dict[str, Any]:
    """A queue as one partition, of small bodies and of large ones: the memory of its worker.

    First, so that workers have no memory of other jobs.
    """
    found: dict[str, Any] = {}
    for size, count, per_pull in ((200, rows, PER_PULL), (10_000, rows // 10, 100)):
        with pull_server(count, per_pull, queues=1, size=size) as name_server:
            read = to_noop(spark, "rocketmq", nameServers=name_server, topic="bench")
            forget_peaks()
            figures = measure(read, count) | {"memory": peak_of_workers()}
            found[f"read: rocketmq, partition of {count * size / 1e6:,.0f} MB"] = figures
    return found


def by_rows(spark: Any, rows: int) -> dict[str, Any]:
    """The plain way, on a tenth of the rows.

    Last, because workers keep the memory that this takes, and others would be blamed for it.
    """
    found: dict[str, Any] = {}
    frame = cached_rows(spark, rows)
    with acker(brokers=2, queues=4) as server:
        leave_out(server.pid)
        send = send_rows(server.name_server)
        found["write: foreachPartition"] = measure(lambda: frame.foreachPartition(send), rows)
    frame.unpersist()
    with pull_server(rows) as name_server:
        read = to_noop(spark, "rows", nameServers=name_server, rows=str(rows))
        found["read: row tuples"] = measure(read, rows)
    return found


# -- micro-batches ------------------------------------------------------------------------------


def batch_times(reader: Any, writer: Callable[[Any], Any], folder: str) -> list[float]:
    """Milliseconds of micro-batches, without the first few."""
    query = writer(reader.load().writeStream).option("checkpointLocation", folder).start()
    try:
        seen: dict[int, float] = {}
        while len(seen) < MICRO_BATCHES:
            if (error := query.exception()) is not None:
                raise error
            for progress in query.recentProgress:
                if progress["batchId"] >= 5:
                    seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            time.sleep(0.2)
    finally:
        query.stop()
    return list(seen.values())


def micro_batches(spark: Any, folder: str) -> dict[str, float]:
    """Milliseconds by what is measured."""
    names = iter(range(100))

    def run(reader: Any, sink: str, **options: str) -> list[float]:
        place = str(Path(folder) / f"checkpoint-{next(names)}")
        return batch_times(reader, lambda stream: stream.format(sink).options(**options), place)

    streams = spark.readStream.format
    found: defaultdict[str, list[float]] = defaultdict(list)
    with pull_server(10**6) as name_server, acker(brokers=2, queues=4) as server:
        leave_out(server.pid)
        ours = streams("rocketmq").options(
            nameServers=name_server, topic="bench", startingOffsets="earliest",
            maxOffsetsPerTrigger=str(MICRO_BATCH), columns="keys,body",
        )  # fmt: skip
        target = {"nameServers": server.name_server, "topic": "bench"}
        hundred = streams("counting").options(rows=str(MICRO_BATCH), columns="keys,body")
        empty = streams("counting").options(columns="keys,body")
        for _ in range(MICRO_ROUNDS):
            found["empty source"] += run(empty, "noop")
            found["our source"] += run(ours, "noop")
            found["empty sink"] += run(hundred, "counting")
            found["our sink"] += run(hundred, "rocketmq", **target)
    return {name: median(times) for name, times in found.items()}


# -- the whole ----------------------------------------------------------------------------------


def judge(found: dict[str, Any], batches: dict[str, float]) -> list[Line]:
    def ratio(ours: str, other: str) -> float:
        return float(found[ours]["rate"] / found[other]["rate"])

    written, read = "write: rocketmq", "read: rocketmq, keys, body"
    memory = max(
        figures.get("memory", 0.0) for name, figures in found.items() if "rocketmq" in name
    )
    return [
        Line("write / counting Arrow writer", ratio(written, "write: counting"), least=0.5),
        Line(
            "write, stampRows=false / counting Arrow writer",
            ratio(f"{written}, stampRows=false", "write: counting"),
            least=0.5,
        ),
        Line("read keys, body / prebuilt", ratio(read, "read: prebuilt, keys, body"), least=0.5),
        Line(
            "read all columns / prebuilt",
            ratio("read: rocketmq, all", "read: prebuilt, all"),
            least=0.5,
        ),
        Line("write / foreachPartition", ratio(written, "write: foreachPartition"), least=5),
        Line("read / row tuples", ratio(read, "read: row tuples"), least=5),
        Line(
            "micro-batch, our source over an empty one",
            batches["our source"] - batches["empty source"],
            most=60,
            unit="ms",
        ),
        Line(
            "micro-batch, our sink over an empty one",
            batches["our sink"] - batches["empty sink"],
            most=60,
            unit="ms",
        ),
        Line("CPU a million rows written", found[written]["cpu"], most=1.5, unit="s"),
        Line(
            "CPU a million rows read, seven columns",
            found["read: rocketmq, seven"]["cpu"],
            most=1.4,
            unit="s",
        ),
        Line("largest Python worker", memory, most=400, unit="MB"),
    ]


def in_spark(rows: int, count: int) -> list[Line]:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with tempfile.TemporaryDirectory() as folder:
        spark = session("bench", master="local[2]", memory="4g", config={"spark.local.dir": folder})
        register(spark)
        from bench.spark_sources import CountingSource, RowSource

        spark.dataSource.register(CountingSource)
        spark.dataSource.register(RowSource)
        found = whole_partitions(spark, rows)
        found |= writing(spark, rows, count) | reading(spark, rows, count)
        found |= by_rows(spark, rows // 10)
        batches = micro_batches(spark, folder)
        spark.stop()
    for name, figures in found.items():
        speed, cpu = f"{figures['rate']:>12,.0f} rows/s", f"{figures['cpu']:6.2f} s CPU a million"
        print(f"{name:36} {speed}  {cpu}  {figures.get('memory', 0.0):4.0f} MB")
    for name, milliseconds in batches.items():
        print(f"micro-batch, {name:23} {milliseconds:>12,.0f} ms")
    return judge(found, batches)


def on_a_real_broker(rows: int, count: int) -> list[Line]:
    rates = pull_race.race(rows, count)
    for name, rate in rates.items():
        print(f"{name:36} {rate:>12,.0f} messages/s")
    times = pull_race.verdict(rates)["read_table, keys and body"]
    return [Line("read_table / Java's better pull loop", times, least=pull_race.TARGET)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", choices=["real", "spark"], help="leave a part out")
    chosen = parser.parse_args()
    began = time.monotonic()
    lines: list[Line] = []
    if chosen.without != "spark":
        lines += in_spark(chosen.rows, chosen.rounds)
    if chosen.without != "real":
        lines += on_a_real_broker(chosen.rows // 2, chosen.rounds)
    print(f"\npython -m bench.spark_speed --rows {chosen.rows} --rounds {chosen.rounds}")
    for line in lines:
        print(line)
    print(json.dumps({line.what: round(line.figure, 2) for line in lines}))
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0 if all(line.is_held for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
