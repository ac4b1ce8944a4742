"""Receiving and acknowledging beside Java's push consumer in POP mode: ``python -m bench.receiving``.

One real broker, a backlog, empty handlers; our consumers receive 32 messages at a time and acknowledge
them in one request. Every round runs every path once; ratios are made within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from functools import partial
from typing import Any

from bench import consuming, report
from bench.broker import missing_tools
from bench.foreign import VERSION, ForeignClient, java_client
from bench.goals import Verdict
from bench.ours import run_loop
from bench.rounds import Path, Row, contest
from bench.samples import Sample
from bench.shapes import RICH, maker
from rocketwire import AsyncSimpleConsumer, SimpleConsumer

_TOPIC = "receiving"
_JVM = ("-XX:+UseG1GC", "-Xms512m", "-Xmx512m")
_TITLE = "receive and acknowledge: a backlog, empty handler"
#: What ours does of Java's messages a second, at least.
TARGET = 0.5


def blocking(name_server: str, topic: str, count: int, *, workers: int = 4) -> Sample:
    """``SimpleConsumer`` on some threads."""
    done = threading.Event()
    tally = consuming.Tally(count, done.set)
    group = consuming.new_group()

    def work(consumer: SimpleConsumer) -> None:
        while not done.is_set():
            messages = consumer.receive(32, wait=1.0)
            if messages:
                tally.many(messages)
                consumer.acknowledge(messages)

    with SimpleConsumer(name_server, group=group, start="earliest").subscribe(topic) as consumer:
        threads = [threading.Thread(target=work, args=(consumer,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        done.wait(consuming.LIMIT)
        done.set()
        for thread in threads:
            thread.join()
    return tally.sample()


def on_loop(name_server: str, topic: str, count: int, *, workers: int = 8) -> Sample:
    """``AsyncSimpleConsumer`` with some tasks."""

    async def main() -> Sample:
        done = asyncio.Event()
        tally = consuming.Tally(count, done.set)

        async def work(consumer: AsyncSimpleConsumer) -> None:
            while not done.is_set():
                messages = await consumer.receive(32, wait=1.0)
                if messages:
                    tally.many(messages)
                    await consumer.acknowledge(messages)

        consumer = AsyncSimpleConsumer(name_server, group=consuming.new_group(), start="earliest")
        async with consumer.subscribe(topic):
            async with asyncio.timeout(consuming.LIMIT):
                await asyncio.gather(*(work(consumer) for _ in range(workers)))
        return tally.sample()

    return run_loop(main)


def paths(name_server: str, java: ForeignClient, count: int) -> list[Path]:
    """Who receives a backlog how fast."""
    at: tuple[Any, ...] = (name_server, _TOPIC, count)
    return [
        Path("java, POP", lambda: java.run("receive", _TOPIC, count)),
        Path("SimpleConsumer, 4 threads", partial(blocking, *at), "rate", ("java, POP",)),
        Path("AsyncSimpleConsumer, 8 tasks", partial(on_loop, *at), "rate", ("java, POP",)),
    ]


def measure(rounds: int, scale: float) -> list[Row]:
    """Start a broker and a JVM, and run everything."""
    from tests.real.apache import ApacheCluster

    count = max(2_000, int(100_000 * scale))
    with ApacheCluster(VERSION, brokers=1, jvm=_JVM) as cluster:
        at = cluster.name_server
        cluster.create_topic(_TOPIC, 8)
        consuming.fill(at, maker(RICH, _TOPIC, 200), count + count // 5)
        with java_client(at, "BenchReceive") as java:
            java.run("receive", _TOPIC, count)
            return contest(_TITLE, paths(at, java, count), rounds)


def verdicts(rows: list[Row]) -> list[Verdict]:
    """What of the target holds."""
    return [
        Verdict(
            f"{row.name}: messages/s over that of {ratio.against}",
            ratio.median,
            TARGET,
            ratio.median >= TARGET,
        )
        for row in rows
        for ratio in row.ratios
    ]


def main(words: list[str] | None = None) -> int:
    """Measure and print; 1 if it can't be done, or the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.receiving", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each path is run (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 receives a tenth")
    chosen = parser.parse_args(words)
    missing = missing_tools()
    if missing:
        print(f"no {', '.join(missing)} on the PATH: a real broker is needed", file=sys.stderr)
        return 1
    rows = measure(chosen.rounds, chosen.scale)
    print(report.table(rows))
    found = verdicts(rows)
    for verdict in found:
        print(verdict.line())
    return 0 if all(verdict.held for verdict in found) else 1


if __name__ == "__main__":
    sys.exit(main())
