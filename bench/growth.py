"""How cost grows: with threads, body sizes, queues, brokers, name servers and messages in flight.

CPU time per message is what is told, because it says the same on a busy machine.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench import ours
from bench.acker import acker
from bench.guard import counting
from bench.guard.stage import ADDRESS, asyncio_stage
from bench.guard.stage import TOPIC as STAGE_TOPIC
from bench.samples import Sample
from bench.shapes import KEY, Maker, maker
from rocketwire import Message, Producer

_TOPIC = "bench"
_BODY = b"x" * 200
Series = dict[str, Any]


def series(rounds: int, scale: float) -> dict[str, Series]:
    """Every series by its name."""

    def times(count: int, least: int = 200) -> int:
        return max(least, int(count * scale))

    found: dict[str, Series] = {}
    with acker(1, 8) as server:
        at = server.name_server
        found["threads"] = _grow(
            "CPU µs of Producer.send by threads",
            (1, 2, 4, 8, 16, 32, 64),
            lambda n: ours.blocking(at, _make(), times(6_000, 640), int(n)),
            rounds,
        )
        found["body"] = _grow(
            "CPU µs of submit by bytes of the body, not compressed",
            (10, 100, 1_000, 10_000, 100_000, 1_048_576),
            lambda n: ours.submitted(
                at,
                _make(int(n)),
                times(int(4_000_000 // (int(n) + 400)), 20),
                compress_over=0,
            ),
            rounds,
        )
    for name, points, shape in (
        ("queues", (1, 10, 100, 1000), lambda n: (1, n)),
        ("brokers", (1, 3, 10, 30, 100), lambda n: (n, 4)),
    ):
        found[name] = _grow(
            f"CPU µs of submit by {name}", points, _on_shape(shape, times(10_000)), rounds
        )
    found["name servers"] = _name_servers(rounds)
    found["in flight"] = _in_flight()
    found["import"] = _import_time(rounds)
    return found


def _make(size: int = len(_BODY)) -> Maker:
    return maker(KEY, _TOPIC, size)


def _on_shape(shape: Callable[[int], tuple[int, int]], count: int) -> Callable[[float], Sample]:
    def run(point: float) -> Sample:
        brokers, queues = shape(int(point))
        with acker(brokers, queues) as server:
            return ours.submitted(server.name_server, _make(), count)

    return run


def _grow(
    title: str, points: Iterable[float], run: Callable[[float], Sample], rounds: int
) -> Series:
    """The median of some rounds at each point; rounds go over all points in turn."""
    taken: dict[float, list[float]] = {point: [] for point in points}
    for _ in range(rounds):
        for point, values in taken.items():
            values.append(run(point).cpu_each * 1e6)
    return _as_series(title, taken)


def _as_series(title: str, taken: dict[float, list[float]]) -> Series:
    return {
        "title": title,
        "points": [
            {"x": x, "y": statistics.median(v), "low": min(v), "high": max(v)}
            for x, v in taken.items()
        ],
    }


def _name_servers(rounds: int) -> Series:
    """From start to the first answer, all name servers alive."""
    taken: dict[float, list[float]] = {n: [] for n in (1, 2, 4, 8)}
    with acker(8, 4) as server:
        for _ in range(rounds):
            for count, values in taken.items():
                names = ";".join(server.addresses[: int(count)])
                began = time.process_time()
                with Producer(names, group="bench", background=False) as producer:
                    producer.send(Message(_TOPIC, _BODY))
                    values.append((time.process_time() - began) * 1e6)
    return _as_series("CPU µs from start to the first answer by name servers", taken)


def _in_flight() -> Series:
    taken: dict[float, list[float]] = {}
    for count in (100, 1_000, 10_000):
        taken[count] = [asyncio.run(_memory_each(count))]
    return _as_series("bytes of memory per message in flight, beyond its body", taken)


async def _memory_each(count: int) -> float:
    options = {"shutdown_timeout": 0.01, "max_in_flight": count + 100}
    async with asyncio_stage(**options) as (producer, wire, read):
        await producer.submit(Message(STAGE_TOPIC, _BODY))
        read()
        wire.is_deaf = True
        producer._submitter.left = 10**9  # no turn of the loop in between
        bodies = [b"%0200d" % number for number in range(count)]
        kept: list[Any] = []

        def make() -> object:
            for body in bodies:
                try:
                    producer.submit(Message(STAGE_TOPIC, body)).send(None)
                except StopIteration as stop:
                    kept.append(stop.value)
            producer._driver.connections[ADDRESS]._flush()  # the end of the tick
            return kept

        return counting.memory_of(make) / count


def _import_time(rounds: int) -> Series:
    """CPU of ``import rocketwire`` in a new interpreter, beyond the interpreter's own."""
    program = (
        "import time; began = time.process_time(); import rocketwire; "
        "print(time.process_time() - began)"
    )
    values = []
    for _ in range(max(3, rounds)):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
        )
        values.append(float(done.stdout) * 1000)
    return _as_series("CPU ms of import rocketwire", {1: values})
