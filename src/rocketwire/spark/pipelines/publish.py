"""Publish a dataset: every row a message, every part acknowledged once."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.errors import ConfigError
from rocketwire.spark.client import Cluster, reader_for
from rocketwire.spark.completeness import Missing, describe_missing
from rocketwire.spark.offsets import flatten, nest
from rocketwire.spark.options import TopicChoice, write_options
from rocketwire.spark.pipelines.arrow_map import map_in_arrow
from rocketwire.spark.pipelines.connection import checked, source_options
from rocketwire.spark.pipelines.dataset import fingerprint, read_dataset
from rocketwire.spark.pipelines.mapping import MessageMapping
from rocketwire.spark.pipelines.missing import look
from rocketwire.spark.pipelines.publish_task import (
    FILE,
    ORDER,
    RESULT_SCHEMA,
    START,
    SUM,
    Parting,
    PublishTask,
    ResultLines,
    decode_lines,
)
from rocketwire.spark.pipelines.publish_verify import Verification, verify, wait_until_readable
from rocketwire.spark.pipelines.state import PublishState
from rocketwire.spark.schema import check_write
from rocketwire.spark.spark_api import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: One file is one task, unless it is larger than this.
_SPLIT_BYTES: Final = 64 * 1024 * 1024
_TICK: Final = 0.2


@dataclass(frozen=True, slots=True)
class PublishProgress:
    """How far a job is. Rows count when their part is done, and parts that were done before do not."""

    rows: int
    parts: int
    parts_in_all: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """The speed so far."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take if its parts are like the others; None as none is done."""
        if self.parts == 0:
            return None
        return self.seconds / self.parts * (self.parts_in_all - self.parts)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What a job did.

    ``rows`` and ``parts`` are those of this run; ``skipped`` parts were done before. ``sample``
    holds the first messages of a dry run.
    """

    rows: int = 0
    bytes: int = 0
    bad_rows: int = 0
    retries: int = 0
    may_repeat: int = 0
    parts: int = 0
    skipped: int = 0
    seconds: float = 0.0
    by_broker: Mapping[str, int] = field(default_factory=dict)
    job: str = ""
    verification: Verification | None = None
    #: Queues that the topic had when the job began and that can't be read now.
    missing: int = 0
    sample: tuple[dict[str, Any], ...] = ()


def publish(  # noqa: PLR0913 - each is one decision of the user
    spark: SparkSession,
    dataset: Any,
    topic: str | None = None,
    *,
    name_servers: str | Sequence[str] | None = None,
    body: str | None = None,
    key: str | None = None,
    tag: str | None = None,
    sharding_key: str | None = None,
    properties: Sequence[str] | Mapping[str, str] | None = None,
    topic_expression: str | None = None,
    order_by: str | None = None,
    rate: float | None = None,
    state: str | Path | None = None,
    verify_after: bool = False,
    dry_run: bool = False,
    format: str | None = None,  # noqa: A002 - Spark's word for it
    read_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    on_progress: Callable[[PublishProgress], None] | None = None,
) -> PublishResult:
    """Send every row of a dataset as a message.

    Args:
        spark: the session.
        dataset: a path of files, a table's name, or a data frame.
        topic: where to; or ``topic_expression`` for each row.
        name_servers: of the cluster.
        body: a column or SQL expression; the whole row as JSON by default.
        key: likewise, for the message's keys.
        tag: likewise, for its tag.
        sharding_key: likewise; messages of one key go to one queue.
        properties: names of columns, or expressions by property name.
        topic_expression: gives the topic of each row.
        order_by: with a sharding key: sort by this, over the whole dataset, so that messages of
            one key are sent in that order.
        rate: rows a second, all tasks together.
        state: a folder that remembers what was acknowledged; a restart goes on from there.
        verify_after: read the topic back and compare.
        dry_run: send nothing, and show the first ten messages.
        format: of the files, where their names do not tell.
        read_options: for Spark's reader of that format.
        options: of the data source ``rocketmq``, such as ``onBadRow`` or ``secretKey``.
        on_progress: called a few times a second.

    Raises:
        ConfigError: something is wrong with the arguments, the dataset, or the state.
    """
    mapping = MessageMapping(body, key, tag, sharding_key, properties, topic_expression, order_by)
    mapping.check(topic)
    if rate is not None and rate <= 0:
        raise ConfigError(f"rate is {rate}: rows a second, above zero")
    settings = source_options(name_servers, options)
    if topic is not None:
        settings["topic"] = topic
    frame = read_dataset(spark, dataset, format=format, options=read_options)
    messages = mapping.apply(frame)
    check_write(messages.drop(SUM, ORDER).schema, topic_given=topic is not None)
    if dry_run:
        return PublishResult(sample=_sample(messages))
    job = _Job(spark, frame, messages, mapping, settings, state)
    result = job.run(rate, on_progress)
    if not verify_after:
        return result
    return job.verified(result)


def _sample(messages: DataFrame) -> tuple[dict[str, Any], ...]:
    return tuple(
        row.asDict(recursive=True) for row in messages.drop(SUM, ORDER).limit(10).collect()
    )


class _Job:
    """One publishing job, from its plan to its result."""

    def __init__(
        self,
        spark: SparkSession,
        frame: DataFrame,
        messages: DataFrame,
        mapping: MessageMapping,
        settings: Mapping[str, str],
        state: str | Path | None,
    ) -> None:
        self._spark = spark
        self._frame = frame
        self._settings = dict(settings)
        self._client = checked(settings)
        self._options = write_options({k.lower(): v for k, v in settings.items()})
        files = _input_files(frame)
        self._parting: Parting = "whole"
        self._messages = messages
        if mapping.order_by is not None:
            self._parting = "ordered"
        elif files and (marked := _with_file(frame, mapping)) is not None:
            self._parting, self._messages = "files", marked
        described = {"topic": self._options.topic, **mapping.described()}
        described |= {"parting": self._parting, "stamp": self._options.stamp_rows != "false"}
        inputs = fingerprint(spark, files) if state is not None else {}
        self._state = PublishState.open(state, described, inputs)
        self._name: str = self._state.remember(
            "name", self._options.write_id or secrets.token_hex(8)
        )
        self._began: dict[str, Any] = self._state.remember("offsets", self._ends())
        if self._parting == "ordered":
            # The same keys must share a partition when the job goes on elsewhere.
            count = self._state.remember("partitions", _slots(spark))
            self._messages = mapping.in_order(messages, count)

    def _ends(self) -> dict[str, Any]:
        """Where the topic ends before the first row is sent, for the verification."""
        if self._options.topic is None:
            return {}
        cluster = Cluster(reader_for(self._client))
        queues = cluster.queues_of(self._options.topic)
        return nest(cluster.bounds(queues).end) if queues else {}

    def run(
        self, rate: float | None, on_progress: Callable[[PublishProgress], None] | None
    ) -> PublishResult:
        began = time.monotonic()
        done = frozenset(self._state.parts)
        if self._state.is_complete:
            return self._result([], len(done), 0.0)
        with _cut_by_file(self._spark):
            count, told = self._partitions(), None
            if not is_remote(self._spark):
                told = self._spark.sparkContext.accumulator([], ResultLines())
            task = PublishTask(
                client=self._client,
                options=self._options,
                job=self._name,
                parting=self._parting,
                partitions=count,
                done=done,
                rate=None if rate is None else rate / max(1, min(count, _slots(self._spark))),
                told=told,
            )
            # Parts that were done before have their tasks, too, which end at once.
            to_do = max(0, count - len(done))
            watch = _Watch(told, self._state, self._parting, to_do, began, on_progress)
            with watch:
                sent = map_in_arrow(self._messages, task, RESULT_SCHEMA).collect()
        results = decode_lines([row.result for row in sent])
        self._state.acknowledge(results)
        self._state.remember("complete", value=True)
        return self._result(results, len(done), time.monotonic() - began)

    def _partitions(self) -> int:
        """How many tasks there will be; over Spark Connect as far as the plan tells."""
        if not is_remote(self._spark):
            return self._messages.rdd.getNumPartitions()
        if self._parting == "ordered":
            return int(self._state.remember("partitions", 0))
        return max(1, len(_input_files(self._frame)))

    def _result(self, results: list[dict[str, Any]], skipped: int, seconds: float) -> PublishResult:
        brokers: Counter[str] = Counter()
        for part in results:
            brokers.update(part["brokers"])
        return PublishResult(
            rows=sum(part["rows"] for part in results),
            bytes=sum(part["bytes"] for part in results),
            bad_rows=sum(part["badRows"] for part in results),
            retries=sum(part["retries"] for part in results),
            may_repeat=sum(part["repeatsPossible"] for part in results),
            parts=len(results),
            skipped=skipped,
            seconds=seconds,
            by_broker=dict(sorted(brokers.items())),
            job=self._name,
        )

    def verified(self, result: PublishResult) -> PublishResult:
        topics, parts = self._topics(), list(self._state.parts.values())
        acknowledged = sum(part["rows"] for part in parts)
        wait_until_readable(lambda: self._readable(topics), acknowledged)
        found = verify(self._spark, self._settings, topics, self._name, self._began, parts)
        if missing := self._missing(topics):
            text = f"queues can't be read: {describe_missing(missing)}"
            found = dataclasses.replace(found, problems=(text, *found.problems))
        return dataclasses.replace(result, verification=found, missing=len(missing))

    def _missing(self, topics: Sequence[str]) -> Missing:
        known = flatten(self._began)
        return look(self._spark, self._settings, ",".join(topics), known)[1]

    def _readable(self, topics: Sequence[str]) -> int:
        """How many messages of the topics can be read that came since the job began."""
        cluster = Cluster(reader_for(self._client))
        queues = [queue for topic in topics for queue in cluster.queues_of(topic) or ()]
        bounds = cluster.bounds(queues)
        began = flatten(self._began)
        return sum(end - began.get(queue, bounds.first[queue]) for queue, end in bounds.end.items())

    def _topics(self) -> tuple[str, ...]:
        if self._options.topic is not None:
            return (self._options.topic,)
        rows = self._messages.select("topic").distinct().collect()
        known = {row.topic for row in rows if row.topic}
        cluster = Cluster(reader_for(self._client))
        return tuple(t for t in sorted(known) if cluster.topics(TopicChoice(topics=(t,))))


def _slots(spark: SparkSession) -> int:
    if is_remote(spark):
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    return max(1, spark.sparkContext.defaultParallelism)


def _input_files(frame: DataFrame) -> list[str]:
    from pyspark.errors import PySparkException

    try:
        return sorted(frame.inputFiles())
    except PySparkException:
        return []


def _with_file(frame: DataFrame, mapping: MessageMapping) -> DataFrame | None:
    """The messages with the file that each comes from, where Spark can tell."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        marked = frame.withColumns(
            {FILE: f.col("_metadata.file_path"), START: f.col("_metadata.file_block_start")}
        )
        found = mapping.apply(marked, also=(FILE, START))
        found.columns  # noqa: B018 - a client of Spark Connect learns only now what is wrong
    except (AnalysisException, ConfigError):
        return None
    return found


