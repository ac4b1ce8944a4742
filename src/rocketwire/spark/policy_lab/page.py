"""The lab's page: one HTML file that needs no network. Every name in it is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from html import escape
from typing import Final

from rocketwire.spark.delivery_report.style import STYLE
from rocketwire.spark.delivery_report.wording import Clock, latency, number, share, some, span
from rocketwire.spark.policy_lab import plots
from rocketwire.spark.policy_lab.conditions import Incident
from rocketwire.spark.policy_lab.figures import Bounds, Stay
from rocketwire.spark.policy_lab.findings import LabResult, Pair, PolicyFigures
from rocketwire.spark.policy_lab.recorded import Recording
from rocketwire.version import __version__

_STYLE: Final = """
.plot.frontier { height: 240px; } .plot.incident { height: 76px; margin-top: 0; }
.dot-name { position: absolute; font-size: 12px; line-height: 1; color: var(--soft);
  transform: translate(8px, 50%); white-space: nowrap; }
.trouble { fill: var(--bad); opacity: .08; } tr.recorded td { font-weight: 640; }
td.both small { display: block; color: var(--quiet); font-weight: 400; }
"""
#: Incidents in the list.
_MOST: Final = 30

_CAN_NOT_KNOW: Final = (
    (
        "The times of sends",
        (
            "Sends are replayed at the moments at which they were made. A program that waits for each "
            "answer would have sent more under a better policy and fewer under a worse one."
        ),
    ),
    (
        "The load that a policy moves",
        (
            "Brokers answer as they did. That a healthy broker would have been slower with more load, or "
            "a sick one quicker with less, is not in the records; rocketwire simulate shows that."
        ),
    ),
    (
        "What nobody saw",
        (
            "While every producer left a broker out and no probe reached it, its condition is unknown: "
            "the best case is that it was well, the worst that it was as bad as when last or next seen. "
            "A request that was given up may have been answered right then, or never. Where both "
            "cases differ, figures are a range, and where the range decides, so does nobody."
        ),
    ),
    (
        "Probes and sends",
        "Where only a probe saw a broker, its heartbeat's latency stands for that of a send.",
    ),
    (
        "Memory",
        (
            "Long records are cut into periods, each with a warm-up of two minutes (half a minute with more than 40 brokers): what a fault table "
            "would remember from before that is lost."
        ),
    ),
)


def make_page(
    result: LabResult,
    results: Mapping[str, Bounds],
    recording: Recording,
    chosen: Incident | None,
    *,
    source: str,
    zone: tzinfo | None,
) -> str:
    """The whole page.

    Args:
        result: what was found.
        results: the tallies behind it, by the policies' names.
        recording: what was replayed.
        chosen: the incident that is drawn.
        source: what the records are called.
        zone: the time zone of all times.
    """
    clock = Clock(zone, 1.0)
    made = f"Rocketwire {__version__}, {datetime.now(zone):%Y-%m-%d %H:%M}. Times are in {clock.zone_name}."
    parts = (
        _top(result, recording, source, clock),
        _policies(result.policies),
        _frontier(result.policies),
        _incident(chosen, results, clock),
        _brokers(results, result.policies),
        _incidents(result.incidents, results, result.policies, clock),
        _limits(),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Policy lab: {escape(source)}</title><style>{STYLE}{_STYLE}</style></head>\n<body>\n"
        f"{chr(10).join(part for part in parts if part)}\n<footer>{escape(made)}</footer>\n</body></html>\n"
    )


def _top(result: LabResult, recording: Recording, source: str, clock: Clock) -> str:
    verdict = result.verdict
    period = f"{clock.full(recording.begin)} to {clock.full(recording.end)} {clock.zone_name}"
    told = "".join(
        f'<p class="warning"><b>Look out.</b> {escape(text)}.</p>' for text in result.trouble
    )
    seconds = result.seconds
    facts = (
        ("Attempts", number(result.attempts), f"{some(len(recording.clients), 'producer')}"),
        ("Brokers", number(len(recording.brokers)), f"usually {latency(recording.usual)}"),
        ("Incidents", number(len(result.incidents)), f"in {span(recording.end - recording.begin)}"),
        ("Policies", number(len(result.policies)), "replayed"),
        ("Replayed", number(result.replayed), "attempts"),
        ("It took", span(seconds), ""),
    )
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{escape(value)}</dd><small>{escape(more)}</small></div>"
        for name, value, more in facts
    )
    return (
        f'<header><p class="kicker">Policy lab · {escape(source)} · {escape(period)}</p>'
        f"<h1>{escape(verdict.sentence)}</h1></header>"
        f'<ul class="summary"><li>{escape(verdict.why)}</li></ul>{told}<dl class="facts">{cells}</dl>'
    )


# -- the policies ---------------------------------------------------------------------------------


def _both(values: Pair, words: Callable[[float], str]) -> str:
    """A figure; with its bounds where best and worst case differ."""
    low, high = (words(value) for value in values)
    if low == high:
        return f'<td class="number">{escape(low)}</td>'
    return f'<td class="number both">{escape(low)}<small>to {escape(high)}</small></td>'


def _policies(policies: Sequence[PolicyFigures]) -> str:
    heads = (
        "policy", "failed", "p50", "p99", "p99.9", "seconds lost", "load moved", "left out rightly",
        "wrongly", "unseen",
    )  # fmt: skip
    rows = []
    for one in policies:
        name = f"{escape(one.name)}{' (recorded)' if one.is_recorded and 'recorded' not in one.name else ''}"
        cells = (
            _both(one.failed, lambda v: number(round(v))),
            _both(one.p50, latency),
            _both(one.p99, latency),
            _both(one.p999, latency),
            _both(one.lost, span),
            _both(one.moved, lambda v: share(v, 1.0)),
            _both(one.rightly, span),
            _both(one.wrongly, span),
            _both(one.unknown, span),
        )
        kind = ' class="recorded"' if one.is_recorded else ""
        rows.append(f'<tr{kind}><td class="words">{name}</td>{"".join(cells)}</tr>')
    return (
        "<section><h2>What each policy would have done</h2>"
        '<p class="about">The same sends, sent to brokers as they were. Two figures are the best and the '
        "worst case of what nobody saw. Times left out are summed over producers and brokers.</p>"
        f'<div class="scroll"><table>{_head(heads)}{"".join(rows)}</table></div></section>'
    )


def _head(names: Sequence[str]) -> str:
    first, *others = names
    return (
        f"<tr><th>{escape(first)}</th>"
        + "".join(f'<th class="number">{escape(n)}</th>' for n in others)
        + "</tr>"
    )


def _frontier(policies: Sequence[PolicyFigures]) -> str:
    return (
        "<section><h2>The frontier</h2>"
        '<p class="about">Left: less time lost in incidents. Low: brokers that were well are left out for '
        "less time. A policy is better only if it is nearer to the lower left corner; a line is the "
        "range between best and worst case.</p>"
        f"{plots.frontier(policies)}</section>"
    )


def _incident(chosen: Incident | None, results: Mapping[str, Bounds], clock: Clock) -> str:
    if chosen is None:
        return ""
    names = ", ".join(chosen.brokers)
    return (
        "<section><h2>One incident under each policy</h2>"
        f'<p class="about">{escape(names)} was bad from {clock.time(chosen.begin)} to '
        f"{clock.time(chosen.end)} (red). The line is the slowest send of each half second, in the worst "
        "case; the bar at the bottom is when the policy left the broker out.</p>"
        f"{plots.incident(chosen, results, clock)}</section>"
    )


def _brokers(results: Mapping[str, Bounds], policies: Sequence[PolicyFigures]) -> str:
    """Per broker, for the policies that have names of their own."""
    shown = [
        one for one in policies if one.is_recorded or not one.is_of_grid or one.name == "default"
    ]
    rows = []
    for one in shown:
        for broker, stay in sorted(results[one.name].best.stays.items()):
            worst = results[one.name].worst.stays.get(broker, Stay())
            cells = "".join(
                _both((min(pair), max(pair)), span)
                for pair in (
                    (stay.rightly, worst.rightly),
                    (stay.wrongly, worst.wrongly),
                    (stay.missed, worst.missed),
                    (stay.unknown, worst.unknown),
                )
            )
            rows.append(f"<tr><td>{escape(one.name)}</td><td>{escape(broker)}</td>{cells}</tr>")
    head = "<tr><th>policy</th><th>broker</th>" + "".join(
        f'<th class="number">{name}</th>'
        for name in ("out rightly", "out wrongly", "in use while bad", "out unseen")
    )
    return (
        "<section><h2>Who was left out</h2>"
        f'<div class="scroll"><table>{head}</tr>{"".join(rows[:400])}</table></div></section>'
    )


def _incidents(
    incidents: Sequence[Incident],
    results: Mapping[str, Bounds],
    policies: Sequence[PolicyFigures],
    clock: Clock,
) -> str:
    if not incidents:
        return ""
    shown = [p.name for p in policies if p.is_recorded or not p.is_of_grid or p.name == "default"]
    rows = []
    for one in incidents[:_MOST]:
        costs = "".join(
            _both(results[name].spread("cost", [one.number], 0.0), span) for name in shown
        )
        rows.append(
            f'<tr><td>{escape(clock.full(one.begin))}</td><td class="number">'
            f'{escape(span(one.end - one.begin))}</td><td class="words">{escape(", ".join(one.brokers))}</td>{costs}</tr>'
        )
    more = f'<p class="note">{len(incidents) - _MOST} more.</p>' if len(incidents) > _MOST else ""
    heads = "".join(f'<th class="number">{escape(name)}</th>' for name in shown)
    return (
        "<section><h2>Incidents</h2>"
        '<p class="about">Seconds lost in each, beyond the usual latency, over all sends.</p>'
        '<div class="scroll"><table><tr><th>begin</th><th class="number">length</th><th>brokers</th>'
        f"{heads}</tr>{''.join(rows)}</table></div>{more}</section>"
    )


def _limits() -> str:
    items = "".join(
        f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in _CAN_NOT_KNOW
    )
    return f"<details open><summary>What a replay can't know</summary><dl>{items}</dl></details>"
