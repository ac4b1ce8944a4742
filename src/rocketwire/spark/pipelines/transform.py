"""Topic to topic, as a stream that can be stopped and started again."""

from __future__ import annotations

import json
import logging
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from rocketwire.errors import ConfigError
from rocketwire.spark.offsets import StreamOffset
from rocketwire.spark.options import write_options
from rocketwire.spark.pipelines.bodies import body_reader
from rocketwire.spark.pipelines.checkpoint import (
    Checkpoint,
    default_checkpoint,
    local_checkpoint,
    open_checkpoint,
    rounds,
)
from rocketwire.spark.pipelines.connection import require, source_options
from rocketwire.spark.pipelines.error_text import first_line
from rocketwire.spark.pipelines.missing import checkpoint_options, missing_after
from rocketwire.spark.pipelines.without_repeats import start_without_repeats
from rocketwire.spark.schema import check_row_ids, check_write
from rocketwire.spark.spark_api import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("rocketwire.spark")

#: Columns of the message that was read which go over to the one that is written.
PASSED_ON: Final = ("keys", "tags", "shardingKey", "rowId")
_WRITABLE: Final = (
    "body", "keys", "tags", "shardingKey", "topic", "properties", "flag", "delayLevel",
    "deliverAt", "rowId", "targetBroker", "targetQueueId",
)  # fmt: skip
_MARK: Final = "__passed_"
_VIEW: Final = "messages"


@dataclass(frozen=True, slots=True)
class TransformResult:
    """What a run did. ``sample`` and ``schema`` are those of a dry run."""

    rows_read: int = 0
    rows_written: int = 0
    bad_rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    checkpoint: str = ""
    #: How many queues of the source can't be read.
    missing: int = 0
    schema: str = ""
    sample: tuple[dict[str, Any], ...] = ()


def transform(  # noqa: PLR0913 - each is one decision of the user
    spark: SparkSession,
    source: str,
    target: str,
    *,
    name_servers: str | Sequence[str] | None = None,
    sql: str | None = None,
    function: Callable[[DataFrame], DataFrame] | None = None,
    body: str = "raw",
    schema: str | None = None,
    registry_header: bool = False,
    start: str = "earliest",
    checkpoint: str | Path | None = None,
    force: bool = False,
    dead_letter: str | None = None,
    repeats_within: str | None = "1 hour",
    follow: bool = False,
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
    on_start: Callable[[StreamingQuery], None] | None = None,
) -> TransformResult:
    """Read a topic, change its messages, write another topic; each message once per checkpoint.

    Args:
        spark: the session.
        source: a topic, or several with commas.
        target: the topic to write.
        name_servers: of the cluster.
        sql: selects from ``messages``, which has the columns of the data source, and ``data`` when
            ``body`` is not ``raw``. A result without ``body`` is sent as JSON of its columns; ``keys``,
            ``tags`` and ``shardingKey`` go over unless selected.
        function: the same in Python: takes and returns a data frame.
        body: ``raw``, or how to read it: ``text``, ``json``, ``avro``, ``protobuf``.
        schema: of JSON bodies, as DDL or ``variant``, learned from the topic unless given; of Avro, a
            file with its schema; of Protobuf, a file with the descriptor, a colon, and the message's
            name.
        registry_header: Avro or Protobuf bodies begin with the five bytes of a schema registry.
        start: where a new checkpoint starts: ``earliest`` or ``latest``.
        checkpoint: the folder that remembers how far the stream is.
        force: go on with a checkpoint whose statement has changed.
        dead_letter: a topic for rows that can't be written; without it they fail the stream.
        repeats_within: messages that were written twice by a task that was tried again are dropped
            if the repeat is read so soon after the first; None keeps all of them, and needs no state.
        follow: go on for ever, instead of until the present end.
        dry_run: write nothing, and show the schema and the first ten rows.
        options: of the data source ``rocketmq``, for reading and writing.
        on_start: called with the running query.

    Raises:
        ConfigError: something is wrong with the arguments or the statement.
    """
    check_topics(source, target)
    if (sql is None) == (function is None):
        raise ConfigError("give exactly one of sql and function")
    settings = source_options(name_servers, options)
    bodies = body_reader(spark, body, schema, source, settings, has_header=registry_header)

    def change(messages: DataFrame) -> DataFrame:
        prepared = bodies.parsed(messages)
        return as_messages(
            apply_change(spark, prepared, sql, function), settings | {"topic": target}
        )

    if dry_run:
        return _dry_run(spark, source, settings, change)
    place = open_checkpoint(spark, checkpoint or default_checkpoint("transform", source, target))
    within = _settled(place, repeats_within)
    place.claim(_use(source, target, sql, function) | {"repeatsWithin": within}, force=force)
    with _Start(spark, settings, target, place.folder, dead_letter, follow=follow) as begin:
        for _ in rounds(place, follow=follow):
            reading = settings | checkpoint_options(place, follow=follow)
            messages = _messages(spark, source, reading, start)
            if within is None:
                query = begin(change(messages))
            else:
                query = start_without_repeats(spark, messages, within, change, begin)
            begin.wait(query, on_start)
        done = begin.result()
    offset = place.last_offsets()
    known = () if offset is None else StreamOffset.from_json(offset).offsets
    missing = missing_after(spark, settings, source, begin.progress, known)
    return replace(done, missing=missing)


