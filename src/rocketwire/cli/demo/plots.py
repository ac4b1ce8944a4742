"""Plots as SVG text, in colours that a page or a README sets for light and dark.

Only what the demo needs: lines over time with a linear or logarithmic axis, bands where a fault
was, and bars along time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 880
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 44
_BAND_NAMES: Final = 36
_BOTTOM: Final = 30
_ROW: Final = 26

#: Colours by role, for light and for dark surroundings.
STYLE: Final = """
.plot { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; }
.plot text { fill: #57606a; }
.plot .title { fill: #1f2328; font-size: 14px; font-weight: 600; }
.plot .grid { stroke: #d0d7de; stroke-width: 1; }
.plot .band { fill: #cf222e; opacity: .07; }
.plot .band-name { fill: #a40e26; font-size: 11px; }
.plot .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.plot .ours { stroke: #0969da; } .plot .ours-fill { fill: #0969da; }
.plot .plain { stroke: #bc4c00; } .plot .plain-fill { fill: #bc4c00; }
.plot .third { stroke: #1a7f37; } .plot .third-fill { fill: #1a7f37; }
.plot .fault-fill { fill: #cf222e; opacity: .55; }
@media (prefers-color-scheme: dark) {
.plot text { fill: #9198a1; }
.plot .title { fill: #f0f6fc; }
.plot .grid { stroke: #3d444d; }
.plot .band { fill: #f85149; opacity: .12; }
.plot .band-name { fill: #ff7b72; }
.plot .ours { stroke: #58a6ff; } .plot .ours-fill { fill: #58a6ff; }
.plot .plain { stroke: #f0883e; } .plot .plain-fill { fill: #f0883e; }
.plot .third { stroke: #3fb950; } .plot .third-fill { fill: #3fb950; }
.plot .fault-fill { fill: #f85149; opacity: .6; }
}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line: its name, its role (``ours``, ``plain``, ``third``), and its points."""

    name: str
    role: str
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time that is shaded, and what it is called."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in a row of bars."""

    row: str
    begin: float
    end: float
    role: str
    note: str


class _Canvas:
    """Scales and pieces of one plot."""

    def __init__(self, title: str, seconds: float, height: int) -> None:
        self.seconds = max(seconds, 0.001)
        self.height = height
        self.bottom = height - _BOTTOM
        self.parts = [f'<text class="title" x="0" y="14">{escape(title)}</text>']

    def x(self, at: float) -> float:
        """A moment's place."""
        inner = WIDTH - _LEFT - _RIGHT
        return _LEFT + inner * min(max(at / self.seconds, 0.0), 1.0)

    def time_axis(self) -> None:
        """Seconds along the bottom."""
        step = next(s for s in (1, 2, 5, 10, 20, 60, 10**9) if self.seconds / s <= 12)
        for number in range(int(self.seconds / step) + 1):
            x = self.x(number * step)
            self.parts.append(
                f'<text x="{x:.1f}" y="{self.bottom + 18}" text-anchor="middle">{number * step} s</text>'
            )

    def bands(self, bands: Iterable[Band]) -> None:
        """Shade when something was wrong."""
        for band in bands:
            x, end = self.x(band.begin), self.x(band.end)
            self.parts.append(
                f'<rect class="band" x="{x:.1f}" y="{_TOP}" width="{end - x:.1f}" '
                f'height="{self.bottom - _TOP}"/>'
                f'<text class="band-name" x="{x:.1f}" y="{_BAND_NAMES}">'
                f"{escape(band.name)}</text>"
            )

    def grid(self, y: float, label: str) -> None:
        """A line across, with its value."""
        self.parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
        )

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Names of roles, right of the title."""
        x = WIDTH - _RIGHT
        for name, role in reversed(entries):
            x -= 7 * len(name)
            self.parts.append(f'<text x="{x}" y="14">{escape(name)}</text>')
            x -= 16
            self.parts.append(
                f'<rect class="{role}-fill" x="{x}" y="6" width="10" height="8" rx="2"/>'
            )
            x -= 14

    def draw(self, *, standalone: bool) -> str:
        """The finished plot; one that stands alone brings its style along."""
        style = f"<style>{STYLE}</style>" if standalone else ""
        return (
            f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            f'role="img" width="100%">{style}{"".join(self.parts)}</svg>'
        )


def line_plot(
    title: str,
    lines: Sequence[Line],
    *,
    seconds: float,
    bands: Sequence[Band] = (),
    unit: str = "",
    logarithmic: bool = False,
    height: int = 260,
    standalone: bool = False,
) -> str:
    """Lines over time. A logarithmic axis is for latencies, in seconds."""
    canvas = _Canvas(title, seconds, height)
    known = [value for line in lines for _, value in line.points if value is not None]
    low, high = _limits(known, logarithmic=logarithmic)

    def y(value: float) -> float:
        if logarithmic:
            part = math.log(max(value, low) / low) / math.log(high / low)
        else:
            part = value / high
        return canvas.bottom - (canvas.bottom - _TOP) * min(max(part, 0.0), 1.0)

    canvas.bands(bands)
    for value in _ticks(low, high, logarithmic=logarithmic):
        canvas.grid(y(value), _latency(value) if logarithmic else f"{value:g}{unit}")
    canvas.time_axis()
    for line in lines:
        for run in _runs(line.points):
            points = " ".join(f"{canvas.x(at):.1f},{y(value):.1f}" for at, value in run)
            canvas.parts.append(f'<polyline class="line {line.role}" points="{points}"/>')
    canvas.legend([(line.name, line.role) for line in lines])
    return canvas.draw(standalone=standalone)


def bar_plot(
    title: str,
    rows: Sequence[str],
    bars: Sequence[Bar],
    *,
    seconds: float,
    legend: Sequence[tuple[str, str]],
) -> str:
    """Bars along time, in named rows."""
    canvas = _Canvas(title, seconds, _BAND_NAMES + _ROW * len(rows) + _BOTTOM)
    for number, row in enumerate(rows):
        y = _BAND_NAMES + _ROW * number
        canvas.parts.append(f'<text x="0" y="{y + 14}">{escape(row)}</text>')
        for bar in bars:
            if bar.row == row:
                x, end = canvas.x(bar.begin), canvas.x(bar.end)
                offset = 2 if bar.role == "fault" else 10
                canvas.parts.append(
                    f'<rect class="{bar.role}-fill" x="{x:.1f}" y="{y + offset}" rx="2" '
                    f'width="{max(end - x, 2):.1f}" height="7"><title>{escape(bar.note)}</title></rect>'
                )
    canvas.time_axis()
    canvas.legend(legend)
    return canvas.draw(standalone=False)


def _limits(known: Sequence[float], *, logarithmic: bool) -> tuple[float, float]:
    highest = max(known, default=1.0)
    if not logarithmic:
        return 0.0, _round_up(max(highest * 1.02, 1e-9))
    lowest = min((value for value in known if value > 0), default=0.001)
    low = 10.0 ** math.floor(math.log10(lowest))
    return low, max(10.0 ** math.ceil(math.log10(max(highest, low * 1.01))), low * 10)


def _round_up(value: float) -> float:
    scale = 10.0 ** math.floor(math.log10(value))
    return next(
        step * scale for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * scale >= value
    )


def _ticks(low: float, high: float, *, logarithmic: bool) -> list[float]:
    if logarithmic:
        powers = range(round(math.log10(low)), round(math.log10(high)) + 1)
        return [10.0**power for power in powers]
    parts = next((p for p in (5, 4, 3) if _is_round(high / p)), 4)
    return [high * part / parts for part in range(parts + 1)]


def _is_round(value: float) -> bool:
    digits = value / 10.0 ** math.floor(math.log10(value))
    return any(abs(digits - wanted) < 1e-9 for wanted in (1, 2, 2.5, 5))


def _latency(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1000:g} ms" if seconds >= 0.001 else f"{seconds * 1e6:g} µs"


def _runs(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The stretches between gaps, so that a gap is drawn as one."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]
