"""What is known of each broker's condition, by stretches of 100 ms.

A stretch that was seen has the distribution of what was seen in it. Of one that nobody saw there is a
best and a worst case, from the sightings before and after it. The same holds for requests that were
given up: the answer may have come right afterwards, or never.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rocketwire.testing.event_driver import LOST, NEVER_ANSWERED, REFUSED

#: Seconds of one stretch, and how many there are in a second.
SLOT: Final = 0.1
PER_SECOND: Final = 10
#: The quantiles of answers that are kept of a stretch.
QUANTILES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0)
_MIDDLE: Final = QUANTILES.index(0.5)
#: A gap of up to so many stretches between sightings that agree is no gap: probes come each second.
_SHORT: Final = 2 * PER_SECOND
#: When a broker was bad: slower than the usual by this factor and this time, or failing this often.
_SLOWER: Final = 4.0
_SLOWER_BY: Final = 0.02
_FAILING: Final = 0.5


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen of a broker in one stretch: how requests that began in it ended.

    ``latencies`` are those of answers at ``QUANTILES``; ``silent`` requests were given up after
    ``waited`` seconds; ``rejected`` ones were answered with ``code``.
    """

    answers: int = 0
    latencies: tuple[float, ...] = ()
    silent: int = 0
    waited: float = 0.0
    refused: int = 0
    lost: int = 0
    rejected: int = 0
    code: int = 1

    @property
    def count(self) -> int:
        """How many requests were seen."""
        return self.answers + self.silent + self.refused + self.lost + self.rejected

    @property
    def median(self) -> float:
        """Of the answers; 0 where there was none."""
        return self.latencies[_MIDDLE] if self.latencies else 0.0

    @property
    def is_failing(self) -> bool:
        """Whether half of the requests or more came to nothing."""
        return self.answers <= self.count * _FAILING

    def is_bad(self, usual: float) -> bool:
        """Whether the broker was worse than the usual, by a rule that no policy has."""
        if self.is_failing:
            return True
        return self.median > max(_SLOWER * usual, usual + _SLOWER_BY)


class Condition:
    """What happens to a request that arrives in one stretch, in the best or in the worst case."""

    __slots__ = ("_edges", "_failing", "_latencies", "is_bad")

    def __init__(self, seen: Sighting, usual: float, *, is_best: bool) -> None:
        self.is_bad = seen.is_bad(usual)
        whole = max(1, seen.count)
        # In the best case the answer came when nobody waited for it any more.
        silence = (seen.waited, 0) if is_best else (NEVER_ANSWERED, 0)
        kinds = (
            (seen.silent, silence),
            (seen.refused, (0.0005, REFUSED)),
            (seen.lost, (max(usual, 0.001), LOST)),
            (seen.rejected, (max(usual, 0.001), seen.code)),
        )
        edge = 0.0
        edges: list[tuple[float, tuple[float, int]]] = []
        for count, fate in kinds:
            if count:
                edge += count / whole
                edges.append((edge, fate))
        self._edges = tuple(edges)
        self._failing = edge
        self._latencies = seen.latencies or (usual,) * len(QUANTILES)

    def draw(self, random: Callable[[], float]) -> tuple[float, int]:
        """What comes of one request; see ``event_driver.Brokers``."""
        if self._failing:
            chance = random()
            if chance < self._failing:
                for edge, fate in self._edges:
                    if chance < edge:
                        return fate
        part = random()
        place = 1
        while QUANTILES[place] < part:
            place += 1
        low, high = QUANTILES[place - 1], QUANTILES[place]
        below, above = self._latencies[place - 1], self._latencies[place]
        return below + (above - below) * (part - low) / (high - low), 0


def healthy(usual: float) -> Sighting:
    """A broker as it usually is."""
    return Sighting(answers=1, latencies=(usual,) * len(QUANTILES))


_DEAD: Final = Sighting(silent=1, waited=1.0)


