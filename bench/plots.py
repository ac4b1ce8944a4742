"""What was measured as a page: one HTML file that needs nothing else, light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from bench.report import machine
from bench.rounds import Row

_WIDTH, _BAR, _GAP, _LEFT, _RIGHT = 840, 22, 8, 220, 290
_PLOT_WIDTH, _PLOT_HEIGHT, _EDGE = 360, 200, 46
#: What each contest is, for people.
_TITLES = {
    "making": "Making a message, nothing sent",
    "blocking": "One send at a time, to an acking server",
    "submit": "Many in flight, to an acking server",
    "batch": "Batches, to an acking server",
    "broker: one at a time": "One send at a time, on Apache RocketMQ",
    "broker: 8 threads": "8 threads, one send at a time each, on Apache RocketMQ",
    "broker: many in flight": "Many in flight, on Apache RocketMQ",
    "broker: auto-batch": "Auto-batching, on Apache RocketMQ",
    "broker: lists of 500": "Lists of 500, on Apache RocketMQ",
    "broker: lists of 50": "Lists of 50, on Apache RocketMQ",
    "broker: oneway": "Without an answer, to Apache RocketMQ",
}
_NAMES = {
    "floor": "bare sockets",
    "java": "Java",
    "go": "Go",
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#66717f;--paper:#fff;--line:#d8dde3;
--ours:#2563a8;--theirs:#b9c2cc}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#98a3b1;--paper:#14181d;
--line:#333b45;--ours:#6aa6e8;--theirs:#4b5561}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:820px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .4rem}
p,figcaption{color:var(--soft)}svg{max-width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .soft{fill:var(--soft)}
.ours{fill:var(--ours)}.theirs{fill:var(--theirs)}.axis{stroke:var(--line)}
.curve{fill:none;stroke:var(--ours);stroke-width:2}.spread{stroke:var(--soft)}
figure{display:inline-block;margin:.5rem 1rem .5rem 0}
"""


def write_page(path: Path, rows: Sequence[Row], series: Mapping[str, Any]) -> None:
    """The page."""
    told = _when_and_where(machine())
    contests = dict.fromkeys(row.contest for row in rows)
    parts = [_bars(name, [row for row in rows if row.contest == name]) for name in contests]
    curves = [_curve(found) for found in series.values() if len(found.get("points", ())) > 1]
    if curves:
        parts.append("<h2>Growth</h2>" + "".join(curves))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'><title>Rocketwire: speed</title>"
        f"<style>{_STYLE}</style><h1>Rocketwire: speed</h1><p>{escape(told)}</p>"
        "<p>Every round runs all paths, in a new order. A bar is the median of the rounds, the thin "
        "line goes from the least to the most. Ratios are made within a round. CPU is the "
        "client's own, for each message.</p>"
        f"{''.join(parts)}</html>\n"
    )


def _when_and_where(facts: Mapping[str, Any]) -> str:
    moment = datetime.fromisoformat(facts["at"])
    return (
        f"{moment:%d %B %Y, %H:%M} UTC; {facts['cores']} cores ({facts['processor']}), "
        f"{facts['system']}, Python {facts['python']}"
    )


def _title(contest: str) -> str:
    """A contest in words, with the shape of its messages."""
    name, comma, shape = contest.partition(", ")
    return f"{_TITLES[name]}{comma}{shape}" if name in _TITLES else contest


def _beside(row: Row) -> str:
    """What stands behind a bar: its ratios and its CPU time."""
    ratios = [f"{r.median:.2f}x {_NAMES.get(r.against, r.against)}" for r in row.ratios]
    return ", ".join([*ratios[:2], f"CPU {row.cost * 1e6:,.1f} µs"])


def _bars(name: str, rows: Sequence[Row]) -> str:
    """One contest: a bar for each path, with its spread over the rounds."""
    is_latency = rows[0].measure == "p50"
    values = [[(s.p50 or 0.0) * 1e6 if is_latency else s.rate for s in row.samples] for row in rows]
    top = max(max(found) for found in values) or 1.0
    span = _WIDTH - _LEFT - _RIGHT
    shapes = []
    for place, (row, found) in enumerate(zip(rows, values, strict=True)):
        y = place * (_BAR + _GAP) + _GAP
        middle = sorted(found)[len(found) // 2]
        width, low, high = (span * value / top for value in (middle, min(found), max(found)))
        kind = "ours" if row.ratios and row.name not in {"java", "go"} else "theirs"
        center = y + _BAR / 2
        label = escape(_NAMES.get(row.name, row.name))
        shapes.append(
            f"<text x='{_LEFT - 8}' y='{center + 4}' text-anchor='end'>{label}</text>"
            f"<rect class='{kind}' x='{_LEFT}' y='{y}' width='{width:.1f}' height='{_BAR}'/>"
            f"<line class='spread' x1='{_LEFT + low:.1f}' x2='{_LEFT + high:.1f}' "
            f"y1='{center}' y2='{center}'/>"
            f"<text x='{_LEFT + high + 6:.1f}' y='{center + 4}'>{middle:,.0f} "
            f"<tspan class='soft'>{escape(_beside(row))}</tspan></text>"
        )
    height = len(rows) * (_BAR + _GAP) + _GAP
    unit = "µs p50, less is better" if is_latency else "messages/s, more is better"
    return (
        f"<h2>{escape(_title(name))}</h2><p>{unit}</p>"
        f"<svg viewBox='0 0 {_WIDTH} {height}' role='img' aria-label='{escape(name, quote=True)}'>"
        f"{''.join(shapes)}</svg>"
    )


def _curve(found: Mapping[str, Any]) -> str:
    """One series over a logarithmic axis, from zero up."""
    points = found["points"]
    top = max(point["high"] for point in points) or 1.0
    first, last = math.log(points[0]["x"]), math.log(points[-1]["x"])
    wide, tall = _PLOT_WIDTH - 2 * _EDGE, _PLOT_HEIGHT - _EDGE - 14

    def across(value: float) -> float:
        return _EDGE + wide * (math.log(value) - first) / ((last - first) or 1.0)

    def down(value: float) -> float:
        return 14 + tall * (1 - value / top)

    line = " ".join(f"{across(p['x']):.1f},{down(p['y']):.1f}" for p in points)
    marks = "".join(
        f"<line class='spread' x1='{across(p['x']):.1f}' x2='{across(p['x']):.1f}' "
        f"y1='{down(p['low']):.1f}' y2='{down(p['high']):.1f}'/>"
        f"<text class='soft' x='{across(p['x']):.1f}' y='{_PLOT_HEIGHT - _EDGE + 18}' "
        f"text-anchor='middle'>{_short(p['x'])}</text>"
        for p in points
    )
    base = _PLOT_HEIGHT - _EDGE
    return (
        f"<figure><svg width='{_PLOT_WIDTH}' viewBox='0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}' role='img' "
        f"aria-label='{escape(found['title'], quote=True)}'>"
        f"<line class='axis' x1='{_EDGE}' x2='{_PLOT_WIDTH - _EDGE}' y1='{base}' y2='{base}'/>"
        f"<text class='soft' x='{_EDGE - 6}' y='18' text-anchor='end'>{_short(top)}</text>"
        f"<text class='soft' x='{_EDGE - 6}' y='{base}' text-anchor='end'>0</text>"
        f"{marks}<polyline class='curve' points='{line}'/></svg>"
        f"<figcaption>{escape(found['title'])}</figcaption></figure>"
    )


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
