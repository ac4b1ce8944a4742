"""``demo-report.html``: one page that needs no network, in light and in dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

from rocketwire.cli.demo.checks import Check
from rocketwire.cli.demo.recording import Recording
from rocketwire.cli.demo.story import SCENES
from rocketwire.pages.charts import NARROW
from rocketwire.pages.charts import STYLE as CHART_STYLE
from rocketwire.pages.document import document, made, section
from rocketwire.pages.tables import Cell, table

_STYLE: Final = """
body { max-width: 980px; padding: 32px 20px 64px; } h1 { font-size: 28px; margin: 0 0 4px; } h2 { margin: 40px 0 8px; }
p.lead { color: var(--quiet); margin: 0 0 24px; }
.card { background: var(--faint); border: 1px solid var(--rule); border-radius: 10px;
  padding: 16px 18px; margin: 14px 0; overflow-x: auto; }
.card table { font-size: 16px; } .card th { font-size: 16px; font-weight: 700; color: var(--ink); }
.card td.words { min-width: 0; } .card tr:last-child td { border: 0; }
td.good, td.bad { font-weight: 600; } .narrow { display: none; }
.figures { display: flex; flex-wrap: wrap; gap: 14px; }
.figures div { flex: 1 1 200px; background: var(--faint); border: 1px solid var(--rule);
  border-radius: 10px; padding: 12px 16px; }
.figures b { display: block; font-size: 26px; } .figures span { color: var(--quiet); }
code { font: 13px ui-monospace, Menlo, Consolas, monospace; background: var(--faint);
  border: 1px solid var(--rule); border-radius: 6px; padding: 1px 5px; }
@media (max-width: 600px) { .wide { display: none; } .narrow { display: block; }
  .card th, .card td { padding-right: 8px; font-size: 14px; } }
ol li { margin: 6px 0; }
"""
_PLAIN: Final = (
    "The plain client is the same code with the fault policy off and no cap per attempt: one deadline of "
    "3 s and two retries, as Java's producer has by default. Both ask for routes every 2 s here, instead "
    "of every 30 s."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page that another step of the demo made: its heading and its HTML."""

    heading: str
    html: str


def make_page(recording: Recording, checks: Sequence[Check], sections: Sequence[Section]) -> str:
    """The whole page."""
    about = (
        "Three brokers, one of them slow, another frozen and killed, "
        f"{recording.seconds:.0f} seconds. Two clients sent the same stream of orders."
    )
    plots = (f'<div class="card">{plot}</div>' for plot in _plots(recording))
    parts = (
        f'<h1>Rocketwire demo</h1><p class="lead">{about}</p>',
        _headline(recording),
        section("While brokers go bad", "", *plots),
        section("In figures", "", _figures(recording)),
        section("What happened", "", _story()),
        *(section(part.heading, "", part.html) for part in sections),
        section("What was checked", "", _checks(checks)),
    )
    footer = made(datetime.now().astimezone(), _PLAIN)
    return document("Rocketwire demo", parts, style=CHART_STYLE + _STYLE, footer=footer)


def _plots(recording: Recording) -> list[str]:
    """Each for wide screens and for narrow ones, of which the page shows one."""
    draw = (
        recording.latency_plot,
        recording.rate_plot,
        recording.verdict_plot,
        recording.spread_plot,
    )
    return [
        f'<div class="wide">{plot()}</div><div class="narrow">{plot(width=NARROW)}</div>'
        for plot in draw
    ]


def _headline(recording: Recording) -> str:
    rows = {name: (ours, plain) for name, ours, plain in recording.table()}
    cells = [
        ("failed sends", "failed sends"),
        ("99 of 100 within", "99 of 100 sends within"),
        ("acknowledged", "messages acknowledged"),
    ]
    return (
        '<div class="figures">'
        + "".join(
            f"<div><b>{escape(rows[key][0])}</b><span>{label}<br>plain client: "
            f"{escape(rows[key][1])}</span></div>"
            for key, label in cells
        )
        + "</div>"
    )


def _figures(recording: Recording) -> str:
    return table(("", "Rocketwire#", "plain client#"), recording.table(), frame="card")


def _story() -> str:
    items = "".join(
        f"<li><b>{escape(scene.title)}.</b> {escape(scene.explanation)}<br>"
        f"<code>{escape(scene.command)}</code></li>"
        for scene in SCENES
    )
    return f"<ol>{items}</ol>"


def _checks(checks: Sequence[Check]) -> str:
    rows = [
        (
            Cell("held", role="good") if check.holds else Cell("broken", role="bad"),
            check.statement,
            check.figures,
        )
        for check in checks
    ]
    return table(("", "*", "*"), rows, frame="card")