class Course:
    """One broker's conditions over the stretches of a period.

    Args:
        sightings: by stretch.
        slots: how many stretches there are.
        usual: the usual latency of a healthy broker.
        is_best: which case holds where nobody knows.
    """

    def __init__(
        self, sightings: Mapping[int, Sighting], slots: int, usual: float, *, is_best: bool
    ) -> None:
        self._usual = usual
        self._is_best = is_best
        self._made: dict[Sighting, Condition] = {}
        self._seen = sightings
        self._order: Sequence[int] = sorted(sightings)
        #: Stretches in which best and worst differ.
        self.unknown: set[int] = set()
        self.conditions: list[Condition] = [self._at(slot) for slot in range(slots)]

    def _at(self, slot: int) -> Condition:
        seen = self._seen.get(slot)
        if seen is None:
            seen = self._guess(slot)
        elif seen.silent:
            self.unknown.add(slot)
        made = self._made.get(seen)
        if made is None:
            made = self._made[seen] = Condition(seen, self._usual, is_best=self._is_best)
        return made

    def _guess(self, slot: int) -> Sighting:
        """A stretch that nobody saw."""
        place = bisect_left(self._order, slot)
        before = self._order[place - 1] if place else None
        after = self._order[place] if place < len(self._order) else None
        near = [at for at in (before, after) if at is not None]
        if not near:
            self.unknown.add(slot)
            return healthy(self._usual) if self._is_best else _DEAD
        bad = [at for at in near if self._seen[at].is_bad(self._usual)]
        nearest = self._seen[min(near, key=lambda at: abs(at - slot))]
        is_short = before is not None and after is not None and after - before <= _SHORT
        if not bad or (is_short and len(bad) == len(near)):
            return nearest
        self.unknown.add(slot)
        return healthy(self._usual) if self._is_best else self._seen[bad[0]]


@dataclass(frozen=True, slots=True)
class Incident:
    """A time in which at least one broker was bad; seconds since 1970."""

    number: int
    begin: float
    end: float
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadTime:
    """A stretch in which a broker was seen to be bad; ``slot`` counts from 1970 on."""

    slot: int
    is_failing: bool = False
    #: Stretches after it that belong to it, since requests waited for so long.
    more: int = 0


def bad_time(slot: int, seen: Sighting) -> BadTime:
    """A bad stretch from what was seen in it."""
    return BadTime(slot, seen.is_failing, int(seen.waited * PER_SECOND) if seen.silent else 0)


def incidents(bad: Mapping[str, Sequence[BadTime]], *, apart: float = 5.0) -> list[Incident]:
    """The incidents, from the stretches in which each broker was seen to be bad.

    A single slow stretch is a pause, as every broker has; two within a second begin an incident, and
    so does one in which requests come to nothing: who is left out at once is not seen again.

    Args:
        bad: by broker.
        apart: bad times that are not farther apart are one incident.
    """
    moments = sorted(
        ((time, broker) for broker, times in bad.items() for time in times),
        key=lambda moment: (moment[0].slot, moment[1]),
    )
    groups: list[list[tuple[BadTime, str]]] = []
    end = 0
    for time, broker in moments:
        if groups and time.slot - end <= apart * PER_SECOND:
            groups[-1].append((time, broker))
        else:
            groups.append([(time, broker)])
            end = 0
        end = max(end, time.slot + time.more + 1)
    found: list[Incident] = []
    for group in groups:
        brokers = tuple(sorted(b for b in {b for _, b in group} if _is_lasting(group, b)))
        if brokers:
            last = max(time.slot + time.more + 1 for time, _ in group)
            found.append(Incident(len(found) + 1, group[0][0].slot * SLOT, last * SLOT, brokers))
    return found


def _is_lasting(group: Sequence[tuple[BadTime, str]], broker: str) -> bool:
    mine = [time for time, name in group if name == broker]
    if any(time.is_failing for time in mine):
        return True
    return any(b.slot - a.slot <= PER_SECOND for a, b in pairwise(mine))
