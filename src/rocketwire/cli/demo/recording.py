"""What the broker part of the demo leaves behind, and the numbers and plots made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketwire.cli.demo.checks import Check
from rocketwire.cli.demo.load import Client, LedgerClient, Sample, VerdictLog, quantile
from rocketwire.cli.demo.story import FaultPeriod
from rocketwire.cli.output import milliseconds
from rocketwire.pages.charts import WIDTH, Band, Bar, Line, bar_plot, line_plot

_LATENCY_BUCKET: Final = 0.25
_RATE_BUCKET: Final = 0.5
_BROKER_ROLES: Final = ("third", "ours", "plain")


@dataclass(slots=True)
class Recording:
    """The broker part of the demo."""

    seconds: float
    ours: Client
    plain: Client
    ledger: LedgerClient
    faults: list[FaultPeriod]
    verdicts: VerdictLog
    checks: list[Check] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)

    def bands(self) -> list[Band]:
        """The faults, for shading."""
        return [Band(f"{f.broker} {f.name}", f.begin, f.end) for f in self.faults]

    def latency_plot(self, *, width: int = WIDTH, standalone: bool = False) -> str:
        """How long sends took, of both clients."""
        lines = [
            Line("plain client, p99", "plain", latency_points(self.plain.samples, self.seconds)),
            Line("Rocketwire, p99", "ours", latency_points(self.ours.samples, self.seconds)),
        ]
        return line_plot(
            "Time that a send takes",
            lines,
            seconds=self.seconds,
            bands=self.bands(),
            logarithmic=True,
            width=width,
            standalone=standalone,
        )

    def rate_plot(self, *, width: int = WIDTH) -> str:
        """Acknowledged sends a second, of both clients."""
        lines = [
            Line("plain client", "plain", rate_points(self.plain.samples, self.seconds)),
            Line("Rocketwire", "ours", rate_points(self.ours.samples, self.seconds)),
        ]
        return line_plot(
            "Acknowledged messages a second",
            lines,
            seconds=self.seconds,
            bands=self.bands(),
            width=width,
        )

    def spread_plot(self, *, width: int = WIDTH) -> str:
        """Where our client's messages went."""
        samples = self.ours.samples
        brokers = sorted({sample.broker for sample in samples if sample.ok})
        lines = [
            Line(
                broker,
                role,
                rate_points([s for s in samples if s.broker == broker], self.seconds),
            )
            for broker, role in zip(brokers, _BROKER_ROLES, strict=False)
        ]
        return line_plot(
            "Rocketwire: messages a second to each broker",
            lines,
            seconds=self.seconds,
            bands=self.bands(),
            width=width,
        )

    def verdict_plot(self, *, width: int = WIDTH) -> str:
        """What was wrong with each broker, and when our client left it out."""
        bars = [Bar(f.broker, f.begin, f.end, "fault", f.name) for f in self.faults]
        bars += [
            Bar(period.broker, period.begin, period.end, "ours", period.why)
            for period in self.verdicts.periods(self.seconds)
        ]
        rows = sorted({bar.row for bar in bars})
        return bar_plot(
            "What was wrong, and what the fault table made of it",
            rows,
            bars,
            seconds=self.seconds,
            legend=[("injected fault", "fault"), ("left out by Rocketwire", "ours")],
            width=width,
        )

    def table(self) -> list[tuple[str, str, str]]:
        """Figures of both clients, by name."""
        pairs = [figures(self.ours.samples), figures(self.plain.samples)]
        rows = [(name, pairs[0][name], pairs[1][name]) for name in pairs[0]]
        rows.append(("failed sends", str(len(self.ours.failures)), str(len(self.plain.failures))))
        rows.append(
            (
                "stored twice",
                str(self.repeats.get(self.ours.name, 0)),
                str(self.repeats.get(self.plain.name, 0)),
            )
        )
        return rows


def figures(samples: Sequence[Sample]) -> dict[str, str]:
    """Counts and quantiles of some sends."""
    spans = [sample.latency for sample in samples]
    return {
        "acknowledged": f"{sum(sample.ok for sample in samples):,}",
        "median": milliseconds(quantile(spans, 0.5)),
        "99 of 100 within": milliseconds(quantile(spans, 0.99)),
        "longest": milliseconds(max(spans, default=None)),
        "over 100 ms": str(sum(span > 0.1 for span in spans)),
    }


def latency_points(samples: Sequence[Sample], seconds: float) -> list[tuple[float, float | None]]:
    """The 99th percentile of sends under way in each stretch of time.

    A send counts in every stretch that it touches: one that hangs for 3 s is 3 s wide.
    """
    buckets: list[list[float]] = [[] for _ in range(int(seconds / _LATENCY_BUCKET) + 1)]
    for sample in samples:
        first = max(0, int((sample.at - sample.latency) / _LATENCY_BUCKET))
        last = min(len(buckets) - 1, int(sample.at / _LATENCY_BUCKET))
        for bucket in range(first, last + 1):
            buckets[bucket].append(sample.latency)
    return [
        ((number + 0.5) * _LATENCY_BUCKET, quantile(bucket, 0.99))
        for number, bucket in enumerate(buckets)
    ]


def rate_points(samples: Sequence[Sample], seconds: float) -> list[tuple[float, float | None]]:
    """Acknowledged sends a second, in each stretch of time."""
    counts = [0] * max(1, int(seconds / _RATE_BUCKET))
    for sample in samples:
        bucket = int(sample.at / _RATE_BUCKET)
        if sample.ok and 0 <= bucket < len(counts):
            counts[bucket] += 1
    return [((n + 0.5) * _RATE_BUCKET, count / _RATE_BUCKET) for n, count in enumerate(counts)]
