"""The drawings of the lab's page: the frontier of the grid, and one incident under each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rocketwire.pages.drawing import (
    box,
    label,
    latency_scale,
    level,
    panel,
    path,
    svg,
    tick_row,
    upright,
)
from rocketwire.pages.scales import LogAxis, TimeAxis, round_up
from rocketwire.pages.words import Clock, latency, short_number, span
from rocketwire.spark.policy_lab.conditions import Incident
from rocketwire.spark.policy_lab.figures import Bounds
from rocketwire.spark.policy_lab.findings import PolicyFigures
from rocketwire.spark.policy_lab.replay import AFTER, BEFORE

_STEP: Final = 0.5


def frontier(policies: Sequence[PolicyFigures]) -> str:
    """Each policy by what its incidents cost and what its care costs; lower left is better."""
    lost = LogAxis.around([max(v, 0.001) for one in policies for v in one.lost])
    most = round_up(max((one.wrongly[1] for one in policies), default=1.0) or 1.0)
    shapes: list[str] = [upright(lost.place(t)) for t in lost.ticks()]
    names: list[tuple[str, float, float, float]] = []
    for one in policies:
        left, right = (lost.place(max(value, 0.001)) for value in one.lost)
        low, high = (value / most for value in one.wrongly)
        kind = "median" if one.is_recorded else "edge"
        shapes.append(path([(left, low), (right, high)], kind))
        middle, up = (left + right) / 2, (low + high) / 2
        note = f"{one.name}: {span(one.lost[0])} to {span(one.lost[1])} lost"
        half = 0.004 if one.is_of_grid else 0.006
        name = "flag" if one.is_recorded else "sent" if one.is_of_grid else "keyed"
        shapes.append(
            box((middle - half, middle + half), (up - 8 * half, up + 8 * half), name, note)
        )
        if one.is_recorded or not one.is_of_grid or one.name == "default":
            names.append((one.name, left, right, up))
    marks = "".join(label(span(value), "y", bottom=value / most) for value in (0.0, most / 2, most))
    about = f"Seconds lost against time wrongly left out, for {len(policies)} policies"
    plot = f'<div class="plot tall frontier">{svg(shapes, "draw", about)}{marks}{_dot_names(names)}</div>'
    ticks = tick_row((lost.place(t), span(t) if t >= 1 else latency(t)) for t in lost.ticks())
    return panel("wrongly left out", ["over seconds lost"], plot) + ticks


#: Nearer names than this, in parts of the drawing, would lie over one another.
_NEAR: Final = (0.2, 0.07)


def _dot_names(names: Sequence[tuple[str, float, float, float]]) -> str:
    """The names of policies beside their marks; those at one place are one label."""
    groups: list[tuple[list[str], float, float, float]] = []
    for name, left, right, up in names:
        place = next((n for n, g in enumerate(groups) if _is_near(g[1:], left, up)), None)
        if place is None:
            groups.append(([name], left, right, up))
        else:
            found, first, last, level_up = groups[place]
            # Beside all of their marks, not over one of them.
            groups[place] = ([*found, name], min(first, left), max(last, right), level_up)
    # A name stands on the side of its mark where there is more room for it.
    return "".join(
        label(", ".join(found), "dot-name before", left=left, bottom=up, room=left)
        if left > 1 - right
        else label(", ".join(found), "dot-name", left=right, bottom=up, room=1 - right)
        for found, left, right, up in groups
    )


def _is_near(group: tuple[float, float, float], left: float, up: float) -> bool:
    first, last, level_up = group
    return first - _NEAR[0] < left < last + _NEAR[0] and abs(level_up - up) < _NEAR[1]


def incident(chosen: Incident, results: Mapping[str, Bounds], clock: Clock) -> str:
    """The slowest send of each half second, and who was left out, one row for each policy."""
    begin, end = chosen.begin - BEFORE, chosen.end + AFTER
    axis = TimeAxis(begin, end - begin)
    every = [m[1] for b in results.values() for m in b.worst.moments.values() if m[1] > 0]
    scale = LogAxis.around(every)
    rows = [_incident_row(name, bounds, chosen, axis, scale) for name, bounds in results.items()]
    return "".join(rows) + tick_row(axis.ticks(clock))


def _incident_row(
    name: str, bounds: Bounds, chosen: Incident, axis: TimeAxis, scale: LogAxis
) -> str:
    moments = bounds.worst.moments
    # Seconds left out over half seconds of so many producers and brokers: a part of them all.
    most_out = max((m[2] for m in moments.values()), default=0.0) or 1.0
    shapes = [level(scale.place(t)) for t in scale.ticks()]
    shapes.append(box((axis.place(chosen.begin), axis.place(chosen.end)), (0.0, 1.0), "trouble"))
    points: list[tuple[float, float]] = []
    for number in sorted(moments):
        _sends, slowest, out = moments[number]
        at = chosen.begin + number * _STEP
        left, right = axis.place(at), axis.place(at + _STEP)
        if out:
            shapes.append(box((left, right), (0.0, 0.1), "flag", f"left out {out / most_out:.0%}"))
        if slowest > 0:
            points.append(((left + right) / 2, scale.place(slowest)))
    if points:
        shapes.append(path(points, "median"))
    cost = bounds.worst.by_incident.get(chosen.number)
    lost = span(cost.lost) if cost else "nothing"
    failed = f"{short_number(cost.failed)} failed" if cost and cost.failed else "none failed"
    about = f"The slowest send of each half second under {name}"
    drawn = f"{svg(shapes, 'draw', about)}{latency_scale(scale)}"
    plot = f'<div class="plot low incident">{drawn}</div>'
    return panel(name, [f"{lost} lost", failed], plot)