def check_topics(source: str, target: str) -> None:
    """Refuse topics that can't be; needs no session.

    Raises:
        ConfigError: they can't.
    """
    require(source, "source", "name a topic to read")
    require(target, "target", "name a topic to write")
    if target in {name.strip() for name in source.split(",")}:
        raise ConfigError(f"source and target are both {target}: the stream would feed itself")


def check_use(
    source: str,
    target: str,
    *,
    sql: str | None,
    function: Callable[[DataFrame], DataFrame] | None,
    checkpoint: str | Path,
    force: bool,
) -> None:
    """Refuse a checkpoint of another stream; needs no session.

    One that is not on this machine is looked into once there is a session.

    Raises:
        ConfigError: its stream read, wrote or did something else.
    """
    known = local_checkpoint(checkpoint)
    if known is not None:
        known.check(_use(source, target, sql, function), force=force)


def _use(source: str, target: str, sql: str | None, function: Any) -> dict[str, str]:
    statement = sql if sql is not None else _name_of(function)
    return {"source": source, "target": target, "statement": statement}


def _messages(
    spark: SparkSession, source: str, settings: Mapping[str, str], start: str
) -> DataFrame:
    read = spark.readStream.format("rocketmq").options(**settings)
    return read.options(topics=source, startingOffsets=start).load()


def _settled(checkpoint: Checkpoint, within: str | None) -> str | None:
    """Within what time repeats are dropped; a stream that began without state goes on without."""
    note = checkpoint.note()
    if note is not None and note.get("repeatsWithin") is None and within is not None:
        _log.warning(
            "checkpoint %s was begun without dropping repeats of its source, and goes on so; "
            "a new checkpoint drops them",
            checkpoint.folder,
        )
        return None
    return within


