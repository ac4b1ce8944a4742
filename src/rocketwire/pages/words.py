"""Numbers, times and lengths as people read them."""

from __future__ import annotations

import math
from datetime import datetime, tzinfo
from typing import Final

_SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
#: Keeps a number and its unit on one line.
THIN: Final = "\u202f"
GAP: Final = "\u00a0"
DASH: Final = "\u2013"


def number(value: int) -> str:
    """A count, in groups of three: ``1,234,567``."""
    return f"{value:,}"


def short_number(value: float) -> str:
    """A count for a label: ``940``, ``12.4k``, ``3.1M``."""
    if value == 0:
        return "0"
    for limit, factor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= limit:
            return f"{_significant(value / factor)}{unit}"
    return f"{value:,.0f}" if value >= 10 else _significant(value)


def _significant(value: float, digits: int = 3) -> str:
    """About three digits, without zeros at the end."""
    if value == 0 or not math.isfinite(value):
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def latency(seconds: float | None) -> str:
    """A latency in its own unit: ``240 µs``, ``1.42 ms``, ``2.1 s``; a dash for none."""
    if seconds is None:
        return DASH
    if seconds >= 0.9995:
        return f"{_significant(seconds)}{GAP}s"
    if seconds >= 0.000_9995:
        return f"{_significant(seconds * 1e3)}{GAP}ms"
    return f"{_significant(seconds * 1e6, 2)}{GAP}µs"


def span(seconds: float) -> str:
    """How long something lasted: ``0.4 s``, ``41 s``, ``3 min 12 s``, ``5 h 20 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f}{GAP}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}{GAP}s"
    for size, unit, smaller, name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            text = f"{whole // size}{GAP}{unit}"
            return f"{text} {rest}{GAP}{name}" if rest else text
    return f"{whole}{GAP}s"


def core_time(seconds: float) -> str:
    """Work for processors: ``26 core-seconds``, ``4.5 core-minutes``, ``32.1 core-hours``."""
    for unit, name in ((3600, "core-hours"), (60, "core-minutes")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} core-seconds"


def size(count: float) -> str:
    """A number of bytes: ``12.3 MB``."""
    for unit in _SIZES[:-1]:
        if count < 1000:
            return f"{_significant(count)}{GAP}{unit}"
        count /= 1000
    return f"{_significant(count)}{GAP}{_SIZES[-1]}"


def share(part: float, whole: float) -> str:
    """A part in percent, never rounded to all or nothing when it is not."""
    if whole <= 0:
        return DASH
    percent = 100 * part / whole
    if percent == 0 or percent == 100:  # noqa: PLR1714 - reads as what it is
        return f"{percent:.0f}{THIN}%"
    for places in (1, 2, 3):
        text = f"{percent:.{places}f}"
        if float(text) not in {0.0, 100.0}:
            return f"{text}{THIN}%"
    return f"under 0.001{THIN}%" if percent < 50 else f"over 99.999{THIN}%"


def times(count: int) -> str:
    """How often: ``once``, ``twice``, ``12 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{number(count)} times")


def some(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun: ``1 producer``, ``3 producers``."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


class Clock:
    """Moments in one time zone.

    Args:
        zone: the time zone.
        step: seconds that a reader wants to tell apart.
    """

    def __init__(self, zone: tzinfo | None, step: float) -> None:
        self._zone = zone
        self._step = step

    def moment(self, at: float) -> datetime:
        """A moment with its time zone."""
        return datetime.fromtimestamp(at, self._zone)

    def time(self, at: float) -> str:
        """The time of day, as exact as wanted; with the day where a step is hours."""
        if self._step < 1:
            return f"{self.moment(at):%H:%M:%S.%f}"[:-5]
        if self._step < 60:
            return f"{self.moment(at):%H:%M:%S}"
        return f"{self.moment(at):%H:%M}" if self._step < 1800 else f"{self.moment(at):%d %b %H:%M}"

    def full(self, at: float) -> str:
        """Day and time."""
        return f"{self.moment(at):%Y-%m-%d %H:%M:%S}"

    @property
    def zone_name(self) -> str:
        """What to call the zone."""
        if self._zone is None:
            return ""
        return str(getattr(self._zone, "key", None) or datetime.now(self._zone).tzname() or "")
