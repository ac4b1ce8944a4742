"""What was measured as a page: one HTML file that needs nothing else, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from bench.report import machine
from bench.rounds import Row
from rocketwire.pages import document
from rocketwire.pages.document import header, section
from rocketwire.pages.drawing import label, path, svg, ticks, upright
from rocketwire.pages.scales import LogAxis
from rocketwire.pages.words import short_number

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
body { max-width: 860px; } h1 { font-size: 24px; } h2 { font-size: 17.6px; margin: 32px 0 6px; }
p.about { margin: 0 0 10px; } p.lead { color: var(--soft); font-size: 15px; }
.path { display: grid; grid-template-columns: 12rem 1fr 17rem; column-gap: .6rem; align-items: center;
  margin: .35rem 0; font-size: 13px; } .path .name { text-align: right; overflow-wrap: anywhere; }
.path .value { color: var(--quiet); } .path .value b { color: var(--ink); font-weight: 500; }
.bar { position: relative; height: 22px; }
.bar i { position: absolute; top: 0; bottom: 0; left: 0; min-width: 1px; }
i.ours { background: var(--accent); } i.theirs { background: var(--quiet); opacity: .5; }
.bar i.spread { top: 10px; bottom: auto; height: 2px; background: var(--ink); opacity: .6; }
figure { display: inline-block; width: 352px; max-width: 100%; margin: 16px 20px 16px 0; vertical-align: top; padding-left: 52px; }
figure .plot { height: 140px; border-bottom: 1px solid var(--rule); } figure .ticks { margin: 0; }
figcaption { color: var(--soft); font-size: 14px; } .whisker { stroke: var(--quiet); stroke-width: 1; }
@media (max-width: 760px) { .path { grid-template-columns: 1fr; margin: .8rem 0; }
  .path .name { text-align: left; } .bar { height: 14px; } .bar i.spread { top: 6px; } }
"""
_ABOUT = (
    "Every round runs all paths, in a new order. A bar is the median of the rounds, the thin line goes from "
    "the least to the most. Ratios are made within a round. CPU is the client's own, for each message."
)


def write_page(place: Path, rows: Sequence[Row], series: Mapping[str, Any]) -> None:
    """The page."""
    contests = dict.fromkeys(row.contest for row in rows)
    curves = [_curve(found) for found in series.values() if len(found.get("points", ())) > 1]
    parts = (
        header(_when_and_where(machine()), "Rocketwire: speed"),
        f'<p class="lead">{_ABOUT}</p>',
        *(_bars(name, [row for row in rows if row.contest == name]) for name in contests),
        section("Growth", "", *curves) if curves else "",
    )
    document.write_page(place, document.document("Rocketwire: speed", parts, style=_STYLE))


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
    shapes = []
    for row, found in zip(rows, values, strict=True):
        middle = sorted(found)[len(found) // 2]
        width, low, high = (100 * value / top for value in (middle, min(found), max(found)))
        kind = "ours" if row.ratios and row.name not in {"java", "go"} else "theirs"
        who = escape(_NAMES.get(row.name, row.name))
        shapes.append(
            f"<div class='path'><span class='name'>{who}</span><span class='bar'>"
            f"<i class='{kind}' style='width:{width:.1f}%'></i>"
            f"<i class='spread' style='left:{low:.1f}%;width:{high - low:.1f}%'></i></span>"
            f"<span class='value'><b>{middle:,.0f}</b> {escape(_beside(row))}</span></div>"
        )
    unit = "µs p50, less is better" if is_latency else "messages/s, more is better"
    return section(_title(name), unit, *shapes)


def _curve(found: Mapping[str, Any]) -> str:
    """One series over a logarithmic axis, from zero up."""
    points = found["points"]
    top = max(point["high"] for point in points) or 1.0
    across = LogAxis(points[0]["x"], max(points[-1]["x"], points[0]["x"] + 1)).place
    shapes = [upright(across(p["x"]), "whisker", (p["low"] / top, p["high"] / top)) for p in points]
    shapes.append(path([(across(p["x"]), p["y"] / top) for p in points], "median"))
    scale = label("0", "y", bottom=0.0) + label(short_number(top), "y", bottom=1.0)
    return (
        f'<figure><div class="plot">{svg(shapes, "draw", found["title"])}{scale}</div>'
        f"{ticks((across(p['x']), short_number(p['x'])) for p in points)}"
        f"<figcaption>{escape(found['title'])}</figcaption></figure>"
    )
