"""The project's goals for speed, and what a run says of each: held or missed.

All are for bodies of 200 bytes on a real broker. CPU time is told at the usual pace of the machine
(``reference.py``); the making of messages is counted in rates and not in CPU. A rate is a ratio to
Java's with the same shape of messages. Where bare sockets are hardly faster than a path, the broker is
the limit of all of them, and the CPU goal of the path decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bench.broker import AUTO, FLYING, LISTS, ONE
from bench.shapes import KEY, RICH, USUAL, Shape, title

FLOOR, JAVA, GO = "floor", "java", "go"
MAKING: Final = "making"
LOOKING: Final = "consumers: a backlog, handler looks"
READS: Final = "consumers: a topic read"
#: Bare sockets this much faster than a path, or less: then it is the broker that limits both.
_BOUND: Final = 1.15


class Goal(NamedTuple):
    """What a path of a contest has to hold with tag and key. Zero: there is no such goal."""

    contest: str
    path: str
    #: Microseconds of CPU at most, making not counted.
    cpu: float = 0.0
    #: Times Java's rate at least, and what would be better still.
    rate: float = 0.0
    dream: float = 0.0


SENDING: Final = (
    Goal(LISTS, "send_many", 4.0, 0.8, 1.0),
    Goal(LISTS, "await send_many", 4.0, 0.8, 1.0),
    Goal(LISTS, "send of 500", 4.0, 0.8, 1.0),
    Goal(LISTS, "await submit of 500", 4.0, 0.8, 1.0),
    Goal(AUTO, "submit, auto_batch", 5.0, 0.6, 0.8),
    Goal(AUTO, "await submit, auto_batch", 5.0, 0.6, 0.8),
    Goal(FLYING, "submit", 8.0),
    Goal(FLYING, "await submit", 8.0),
    Goal(FLYING, "await send, 1024 at once", 9.0, 1.0),
)
READING: Final = (
    Goal(LOOKING, "handler", 6.0, 0.5),
    Goal(LOOKING, "await handler", 6.0, 0.5),
    Goal(READS, "read", 4.0),
    Goal(READS, "read, looked at", 4.0),
)
#: Microseconds of CPU of ``Message(...)`` alone.
MADE: Final = {KEY: 1.5, RICH: 2.3}
#: Microseconds more for three properties.
PROPERTIES: Final = 1.5
#: A blocking send beside bare sockets, p50.
BLOCKING: Final = 1.25


@dataclass(frozen=True)
class Verdict:
    """One target: what was found, and whether it holds."""

    target: str
    found: float
    limit: float
    held: bool
    note: str = ""

    def line(self) -> str:
        """For people."""
        word = "held  " if self.held else "MISSED"
        end = f" ({self.note})" if self.note else ""
        return f"{word} {self.target}: {self.found:,.2f}, target {self.limit:,.2f}{end}"


class Figures:
    """What was measured, by contest and path, as the JSON file has it."""

    def __init__(self, paths: Sequence[Mapping[str, Any]]) -> None:
        self._paths = {(row["contest"], row["path"]): row for row in paths}

    def find(self, contest: str, path: str) -> Mapping[str, Any] | None:
        """A path; None where it was not run."""
        return self._paths.get((contest, path))

    def sent(self, goal: Goal, shape: Shape = KEY) -> Mapping[str, Any] | None:
        """The path of a goal for a shape."""
        return self.find(title(goal.contest, shape, USUAL), goal.path)

    def is_bound(self, row: Mapping[str, Any]) -> bool:
        """Whether the broker is the limit: bare sockets are hardly faster."""
        floor = self.find(row["contest"], FLOOR)
        if floor is None:
            return False
        return bool(floor["messages_per_second"] < _BOUND * row["messages_per_second"])


def judge(paths: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Every goal for which there are figures."""
    figures = Figures(paths)
    return [
        *_making(figures),
        *_sending(figures),
        *_properties(figures),
        *_rates(figures),
        *_blocking(figures),
        *_reading(figures),
    ]


def _making(figures: Figures) -> Iterator[Verdict]:
    for shape, limit in MADE.items():
        if row := figures.find(title(MAKING, shape, USUAL), "Message(...)"):
            found = row["cost"] * 1e6
            yield Verdict(f"Message(...), {shape.name}: CPU µs", found, limit, found <= limit)


def _sending(figures: Figures) -> Iterator[Verdict]:
    for goal in SENDING:
        if row := figures.sent(goal):
            found = row["sending_cost"] * 1e6
            text = f"{goal.path}, {KEY.name}: CPU µs, making not counted"
            note = f"{row['cost'] * 1e6:,.2f} with it"
            yield Verdict(text, found, goal.cpu, found <= goal.cpu, note)


def _properties(figures: Figures) -> Iterator[Verdict]:
    for goal in SENDING:
        plain, rich = figures.sent(goal), figures.sent(goal, RICH)
        if plain and rich:
            found = (rich["sending_cost"] - plain["sending_cost"]) * 1e6
            text = f"{goal.path}: CPU µs more for three properties"
            yield Verdict(text, found, PROPERTIES, found <= PROPERTIES)


def _rates(figures: Figures) -> Iterator[Verdict]:
    for shape in (KEY, RICH):
        for goal in SENDING:
            row = figures.sent(goal, shape)
            if row and goal.rate and JAVA in row["ratios"]:
                yield rate(figures, goal, row, f"{goal.path}, {shape.name}")


def rate(figures: Figures, goal: Goal, row: Mapping[str, Any], name: str) -> Verdict:
    """A path's rate beside Java's, or its CPU time where the broker is the limit."""
    found = row["ratios"][JAVA]["median"]
    held, notes = found >= goal.rate, []
    if goal.dream:
        notes.append(f"dream {goal.dream:.1f}")
    if row.get("server_share") is not None:
        notes.append(f"broker at {row['server_share']:.0%} of a core")
    if not held and figures.is_bound(row):
        held = row["sending_cost"] * 1e6 <= goal.cpu
        notes.append("the broker is the limit, so CPU counts")
    return Verdict(f"{name}: rate over Java's", found, goal.rate, held, "; ".join(notes))


def _blocking(figures: Figures) -> Iterator[Verdict]:
    row = figures.find(title(ONE, KEY, USUAL), "send")
    if row and FLOOR in row["ratios"]:
        found = row["ratios"][FLOOR]["median"]
        text = f"send, {KEY.name}: p50 over that of bare sockets"
        yield Verdict(text, found, BLOCKING, found <= BLOCKING)


def _reading(figures: Figures) -> Iterator[Verdict]:
    for goal in READING:
        if row := figures.find(goal.contest, goal.path):
            found = row["cost"] * 1e6
            yield Verdict(f"{goal.path}: CPU µs", found, goal.cpu, found <= goal.cpu)
            if goal.rate and JAVA in row["ratios"]:
                yield rate(figures, goal, row, goal.path)
