"""Runs paths side by side, in rounds, and compares them within each round.

On a machine that others use, a figure says little and a ratio of two figures taken seconds apart
says much. So every round runs every path once, in a new order; ratios are made within a round, and
their median and spread over the rounds are what is told.

Where a figure is wanted all the same, CPU time is told at the usual pace of the machine, which a fixed
loop measures before and after each run (``reference.py``).
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bench import reference
from bench.samples import Sample

Measure = Literal["rate", "p50"]


@dataclass(frozen=True)
class Path:
    """One way to send. ``against`` names the paths of its contest that it is compared with."""

    name: str
    run: Callable[[], Sample]
    measure: Measure = "rate"
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ratio:
    """Ours over theirs: of latencies less is better, of rates more."""

    against: str
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """What is known of a path after all rounds."""

    contest: str
    name: str
    measure: Measure
    rate: float
    p50: float | None
    p99: float | None
    cpu_each: float
    ratios: tuple[Ratio, ...]
    samples: tuple[Sample, ...] = field(repr=False)

    @property
    def cost(self) -> float:
        """Seconds of CPU per message at the usual pace of the machine, making it counted."""
        return statistics.median(sample.cost for sample in self.samples)

    @property
    def sending_cost(self) -> float:
        """The same, making it not counted."""
        return statistics.median(sample.sending_cost for sample in self.samples)

    @property
    def server_share(self) -> float | None:
        """How much of one core the server took meanwhile; None where nobody looked."""
        return _middle([s.server for s in self.samples if s.server is not None])

    def as_json(self) -> dict[str, Any]:
        """For the JSON file: seconds, messages per second."""
        return {
            "contest": self.contest,
            "path": self.name,
            "measure": self.measure,
            "messages_per_second": self.rate,
            "p50": self.p50,
            "p99": self.p99,
            "cpu_seconds_per_message": self.cpu_each,
            "cost": self.cost,
            "sending_cost": self.sending_cost,
            "server_share": self.server_share,
            "ratios": {
                ratio.against: {"median": ratio.median, "low": ratio.low, "high": ratio.high}
                for ratio in self.ratios
            },
            "rounds": [
                {
                    "messages": s.messages,
                    "seconds": s.seconds,
                    "cpu": s.cpu,
                    "making": s.making,
                    "pace": s.pace,
                    "p50": s.p50,
                }
                for s in self.samples
            ],
        }


def figure(sample: Sample, measure: Measure) -> float:
    """The number that a path is judged by."""
    if measure == "rate":
        return sample.rate
    if sample.p50 is None:
        raise ValueError("a path that is measured by its latency tells none")
    return sample.p50


def _at_once() -> None:
    """There is nothing to wait for between two paths."""


def contest(
    name: str,
    paths: Sequence[Path],
    rounds: int,
    *,
    seed: int = 1,
    quiet: bool = False,
    settle: Callable[[], object] = _at_once,
    server: Callable[[], float] | None = None,
) -> list[Row]:
    """Run all paths in every round. A path that fails is told and left out.

    ``settle`` waits before each path until what the one before it left to be done is done; ``server``
    tells how many seconds of CPU the server has taken.
    """
    order = list(paths)
    taken: dict[str, list[Sample]] = {path.name: [] for path in paths}
    shuffle = random.Random(seed).shuffle
    for number in range(rounds):
        shuffle(order)
        for path in list(order):
            if not quiet and sys.stderr.isatty():
                print(
                    f"\r{name}: round {number + 1}/{rounds}, {path.name:<40}",
                    end="",
                    file=sys.stderr,
                )
            try:
                settle()
                taken[path.name].append(_timed(path.run, server))
            except Exception as error:
                print(f"\n{name}: {path.name} failed: {error!r}", file=sys.stderr)
                order.remove(path)
                taken[path.name].clear()
    if not quiet and sys.stderr.isatty():
        print(f"\r{'':<80}\r", end="", file=sys.stderr)
    return [_row(name, path, taken) for path in paths if taken[path.name]]


def _timed(run: Callable[[], Sample], server: Callable[[], float] | None) -> Sample:
    """One run, with the pace of the machine around it and what the server took."""
    before, used = reference.pace(), server() if server else 0.0
    began = time.perf_counter()
    sample = run()
    share = (server() - used) / (time.perf_counter() - began) if server else None
    return replace(sample, pace=(before + reference.pace()) / 2, server=share)


def _row(name: str, path: Path, taken: dict[str, list[Sample]]) -> Row:
    samples = taken[path.name]
    return Row(
        name,
        path.name,
        path.measure,
        statistics.median(s.rate for s in samples),
        _middle([s.p50 for s in samples if s.p50 is not None]),
        _middle([s.p99 for s in samples if s.p99 is not None]),
        statistics.median(s.cpu_each for s in samples),
        tuple(
            compare(samples, taken[other], path.measure, other)
            for other in path.against
            if taken.get(other)
        ),
        tuple(samples),
    )


def compare(ours: Sequence[Sample], theirs: Sequence[Sample], measure: Measure, name: str) -> Ratio:
    """The ratio within each round, and how far apart the rounds are."""
    found = [
        figure(mine, measure) / figure(other, measure)
        for mine, other in zip(ours, theirs, strict=False)
    ]
    return Ratio(name, statistics.median(found), min(found), max(found))


def _middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
