"""Our paths, bare sockets, Java and Go on one real Apache RocketMQ broker, in one run.

All clients send messages of the same shape (``shapes.py``), none with the body of another, and make
them as they go. All paths with many messages in flight have the same: one process with one connection
to the broker, eight queues in turn. Without an answer are at most 1,024 messages, or 8 batches, or
10,000 messages that travel in batches which the client makes by itself: Java's hold 32 KiB and ours
128 KiB, which are their defaults. Java's asynchronous batches of 500 stand beside our lists and beside
``send_many``. The floor writes constant bytes, that is to one queue and with one message id.

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
from typing import Final

from bench import floor, ours
from bench.acking import scaled
from bench.foreign import VERSION, ForeignClient, go_client, java_client
from bench.rounds import Measure, Path
from bench.samples import process_cpu
from bench.shapes import KEY, RICH, Shape, maker
from bench.worker import LIST, WINDOW, Task, perform

TOPIC = "bench"
FLOOR = "floor"
#: Seconds that a blocking send of ours computes. A bare socket that pauses for as long between an
#: answer and the next request waits longer for it, because the broker's threads went to sleep.
PAUSE: Final = 40e-6
PAUSED = f"floor, {PAUSE * 1e6:.0f} µs between"
ONE, THREADS, FLYING = "broker: one at a time", "broker: 8 threads", "broker: many in flight"
AUTO, LISTS, SMALL = "broker: auto-batch", "broker: lists of 500", "broker: lists of 50"
ONEWAY = "broker: oneway"
#: Our paths of each contest, with the number of messages.
CONTESTS: Final = {
    ONE: {"send": 2_000},
    FLYING: {
        "await send, 1024 at once": 20 * WINDOW,
        "await submit": 20_000,
        "submit": 20_000,
    },
    AUTO: {"await submit, auto_batch": 100_000, "submit, auto_batch": 100_000},
    LISTS: {
        "send_many": 100_000,
        "await send_many": 100_000,
        "send of 500": 100_000,
        "await submit of 500": 100_000,
        "send_table": 200_000,
    },
    ONEWAY: {"send_oneway": 10_000, "await send_oneway": 10_000},
}
#: What Java and Go do beside it: their path, and how. Neither sends a list by sharding keys, and only
#: Java makes batches by itself.
_THEIRS: Final[dict[str, tuple[str, dict[str, int]]]] = {
    ONE: ("sync", {}),
    FLYING: ("async", {"window": WINDOW}),
    AUTO: ("autobatch", {"window": 10_000}),
    LISTS: ("batch", {"batch": LIST, "window": 8}),
    ONEWAY: ("oneway", {}),
}
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
    #: Seconds of CPU that the broker has taken.
    cpu: Callable[[], float]


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
        wait = partial(settle, partial(cluster.max_offsets, TOPIC))
        cpu = partial(process_cpu, broker.pid)
        yield Stage(cluster.name_server, broker.address, broker.name, tuple(clients), wait, cpu)


def settle(offsets: Callable[[], object], limit: float = 30.0, pause: float = 0.1) -> None:
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
    rich = RICH.word
    for client in found.clients:
        client.run("sync", TOPIC, 20_000, threads=4, shape=rich)
        client.run("async", TOPIC, 40_000, window=WINDOW, shape=rich)
        client.run("oneway", TOPIC, 5_000, shape=rich)
        client.run("batch", TOPIC, 100_000, batch=50, window=_IN_FLIGHT, shape=rich)
        client.run("batch", TOPIC, 400_000, batch=LIST, window=_IN_FLIGHT, shape=rich)
        if client.name == "java":
            client.run("autobatch", TOPIC, 400_000, window=10_000, shape=rich)
    found.settle()


def contests(found: Stage, shape: Shape, size: int, scale: float) -> dict[str, list[Path]]:
    """Contests by name, for messages of one shape."""
    ready = {}
    for name, counts in CONTESTS.items():
        floors = _floor(found, name, shape, size, scale)
        theirs = _theirs(found, name, shape, size, scaled(max(counts.values()), scale, size))
        rivals = tuple(path.name for path in (*floors, *theirs))
        mine = []
        for path, count in counts.items():
            number = scaled(count, scale, size)
            task = Task(path, shape.word, number, found.name_server, TOPIC, size)
            mine.append(Path(path, partial(perform, task), _measure(name), rivals))
        ready[name] = [*floors, *mine, *theirs]
    if shape is KEY:
        ready |= _more(found, size, scale)
    return ready


def _measure(contest: str) -> Measure:
    return "p50" if contest in {ONE, THREADS} else "rate"


def _floor(found: Stage, contest: str, shape: Shape, size: int, scale: float) -> list[Path]:
    """Bare sockets, where they have something to show."""
    make = maker(shape, TOPIC, size)
    if contest == ONE:
        single, sync = floor.frame(found.broker, make), scaled(2_000, scale, size)
        return [
            Path(FLOOR, lambda: floor.ping_pong(found.address, single, sync), "p50"),
            Path(PAUSED, lambda: floor.ping_pong(found.address, single, sync, PAUSE), "p50"),
        ]
    if contest == FLYING:
        single, flying = floor.frame(found.broker, make), scaled(20_000, scale, size)
        return [
            Path(FLOOR, lambda: floor.pipelined(found.address, single, flying, window=WINDOW)),
        ]
    if contest in {LISTS, SMALL}:
        batch = LIST if contest == LISTS else 50
        frame = floor.frame(found.broker, make, batch=batch)
        count = max(1, scaled(200_000, scale, size) // batch)
        return [
            Path(
                FLOOR,
                lambda: floor.pipelined(found.address, frame, count, window=_IN_FLIGHT, each=batch),
            )
        ]
    return []


def _theirs(found: Stage, contest: str, shape: Shape, size: int, count: int) -> list[Path]:
    """Java and Go."""
    path, how = _THEIRS[contest]
    if shape.is_sharded and path in {"autobatch", "batch"}:
        return []
    against = (FLOOR,) if contest in {ONE, FLYING, LISTS} else ()
    return [
        Path(
            client.name,
            partial(client.run, path, TOPIC, count, size=size, shape=shape.word, **how),
            _measure(contest),
            against,
        )
        for client in found.clients
        if path != "autobatch" or client.name == "java"
    ]


def _more(found: Stage, size: int, scale: float) -> dict[str, list[Path]]:
    """What one shape tells for all: threads, and short lists."""
    names = tuple(client.name for client in found.clients)
    make, sync = maker(KEY, TOPIC, size), scaled(4_000, scale, size)
    packed = scaled(100_000, scale, size)
    at = (found.name_server, make)
    how = {"size": size, "shape": KEY.word}
    return {
        THREADS: [
            Path("send", lambda: ours.blocking(*at, sync, 8), "p50", names),
            *[
                Path(c.name, partial(c.run, "sync", TOPIC, sync, threads=8, **how), "p50")  # type: ignore[arg-type]
                for c in found.clients
            ],
        ],
        SMALL: [
            *_floor(found, SMALL, KEY, size, scale),
            Path(
                "await submit of 50",
                lambda: ours.batches(*at, packed, 50),
                "rate",
                (FLOOR, *names),
            ),
            *[
                Path(
                    c.name,
                    partial(c.run, "batch", TOPIC, packed, batch=50, window=_IN_FLIGHT, **how),  # type: ignore[arg-type]
                    "rate",
                    (FLOOR,),
                )
                for c in found.clients
            ],
        ],
    }
