"""Scales and their ticks. All places are parts of a whole: 0 is left or bottom, 1 right or top."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rocketwire.pages.words import Clock

_STEPS: Final = (
    0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
    86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 28 * 86_400,
)  # fmt: skip
_DAY: Final = 86_400.0
#: The most stretches that time is cut into.
BUCKETS: Final = 300
#: How long one may be, in seconds; beyond, whole days.
_WIDTHS: Final = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600,
    43_200, 86_400,
)  # fmt: skip
_MOST_TIMES: Final = 9


def bucket_width(seconds: float) -> float:
    """The shortest stretches of time of which not too many are needed.

    >>> bucket_width(36.0), bucket_width(5 * 3600)
    (0.2, 120)
    """
    for width in _WIDTHS:
        if seconds / width < BUCKETS - 1:  # one more is needed if the first is cut
            return width
    return (int(seconds / _DAY / (BUCKETS - 1)) + 1) * _DAY


@dataclass(frozen=True, slots=True)
class LogAxis:
    """A logarithmic axis for latencies in seconds."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Iterable[float | None]) -> LogAxis:
        """The axis that holds some values, with ends at 1, 2 or 5 times a power of ten."""
        known = [value for value in values if value is not None and value > 0]
        if not known:
            return cls(0.0001, 1.0)
        low, high = _round(min(known), up=False), _round(max(known), up=True)
        high = max(high, low * 10)
        return cls(low, high)

    @classmethod
    def decades(cls, values: Iterable[float | None]) -> LogAxis:
        """The axis that holds some values, with ends at powers of ten."""
        known = [value for value in values if value is not None and value > 0]
        if not known:
            return cls(0.001, 1.0)
        low = 10.0 ** math.floor(math.log10(min(known)))
        return cls(low, max(10.0 ** math.ceil(math.log10(max(known))), low * 10))

    def place(self, value: float) -> float:
        """Where a value is."""
        if value <= self.low:
            return 0.0
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        """The powers of ten within."""
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


def _round(value: float, *, up: bool) -> float:
    """The next of 1, 2, 5, 10 ... times a power of ten."""
    scale = 10.0 ** math.floor(math.log10(value))
    steps = [step * scale for step in (1, 2, 5, 10)]
    if up:
        return next((s for s in steps if s >= value * (1 - 1e-9)), steps[-1])
    return next((s for s in reversed(steps) if s <= value * (1 + 1e-9)), steps[0])


#: Less than this is drawn as zero; the smallest floats have no powers of ten between them.
_NOTHING: Final = 1e-200


def round_up(value: float) -> float:
    """A round number that is not less.

    >>> round_up(173.0), round_up(0)
    (200.0, 1.0)
    """
    if value < _NOTHING:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(s * scale for s in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 11) if s * scale >= value)


@dataclass(frozen=True, slots=True)
class LinearAxis:
    """An axis from zero up to a round number."""

    high: float

    @classmethod
    def up_to(cls, values: Iterable[float | None]) -> LinearAxis:
        """The axis that holds some values, with a little room above them."""
        return cls(round_up(1.02 * max((v for v in values if v is not None), default=1.0)))

    def place(self, value: float) -> float:
        """Where a value is."""
        return min(1.0, max(0.0, value / self.high))

    def ticks(self) -> list[float]:
        """Values at equal distances, round where there are such."""
        parts = next((p for p in (5, 4, 3) if _is_round(self.high / p)), 4)
        return [self.high * part / parts for part in range(parts + 1)]


def _is_round(value: float) -> bool:
    digits = value / 10.0 ** math.floor(math.log10(value))
    return any(abs(digits - wanted) < 1e-9 for wanted in (1, 2, 2.5, 5))


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Time from ``begin`` on, in seconds since 1970."""

    begin: float
    seconds: float

    def place(self, at: float) -> float:
        """Where a moment is; one outside is at the near end."""
        return min(1.0, max(0.0, (at - self.begin) / self.seconds))

    def ticks(self, clock: Clock) -> list[tuple[float, str]]:
        """Round times of day, and what to write there."""
        step = next((s for s in _STEPS if self.seconds / s <= _MOST_TIMES), _STEPS[-1])
        midnight = self._midnight(clock)
        number = math.ceil((self.begin - midnight) / step - 1e-9)
        found: list[tuple[float, str]] = []
        while (at := midnight + number * step) <= self.begin + self.seconds + 1e-6:
            found.append((self.place(at), self._label(clock, at, step)))
            number += 1
        return found

    def _midnight(self, clock: Clock) -> float:
        start = clock.moment(self.begin)
        whole = start.replace(hour=0, minute=0, second=0, microsecond=0)
        # By the clock of the first day; a change to summer time within shifts the rest.
        return self.begin - (start - whole) / timedelta(seconds=1)

    @staticmethod
    def _label(clock: Clock, at: float, step: float) -> str:
        moment = clock.moment(at + 1e-6)
        if step >= _DAY:
            return f"{moment.day} {moment:%b}"
        if step < 1:
            return f"{moment:%H:%M:%S.%f}"[:-5]
        if step < 60:
            return f"{moment:%H:%M:%S}"
        is_midnight = moment.hour == 0 and moment.minute == 0
        return f"{moment.day} {moment:%b}" if is_midnight else f"{moment:%H:%M}"
