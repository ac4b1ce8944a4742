"""The page: one HTML file that needs no network, for light and dark, narrow and wide."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final

from rocketwire.pages.document import (
    definitions,
    document,
    facts,
    header,
    made,
    summary,
    warnings,
)
from rocketwire.pages.words import (
    Clock,
    latency,
    number,
    share,
    short_number,
    size,
    some,
)
from rocketwire.spark.delivery_report import sections
from rocketwire.spark.delivery_report.definitions import DEFINITIONS
from rocketwire.spark.delivery_report.findings import Findings
from rocketwire.spark.delivery_report.style import STYLE

_TRACE_LACKS: Final = (
    "Traces tell how whole sends ended. Attempts, queues, sharding keys and isolations are only in "
    "the telemetry files (Producer(telemetry=FOLDER)), so this page lacks what needs them."
)


def make_page(
    found: Findings, sentences: Sequence[str], *, zone: tzinfo | None, made_at: datetime
) -> str:
    """The whole page.

    Args:
        found: what to show.
        sentences: the summary, for the top.
        zone: the time zone of all times.
        made_at: when the page is made.
    """
    clock = Clock(zone, found.width)
    parts = (
        header(_about(found, clock), _headline(found)),
        summary(sentences),
        warnings(_warnings(found)),
        facts(_facts(found)),
        sections.timeline(found, clock),
        sections.brokers(found),
        sections.profiles(found),
        sections.troubles(found, clock),
        sections.retries(found),
        sections.isolations(found, clock),
        sections.queues(found),
        sections.keys(found),
        sections.order(found),
        sections.producers(found, clock),
        definitions("What is counted, exactly", DEFINITIONS),
    )
    footer = made(made_at, f"Times are in {clock.zone_name}.")
    return document(f"Delivery report: {found.input.source}", parts, style=STYLE, footer=footer)


# -- the top ----------------------------------------------------------------------------------------


def _about(found: Findings, clock: Clock) -> str:
    days = clock.full(found.overall.first_at), clock.full(found.overall.last_at)
    same_day = days[0][:10] == days[1][:10]
    period = f"{days[0]} to {days[1][11:] if same_day else days[1]} {clock.zone_name}"
    return f"Delivery report · {found.input.source} · {period}"


def _headline(found: Findings) -> str:
    whole = found.sends
    if found.failed_sends == 0:
        return f"All {some(whole, 'send')} acknowledged"
    return f"{share(whole - found.failed_sends, whole)} of {some(whole, 'send')} acknowledged"


def _warnings(found: Findings) -> list[tuple[str, str]]:
    given = found.input
    told: list[tuple[str, str]] = []
    if given.is_trace:
        told.append(("From traces.", _TRACE_LACKS))
    if given.dropped:
        told.append(
            (
                "Incomplete.",
                (
                    f"Producers dropped {some(given.dropped, 'record')} because their disk could not "
                    "keep up, so every figure here may be too low. A larger max_queue in "
                    "TelemetryConfig helps."
                ),
            )
        )
    bad = given.unreadable + given.foreign
    if bad:
        files = ", ".join(f"{name} ({number(count)})" for name, count in given.bad_files)
        where = f" Most are in {files}." if files else ""
        told.append(
            (
                "Left out.",
                (
                    f"{some(given.unreadable, 'line')} could not be read (torn, no JSON, or too long) and "
                    f"{number(given.foreign)} came from something else than our producers, out of "
                    f"{number(given.records)}.{where}"
                ),
            )
        )
    return told


def _facts(found: Findings) -> list[tuple[str, str, str]]:
    overall = found.overall
    seconds = max(found.end - overall.first_at, found.width)
    return [
        ("Sends", short_number(found.sends), f"{short_number(found.sends / seconds)}/s"),
        ("Messages", short_number(overall.messages), size(overall.bytes)),
        ("Failed sends", short_number(found.failed_sends), share(found.failed_sends, found.sends)),
        ("Median latency", latency(overall.p50), f"90 % {latency(overall.p90)}"),
        ("99 % within", latency(overall.p99), f"99.9 % {latency(overall.p999)}"),
        ("Retries", short_number(overall.retries), _duplicate_words(found.maybe_duplicates)),
    ]


def _duplicate_words(count: int) -> str:
    return some(count, "maybe-duplicate") if count else "no duplicates to expect"
