"""The Spark part of the demo: publish, transform, archive, check, and a report of deliveries."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rocketwire.cli.demo.brokers import InterruptedStoryError
from rocketwire.cli.demo.checks import Check
from rocketwire.cli.demo.orders import order_bodies
from rocketwire.cli.demo.page import Section
from rocketwire.cli.invocation import Invocation
from rocketwire.cli.spark_work import spark_session
from rocketwire.pages.tables import table
from rocketwire.wire.codes import RequestCode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketwire.embedded import EmbeddedCluster

T = TypeVar("T")

ROWS: Final = 20_000
_TOPIC: Final = "shop"
_TARGET: Final = "shop-large"
_LOST_ANSWERS: Final = 3
_SQL: Final = "select keys, shardingKey, cast(data.total as string) as body from messages where data.total > 100"


class SparkPart:
    """Runs the steps one after the other, and keeps what they found."""

    def __init__(
        self, here: Invocation, cluster: EmbeddedCluster, stop: threading.Event, folder: Path
    ) -> None:
        self._here = here
        self._cluster = cluster
        self._servers = cluster.name_server
        self._stop = stop
        self._folder = folder
        self._rows: list[tuple[str, str]] = []
        self.checks: list[Check] = []

    def run(self, telemetry: Path, delivery_page: Path) -> Section:
        """All steps; the section for the page.

        Raises:
            InterruptedStoryError: the user pressed Ctrl-C.
        """
        with self._session() as spark:
            self._publish(spark)
            stored = self._stored(spark, _TOPIC)
            self._check_rows(stored)
            self._transform(spark)
            self._archive(spark)
            self._report(spark, telemetry, delivery_page)
        return self._section(delivery_page)

    @contextlib.contextmanager
    def _session(self) -> Iterator[SparkSession]:
        begun = time.monotonic()
        self._here.say("Starting Spark (some seconds) ...")
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            # What readers note of brokers goes with the demo.
            "spark.local.dir": str(self._folder / "spark"),
        }
        log = self._folder / "spark.log"
        with spark_session("rocketwire-demo", log=log, config=settings) as spark:
            self._here.say(
                f"  Spark {spark.version} runs, after {time.monotonic() - begun:.0f} s\n"
            )
            over = threading.Event()
            watcher = threading.Thread(target=self._cancel, args=(spark, over), daemon=True)
            watcher.start()
            try:
                yield spark
            finally:
                over.set()
                watcher.join(5)

    def _cancel(self, spark: SparkSession, over: threading.Event) -> None:
        """Ends what runs when the user presses Ctrl-C: Spark itself would not notice."""
        while not over.wait(0.2):
            if self._stop.is_set():
                for query in spark.streams.active:
                    query.stop()
                spark.sparkContext.cancelAllJobs()

    def _step(self, title: str, command: str, work: Callable[[], T]) -> T:
        self._here.say(f"{title} ...")
        self._here.say(f"  $ {command}")
        begun = time.monotonic()
        try:
            result = work()
        except Exception:
            if self._stop.is_set():
                raise InterruptedStoryError from None
            raise
        if self._stop.is_set():
            raise InterruptedStoryError
        self._rows.append((title, f"{time.monotonic() - begun:.1f} s"))
        return result

    def _publish(self, spark: SparkSession) -> None:
        from rocketwire.spark import publish

        dataset = self._folder / "shop.json"
        _write_dataset(dataset)
        self._cluster.create_topic(_TOPIC, 4)
        # Stored, and the answer lost: the writer can't know, sends again, and says so.
        self._cluster.broker("broker-a").drop_connections(
            code=RequestCode.SEND_BATCH_MESSAGE, next=_LOST_ANSWERS, after_handling=True
        )
        command = f"rocketwire publish shop.json {_TOPIC} --key order --sharding-key customer --order-by n"
        result = self._step(
            f"Publishing {ROWS:,} rows, while broker-a loses {_LOST_ANSWERS} answers",
            command,
            lambda: publish(
                spark,
                str(dataset),
                _TOPIC,
                name_servers=self._servers,
                key="order",
                sharding_key="customer",
                order_by="n",
            ),
        )
        self._here.say(
            f"  {result.rows:,} rows acknowledged, {result.retries} requests sent again\n"
        )

    def _stored(self, spark: SparkSession, topic: str) -> DataFrame:
        source = spark.read.format("rocketmq").option("nameServers", self._servers)
        return source.option("topic", topic).option("includeProperties", "none").load().cache()

    def _check_rows(self, stored: DataFrame) -> None:
        from rocketwire.spark import deduplicate

        def look() -> tuple[int, int, int, int]:
            total = stored.count()
            single = deduplicate(stored)
            return total, single.count(), single.select("keys").distinct().count(), _gaps(single)

        code = f'deduplicate(spark.read.format("rocketmq").option("topic", "{_TOPIC}").load())'
        total, single, keys, gaps = self._step("Reading back and checking", code, look)
        repeats = total - single
        self.checks += [
            Check("Spark: every row arrived", keys == ROWS, f"{keys:,} of {ROWS:,} keys"),
            Check(
                "Spark: after deduplicate, none is there twice",
                single == ROWS,
                f"{total:,} messages, {single:,} rows",
            ),
            Check("Spark: rows are in order per key", gaps == 0, f"{gaps} out of order"),
        ]
        why = "their answers were lost, so they were sent again" if repeats else "none was needed"
        self._here.say(f"  {repeats:,} repeats: {why}\n")

    def _transform(self, spark: SparkSession) -> None:
        from rocketwire.spark import transform

        result = self._step(
            "Transforming to another topic",
            f'rocketwire transform {_TOPIC} {_TARGET} --body json --sql "{_SQL}"',
            lambda: transform(
                spark,
                _TOPIC,
                _TARGET,
                name_servers=self._servers,
                sql=_SQL,
                body="json",
                schema="total double",
                checkpoint=self._folder / "transform",
            ),
        )
        self._here.say(f"  {result.rows_read:,} rows read, {result.rows_written:,} written\n")

    def _archive(self, spark: SparkSession) -> None:
        from rocketwire.spark import archive, verify_archive

        folder = self._folder / "archive"
        servers = self._servers
        result = self._step(
            "Archiving to Parquet",
            f"rocketwire archive {_TARGET} ./archive",
            lambda: archive(spark, _TARGET, folder, name_servers=servers),
        )
        found = self._step(
            "Verifying the archive",
            f"rocketwire archive {_TARGET} ./archive --verify",
            lambda: verify_archive(spark, folder, name_servers=servers),
        )
        self.checks.append(
            Check(
                "Spark: the archive is whole",
                found.is_good and found.rows == result.rows,
                f"{found.rows:,} rows of {found.queues} queues",
            )
        )
        self._here.say(f"  {result.rows:,} rows in {result.files} files\n")

    def _report(self, spark: SparkSession, telemetry: Path, page: Path) -> None:
        from rocketwire.spark import report

        result = self._step(
            "Analysing the deliveries of the first part",
            "rocketwire report ./telemetry",
            lambda: report(spark, telemetry, page, self._folder / "tables"),
        )
        self._here.say(f"  {result.attempts:,} attempts: {page}\n")

    def _section(self, delivery_page: Path) -> Section:
        link = f'<a href="{escape(delivery_page.name)}">the delivery report</a>'
        return Section(
            "With Spark",
            table(("*", "#"), self._rows, frame="card")
            + f"<p>Every attempt of the first part, analysed by Spark: {link}.</p>",
        )


def _write_dataset(path: Path) -> None:
    """Orders as lines of JSON, numbered in the order in which they must stay."""
    with path.open("w", encoding="utf-8") as lines:
        for number, (_, _, body) in enumerate(islice(order_bodies("shop", 11), ROWS)):
            row: dict[str, Any] = json.loads(body)
            row["n"] = number
            lines.write(json.dumps(row) + "\n")


def _gaps(rows: DataFrame) -> int:
    """How many rows of one key come before one that should precede them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.get_json_object(f.col("body").cast("string"), "$.n").cast("long")
    order = Window.partitionBy("shardingKey").orderBy("broker", "queueId", "queueOffset")
    before = f.lag("place").over(order)
    return rows.withColumn("place", place).where("place is not null").select(
        (f.col("place") < before).alias("late")
    ).where("late").count()  # fmt: skip


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for what the steps hand to one another; it goes with the demo."""
    with tempfile.TemporaryDirectory(prefix="rocketwire-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)
