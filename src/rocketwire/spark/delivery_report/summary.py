"""What happened, in sentences. The most important first; nothing where there is nothing to say."""

from __future__ import annotations

from typing import Final

from rocketwire.pages.words import latency, number, share, some, span, times
from rocketwire.spark.delivery_report.findings import Avoidance, Findings

_MOST_BROKERS: Final = 4
#: How much more than its even share a queue or key must have to be worth a sentence.
_UNEVEN: Final = 2.0
_HOT: Final = 0.1
_FEW_MESSAGES: Final = 100


def summarise(found: Findings) -> tuple[str, ...]:
    """The sentences."""
    return tuple(
        sentence
        for sentence in (
            _delivered(found),
            _latencies(found),
            *_avoided(found),
            _retries(found),
            _duplicates(found),
            _order(found),
            _hot_key(found),
            _uneven(found),
        )
        if sentence
    )


def _delivered(found: Findings) -> str:
    whole, failed = found.sends, found.failed_sends
    who = some(found.total_clients, "producer")
    lasted = span(found.end - found.overall.first_at)
    head = f"In {lasted}, {who} made {some(whole, 'send')} to {some(found.total_brokers, 'broker')}"
    if failed == 0:
        return f"{head}; every one was acknowledged."
    ways = [
        f"{number(ended.sends)} {_ENDINGS[ended.outcome]}"
        for ended in found.ended
        if ended.outcome in _ENDINGS and ended.sends
    ]
    return (
        f"{head}; {share(whole - failed, whole)} were acknowledged and {number(failed)} failed"
        f"{': ' + ', '.join(ways) if ways else ''}."
    )


_ENDINGS: Final = {
    "maybe stored": "may be stored all the same",
    "rejected": "were refused by a broker",
    "not sent": "never left the producer",
}


def _latencies(found: Findings) -> str:
    overall = found.overall
    if overall.p50 is None:
        return ""
    return (
        f"Half of all attempts were answered within {latency(overall.p50)}, "
        f"99 of 100 within {latency(overall.p99)}; the slowest took {latency(overall.slowest)}."
    )


def _avoided(found: Findings) -> list[str]:
    chosen = found.avoided[:_MOST_BROKERS]
    sentences = [_avoidance(item, found.total_clients) for item in chosen]
    rest = len(found.avoided) - len(chosen)
    if rest > 0:
        verb = "was" if rest == 1 else "were"
        sentences.append(f"{some(rest, 'other broker')} {verb} left, too.")
    if not chosen and not found.input.is_trace:
        sentences.append("No broker was left for being slow or failing.")
    return sentences


def _avoidance(item: Avoidance, producers: int) -> str:
    who = f" by {some(item.clients, 'producer')}" if producers > 1 else ""
    lasted = f", {span(item.seconds)} in all" if item.periods > 1 else f" for {span(item.seconds)}"
    why = ""
    if item.reason:
        # Reasons follow a broker's name ("refused the connection"), or begin with a latency.
        deed = f"took {item.reason}" if item.reason[0].isdigit() else item.reason
        why = f"; longest because it {deed}" if item.periods > 1 else f" because it {deed}"
    return f"{item.broker} was left {times(item.periods)}{who}{lasted}{why}."


def _retries(found: Findings) -> str:
    retries = found.overall.retries
    if retries == 0:
        return ""
    saved = sum(ended.sends for ended in found.ended if ended.outcome == "stored")
    known = [route for route in found.routes if route.origin is not None]
    text = f"{some(retries, 'retry', 'retries')} saved {some(saved, 'send')}"
    if known:
        top = max(known, key=lambda route: route.retries)
        way = f"from {top.origin} to {top.target}"
        way = f"to {top.target} again" if top.origin == top.target else way
        text += f"; most went {way} ({number(top.retries)})"
    return text + "."


def _duplicates(found: Findings) -> str:
    count = found.maybe_duplicates
    if count == 0:
        return ""
    verb = "was" if count == 1 else "were"
    return (
        f"{some(count, 'send')} {verb} stored after an attempt that may have been stored, too: "
        "look out for duplicates."
    )


def _order(found: Findings) -> str:
    order = found.order
    if order.pairs == 0:
        return ""
    checked = f"{some(order.pairs, 'pair')} of messages with a sharding key"
    if order.violations:
        return (
            f"Order was broken {times(order.violations)} among {checked}, "
            f"for {some(order.violated_keys, 'key')}."
        )
    moved = ""
    if order.moved:
        moved = f"; {times(order.moved)} a key went on in another queue"
    return f"Order held in all {checked}{moved}."


def _hot_key(found: Findings) -> str:
    if not found.keys:
        return ""
    top = found.keys[0]
    total = next((t.counts.messages for t in found.topics if t.name == top.topic), 0)
    if total < _FEW_MESSAGES or top.messages < _HOT * total:
        return ""
    return (
        f"The sharding key {top.key} has {share(top.messages, total)} of the messages of "
        f"{top.topic}, all of them for one queue."
    )


def _uneven(found: Findings) -> str:
    for spread in found.spreads:
        queues = spread.queues
        total = sum(queue.messages for queue in queues)
        if len(queues) < 2 or total < _FEW_MESSAGES or spread.total_queues > len(queues):
            continue
        top = max(queues, key=lambda queue: queue.messages)
        even = total / len(queues)
        if top.messages > _UNEVEN * even:
            return (
                f"Queue {top.queue} of {top.broker} got {top.messages / even:.1f} times its even "
                f"share of {spread.topic}."
            )
    return ""
