"""Charts with their words inside: pictures that also stand alone, as in a README.

Lines over time with a linear or logarithmic axis, bands where a fault was, and bars along time. Plots
that are only ever part of a page have their words in HTML instead (``drawing``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from rocketwire.pages.drawing import runs
from rocketwire.pages.scales import LinearAxis, LogAxis
from rocketwire.pages.words import latency

WIDTH: Final = 880
#: For a telephone, on which words of the wide one would be 5 pixels high.
NARROW: Final = 440
_HEIGHT: Final = 260
_LEFT: Final = 64
_RIGHT: Final = 16
_BAND_NAMES: Final = 36
_BOTTOM: Final = 30
_ROW: Final = 26
_LINE: Final = 16

_RULES: Final = """
.chart text { fill: %(words)s; }
.chart .title { fill: %(title)s; }
.chart .grid { stroke: %(grid)s; }
.chart .band { fill: %(fault)s; opacity: %(shade)s; }
.chart .band-name { fill: %(fault words)s; }
.chart .ours { stroke: %(ours)s; } .chart .ours-fill { fill: %(ours)s; }
.chart .plain { stroke: %(plain)s; } .chart .plain-fill { fill: %(plain)s; }
.chart .third { stroke: %(third)s; } .chart .third-fill { fill: %(third)s; }
.chart .fault-fill { fill: %(fault)s; opacity: %(strong)s; }
"""
_LIGHT: Final = {
    "words": "#57606a", "title": "#1f2328", "grid": "#d0d7de", "fault": "#cf222e", "shade": ".07",
    "fault words": "#a40e26", "ours": "#0969da", "plain": "#bc4c00", "third": "#1a7f37", "strong": ".55",
}  # fmt: skip
_DARK: Final = {
    "words": "#9198a1", "title": "#f0f6fc", "grid": "#3d444d", "fault": "#f85149", "shade": ".12",
    "fault words": "#ff7b72", "ours": "#58a6ff", "plain": "#f0883e", "third": "#3fb950", "strong": ".6",
}  # fmt: skip
#: Colours by role, for light and for dark surroundings. Written out: not every viewer of pictures knows
#: the variables of CSS.
STYLE: Final = f"""
.chart {{ display: block; font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; }}
.chart .title {{ font-size: 14px; font-weight: 600; }} .chart .band-name {{ font-size: 11px; }}
.chart .grid {{ stroke-width: 1; }}
.chart .line {{ fill: none; stroke-width: 1.8; stroke-linejoin: round; }}
{_RULES % _LIGHT}@media (prefers-color-scheme: dark) {{{_RULES % _DARK}}}
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

    def __init__(self, title: str, seconds: float, height: int, width: int) -> None:
        self.seconds = max(seconds, 0.001)
        self.width = width
        self.is_narrow = width < WIDTH
        # On a narrow one the legend has a line of its own, and names of bands have two.
        self.band_names = _BAND_NAMES + (2 * _LINE if self.is_narrow else 0)
        self.top = self.band_names + 8
        self.height = height + self.band_names - _BAND_NAMES
        self.bottom = self.height - _BOTTOM
        self.parts = [f'<text class="title" x="0" y="14">{escape(title)}</text>']

    def x(self, at: float) -> float:
        """A moment's place."""
        inner = self.width - _LEFT - _RIGHT
        return _LEFT + inner * min(max(at / self.seconds, 0.0), 1.0)

    def time_axis(self) -> None:
        """Seconds along the bottom."""
        most = 6 if self.is_narrow else 12
        step = next(s for s in (1, 2, 5, 10, 20, 60, 10**9) if self.seconds / s <= most)
        for number in range(int(self.seconds / step) + 1):
            x = self.x(number * step)
            self.parts.append(
                f'<text x="{x:.1f}" y="{self.bottom + 18}" text-anchor="middle">{number * step} s</text>'
            )

    def bands(self, bands: Iterable[Band]) -> None:
        """Shade when something was wrong."""
        for number, band in enumerate(bands):
            x, end = self.x(band.begin), self.x(band.end)
            y = self.band_names - (_LINE if self.is_narrow and number % 2 else 0)
            # One that would not fit ends at the edge instead of beginning at its band.
            near_edge = x + 6 * len(band.name) > self.width
            place = f'x="{self.width}" text-anchor="end"' if near_edge else f'x="{x:.1f}"'
            self.parts.append(
                f'<rect class="band" x="{x:.1f}" y="{self.top}" width="{end - x:.1f}" '
                f'height="{self.bottom - self.top}"/>'
                f'<text class="band-name" {place} y="{y}">{escape(band.name)}</text>'
            )

    def grid(self, y: float, label: str) -> None:
        """A line across, with its value."""
        self.parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{self.width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
        )

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Names of roles, right of the title; below it on a narrow one."""
        wide = sum(7 * len(name) + 30 for name, _ in entries)
        x, y = (0, 14 + _LINE) if self.is_narrow else (self.width - _RIGHT - wide + 14, 14)
        for name, role in entries:
            self.parts.append(
                f'<rect class="{role}-fill" x="{x}" y="{y - 8}" width="10" height="8" rx="2"/>'
                f'<text x="{x + 16}" y="{y}">{escape(name)}</text>'
            )
            x += 7 * len(name) + 30

    def draw(self, *, standalone: bool) -> str:
        """The finished plot; one that stands alone brings its style along."""
        style = f"<style>{STYLE}</style>" if standalone else ""
        return (
            f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" width="100%">{style}{"".join(self.parts)}</svg>'
        )


def line_plot(
    title: str,
    lines: Sequence[Line],
    *,
    seconds: float,
    bands: Sequence[Band] = (),
    logarithmic: bool = False,
    width: int = WIDTH,
    standalone: bool = False,
) -> str:
    """Lines over time. A logarithmic axis is for latencies, in seconds."""
    canvas = _Canvas(title, seconds, _HEIGHT, width)
    known = [value for line in lines for _, value in line.points]
    axis = LogAxis.decades(known) if logarithmic else LinearAxis.up_to(known)

    def y(value: float) -> float:
        return canvas.bottom - (canvas.bottom - canvas.top) * axis.place(value)

    canvas.bands(bands)
    for value in axis.ticks():
        canvas.grid(y(value), latency(value) if logarithmic else f"{value:g}")
    canvas.time_axis()
    for line in lines:
        for run in runs(line.points):
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
    width: int = WIDTH,
) -> str:
    """Bars along time, in named rows."""
    canvas = _Canvas(title, seconds, _BAND_NAMES + _ROW * len(rows) + _BOTTOM, width)
    for number, row in enumerate(rows):
        y = canvas.band_names + _ROW * number
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
