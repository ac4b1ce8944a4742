"""Pieces of drawings.

Drawings are stretched to whatever width there is, with strokes that keep theirs; everything written
is HTML on top of them, so that text stays readable on a telephone. Colours are classes, which the
page's style sets for light and dark. Places are parts of a whole: 0 is left or bottom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

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


def bar(across: tuple[float, float], up: tuple[float, float]) -> str:
    """The path round a rectangle: many in one path are smaller than as many rectangles."""
    (left, right), (low, high) = across, up
    return f"M{x_of(left)},{y_of(low)}V{y_of(high)}H{x_of(right)}V{y_of(low)}Z"


def label(text: str, name: str, *, left: float | None = None, bottom: float | None = None) -> str:
    """Words at a place over a drawing."""
    place = "" if left is None else f"left:{left * 100:.2f}%;"
    place += "" if bottom is None else f"bottom:{bottom * 100:.1f}%;"
    return f'<span class="{name}" style="{place}">{escape(text)}</span>'


def tick_row(marks: Iterable[tuple[float, str]]) -> str:
    """The row of values under a plot; where there is little room, every other one is left out."""
    labels = [
        label(text, "tick" if count % 2 == 0 else "tick spare", left=place)
        for count, (place, text) in enumerate(marks)
    ]
    return (
        '<div class="row axis"><div class="who"></div>'
        f'<div class="ticks">{"".join(labels)}</div></div>'
    )
