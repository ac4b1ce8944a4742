"""Spark's Kafka connector beside our source: one Spark, each on its real broker, in turn.

``python -m bench.beside_kafka [--bodies 20,200,2000] [--rounds N] [--scale S] [--only WORDS]``. Rows have a
key, a tag, two properties, and bodies that all differ. What is measured:

* ``write``: a batch of cached rows in 4 partitions;
* ``noop``, ``parquet``: a batch of 4 queues into nothing, and into files;
* ``stream``: a stream of five micro-batches into nothing; ``files``: ten files into a topic;
* ``small``: micro-batches of 100 rows, beside a Python source and sink that do nothing.

Each figure is the median of the rounds; a ratio is that of one round, so that both sides met the same
minute of the machine. CPU is that of Spark's JVM and of its Python workers, not of the brokers. What was
written is read back and summed up at the end, on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.broker import settle
from bench.choices import chosen_sizes, chosen_words
from bench.kafka_broker import KafkaBroker, connector_jars, kafka_broker
from bench.kafka_contest import CASES, QUEUES, Contest
from bench.kafka_sides import KafkaSide, OurSide
from bench.kafka_verdict import KAFKA, OURS, misses, table, verdicts
from bench.report import machine
from bench.samples import process_cpu
from bench.spark_processes import leave_out

ROOT: Final = Path(__file__).parents[1]
ROWS: Final = 1_000_000
#: Bytes of bodies in one topic at most: larger ones come in fewer rows.
MOST_BYTES: Final = 400_000_000
_JVM: Final = ("-XX:+UseG1GC", "-Xms512m", "-Xmx1g")
#: A production broker's sizes; the tests' are small.
_BROKER: Final = {
    "mappedFileSizeCommitLog": str(256 << 20),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "transactionCheckInterval": "30000",
}


def rows_of(body: int, scale: float) -> int:
    """How many rows there are of bodies of a size, in whole thousands."""
    return max(10_000, int(min(ROWS, MOST_BYTES // body) * scale) // 10_000 * 10_000)


@contextmanager
def contest() -> Iterator[Contest]:
    """Both brokers and Spark."""
    from tests.real.apache import ApacheCluster

    from rocketwire.spark import register, session

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketwire-beside-")))
        kafka = stack.enter_context(kafka_broker())
        cluster = stack.enter_context(
            ApacheCluster("5.3.3", brokers=1, jvm=_JVM, overrides=_BROKER)
        )
        broker = cluster.brokers[0]
        for pid in (kafka.pid, cluster.server.pid, broker.pid):
            leave_out(pid)
        settings = {"spark.local.dir": f"{folder}/local", "spark.jars": connector_jars()}
        spark = session("beside", master="local[2]", memory="4g", config=settings)
        stack.callback(spark.stop)
        register(spark)
        from bench.spark_sources import CountingSource

        spark.dataSource.register(CountingSource)

        sides = (KafkaSide(kafka.address), OurSide(cluster.name_server))
        yield Contest(spark, sides, _Topics(spark, kafka, cluster), folder)


class _Topics:
    """Topics on both brokers."""

    def __init__(self, spark: Any, kafka: KafkaBroker, cluster: Any) -> None:
        self._spark = spark
        self._kafka = kafka
        self._cluster = cluster
        self._pids = {KAFKA: kafka.pid, OURS: cluster.brokers[0].pid}

    def make(self, name: str) -> None:
        """See `Topics`."""
        _make_kafka_topic(self._spark, self._kafka.address, name)
        self._cluster.create_topic(name, QUEUES)

    def settle(self, name: str) -> None:
        """See `Topics`. Kafka answers when a row can be read; RocketMQ enters it into its queue later."""
        settle(partial(self._cluster.max_offsets, name))

    def cpu(self, side: str) -> float:
        """See `Topics`."""
        return process_cpu(self._pids[side])


def _make_kafka_topic(spark: Any, address: str, name: str) -> None:
    """By the client that the connector brings, so that no other is needed."""
    jvm = spark._jvm
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", address)
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    try:
        short = jvm.java.lang.Short.parseShort("1")
        new = jvm.org.apache.kafka.clients.admin.NewTopic(name, QUEUES, short)
        admin.createTopics(jvm.java.util.Collections.singletonList(new)).all().get()
    finally:
        admin.close()


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = (*CASES, "small")
    parser.add_argument("--bodies", default="20,200,2000", help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 runs a tenth of the rows")
    parser.add_argument("--only", default=",".join(known), help=f"some of {','.join(known)}")
    parser.add_argument("--json", type=Path, default=Path("bench/results/beside_kafka.json"))
    chosen = parser.parse_args(words)
    chosen.bodies = chosen_sizes(parser, chosen.bodies)
    chosen.only = chosen_words(parser, "--only", chosen.only, known)
    if chosen.rounds < 1 or chosen.scale <= 0:
        parser.error("--rounds is at least 1, --scale is above zero")
    return chosen


def main(words: list[str] | None = None) -> int:
    chosen = _arguments(words)
    cases = [word for word in chosen.only if word in CASES]
    began = time.monotonic()
    with contest() as both:
        for body in chosen.bodies if cases else ():
            both.run(body, rows_of(body, chosen.scale), chosen.rounds, cases)
        if "small" in chosen.only:
            both.run_small(chosen.rounds)
        found, small = verdicts(both.samples), both.small
    content = {
        "machine": machine(),
        "cases": [asdict(one) for one in found],
        "small": [asdict(one) for one in small],
        "samples": [asdict(one) for one in both.samples],
    }
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(content, indent=1) + "\n")
    print(table(found, small))
    for line in misses(found, small):
        print(f"MISSED: {line}")
    print(f"{time.monotonic() - began:.0f} s in all")
    return 1 if misses(found, small) else 0


if __name__ == "__main__":
    sys.exit(main())
