"""The sections of the page: a heading, a sentence on how to read it, a plot or a table."""

from __future__ import annotations

from html import escape
from typing import Final

from rocketwire.pages.document import section
from rocketwire.pages.tables import table
from rocketwire.pages.words import (
    Clock,
    latency,
    number,
    share,
    size,
    some,
    span,
)
from rocketwire.spark.delivery_report import figures
from rocketwire.spark.delivery_report.findings import Findings, Named
from rocketwire.spark.delivery_report.plots import Timeline


def timeline(found: Findings, clock: Clock) -> str:
    """Each broker over time."""
    more = found.total_brokers - len(found.brokers)
    rest = f" {some(more, 'broker')} with fewer sends are only in the tables." if more > 0 else ""
    shaded = (
        ""
        if found.input.is_trace
        else " Shaded: avoided by at least one producer; the bar on top says why."
    )
    about = (
        "Line: median latency; the band reaches up to the 99th percentile. Below: sends a second, "
        f"failures in red.{shaded} One step is {span(found.width)}.{rest}"
    )
    return section("Brokers over time", about, Timeline(found, clock).draw())


def profiles(found: Findings) -> str:
    """How latencies are spread."""
    drawn = figures.profiles(found)
    about = (
        "How often each latency was, on a logarithmic axis. Heights are square roots, so that rare "
        "slow answers can be seen. Solid mark: median; dotted: 99th percentile."
    )
    return section("Latency profiles", about, f'<div class="ridges">{drawn}</div>') if drawn else ""


def brokers(found: Findings) -> str:
    """A table of brokers."""
    head = ("broker", *_COUNT_HEAD)
    rows = [_count_row(broker) for broker in found.brokers]
    return section("Brokers in figures", "Counted are attempts.", table(head, rows))


_COUNT_HEAD: Final = (
    "sends#", "failed#", "refused#", "no answer#", "not sent#", "retries#", "data#", "median#",
    "90 %#", "99 %#", "slowest#",
)  # fmt: skip


def _count_row(named: Named) -> tuple[str, ...]:
    counts = named.counts
    return (
        named.name,
        number(counts.attempts),
        share(counts.failures, counts.attempts),
        number(counts.rejected),
        number(counts.maybe_stored),
        number(counts.not_sent),
        number(counts.retries),
        size(counts.bytes),
        latency(counts.p50),
        latency(counts.p90),
        latency(counts.p99),
        latency(counts.slowest),
    )


def troubles(found: Findings, clock: Clock) -> str:
    """A table of errors."""
    if not found.troubles:
        return ""
    rows = [
        (
            item.broker,
            number(item.attempts),
            item.outcome,
            item.example or item.error,
            f"{clock.time(item.first_at)} to {clock.time(item.last_at)}",
        )
        for item in found.troubles
    ]
    about = (
        "Failures that read alike but for numbers and addresses, with one of each as an example."
    )
    head = ("broker", "times#", "message was", "for example*", "when")
    return section("What went wrong", about, table(head, rows))


def retries(found: Findings) -> str:
    """Where retries went."""
    drawn = figures.flow(found.routes)
    if not drawn:
        return ""
    about = (
        "From the broker whose attempt failed (left) to the one that was tried next (right). Grey: "
        "the same broker again, as a message with a sharding key needs."
    )
    return section("Where retries went", about, drawn)


def isolations(found: Findings, clock: Clock) -> str:
    """A table of the longest isolations."""
    if not found.periods:
        return ""
    rows = [
        (
            item.broker,
            clock.time(item.begin),
            span(item.end - item.begin) + (" or more" if item.is_open else ""),
            number(item.verdicts),
            item.reason,
            item.client,
        )
        for item in sorted(found.periods, key=lambda item: item.begin)
    ]
    shown = (
        f"The {len(rows)} longest of {number(found.total_periods)}."
        if found.total_periods > len(rows)
        else f"All {len(rows)}."
        if len(rows) > 1
        else "The only one."
    )
    head = ("broker", "from", "for#", "verdicts#", "why it began*", "producer")
    about = f"When a producer left a broker, and why. {shown}"
    return section("Isolations", about, table(head, rows))


def queues(found: Findings) -> str:
    """What each queue got."""
    drawn = [
        f"<h3>{escape(topic.topic)}<span>{_queue_words(topic.total_queues, len(topic.queues))}"
        f"</span></h3>{plot}"
        for topic in found.spreads
        if (plot := figures.spread(topic))
    ]
    if not drawn:
        return ""
    more = found.total_topics - len(found.topics)
    rest = f" {some(more, 'topic')} with fewer messages are only in the tables." if more > 0 else ""
    about = (
        "Acknowledged messages of each queue, by broker. Dark: bound to the queue by a sharding "
        f"key; light: free to go anywhere.{rest}"
    )
    return section("Spread over queues", about, *drawn)


def _queue_words(total: int, shown: int) -> str:
    return (
        some(total, "queue") if total == shown else f"the first {shown} of {number(total)} queues"
    )


def keys(found: Findings) -> str:
    """A table of hot keys."""
    if not found.keys:
        return ""
    totals = {topic.name: topic.counts.messages for topic in found.topics}
    most = found.keys[0].messages or 1
    rows = [
        (
            item.key,
            item.topic,
            number(item.messages),
            share(item.messages, totals.get(item.topic, 0)),
            f"{100 * item.messages / most:.1f}",
            size(item.bytes),
            number(item.failures),
            "several" if item.moved else "one",
        )
        for item in found.keys
    ]
    head = ("key", "topic", "messages#", "of topic#", "%", "data#", "failures#", "queues")
    about = "The sharding keys with the most acknowledged messages. All messages of a key share a queue."
    return section("Hot sharding keys", about, table(head, rows))


def order(found: Findings) -> str:
    """Whether keys stayed in order."""
    order = found.order
    if order.pairs == 0:
        return ""
    about = (
        f"Compared were {some(order.pairs, 'pair')} of successive messages of {some(order.keys, 'key')}"
        f" (of one producer each). Behind an earlier one in the same queue: {number(order.backwards)}. "
        f"Begun before the earlier one was answered: {number(order.overlapping)}. "
        f"Gone on in another queue, which is no violation: {number(order.moved)}."
    )
    rows = [
        (
            item.key,
            item.topic,
            number(item.pairs),
            number(item.backwards),
            number(item.overlapping),
            number(item.moved),
            item.client,
        )
        for item in found.worst_keys
    ]
    head = ("key", "topic", "pairs#", "backwards#", "overlapping#", "other queue#", "producer")
    return section("Order within keys", about, table(head, rows) if rows else "")


def producers(found: Findings, clock: Clock) -> str:
    """A table of producers."""
    if not found.clients:
        return ""
    rows = [
        (
            item.name,
            number(item.counts.attempts),
            share(item.counts.failures, item.counts.attempts),
            number(item.counts.retries),
            size(item.counts.bytes),
            latency(item.counts.p50),
            latency(item.counts.p99),
            f"{clock.time(item.counts.first_at)} to {clock.time(item.counts.last_at)}",
        )
        for item in found.clients
    ]
    more = found.total_clients - len(rows)
    about = f"{some(more, 'producer')} with fewer sends are only in the tables." if more > 0 else ""
    head = ("producer", "sends#", "failed#", "retries#", "data#", "median#", "99 %#", "seen")
    return section("Producers", about, table(head, rows))
