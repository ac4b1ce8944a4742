"""Our paths, bare sockets, Java and Go on one real Apache RocketMQ broker, in one run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from bench import floor, ours
from bench.foreign import VERSION, ForeignClient, go_client, java_client
from bench.rounds import Path
from bench.samples import Sample

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
        yield Stage(cluster.name_server, broker.address, broker.name, tuple(clients))


def warm_up(found: Stage) -> None:
    """Let just-in-time compilers, the clients' and the broker's, see each path before it counts.

    As long in a short run as in a long one: a cold JVM costs ten times a warm one.
    """
    for client in found.clients:
        client.run("sync", TOPIC, 5_000)
        client.run("async", TOPIC, 30_000, window=_WINDOW)
        client.run("batch", TOPIC, 50_000, batch=500, window=_IN_FLIGHT)
        if client.name == "java":
            client.run("autobatch", TOPIC, 50_000, window=10_000)


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

    at = (found.name_server, TOPIC, body)
    sync, flying, packed = times(3_000, 100), times(30_000, 500), times(100_000, 2_000)
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
            Path("await send, 256 tasks", lambda: ours.awaited(*at, flying), "rate", rivals),
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
        Path("send_table (columns)", lambda: ours.columns(*at, packed), "rate", rivals)
    )
    return found_groups


def _floor_batches(address: str, frame: bytes, count: int, batch: int) -> Sample:
    return floor.pipelined(address, frame, max(1, count // batch), window=_IN_FLIGHT, each=batch)
