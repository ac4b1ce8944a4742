"""Consumers beside Apache's on one real broker, in one run: ``python -m bench.consumers``.

Messages per second with empty handlers and with handlers that look at keys, tags, body and one of
three properties, a topic read without a group, the way from send to handler on an idle cluster, and what a
backlog of a million messages costs behind a handler that stands still. Every round runs every path
once; ratios are made within a round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from bench import backlog, consuming, report
from bench.broker import missing_tools, settle
from bench.foreign import VERSION, ForeignClient, java_client
from bench.goals import LOOKING, READS, Verdict, judge
from bench.rounds import Path, Row, contest
from bench.samples import Sample, process_cpu
from bench.shapes import RICH, maker
from bench.worker import Task, perform

_BACKLOG, _TOPIC = "backlog", "reading"
_BATCH = 256
_JVM = ("-XX:+UseG1GC", "-Xms512m", "-Xmx512m")
_RATES = "consumers: a backlog, empty handler"
_LATENCIES = "consumers: send to handler, idle"
_MEMORY = 100e6
_numbers = itertools.count(1)


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.consumers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each path is run (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 reads a tenth")
    parser.add_argument("--json", type=FilePath, default=FilePath("bench/results/consumers.json"))
    chosen = parser.parse_args(words)
    if chosen.rounds < 1 or chosen.scale <= 0:
        parser.error("--rounds is at least 1, --scale is above zero")
    return chosen


def rate_paths(name_server: str, java: ForeignClient, count: int) -> list[Path]:
    """Who reads a backlog how fast."""
    at = (name_server, _BACKLOG, count)
    rivals = ("java",)
    packed = ("java", "java, batch 256")
    return [
        Path("java", lambda: java.run("consume", _BACKLOG, count)),
        Path("java, batch 256", lambda: java.run("consume", _BACKLOG, count, batch=_BATCH)),
        Path("Consumer", partial(consuming.blocking, *at), "rate", rivals),
        Path("Consumer, batch 256", partial(consuming.blocking, *at, batch=_BATCH), "rate", packed),
        Path("AsyncConsumer", partial(consuming.on_loop, *at), "rate", rivals),
        Path(
            "AsyncConsumer, batch 256",
            partial(consuming.on_loop, *at, batch=_BATCH),
            "rate",
            packed,
        ),
    ]


def looking_paths(name_server: str, java: ForeignClient, count: int) -> list[Path]:
    """Who reads a backlog how fast when handlers look at what they get."""

    def ours(path: str, *rivals: str) -> Path:
        task = Task(path, RICH.word, count, name_server, _BACKLOG)
        return Path(path, partial(perform, task), "rate", rivals)

    return [
        Path("java", lambda: java.run("look", _BACKLOG, count)),
        Path("java, batch 256", lambda: java.run("look", _BACKLOG, count, batch=_BATCH)),
        ours("handler", "java"),
        ours("await handler", "java"),
        ours("handler, batch 256", "java", "java, batch 256"),
        ours("await handler, batch 256", "java", "java, batch 256"),
    ]


def reading_paths(name_server: str, java: ForeignClient, count: int) -> list[Path]:
    """Who reads a whole topic how fast, without a group."""

    def ours(path: str) -> Path:
        task = Task(path, RICH.word, count, name_server, _TOPIC)
        return Path(path, partial(perform, task), "rate", ("java",))

    return [
        Path("java", lambda: java.run("look", _TOPIC, count)),
        *map(ours, ("read", "read, looked at", "await read, looked at")),
    ]


def latency_paths(
    name_server: str, java: ForeignClient, count: int, new_topic: Callable[[], str]
) -> list[Path]:
    """Who hears of a message how soon.

    Each run has a topic of its own: Java's new groups begin with the first message of a topic that
    still has it, whatever they were told.
    """

    def listen(how: Callable[[str], Sample]) -> Callable[[], Sample]:
        def run() -> Sample:
            topic = new_topic()
            with consuming.trickle(name_server, topic):
                return how(topic)

        return run

    blocking = listen(lambda topic: consuming.blocking_latency(name_server, topic, count))
    on_loop = listen(lambda topic: consuming.on_loop_latency(name_server, topic, count))
    return [
        Path("java", listen(lambda topic: java.run("latency", topic, count)), "p50"),
        Path("Consumer", blocking, "p50", ("java",)),
        Path("AsyncConsumer", on_loop, "p50", ("java",)),
    ]


def verdicts(rows: Sequence[Row], costs: dict[str, float]) -> list[Verdict]:
    """What of the targets holds, by the median over the rounds."""
    found = judge([row.as_json() for row in rows if row.contest in {LOOKING, READS}])
    for row in rows:
        for ratio in () if row.contest in {LOOKING, READS} else row.ratios:
            value = ratio.median
            if row.measure == "p50":
                text, limit, held = "p50 from send to handler", 2.0, value < 2.0
            else:
                limit = 1.0 if "batch" in row.name else 0.5
                text, held = "messages/s", value >= limit
            name = f"{row.name}: {text} over that of {ratio.against}"
            found.append(Verdict(name, value, limit, held))
    for name, cost in costs.items():
        target = f"{name}: MB for a backlog behind a stopped handler"
        found.append(Verdict(target, cost / 1e6, _MEMORY / 1e6, cost < _MEMORY))
    return found


def measure(chosen: argparse.Namespace) -> tuple[list[Row], dict[str, float]]:
    """Start a broker and a JVM, and run everything."""
    from tests.real.apache import ApacheCluster

    overrides = {"sendMessageThreadPoolNums": "4"}
    with ApacheCluster(VERSION, brokers=1, jvm=_JVM, overrides=overrides) as cluster:
        at = cluster.name_server
        cluster.create_topic(_BACKLOG, 8)
        consuming.fill(at, maker(RICH, _BACKLOG, 200), max(50_000, int(1_000_000 * chosen.scale)))
        count = max(20_000, int(300_000 * chosen.scale))
        with java_client(at, "BenchConsumer") as java:
            for batch in (1, _BATCH):
                java.run("consume", _BACKLOG, count, batch=batch)
                consuming.blocking(at, _BACKLOG, count, batch=batch)
            used = partial(process_cpu, cluster.brokers[0].pid)
            rows = contest(_RATES, rate_paths(at, java, count), chosen.rounds, server=used)
            looked = max(10_000, int(60_000 * chosen.scale))
            java.run("look", _BACKLOG, max(30_000, looked))
            paths = looking_paths(at, java, looked)
            rows += contest(LOOKING, paths, chosen.rounds, server=used)
            heard = max(200, int(1_000 * chosen.scale))
            paths = latency_paths(at, java, heard, partial(_new_topic, cluster))
            paths[0].run()
            rows += contest(_LATENCIES, paths, chosen.rounds)
        cluster.create_topic(_TOPIC, 8)
        consuming.fill(at, maker(RICH, _TOPIC, 200), looked)
        settle(partial(cluster.max_offsets, _TOPIC))
        with java_client(at, "BenchPull") as java:
            paths = reading_paths(at, java, looked)
            paths[0].run()
            rows += contest(READS, paths, chosen.rounds, server=used)
        costs = {}
        for name, is_asyncio in (("Consumer", False), ("AsyncConsumer", True)):
            costs[name], held = backlog.backlog_cost(at, _BACKLOG, asyncio=is_asyncio)
            print(f"{name}: {held:,} messages are held of the backlog", file=sys.stderr)
    return rows, costs


def _new_topic(cluster: Any) -> str:
    name = f"idle-{next(_numbers)}"
    cluster.create_topic(name, 8)
    return name


def main(words: list[str] | None = None) -> int:
    """Measure, print, write; 1 if it can't be done, or a target is missed."""
    chosen = _arguments(words)
    missing = missing_tools()
    if missing:
        print(f"no {', '.join(missing)} on the PATH: a real broker is needed", file=sys.stderr)
        return 1
    rows, costs = measure(chosen)
    found = verdicts(rows, costs)
    print(report.table(rows))
    for verdict in found:
        print(verdict.line())
    content = {
        "machine": report.machine(),
        "paths": [row.as_json() for row in rows],
        "targets": [asdict(verdict) for verdict in found],
    }
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(content, indent=1) + "\n")
    print(f"\n{chosen.json}")
    return 0 if all(verdict.held for verdict in found) else 1


if __name__ == "__main__":
    sys.exit(main())
