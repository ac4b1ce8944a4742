"""All paths of both sides in one Spark, in turn, measured."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

from bench.kafka_sides import Side, numbered
from bench.kafka_verdict import NOTHING, Sample, SmallSample
from bench.spark_processes import cpu_by_kind

QUEUES: Final = 4
TRIGGERS: Final = 5
FILES: Final = 10
SMALL: Final = 100
#: Small micro-batches of one query: all that there are, so that it has nothing to do when it is
#: stopped. The first few do not count.
SMALL_BATCHES: Final = 20
SMALL_SKIPPED: Final = 5
CASES: Final = {
    "write": "batch write, 4 partitions",
    "noop": "batch read to noop",
    "parquet": "batch read to Parquet",
    "stream": "stream read, 5 triggers",
    "files": "stream write from 10 files",
}
SMALL_READ, SMALL_WRITE = "100 rows a trigger, read", "100 rows a trigger, write"


class Topics(Protocol):
    """What a contest needs of the brokers."""

    def make(self, name: str) -> None:
        """Make a topic on both."""
        ...

    def settle(self, name: str) -> None:
        """Wait until both let all be read that they stored."""
        ...

    def cpu(self, side: str) -> float:
        """Seconds of CPU that the broker of a side has taken."""
        ...


class Contest:
    """Both sides in one Spark."""

    def __init__(self, spark: Any, sides: Sequence[Side], topics: Topics, folder: Path) -> None:
        self._spark = spark
        self._sides = sides
        self._topics = topics
        self._folder = folder
        self._names = iter(range(10**6))
        self.samples: list[Sample] = []
        self.small: list[SmallSample] = []

    def run(self, body: int, rows: int, rounds: int, cases: Sequence[str]) -> None:
        """All cases with bodies of one size."""
        frames: dict[str, Any] = {}
        for side in self._sides:
            frame = side.shaped(numbered(self._spark, rows, body, QUEUES)).cache()
            frames[side.name] = frame
            frame.count()
            if "files" in cases:
                frame.repartition(FILES).write.mode("overwrite").parquet(self._files(side))
        self._warm(frames, body, min(rows, 100_000), cases)
        for number in range(rounds):
            order = self._sides if number % 2 == 0 else self._sides[::-1]
            self._round(frames, body, rows, order, cases)
        for frame in frames.values():
            frame.unpersist()

    def _files(self, side: Side) -> str:
        return str(self._folder / f"files-{side.format}")

    def _topic(self) -> str:
        name = f"beside-{next(self._names)}"
        self._topics.make(name)
        return name

    def _warm(self, frames: dict[str, Any], body: int, rows: int, cases: Sequence[str]) -> None:
        """Compilers and workers see each path, twice, before it counts."""
        for _ in range(2):
            topic = self._topic()
            for side in self._sides:
                self._write(side, frames[side.name].limit(rows), topic)
                self._topics.settle(topic)
                self._to_noop(side, topic)
                if "stream" in cases:
                    self._stream(side, topic, rows)

    def _round(
        self,
        frames: dict[str, Any],
        body: int,
        rows: int,
        order: Sequence[Side],
        cases: Sequence[str],
    ) -> None:
        topic, target = self._topic(), self._topic()
        parquet = str(self._folder / "out.parquet")
        jobs: dict[str, Callable[[Side], object]] = {
            "write": lambda side: self._write(side, frames[side.name], topic),
            "noop": lambda side: self._to_noop(side, topic),
            "parquet": lambda side: (
                self._read(side, topic).write.mode("overwrite").parquet(parquet)
            ),
            "stream": lambda side: self._stream(side, topic, rows),
            "files": lambda side: self._from_files(side, target, rows),
        }
        for word, job in jobs.items():
            for side in order:
                if word in cases:
                    self._measure(word, body, rows, side, job)
                elif word == "write":
                    job(side)  # what the others read
            if word in {"write", "files"}:
                self._topics.settle(topic if word == "write" else target)
        for side in order:
            self._check(side, frames[side.name], topic)
            if "files" in cases:
                self._check(side, frames[side.name], target)

    def _measure(
        self, word: str, body: int, rows: int, side: Side, job: Callable[[Side], object]
    ) -> None:
        time.sleep(0.5)  # what the last one left to do is done
        served, before, began = self._topics.cpu(side.name), cpu_by_kind(), time.perf_counter()
        job(side)
        seconds, cpu = time.perf_counter() - began, cpu_by_kind() - before
        served = self._topics.cpu(side.name) - served
        sample = Sample(CASES[word], body, side.name, rows, seconds, cpu.jvm, cpu.workers, served)
        self.samples.append(sample)
        print(
            f"{sample.case:28} {body:5} B {side.name:11} {sample.rate:>11,.0f} rows/s "
            f"{sample.cpu:6.2f} s CPU a million ({cpu.workers / rows * 1e6:.2f} in Python), "
            f"broker {served / rows * 1e6:.2f}",
            flush=True,
        )

    def _check(self, side: Side, frame: Any, topic: str) -> None:
        """Whether what is in a topic is what was written.

        Raises:
            RuntimeError: it is not.
        """
        written = tuple(side.checksum(frame).first())
        found = tuple(side.checksum(self._load(side, topic)).first())
        if found != written:
            raise RuntimeError(f"{side.name}, topic {topic}: {found} was read, {written} written")

    # -- the paths ------------------------------------------------------------------------------

    def _write(self, side: Side, frame: Any, topic: str) -> None:
        frame.write.format(side.format).options(**side.options(topic)).mode("append").save()

    def _load(self, side: Side, topic: str) -> Any:
        return self._spark.read.format(side.format).options(**side.source(topic)).load()

    def _read(self, side: Side, topic: str) -> Any:
        return side.wanted(self._load(side, topic))

    def _to_noop(self, side: Side, topic: str) -> None:
        self._read(side, topic).write.format("noop").mode("overwrite").save()

    def _stream(self, side: Side, topic: str, rows: int) -> None:
        source = self._spark.readStream.format(side.format).options(
            **side.source(topic), startingOffsets="earliest",
            maxOffsetsPerTrigger=str(rows // TRIGGERS),
        )  # fmt: skip
        self._drain(side.wanted(source.load()).writeStream.format("noop"), rows)

    def _from_files(self, side: Side, topic: str, rows: int) -> None:
        source = self._spark.readStream.schema(side.schema).option("maxFilesPerTrigger", 1)
        stream = source.parquet(self._files(side)).writeStream
        self._drain(stream.format(side.format).options(**side.options(topic)), rows)

    def _drain(self, writer: Any, rows: int) -> None:
        """Run a stream over all that there is.

        Raises:
            RuntimeError: it saw another number of rows.
        """
        place = str(self._folder / f"checkpoint-{next(self._names)}")
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        query.awaitTermination()
        seen = sum(progress["numInputRows"] for progress in query.recentProgress)
        shutil.rmtree(place, ignore_errors=True)
        if seen != rows:
            raise RuntimeError(f"a stream saw {seen} rows of {rows}")

    # -- small micro-batches --------------------------------------------------------------------

    def run_small(self, rounds: int) -> None:
        """100 rows a trigger, beside a Python source and sink that do nothing."""
        topic, target = self._topic(), self._topic()
        rows = SMALL * SMALL_BATCHES
        for side in self._sides:
            frame = side.shaped(numbered(self._spark, rows, 200, rows // SMALL))
            frame.write.mode("overwrite").parquet(self._files(side))
            self._write(side, frame.coalesce(1), topic)
        self._topics.settle(topic)
        ways: list[tuple[str, str, Callable[[], Any]]] = []
        for side in self._sides:
            ways.append((SMALL_READ, side.name, lambda side=side: self._small_read(side, topic)))
            ways.append((SMALL_WRITE, side.name, lambda side=side: self._small_write(side, target)))
        ways.append((SMALL_READ, NOTHING, self._read_nothing))
        ways.append((SMALL_WRITE, NOTHING, self._write_nothing))
        for number in range(rounds + 1):
            for case, name, start in ways:
                times = _batch_times(start(), self._folder / f"checkpoint-{next(self._names)}")
                if number:  # the first one warms up
                    self.small.append(SmallSample(case, name, times["triggerExecution"], times))
                    print(f"{case:28} {name:11} {times}", flush=True)

    def _small_read(self, side: Side, topic: str) -> Any:
        source = self._spark.readStream.format(side.format).options(
            **side.source(topic), startingOffsets="earliest", maxOffsetsPerTrigger=str(SMALL)
        )
        return side.wanted(source.load()).writeStream.format("noop")

    def _small_files(self, side: Side) -> Any:
        source = self._spark.readStream.schema(side.schema).option("maxFilesPerTrigger", 1)
        return source.parquet(self._files(side)).writeStream

    def _small_write(self, side: Side, topic: str) -> Any:
        return self._small_files(side).format(side.format).options(**side.options(topic))

    def _read_nothing(self) -> Any:
        source = self._spark.readStream.format("counting").options(
            rows=str(SMALL), batches=str(SMALL_BATCHES)
        )
        return self._sides[-1].wanted(source.load()).writeStream.format("noop")

    def _write_nothing(self) -> Any:
        return self._small_files(self._sides[-1]).format("counting")


def _batch_times(writer: Any, place: Path) -> dict[str, float]:
    """Median milliseconds of the parts of a micro-batch, the first few left out."""
    query = writer.option("checkpointLocation", str(place)).start()
    try:
        seen: dict[int, dict[str, float]] = {}
        while len(seen) < SMALL_BATCHES - SMALL_SKIPPED:
            if (error := query.exception()) is not None:
                raise error
            for progress in query.recentProgress:
                if progress["batchId"] >= SMALL_SKIPPED and progress["numInputRows"]:
                    seen[progress["batchId"]] = progress["durationMs"]
            time.sleep(0.1)
    finally:
        query.stop()
        shutil.rmtree(place, ignore_errors=True)
    names = sorted({name for parts in seen.values() for name in parts})
    return {name: median(parts.get(name, 0) for parts in seen.values()) for name in names}
