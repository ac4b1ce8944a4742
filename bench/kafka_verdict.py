"""What was measured beside Kafka: medians, ratios within rounds, and whether they are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

KAFKA: Final = "Kafka"
OURS: Final = "Rocketwire"
#: A Python source or sink that does nothing.
NOTHING: Final = "nothing"
#: What a micro-batch of ours may take beyond one of that, in milliseconds.
ALLOWANCE: Final = 15.0


@dataclass(frozen=True)
class Sample:
    """One side on one case in one round."""

    case: str
    body: int
    side: str
    rows: int
    seconds: float
    jvm: float
    workers: float
    #: Of the broker, which shares the machine.
    broker: float = 0.0

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def cpu(self) -> float:
        """Seconds a million rows."""
        return (self.jvm + self.workers) / self.rows * 1e6


@dataclass(frozen=True)
class SmallSample:
    """Milliseconds of a small micro-batch, and of its parts as Spark names them."""

    case: str
    side: str
    milliseconds: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a case came to: medians over the rounds."""

    case: str
    body: int
    kafka: float
    ours: float
    ratio: float
    low: float
    high: float
    kafka_cpu: float
    our_cpu: float
    #: Of ``our_cpu``, what Python workers took.
    our_workers: float
    kafka_broker: float
    our_broker: float


def verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """The samples by case and body; ratios within rounds."""
    found = []
    for case, body in dict.fromkeys((one.case, one.body) for one in samples):
        mine = [one for one in samples if (one.case, one.body) == (case, body)]
        kafka = [one for one in mine if one.side == KAFKA]
        ours = [one for one in mine if one.side == OURS]
        ratios = [b.rate / a.rate for a, b in zip(kafka, ours, strict=True)]
        found.append(
            Verdict(
                case, body,
                median(one.rate for one in kafka), median(one.rate for one in ours),
                median(ratios), min(ratios), max(ratios),
                median(one.cpu for one in kafka), median(one.cpu for one in ours),
                median(one.workers / one.rows * 1e6 for one in ours),
                median(one.broker / one.rows * 1e6 for one in kafka),
                median(one.broker / one.rows * 1e6 for one in ours),
            )
        )  # fmt: skip
    return found


def table(found: Sequence[Verdict], small: Sequence[SmallSample]) -> str:
    """Everything, as a table for a page."""
    lines = [
        "| case | body | Kafka rows/s | ours | ratio (spread) | CPU s a million: Kafka | ours | brokers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.case} | {one.body} B | {one.kafka:,.0f} | {one.ours:,.0f} | {one.ratio:.2f} "
        f"({one.low:.2f} to {one.high:.2f}) | {one.kafka_cpu:.1f} | {one.our_cpu:.1f} "
        f"({one.our_workers:.1f} in Python) | {one.kafka_broker:.1f} / {one.our_broker:.1f} |"
        for one in found
    ]
    if small:
        lines += ["", "| micro-batches | ms: Kafka | ours | a Python one that does nothing |"]
        lines.append("|---|---|---|---|")
    for case in dict.fromkeys(one.case for one in small):
        cells = [
            f"{median(one.milliseconds for one in small if (one.case, one.side) == (case, side)):.0f}"
            for side in (KAFKA, OURS, NOTHING)
        ]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def misses(found: Sequence[Verdict], small: Sequence[SmallSample]) -> list[str]:
    """The demands that are not met."""
    missed = [
        f"{one.case}, {one.body} B: {one.ratio:.2f} times Kafka's rate, at least 1.0 is wanted"
        for one in found
        if one.ratio < 1.0
    ]
    for case in dict.fromkeys(one.case for one in small):
        of = {
            side: median(one.milliseconds for one in small if (one.case, one.side) == (case, side))
            for side in (OURS, NOTHING)
        }
        over = of[OURS] - of[NOTHING]
        if over > ALLOWANCE:
            missed.append(
                f"{case}: {over:.0f} ms over one that does nothing, at most {ALLOWANCE:.0f}"
            )
    return missed