def _name_of(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', function)}"


def apply_change(
    spark: SparkSession,
    messages: DataFrame,
    sql: str | None,
    function: Callable[[DataFrame], DataFrame] | None,
) -> DataFrame:
    """Run the user's statement or function over messages.

    Raises:
        ConfigError: the statement does not hold, or the function returns something else.
    """
    if function is not None:
        result = function(messages)
        if not hasattr(result, "isStreaming"):
            raise ConfigError(f"the function returned a {type(result).__name__}, not a DataFrame")
        return result
    assert sql is not None  # one of the two is given
    messages.createOrReplaceTempView(_VIEW)
    if is_remote(spark):
        # A server looks at the statement when it is run: the view stays until then.
        return _select(spark, sql)
    try:
        return _select(spark, sql)
    finally:
        spark.catalog.dropTempView(_VIEW)


def _select(spark: SparkSession, sql: str) -> DataFrame:
    """Run a statement; where it allows, with the columns that go over added under marked names.

    Whether it allows is Spark's to say: aggregates, unions and sub-queries fail to resolve with
    them, and are run as they are.
    """
    from pyspark.errors import PySparkException

    added = ", ".join(f"{name} AS {_MARK}{name}" for name in PASSED_ON)
    widened = re.sub(
        r"^\s*select\s+(?!distinct\b|all\b)", f"SELECT {added}, ", sql, count=1, flags=re.IGNORECASE
    )
    try:
        result = spark.sql(sql)
        result.columns  # noqa: B018 - a client of Spark Connect learns only now what is wrong
    except PySparkException as error:
        raise ConfigError(f"the statement can't be run: {first_line(error)}") from error
    if widened == sql:
        return result
    try:
        wide = spark.sql(widened)
        wide.columns  # noqa: B018 - as above
    except PySparkException:
        return result
    return wide


def as_messages(result: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """A result as rows that can be written: a body, and what goes over from the source."""
    from pyspark.sql import functions as f

    marked = [name for name in result.columns if name.startswith(_MARK)]
    own = [name for name in result.columns if not name.startswith(_MARK)]
    columns = {}
    if "body" in own:
        columns = {
            name: f.col(f"`{name}`") for name in own if name in _WRITABLE and name != "topic"
        }
    else:
        inner = [f.col(f"`{name}`") for name in own if name not in PASSED_ON]
        if not inner:
            raise ConfigError("the result has no columns to make a body of: select some, or body")
        columns = {"body": f.to_json(f.struct(*inner))}
        columns |= {name: f.col(name) for name in PASSED_ON if name in own}
    for name in marked:
        columns.setdefault(name.removeprefix(_MARK), f.col(name))
    chosen = result.select(*(column.alias(name) for name, column in columns.items()))
    options = write_options({name.lower(): value for name, value in settings.items()})
    check_write(chosen.schema, topic_given=options.topic is not None)
    check_row_ids(chosen.schema, options)
    return chosen


def _dry_run(
    spark: SparkSession,
    source: str,
    settings: Mapping[str, str],
    change: Callable[[DataFrame], DataFrame],
) -> TransformResult:
    read = spark.read.format("rocketmq").options(**settings, topics=source)
    changed = change(read.load()).drop("rowId")
    rows = tuple(row.asDict(recursive=True) for row in changed.limit(10).collect())
    return TransformResult(schema=changed.schema.simpleString(), sample=rows)


class _Start:
    """Starts the stream that writes, and tells what it did."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Mapping[str, str],
        target: str,
        checkpoint: str,
        dead_letter: str | None,
        *,
        follow: bool,
    ) -> None:
        self._began = time.monotonic()
        self._checkpoint = checkpoint
        self._follow = follow
        self._rows_read = 0
        #: The last that Spark told of a query.
        self.progress: Any = None
        self._folder = tempfile.TemporaryDirectory(prefix="rocketwire-")
        self._summary = Path(self._folder.name) / "summary.jsonl"
        self._options = dict(settings) | {"topic": target, "summaryFile": str(self._summary)}
        if dead_letter is not None:
            self._options |= {"onBadRow": "deadletter", "deadLetterTopic": dead_letter}
        # Spark remembers the progress of 100 batches; the counts below need all of them.
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def __call__(self, messages: DataFrame) -> StreamingQuery:
        """Start."""
        writer = messages.writeStream.format("rocketmq").options(**self._options)
        writer = writer.option("checkpointLocation", self._checkpoint)
        return (writer if self._follow else writer.trigger(availableNow=True)).start()

    def wait(
        self, query: StreamingQuery, on_start: Callable[[StreamingQuery], None] | None
    ) -> None:
        """Wait for the end."""
        try:
            if on_start is not None:
                on_start(query)
            query.awaitTermination()
        finally:
            query.stop()
        self._rows_read += sum(progress.numInputRows for progress in query.recentProgress)
        self.progress = query.lastProgress

    def result(self) -> TransformResult:
        """What was done."""
        path = self._summary
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        # A batch that was repeated tells of itself twice; its last word counts.
        batches = {batch["batch"]: batch for batch in map(json.loads, lines)}
        return TransformResult(
            rows_read=self._rows_read,
            rows_written=sum(batch["rows"] for batch in batches.values()),
            bad_rows=sum(batch["badRows"] for batch in batches.values()),
            batches=len(batches),
            seconds=time.monotonic() - self._began,
            checkpoint=self._checkpoint,
        )
