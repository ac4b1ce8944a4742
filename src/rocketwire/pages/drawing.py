"""Pieces of drawings.

Drawings are stretched to whatever width there is, with strokes that keep theirs; everything written
is HTML on top of them, so that text stays readable on a telephone. Colours are classes, which the
page's style sets for light and dark. Places are parts of a whole: 0 is left or bottom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, TypeVar

from rocketwire.pages.scales import LogAxis
from rocketwire.pages.words import latency

T = TypeVar("T")

#: Size of every drawing in its own units.
WIDE: Final = 1000.0
HIGH: Final = 100.0


def svg(parts: Iterable[str], name: str, about: str = "") -> str:
    """A drawing; ``about`` says to those who can't see it what it shows."""
    label = f' role="img" aria-label="{escape(about)}"' if about else ' aria-hidden="true"'
    return (
        f'<svg class="{name}" viewBox="0 0 {WIDE:.0f} {HIGH:.0f}" '
        f'preserveAspectRatio="none"{label}>{"".join(parts)}</svg>'
    )


def x_of(part: float) -> str:
    """A place from left to right, in units."""
    return f"{part * WIDE:.1f}".removesuffix(".0")


def y_of(part: float) -> str:
    """A place from bottom to top, in units."""
    return f"{(1 - part) * HIGH:.1f}".removesuffix(".0")


def box(across: tuple[float, float], up: tuple[float, float], name: str, note: str = "") -> str:
    """A rectangle between two places each way; ``note`` shows when one points at it."""
    (left, right), (low, high) = across, up
    shape = (
        f'<rect class="{name}" x="{x_of(left)}" y="{y_of(high)}" '
        f'width="{max(right - left, 0.0) * WIDE:.1f}" height="{(high - low) * HIGH:.1f}"'
    )
    return f"{shape}><title>{escape(note)}</title></rect>" if note else f"{shape}/>"


def line(points: Sequence[tuple[float, float]]) -> str:
    """The path through some points."""
    return "M" + "L".join(f"{x_of(x)},{y_of(y)}" for x, y in points)


def path(points: Sequence[tuple[float, float]], name: str, *, is_closed: bool = False) -> str:
    """A line through some points, or an area that they enclose."""
    return f'<path class="{name}" d="{line(points)}{"Z" if is_closed else ""}"/>'


def level(place: float, name: str = "grid") -> str:
    """A line from left to right."""
    return f'<path class="{name}" d="M0,{y_of(place)}H{WIDE:.0f}"/>'


def upright(place: float, name: str = "grid", up: tuple[float, float] = (0.0, 1.0)) -> str:
    """A line from bottom to top, or between two heights."""
    return f'<path class="{name}" d="M{x_of(place)},{y_of(up[0])}V{y_of(up[1])}"/>'


def bar(across: tuple[float, float], up: tuple[float, float]) -> str:
    """The path round a rectangle: many in one path are smaller than as many rectangles."""
    (left, right), (low, high) = across, up
    return f"M{x_of(left)},{y_of(low)}V{y_of(high)}H{x_of(right)}V{y_of(low)}Z"


def label(
    text: str,
    name: str,
    *,
    left: float | None = None,
    bottom: float | None = None,
    room: float | None = None,
) -> str:
    """Words at a place over a drawing; they go on in further lines beyond their room."""
    place = "" if left is None else f"left:{left * 100:.2f}%;"
    place += "" if bottom is None else f"bottom:{bottom * 100:.1f}%;"
    place += "" if room is None else f"max-width:calc({room * 100:.1f}% - 8px);"
    return f'<span class="{name}" style="{place}">{escape(text)}</span>'


def latency_scale(axis: LogAxis) -> str:
    """Latencies beside a plot, at the ticks of its axis."""
    return "".join(label(latency(t), "y", bottom=axis.place(t)) for t in axis.ticks())


def latency_row(axis: LogAxis) -> str:
    """Latencies under a plot, at the ticks of its axis."""
    return tick_row((axis.place(value), latency(value)) for value in axis.ticks())


def ticks(marks: Iterable[tuple[float, str]]) -> str:
    """Values along the bottom of a plot; where there is little room, every other one is left out."""
    labels = [
        label(text, _tick_name(count, place), left=place)
        for count, (place, text) in enumerate(marks)
    ]
    return f'<div class="ticks">{"".join(labels)}</div>'


def _tick_name(count: int, place: float) -> str:
    """One at the right end must not stick out of a telephone's page."""
    return f"tick{' spare' if count % 2 else ''}{' edge' if place > 0.97 else ''}"


def tick_row(marks: Iterable[tuple[float, str]]) -> str:
    """The row of values under panels."""
    return f'<div class="row axis"><div class="who"></div>{ticks(marks)}</div>'


def panel(
    name: str, notes: Iterable[str | tuple[str, str]], plots: str, kind: str = "panel"
) -> str:
    """A row: what it is about, notes on it (a role with its colour may come first), and plots."""
    told = "".join(
        f"<span>{escape(note)}</span>"
        if isinstance(note, str)
        else f'<span class="{note[0]}">{escape(note[1])}</span>'
        for note in notes
    )
    return (
        f'<div class="row {kind}"><div class="who"><b>{escape(name)}</b>{told}</div>'
        f'<div class="plots">{plots}</div></div>'
    )


def runs(points: Iterable[tuple[T, float | None]]) -> list[list[tuple[T, float]]]:
    """The stretches between points that have no value, so that a gap is drawn as one."""
    found: list[list[tuple[T, float]]] = [[]]
    for at, value in points:
        if value is None:
            found.append([])
        else:
            found[-1].append((at, value))
    return [run for run in found if run]
