"""What a lab hands back: plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocketwire.spark.policy_lab.conditions import Incident
from rocketwire.spark.policy_lab.figures import Bounds
from rocketwire.spark.policy_lab.policies import Candidate
from rocketwire.spark.policy_lab.verdict import Verdict

#: A figure in the best and in the worst case of what nobody saw.
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """What would have come of the recorded sends under one policy; times in seconds.

    ``lost`` is the time beyond the usual latency, over all sends; ``moved`` the part of attempts that
    an even spread would have sent elsewhere; ``rightly`` and ``wrongly`` are broker-seconds left
    out, summed over producers, ``unknown`` those in which nobody saw the broker.
    """

    name: str
    is_recorded: bool
    is_of_grid: bool
    sends: int
    attempts: int
    failed: Pair
    p50: Pair
    p99: Pair
    p999: Pair
    lost: Pair
    moved: Pair
    rightly: Pair
    wrongly: Pair
    unknown: Pair

    @property
    def title(self) -> str:
        """Its name, and that it was at work where the name does not tell."""
        is_told = not self.is_recorded or self.name.startswith("recorded")
        return self.name if is_told else f"{self.name} (recorded)"

    def as_row(self) -> dict[str, Any]:
        """A row of a table: each pair as two columns."""
        row: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if isinstance(value, tuple):
                row[f"{name}_least"], row[f"{name}_most"] = value
            else:
                row[name] = value
        return row


def figures_of(candidate: Candidate, bounds: Bounds, recorded: str | None) -> PolicyFigures:
    """The figures of a policy from its tallies."""
    unknown = [sum(s.unknown for s in t.stays.values()) for t in (bounds.best, bounds.worst)]
    return PolicyFigures(
        name=candidate.name,
        is_recorded=candidate.name == recorded,
        is_of_grid=candidate.is_of_grid,
        sends=bounds.best.sends,
        attempts=bounds.best.attempts,
        failed=bounds.spread("failed"),
        p50=bounds.spread("quantile", 0.5),
        p99=bounds.spread("quantile", 0.99),
        p999=bounds.spread("quantile", 0.999),
        lost=bounds.spread("lost"),
        moved=bounds.spread("moved"),
        rightly=bounds.spread("rightly"),
        wrongly=bounds.spread("wrongly"),
        unknown=(min(unknown), max(unknown)),
    )


@dataclass(frozen=True, slots=True)
class LabResult:
    """What a lab found."""

    page: Path
    tables: dict[str, str]
    verdict: Verdict
    policies: tuple[PolicyFigures, ...]
    incidents: tuple[Incident, ...]
    attempts: int
    replayed: int
    trouble: tuple[str, ...]
    seconds: float