@contextlib.contextmanager
def _cut_by_file(spark: SparkSession) -> Iterator[None]:
    """Make each input file a partition of its own, or several when it is large.

    The cost that Spark assumes for opening a file is as large as a partition may be, so that no
    two files fit into one; and the number of cores has no say, so that a restart elsewhere cuts
    alike.
    """
    wanted = {
        "spark.sql.files.maxPartitionBytes": str(_SPLIT_BYTES),
        "spark.sql.files.openCostInBytes": str(_SPLIT_BYTES),
        "spark.sql.files.minPartitionNum": "1",
    }
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


class _Watch:
    """Records parts as their tasks end, and reports progress, while the job runs."""

    def __init__(
        self,
        told: Any,
        state: PublishState,
        parting: Parting,
        count: int,
        began: float,
        on_progress: Callable[[PublishProgress], None] | None,
    ) -> None:
        self._told = told
        self._state = state
        # Tasks of a dataset that is one part are not recorded one by one: the rows may fall into
        # other partitions the next time.
        self._records = parting != "whole"
        self._count = count
        self._began = began
        self._on_progress = on_progress
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rocketwire-publish", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_TICK):
            self._look()
        self._look()

    def _look(self) -> None:
        # Over Spark Connect tasks tell nothing before the end.
        results = decode_lines(list(self._told.value)) if self._told is not None else []
        if self._records:
            self._state.acknowledge(results)
        if self._on_progress is not None:
            rows = sum(part["rows"] for part in results)
            seconds = time.monotonic() - self._began
            self._on_progress(PublishProgress(rows, len(results), self._count, seconds))


__all__ = ["PublishProgress", "PublishResult", "publish"]
