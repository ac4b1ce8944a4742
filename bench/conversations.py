"""Transactions and requests beside Java's: ``python -m bench.conversations``.

One real broker. A transaction is a half message and its commit; Java sends the commit without waiting
for an answer, and ours waits. So ours is also measured beside Java's half message with a commit that
is answered, which has the same round trips. A request goes to a consumer in a process of its own, which replies with
the same body, whoever asks. Every round runs every path once; ratios are made within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from bench import report
from bench.broker import missing_tools
from bench.foreign import VERSION, ForeignClient, java_client
from bench.goals import Verdict
from bench.ours import run_loop
from bench.rounds import Path, Row, contest
from bench.samples import Sample, Stopwatch
from bench.shapes import KEY, maker
from rocketwire import AsyncConsumer, AsyncProducer, Message, Producer, Reply

_TOPICS: Final = {"transactions": "bench-transactions", "requests": "bench-requests"}
_JVM: Final = ("-XX:+UseG1GC", "-Xms512m", "-Xmx512m")
#: By name, what the Java program is told to do.
_RIVALS: Final = {
    "transactions": {"java": "transactions", "java, commit answered": "answered"},
    "requests": {"java": "requests"},
}
#: How many at once, on threads or tasks.
AT_ONCE: Final = 64
#: What ours does of Java's a second, at least.
TARGET: Final = 1.0


def transact(producer: Producer, message: Message) -> None:
    """One transaction, committed at once."""
    with producer.transaction(message):
        pass


def request(producer: Producer, message: Message) -> None:
    """One request, and its reply."""
    producer.request(message, timeout=10.0)


async def transact_on_loop(producer: AsyncProducer, message: Message) -> None:
    """One transaction, committed at once."""
    async with producer.transaction(message):
        pass


async def request_on_loop(producer: AsyncProducer, message: Message) -> None:
    """One request, and its reply."""
    await producer.request(message, timeout=10.0)


def blocking(
    step: Callable[[Producer, Message], None],
    name_server: str,
    topic: str,
    count: int,
    threads: int,
) -> Sample:
    """``Producer`` on some threads."""
    make = maker(KEY, topic, 200)
    with Producer(name_server, group="bench-conversations") as producer:
        step(producer, make(count))
        numbers, lock = iter(range(count)), threading.Lock()
        spans: list[float] = []

        def work() -> None:
            while (number := _next_of(numbers, lock)) is not None:
                began = time.perf_counter()
                step(producer, make(number))
                spans.append(time.perf_counter() - began)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        with Stopwatch() as watch:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    if len(spans) != count:
        raise RuntimeError(f"{count - len(spans)} of {count} failed")
    return watch.sample(count, spans)


def _next_of(numbers: Iterator[int], lock: threading.Lock) -> int | None:
    with lock:
        return next(numbers, None)


def on_loop(
    step: Callable[[AsyncProducer, Message], Awaitable[None]],
    name_server: str,
    topic: str,
    count: int,
    tasks: int,
) -> Sample:
    """``AsyncProducer`` with some tasks."""

    async def main() -> Sample:
        make = maker(KEY, topic, 200)
        async with AsyncProducer(name_server, group="bench-conversations") as producer:
            await step(producer, make(count))
            numbers, spans = iter(range(count)), []

            async def work() -> None:
                for number in numbers:
                    began = time.perf_counter()
                    await step(producer, make(number))
                    spans.append(time.perf_counter() - began)

            with Stopwatch() as watch:
                await asyncio.gather(*(work() for _ in range(tasks)))
        return watch.sample(count, spans)

    return run_loop(main)


_STEPS: Final[dict[str, tuple[Any, Any]]] = {
    "transactions": (transact, transact_on_loop),
    "requests": (request, request_on_loop),
}


def paths(kind: str, name_server: str, java: ForeignClient, count: int, at_once: int) -> list[Path]:
    """Who does how many a second, so many at a time."""
    topic = _TOPICS[kind]
    step, step_on_loop = _STEPS[kind]
    at: tuple[Any, ...] = (name_server, topic, count, at_once)
    rivals = _RIVALS[kind]
    return [
        *(
            Path(name, partial(java.run, command, topic, count, threads=at_once))
            for name, command in rivals.items()
        ),
        Path("Producer", partial(blocking, step, *at), "rate", tuple(rivals)),
        Path("AsyncProducer", partial(on_loop, step_on_loop, *at), "rate", tuple(rivals)),
    ]


async def reply_to_all(name_server: str) -> None:
    """Reply to every request with its own body, until the end of the process."""
    consumer = AsyncConsumer(name_server, group="bench-replier", start="earliest", workers=AT_ONCE)
    consumer.subscribe(_TOPICS["requests"])
    await consumer.join()
    print("ready", flush=True)
    await consumer.run(lambda message: Reply(message.body))


@contextmanager
def _replier(name_server: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.conversations", "--reply-at", name_server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise RuntimeError("the one who replies did not start")
            yield
        finally:
            process.kill()


def measure(rounds: int, scale: float) -> list[Row]:
    """Start a broker and a JVM, and run everything."""
    from tests.real.apache import ApacheCluster

    rows: list[Row] = []
    with ApacheCluster(VERSION, brokers=1, jvm=_JVM) as cluster:
        at = cluster.name_server
        for topic in _TOPICS.values():
            cluster.create_topic(topic, 8)
        with (
            java_client(at, "BenchConversation") as java,
            _replier(at),
        ):
            for kind, topic in _TOPICS.items():
                for at_once, usual in ((1, 2_000), (AT_ONCE, 10_000)):
                    count = max(200, int(usual * scale))
                    for command in _RIVALS[kind].values():
                        java.run(command, topic, count, threads=at_once)
                    title = f"{kind}: {at_once} at a time"
                    rows += contest(title, paths(kind, at, java, count, at_once), rounds)
    return rows


def verdicts(rows: list[Row]) -> list[Verdict]:
    """What of the targets holds: the better of our shells at least as fast as Java."""
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        for ratio in row.ratios:
            key = (row.contest, ratio.against)
            best[key] = max(ratio.median, best.get(key, 0.0))
    return [
        Verdict(f"{name}, over the rate of {rival}", found, TARGET, found >= TARGET)
        for (name, rival), found in best.items()
    ]


def main(words: list[str] | None = None) -> int:
    """Measure and print; 1 if it can't be done, or a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.conversations", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each path is run (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 runs a tenth")
    parser.add_argument("--reply-at", default="", help="only reply to requests, at a name server")
    chosen = parser.parse_args(words)
    if chosen.reply_at:
        asyncio.run(reply_to_all(chosen.reply_at))
        return 0
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
