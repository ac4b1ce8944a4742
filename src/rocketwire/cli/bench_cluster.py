"""``rocketwire bench --topic``: how fast this machine sends to the user's own cluster.

Each way to send is run in turn, some rounds long, and told beside the plain blocking send of the
same round: on a network that others use, a ratio says more than a figure. Every message has a body
of its own, and is made as it is sent.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketwire.cli.bench_shapes import Maker, Shape, maker
from rocketwire.sync.producer import Producer

_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class Found:
    """One way to send: medians over the rounds. Latencies where one send waits for another."""

    path: str
    messages_per_second: float
    cpu_microseconds: float
    p50_ms: float | None
    p99_ms: float | None
    times_blocking: float


@dataclass(frozen=True, slots=True)
class _Run:
    messages: int
    seconds: float
    cpu: float
    latencies: Sequence[float] = ()


def measure(
    make: Callable[..., Producer],
    topic: str,
    *,
    count: int,
    size: int,
    rounds: int,
    shape: Shape = Shape.KEY,
) -> list[Found]:
    """Run every way to send.

    Args:
        make: a producer that is not started, with options.
        topic: where the messages go. They stay there.
        count: messages of a blocking run; the others send ten times as many.
        size: bytes of a body.
        rounds: how often each is run.
        shape: what a message has beside its body.

    Raises:
        SendFailedError: a send failed.
    """
    message = maker(shape, topic, size)
    with make() as plain, make(group="rocketwire-bench-batching", auto_batch=True) as batching:
        paths: dict[str, Callable[[], _Run]] = {
            "send": lambda: _one_by_one(plain, message, count),
            "submit": lambda: _submitted(plain, message, count * 10),
            "submit, auto_batch": lambda: _submitted(batching, message, count * 10),
            f"send of {_BATCH}": lambda: _in_batches(plain, message, count * 10),
            "send_many": lambda: _many(plain, message, count * 10),
        }
        plain.send(message(0))
        batching.send(message(0))
        taken: dict[str, list[_Run]] = {name: [] for name in paths}
        for _ in range(rounds):
            for name, run in paths.items():
                taken[name].append(run())
    return [_summary(name, runs, taken["send"]) for name, runs in taken.items()]


def _one_by_one(producer: Producer, message: Maker, count: int) -> _Run:
    clock, latencies = time.perf_counter, []
    cpu, began = time.process_time(), clock()
    for number in range(count):
        start = clock()
        producer.send(message(number))
        latencies.append(clock() - start)
    return _Run(count, clock() - began, time.process_time() - cpu, latencies)


def _submitted(producer: Producer, message: Maker, count: int) -> _Run:
    cpu, began = time.process_time(), time.perf_counter()
    deliveries = [producer.submit(message(number)) for number in range(count)]
    producer.flush()
    run = _Run(count, time.perf_counter() - began, time.process_time() - cpu)
    for delivery in deliveries:
        delivery.result()  # raises what went wrong
    return run


def _in_batches(producer: Producer, message: Maker, count: int) -> _Run:
    times = max(1, count // _BATCH)
    cpu, began = time.process_time(), time.perf_counter()
    for first in range(0, times * _BATCH, _BATCH):
        producer.send([message(number) for number in range(first, first + _BATCH)])
    return _Run(times * _BATCH, time.perf_counter() - began, time.process_time() - cpu)


def _many(producer: Producer, message: Maker, count: int) -> _Run:
    cpu, began = time.process_time(), time.perf_counter()
    producer.send_many(message(number) for number in range(count))
    return _Run(count, time.perf_counter() - began, time.process_time() - cpu)


def _summary(name: str, runs: Sequence[_Run], reference: Sequence[_Run]) -> Found:
    rates = [run.messages / run.seconds for run in runs]
    ratios = [
        rate / (other.messages / other.seconds)
        for rate, other in zip(rates, reference, strict=True)
    ]
    return Found(
        name,
        statistics.median(rates),
        statistics.median(run.cpu / run.messages for run in runs) * 1e6,
        _quantile(runs, 0.5),
        _quantile(runs, 0.99),
        statistics.median(ratios),
    )


def _quantile(runs: Sequence[_Run], part: float) -> float | None:
    ordered = sorted(latency for run in runs for latency in run.latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e3 if ordered else None


def as_rows(found: Sequence[Found]) -> list[tuple[str, ...]]:
    """Cells of a table for people."""

    def ms(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    return [
        (
            one.path,
            f"{one.messages_per_second:,.0f}",
            f"{one.times_blocking:.1f}x",
            ms(one.p50_ms),
            ms(one.p99_ms),
            f"{one.cpu_microseconds:.1f}",
        )
        for one in found
    ]


HEADINGS: Final = ("path", "messages/s#", "of send#", "p50 ms#", "p99 ms#", "CPU µs#")
