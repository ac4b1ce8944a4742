"""What the Spark commands share: starting Spark audibly, options, progress, endings."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rocketwire.cli import failures
from rocketwire.cli.failures import CommandFailedError, UsageError
from rocketwire.cli.invocation import Invocation
from rocketwire.cli.signals import stop_requested
from rocketwire.config import ProducerConfig, ReaderConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK: Final = 1.0
_LINE_EVERY: Final = 5.0

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Spark's master; this machine by default.", show_default=False
    ),
]
Body = Annotated[str, typer.Option(help="raw, text, json, avro or protobuf: the column data.")]
BodySchema = Annotated[
    str | None, typer.Option(help="DDL for JSON, else learned; a file for avro and protobuf.")
]
RegistryHeader = Annotated[
    bool, typer.Option("--registry-header", help="Five bytes come before avro and protobuf.")
]
Follow = Annotated[bool, typer.Option("--follow", "-F", help="Go on with what comes.")]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="An option of the Spark source, e.g. tags=paid."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark's, e.g. spark.jars.packages=..."
    ),
]


def require_spark() -> None:
    """Refuse to go on without PySpark."""
    if find_spec("pyspark") is None:
        raise CommandFailedError("this command needs Spark: pip install 'rocketwire[spark]'")


@contextlib.contextmanager
def started_spark(
    here: Invocation,
    master: str | None,
    *,
    is_short: bool = False,
    config: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session for one command. That it starts is said: it takes some seconds.

    One that runs already in this process is used, and left running. For work that ``is_short``,
    Java compiles lightly: half of its time would go into code that runs once.
    """
    require_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    begun = time.monotonic()
    here.note("starting Spark ...")
    with spark_session(master=master, fast_start=is_short, config=config or {}) as spark:
        here.note(f"Spark {spark.version} runs after {time.monotonic() - begun:.0f} s")
        yield spark


@contextlib.contextmanager
def spark_session(
    name: str = "rocketwire", *, log: Path | None = None, **options: Any
) -> Iterator[SparkSession]:
    """A local session whose JVM and workers write to a log of their own, not between our lines.

    Without ``log``, it is a temporary file, which is kept after a failure, and its path told.
    ``--debug`` lets everything through instead.
    """
    from rocketwire.spark import session

    is_debug = failures.wishes.debug
    with contextlib.ExitStack() as stack:
        if not is_debug:
            stack.enter_context(_log_file(log))
        spark = session(name, quiet=not is_debug, **options)
        # What runs from here on has its standard error already; ours is for us again.
        stack.close()
        try:
            yield spark
        except Exception as error:
            if log is None and not is_debug and not isinstance(error, typer.Exit):
                error.add_note(f"Spark's own messages are in {_log_path()}")
            raise
        finally:
            spark.stop()
    if log is None and not is_debug:
        _log_path().unlink(missing_ok=True)


def _log_path() -> Path:
    return Path(tempfile.gettempdir()) / f"rocketwire-spark-{os.getpid()}.log"


@contextlib.contextmanager
def _log_file(log: Path | None) -> Iterator[None]:
    """Processes that are started meanwhile have the log as their standard error."""
    sys.stderr.flush()
    before = os.dup(2)
    with (log or _log_path()).open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def source_options(here: Invocation, given: Iterable[str] | None) -> dict[str, str]:
    """Options of the data source: the connection's settings as text, and those given."""
    settings = here.settings(ReaderConfig) | here.settings(ProducerConfig)
    found = {
        name: json.dumps(value) if isinstance(value, Mapping) else str(value)
        for name, value in settings.items()
        if name not in {"nameservers", "group"}
    }
    return found | _pairs("--set", given)


def spark_settings(given: Iterable[str] | None) -> dict[str, str]:
    """Spark's own settings, as given by ``--conf``."""
    found = _pairs("--conf", given)
    for name in found:
        if not name.startswith("spark."):
            raise UsageError(
                f"--conf {name}: Spark's settings begin with spark.; Hadoop's with spark.hadoop."
            )
    return found


def _pairs(option: str, given: Iterable[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r}: write NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


class StreamWatch:
    """Follows a streaming query: tells its progress, and stops it on demand."""

    def __init__(self, here: Invocation, stop: threading.Event) -> None:
        self._here = here
        self._stop = stop
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, query: StreamingQuery) -> None:
        """The query has started; ``on_start`` of the pipelines."""
        self._thread = threading.Thread(
            target=self._follow, args=(query,), name="rocketwire-stream", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """The query is over."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(10)

    def _follow(self, query: StreamingQuery) -> None:
        rows, told_batch, told_at = 0, -1, 0.0
        while not self._over.wait(_LOOK):
            if self._stop.is_set():
                query.stop()
                return
            last = query.lastProgress
            if last is not None and last["batchId"] != told_batch:
                told_batch = last["batchId"]
                rows += int(last["numInputRows"])
                if time.monotonic() - told_at > _LINE_EVERY:
                    told_at = time.monotonic()
                    self._here.note(f"batch {told_batch}: {rows:,} rows so far")


def run_stream(here: Invocation, work: Callable[[StreamWatch], Any]) -> Any:
    """Run a pipeline that is a stream; Ctrl-C and SIGTERM end it between two batches."""
    with stop_requested() as stop:
        watch = StreamWatch(here, stop)
        try:
            return work(watch)
        finally:
            watch.close()


def missing_line(missing: int) -> tuple[str, ...]:
    """The sentence about queues that a pipeline could not read; none when there were none."""
    if not missing:
        return ()
    noun = "queue" if missing == 1 else "queues"
    return (f"missing: {missing} {noun} can't be read; what is in there was left out",)


def tell(here: Invocation, result: Any, *sentences: str) -> None:
    """Say what a pipeline did: as sentences, or as JSON with all its figures."""
    if here.as_json:
        here.emit(dataclasses.asdict(result))
        return
    for sentence in sentences:
        here.say(sentence)
