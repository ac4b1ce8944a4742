"""``demo-report.html``: one page that needs no network, in light and in dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

from rocketwire.cli.demo.checks import Check
from rocketwire.cli.demo.plots import STYLE as PLOT_STYLE
from rocketwire.cli.demo.recording import Recording
from rocketwire.cli.demo.story import SCENES
from rocketwire.version import __version__

_STYLE: Final = """
:root { color-scheme: light dark; --text: #1f2328; --quiet: #57606a; --page: #ffffff;
  --card: #f6f8fa; --edge: #d0d7de; --good: #1a7f37; --bad: #cf222e; --accent: #0969da; }
@media (prefers-color-scheme: dark) { :root { --text: #f0f6fc; --quiet: #9198a1; --page: #0d1117;
  --card: #151b23; --edge: #3d444d; --good: #3fb950; --bad: #f85149; --accent: #58a6ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 980px; padding: 32px 20px 64px; background: var(--page);
  color: var(--text); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 28px; margin: 0 0 4px; } h2 { font-size: 20px; margin: 40px 0 8px; }
p.lead { color: var(--quiet); margin: 0 0 24px; }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: 16px 18px; margin: 14px 0; overflow-x: auto; }
.card svg { min-width: 560px; display: block; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--edge); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr:last-child td { border-bottom: 0; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.figures { display: flex; flex-wrap: wrap; gap: 14px; }
.figures div { flex: 1 1 200px; background: var(--card); border: 1px solid var(--edge);
  border-radius: 10px; padding: 12px 16px; }
.figures b { display: block; font-size: 26px; } .figures span { color: var(--quiet); }
code { font: 13px ui-monospace, Menlo, Consolas, monospace; background: var(--card);
  border: 1px solid var(--edge); border-radius: 6px; padding: 1px 5px; }
ol li { margin: 6px 0; } footer { color: var(--quiet); margin-top: 48px; font-size: 13px; }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page that another step of the demo made: its heading and its HTML."""

    heading: str
    html: str


def make_page(recording: Recording, checks: Sequence[Check], sections: Sequence[Section]) -> str:
    """The whole page."""
    body = [
        "<h1>Rocketwire demo</h1>",
        (
            f'<p class="lead">Three brokers, one of them slow, another frozen and killed, '
            f"{recording.seconds:.0f} seconds. Two clients sent the same stream of orders.</p>"
        ),
        _headline(recording),
        "<h2>While brokers go bad</h2>",
        *(f'<div class="card">{plot}</div>' for plot in _plots(recording)),
        "<h2>In figures</h2>",
        _figures(recording),
        "<h2>What happened</h2>",
        _story(),
        *(f"<h2>{escape(s.heading)}</h2>{s.html}" for s in sections),
        "<h2>What was checked</h2>",
        _checks(checks),
        (
            f"<footer>Rocketwire {__version__}, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}. "
            "The plain client is the same code with the fault policy off and no cap per attempt: one "
            "deadline of 3 s and two retries, as Java's producer has by default. Both ask for routes every 2 s here, instead of every 30 s.</footer>"
        ),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Rocketwire demo</title><style>{_STYLE}{PLOT_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _plots(recording: Recording) -> list[str]:
    return [
        recording.latency_plot(),
        recording.rate_plot(),
        recording.verdict_plot(),
        recording.spread_plot(),
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
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{escape(ours)}</td>'
        f'<td class="number">{escape(plain)}</td></tr>'
        for name, ours, plain in recording.table()
    )
    head = (
        '<tr><th></th><th class="number">Rocketwire</th><th class="number">plain client</th></tr>'
    )
    return f'<div class="card"><table>{head}{rows}</table></div>'


def _story() -> str:
    items = "".join(
        f"<li><b>{escape(scene.title)}.</b> {escape(scene.explanation)}<br>"
        f"<code>{escape(scene.command)}</code></li>"
        for scene in SCENES
    )
    return f"<ol>{items}</ol>"


def _checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f'<tr><td class="{"good" if check.holds else "bad"}">{"held" if check.holds else "broken"}'
        f"</td><td>{escape(check.statement)}</td><td>{escape(check.figures)}</td></tr>"
        for check in checks
    )
    return f'<div class="card"><table>{rows}</table></div>'
