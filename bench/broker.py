"""Our paths, bare sockets, Java and Go on one real Apache RocketMQ broker, in one run.

All paths with many messages in flight have the same: one process with one connection to the
broker, bodies of the same bytes, eight queues in turn. Without an answer are at most 1,000
messages, or 8 batches, or 10,000 messages that travel in batches which the client makes by itself:
Java's hold 32 KiB and ours 128 KiB, which are their defaults. The floor writes constant bytes,
that is to one queue and with one message id.

The broker shares the machine. Once a batch is answered, one thread of the broker still has to
enter it into queues and index, and takes longer for that (2.5 µs a message) than for storing it.
What is left of this from one path would be paid by the next, so a path begins when it is done.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from bench import floor, ours
from bench.foreign import VERSION, ForeignClient, go_client, java_client
from bench.rounds import Path
from bench.samples import Sample
from bench.shapes import BODY, maker, table

TOPIC = "bench"
FLOOR = "floor"
_WINDOW = 1000
_IN_FLIGHT = 8
#: As production would run a broker, but small: the machine is shared with the clients.
_JVM = ("-XX:+UseG1GC", "-Xms512m", "-Xmx512m")


@dataclass(frozen=True)
class Stage:
    """A broker, and the foreign clients that this machine can run."""

    name_server: str
    address: str
    broker: str
    clients: tuple[ForeignClient, ...]
    #: Waits until the broker has entered all that it stored.
    settle: Callable[[], None]


def missing_tools() -> list[str]:
    """What a real broker needs and this machine has not."""
    return [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]


@contextmanager
def stage(against: tuple[str, ...] = ("java", "go")) -> Iterator[Stage]:
    """Start a broker and the clients, and warm them up."""
    from tests.real.apache import ApacheCluster

    with ExitStack() as stack:
        overrides = {"sendMessageThreadPoolNums": "4"}
        cluster = stack.enter_context(
            ApacheCluster(VERSION, brokers=1, jvm=_JVM, overrides=overrides)
        )
        cluster.create_topic(TOPIC, 8)
        clients = []
        for name, start in (("java", java_client), ("go", go_client)):
            if name in against and shutil.which(name):
                clients.append(stack.enter_context(start(cluster.name_server)))
            elif name in against:
                print(f"no {name} on the PATH: it is left out", file=sys.stderr)
        broker = cluster.brokers[0]
        settle = partial(_settle, partial(cluster.max_offsets, TOPIC))
        yield Stage(cluster.name_server, broker.address, broker.name, tuple(clients), settle)


def _settle(offsets: Callable[[], object], limit: float = 30.0, pause: float = 0.1) -> None:
    """Wait until the ends of the queues stand still: the broker tells those of what it entered."""
    end, before = time.monotonic() + limit, offsets()
    while time.monotonic() < end:
        time.sleep(pause)
        now = offsets()
        if now == before:
            return
        before = now


def warm_up(found: Stage) -> None:
    """Let just-in-time compilers, the clients' and the broker's, see each path before it counts.

    As long in a short run as in a long one: a cold JVM costs ten times a warm one. A broker that
    had seen half a million messages still compiled for 1.0 of the next 2.5 s.
    """
    for client in found.clients:
        client.run("sync", TOPIC, 5_000)
        client.run("async", TOPIC, 30_000, window=_WINDOW)
        client.run("batch", TOPIC, 100_000, batch=50, window=_IN_FLIGHT)
        client.run("batch", TOPIC, 400_000, batch=500, window=_IN_FLIGHT)
        if client.name == "java":
            client.run("autobatch", TOPIC, 400_000, window=10_000)
    found.settle()


def groups(found: Stage, body: bytes, scale: float) -> dict[str, list[Path]]:
    """Contests by name."""

    def times(count: int, least: int) -> int:
        return max(least, int(count * scale))

    size = len(body)
    single = floor.frame(TOPIC, found.broker, body)
    names = tuple(client.name for client in found.clients)
    rivals = (FLOOR, *names)

    def theirs(path: str, count: int, *, label: str = "", **how: int) -> list[Path]:
        measure = "p50" if path == "sync" else "rate"
        return [
            Path(
                client.name + label,
                partial(client.run, path, TOPIC, count, size=size, **how),
                measure,  # type: ignore[arg-type]
                () if label else (FLOOR,),
            )
            for client in found.clients
            if path != "autobatch" or client.name == "java"
        ]

    at = (found.name_server, maker(BODY, TOPIC, size))
    sync, flying, packed = times(3_000, 100), times(30_000, 500), times(300_000, 2_000)
    rows = table(BODY, size, packed)
    eight = tuple(f"{name}, 8 threads" for name in names)
    found_groups = {
        "broker: one at a time": [
            Path(FLOOR, lambda: floor.ping_pong(found.address, single, sync), "p50"),
            Path("Producer.send", lambda: ours.blocking(*at, sync), "p50", rivals),
            *theirs("sync", sync),
        ],
        "broker: 8 threads": [
            Path("Producer.send, 8 threads", lambda: ours.blocking(*at, sync * 2, 8), "p50", eight),
            *theirs("sync", sync * 2, label=", 8 threads", threads=8),
        ],
        "broker: many in flight": [
            Path(FLOOR, lambda: floor.pipelined(found.address, single, flying, window=_WINDOW)),
            Path("await send, 1024 at once", lambda: ours.awaited(*at, flying), "rate", rivals),
            Path(
                "AsyncProducer.submit",
                lambda: ours.submitted(*at, flying, max_in_flight=_WINDOW),
                "rate",
                rivals,
            ),
            *theirs("async", flying, window=_WINDOW),
        ],
        "broker: auto-batch": [
            Path(
                "AsyncProducer.submit, auto_batch",
                lambda: ours.submitted(*at, packed, auto_batch=True),
                "rate",
                ("java",),
            ),
            # Java's own limit on what its accumulator holds does the rest.
            *[
                Path(path.name, path.run, path.measure)
                for path in theirs("autobatch", packed, window=10_000)
            ],
        ],
    }
    for batch in (50, 500):
        frame = floor.frame(TOPIC, found.broker, body, batch=batch)
        count = packed if batch == 500 else packed // 2
        found_groups[f"broker: batches of {batch}"] = [
            Path(FLOOR, partial(_floor_batches, found.address, frame, count, batch)),
            Path(f"batches of {batch}", partial(ours.batches, *at, count, batch), "rate", rivals),
            *theirs("batch", count, batch=batch, window=_IN_FLIGHT),
        ]
    found_groups["broker: batches of 500"].append(
        Path(
            "send_table (columns)",
            lambda: ours.columns(found.name_server, TOPIC, rows),
            "rate",
            rivals,
        )
    )
    return found_groups


def _floor_batches(address: str, frame: bytes, count: int, batch: int) -> Sample:
    return floor.pipelined(address, frame, max(1, count // batch), window=_IN_FLIGHT, each=batch)
