"""The lab's page: one HTML file that needs no network. Every name in it is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Final

from rocketwire.pages.document import (
    definitions,
    document,
    facts,
    header,
    made,
    section,
    summary,
    warnings,
)
from rocketwire.pages.tables import Cell, Row, table
from rocketwire.pages.words import Clock, latency, number, share, some, span
from rocketwire.spark.policy_lab import plots
from rocketwire.spark.policy_lab.conditions import Incident
from rocketwire.spark.policy_lab.figures import Bounds, Stay
from rocketwire.spark.policy_lab.findings import LabResult, Pair, PolicyFigures
from rocketwire.spark.policy_lab.recorded import Recording

_STYLE: Final = """
.plot.frontier { height: 240px; } .plot.incident { height: 76px; margin-top: 0; }
.dot-name { position: absolute; font-size: 12px; line-height: 1; color: var(--soft);
  transform: translate(8px, 50%); width: max-content; }
.dot-name.before { transform: translate(calc(-100% - 8px), 50%); text-align: right; }
.trouble { fill: var(--bad); opacity: .08; }
"""
#: Incidents in the list.
_MOST: Final = 30
#: Rows of brokers, over all policies.
_MOST_STAYS: Final = 400

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
            "cases differ, figures are a range; a verdict that depends on which of them holds is not given."
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
    period = f"{clock.full(recording.begin)} to {clock.full(recording.end)} {clock.zone_name}"
    parts = (
        header(f"Policy lab · {source} · {period}", result.verdict.sentence),
        summary([result.verdict.why]),
        warnings(("Look out.", f"{text}.") for text in result.trouble),
        facts(_facts(result, recording)),
        _policies(result.policies),
        _frontier(result.policies),
        _incident(chosen, results, clock),
        _brokers(results, result.policies),
        _incidents(result.incidents, results, result.policies, clock),
        definitions("What a replay can't know", _CAN_NOT_KNOW, is_open=True),
    )
    footer = made(datetime.now(zone), f"Times are in {clock.zone_name}.")
    return document(f"Policy lab: {source}", parts, style=_STYLE, footer=footer)


def _facts(result: LabResult, recording: Recording) -> tuple[tuple[str, str, str], ...]:
    return (
        ("Attempts", number(result.attempts), some(len(recording.clients), "producer")),
        ("Brokers", number(len(recording.brokers)), f"usually {latency(recording.usual)}"),
        ("Incidents", number(len(result.incidents)), f"in {span(recording.end - recording.begin)}"),
        ("Policies", number(len(result.policies)), "replayed"),
        ("Replayed", number(result.replayed), "attempts"),
        ("It took", span(result.seconds), ""),
    )


# -- the policies ---------------------------------------------------------------------------------


def _both(values: Pair, words: Callable[[float], str]) -> Cell:
    """A figure; with its bounds where best and worst case differ."""
    low, high = (words(value) for value in values)
    return Cell(low, "" if low == high else f"to {high}")


def _policies(policies: Sequence[PolicyFigures]) -> str:
    head = (
        "policy*", "failed#", "p50#", "p99#", "p99.9#", "seconds lost#", "load moved#",
        "left out rightly#", "wrongly#", "unseen#",
    )  # fmt: skip
    rows = [
        (
            one.title,
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
        for one in policies
    ]
    recorded = {place for place, one in enumerate(policies) if one.is_recorded}
    about = (
        "The same sends, sent to brokers as they were. Two figures are the best and the worst case of "
        "what nobody saw. Times left out are summed over producers and brokers."
    )
    return section("What each policy would have done", about, table(head, rows, strong=recorded))


def _frontier(policies: Sequence[PolicyFigures]) -> str:
    about = (
        "Left: less time lost in incidents. Low: brokers that were well are left out for less time. A "
        "policy is better only if it is nearer to the lower left corner; a line is the range between "
        "best and worst case."
    )
    return section("The frontier", about, plots.frontier(policies))


def _incident(chosen: Incident | None, results: Mapping[str, Bounds], clock: Clock) -> str:
    if chosen is None:
        return ""
    about = (
        f"{', '.join(chosen.brokers)} was bad from {clock.time(chosen.begin)} to "
        f"{clock.time(chosen.end)} (red). The line is the slowest send of each half second, in the worst "
        "case; the bar at the bottom is when the policy left the broker out."
    )
    drawn = plots.incident(chosen, results, clock)
    return section("One incident under each policy", about, drawn)


def _named(policies: Sequence[PolicyFigures]) -> list[str]:
    """The policies that have names of their own, or were at work."""
    return [p.name for p in policies if p.is_recorded or not p.is_of_grid or p.name == "default"]


def _brokers(results: Mapping[str, Bounds], policies: Sequence[PolicyFigures]) -> str:
    rows: list[Row] = []
    for name in _named(policies):
        for broker, stay in sorted(results[name].best.stays.items()):
            worst = results[name].worst.stays.get(broker, Stay())
            pairs = (
                (stay.rightly, worst.rightly),
                (stay.wrongly, worst.wrongly),
                (stay.missed, worst.missed),
                (stay.unknown, worst.unknown),
            )
            rows.append((name, broker, *(_both((min(p), max(p)), span) for p in pairs)))
    head = ("policy", "broker", "out rightly#", "out wrongly#", "in use while bad#", "out unseen#")
    return section("Who was left out", "", table(head, rows[:_MOST_STAYS]))


def _incidents(
    incidents: Sequence[Incident],
    results: Mapping[str, Bounds],
    policies: Sequence[PolicyFigures],
    clock: Clock,
) -> str:
    if not incidents:
        return ""
    shown = _named(policies)
    rows: list[Row] = [
        (
            clock.full(one.begin),
            span(one.end - one.begin),
            ", ".join(one.brokers),
            *(_both(results[name].spread("cost", [one.number], 0.0), span) for name in shown),
        )
        for one in incidents[:_MOST]
    ]
    head = ("begin", "length#", "brokers*", *(f"{name}#" for name in shown))
    more = f'<p class="note">{len(incidents) - _MOST} more.</p>' if len(incidents) > _MOST else ""
    about = "Seconds lost in each, beyond the usual latency, over all sends."
    return section("Incidents", about, table(head, rows), more)
