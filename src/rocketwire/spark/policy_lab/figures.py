"""What a replay counts, and how counts of many replays become one policy's figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

#: Bars of the histogram of latencies: from 0.1 ms on, so many for each factor of ten.
_PER_DECADE: Final = 40
_LEAST: Final = 0.0001
_BARS: Final = 6 * _PER_DECADE
#: Which incident a send belongs to that began in none.
CALM: Final = 0


def bar_of(latency: float) -> int:
    """The bar of a latency."""
    if latency <= _LEAST:
        return 0
    return min(_BARS - 1, int(math.log10(latency / _LEAST) * _PER_DECADE) + 1)


def latency_of(bar: float) -> float:
    """The latency in the middle of a bar."""
    return float(_LEAST * 10 ** ((bar - 0.5) / _PER_DECADE)) if bar else _LEAST


@dataclass(slots=True)
class Stay:
    """How long a broker was left out by producers, in seconds summed over them.

    ``rightly`` while it was bad, ``wrongly`` while it was well, ``unknown`` while nobody saw it;
    ``missed`` is the time in which it was bad and not left out.
    """

    rightly: float = 0.0
    wrongly: float = 0.0
    unknown: float = 0.0
    missed: float = 0.0

    def add(self, other: Stay) -> None:
        """Take the times of another one, too."""
        self.rightly += other.rightly
        self.wrongly += other.wrongly
        self.unknown += other.unknown
        self.missed += other.missed


@dataclass(slots=True)
class Cost:
    """What the sends of an incident came to: ``lost`` are seconds beyond the usual latency."""

    sends: int = 0
    failed: int = 0
    lost: float = 0.0

    def add(self, other: Cost) -> None:
        """Take the sends of another one, too."""
        self.sends += other.sends
        self.failed += other.failed
        self.lost += other.lost


@dataclass(slots=True)
class Tally:
    """What came of replayed sends under one policy, in the best or the worst case."""

    sends: int = 0
    failed: int = 0
    attempts: int = 0
    lost: float = 0.0
    seconds: float = 0.0
    bars: dict[int, int] = field(default_factory=dict)
    by_broker: dict[str, int] = field(default_factory=dict)
    stays: dict[str, Stay] = field(default_factory=dict)
    by_incident: dict[int, Cost] = field(default_factory=dict)
    #: Of the chosen incident, by half seconds from its beginning: sends, their slowest latency,
    #: and by how many producer-seconds its brokers were left out.
    moments: dict[int, tuple[int, float, float]] = field(default_factory=dict)

    def send(self, latency: float, usual: float, incident: int, *, is_failed: bool) -> None:
        """Count a send."""
        lost = latency - usual if latency > usual else 0.0
        self.sends += 1
        self.lost += lost
        bar = bar_of(latency)
        self.bars[bar] = self.bars.get(bar, 0) + 1
        cost = self.by_incident.get(incident)
        if cost is None:
            cost = self.by_incident[incident] = Cost()
        cost.sends += 1
        cost.lost += lost
        if is_failed:
            self.failed += 1
            cost.failed += 1

    def moment(self, number: int, latency: float, out: float) -> None:
        """Note something of the chosen incident: a send with its latency, or a time left out."""
        sends, slowest, so_far = self.moments.get(number, (0, 0.0, 0.0))
        self.moments[number] = (sends + (latency > 0), max(slowest, latency), so_far + out)

    def add(self, other: Tally) -> None:
        """Take the counts of another one, too."""
        self.sends += other.sends
        self.failed += other.failed
        self.attempts += other.attempts
        self.lost += other.lost
        self.seconds += other.seconds
        for bar, count in other.bars.items():
            self.bars[bar] = self.bars.get(bar, 0) + count
        for broker, count in other.by_broker.items():
            self.by_broker[broker] = self.by_broker.get(broker, 0) + count
        for broker, stay in other.stays.items():
            self.stays.setdefault(broker, Stay()).add(stay)
        for number, cost in other.by_incident.items():
            self.by_incident.setdefault(number, Cost()).add(cost)
        for number, (sends, slowest, out) in other.moments.items():
            had = self.moments.get(number, (0, 0.0, 0.0))
            self.moments[number] = (had[0] + sends, max(had[1], slowest), had[2] + out)

    def quantile(self, part: float) -> float:
        """The latency that this part of the sends stayed within."""
        rank, so_far = part * self.sends, 0
        for bar in sorted(self.bars):
            so_far += self.bars[bar]
            if so_far >= rank:
                return latency_of(bar)
        return 0.0

    @property
    def moved(self) -> float:
        """The part of the attempts that went to another broker than an even spread would take."""
        whole = sum(self.by_broker.values())
        if not whole:
            return 0.0
        even = whole / len(self.by_broker)
        return sum(abs(count - even) for count in self.by_broker.values()) / 2 / whole

    @property
    def wrongly(self) -> float:
        """Seconds in which brokers that were well were left out."""
        return sum(stay.wrongly for stay in self.stays.values())

    @property
    def rightly(self) -> float:
        """Seconds in which brokers that were bad were left out."""
        return sum(stay.rightly for stay in self.stays.values())

    def cost(self, incidents: Iterable[int], per_failure: float) -> float:
        """Seconds lost in some incidents, where a failed send counts as many more."""
        found = [self.by_incident[n] for n in incidents if n in self.by_incident]
        return sum(cost.lost + per_failure * cost.failed for cost in found)

    def as_dict(self) -> dict[str, Any]:
        """Everything as what JSON can hold."""
        return asdict(self)


def tally_from(data: dict[str, Any]) -> Tally:
    """A tally from what ``as_dict`` gave, its numbers read back from JSON's text keys."""
    return Tally(
        **{name: data[name] for name in ("sends", "failed", "attempts", "lost", "seconds")},
        bars={int(k): v for k, v in data["bars"].items()},
        by_broker=data["by_broker"],
        stays={k: Stay(**v) for k, v in data["stays"].items()},
        by_incident={int(k): Cost(**v) for k, v in data["by_incident"].items()},
        moments={int(k): (v[0], v[1], v[2]) for k, v in data["moments"].items()},
    )


@dataclass(slots=True)
class Bounds:
    """One policy's figures in the best and in the worst case; the same where all was seen."""

    best: Tally = field(default_factory=Tally)
    worst: Tally = field(default_factory=Tally)

    def spread(self, figure: str, *arguments: Any) -> tuple[float, float]:
        """A figure in both cases, the lower one first."""
        values: Sequence[Any] = [getattr(t, figure) for t in (self.best, self.worst)]
        numbers = [float(v(*arguments) if callable(v) else v) for v in values]
        return min(numbers), max(numbers)
