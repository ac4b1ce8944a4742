"""The plots that have no time axis: latency profiles, the ways of retries, shares of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Final

from rocketwire.pages.drawing import (
    WIDE,
    box,
    label,
    latency_row,
    level,
    panel,
    path,
    svg,
    upright,
    x_of,
    y_of,
)
from rocketwire.pages.scales import LogAxis
from rocketwire.pages.words import latency, number, share, short_number, some
from rocketwire.spark.delivery_report.findings import (
    BARS_PER_DECADE,
    Findings,
    Named,
    Route,
    TopicSpread,
)

_MOST_ROUTES: Final = 24
_UNKNOWN: Final = "not recorded"
#: Between the groups of a plot, as a part of its width or height.
_GAP: Final = 0.02
_NODE_GAP: Final = 0.05


# -- latency profiles ---------------------------------------------------------------------------


def profiles(found: Findings) -> str:
    """How often each latency was, one ridge a broker; nothing where nobody waited."""
    every = [bar for bars in found.bars.values() for bar in bars]
    if not every:
        return ""
    limits = min(every), max(every) + 1
    axis = LogAxis(_latency_at(limits[0]), _latency_at(limits[1]))
    ridges = [_ridge(b, found.bars.get(b.name, {}), limits, axis) for b in found.brokers]
    return "".join(ridges) + latency_row(axis)


def _latency_at(bar: int) -> float:
    return float(10 ** (bar / BARS_PER_DECADE))


def _ridge(broker: Named, bars: Mapping[int, int], limits: tuple[int, int], axis: LogAxis) -> str:
    first, end = limits
    count = end - first
    total, most = sum(bars.values()) or 1, max(bars.values(), default=1)
    points = [(0.0, 0.0)]
    hits: list[str] = []
    for position in range(count):
        value = bars.get(first + position, 0)
        across = position / count, (position + 1) / count
        # Roots, because otherwise the rare slow ones can't be seen, and they matter most.
        points.append(((across[0] + across[1]) / 2, 0.92 * (value / most) ** 0.5))
        if value:
            hits.append(box(across, (0, 1), "hit", _ridge_note(first + position, value, total)))
    points.append((1.0, 0.0))
    drawn = [path(points, "ridge", is_closed=True), path(points, "median")]
    counts = broker.counts
    drawn += [upright(axis.place(v), name) for v, name in _quantiles(counts.p50, counts.p99)]
    about = f"Latencies of {broker.name}: median {latency(counts.p50)}, 99 % {latency(counts.p99)}"
    plot = (
        f'<div class="plot ridge-plot">{svg(drawn, "draw", about)}{svg(hits, "hits")}'
        f'<span class="end">{latency(counts.p50)}<br>{latency(counts.p99)}</span></div>'
    )
    return panel(broker.name, (), plot, "ridge-row")


def _quantiles(p50: float | None, p99: float | None) -> list[tuple[float, str]]:
    found = ((p50, "mark"), (p99, "mark far"))
    return [(value, name) for value, name in found if value is not None]


def _ridge_note(bar: int, value: int, total: int) -> str:
    low, high = latency(_latency_at(bar)), latency(_latency_at(bar + 1))
    return f"{low} to {high}\n{some(value, 'attempt')}, {share(value, total)}"


# -- the ways of retries ------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A broker at one side; ``used`` is how much of its height has ribbons."""

    name: str
    total: int
    low: float = 0.0
    high: float = 0.0
    used: float = 0.0


def flow(routes: Sequence[Route]) -> str:
    """Ribbons from the broker that failed to the one that was tried next, as wide as they are many."""
    drawn = sorted(routes, key=lambda route: -route.retries)[:_MOST_ROUTES]
    if not drawn:
        return ""
    left = _nodes([(route.origin or _UNKNOWN, route.retries) for route in drawn])
    right = _nodes([(route.target, route.retries) for route in drawn])
    ribbons = [
        _ribbon(route, left[route.origin or _UNKNOWN], right[route.target])
        for route in sorted(drawn, key=lambda r: (r.origin or _UNKNOWN, r.target))
    ]
    rest = sum(route.retries for route in routes) - sum(route.retries for route in drawn)
    note = f'<p class="note">{some(rest, "retry", "retries")} on rarer ways are not drawn.</p>'
    height = 64 + 34 * max(len(left), len(right))
    return (
        f'<div class="flow" style="height:{height}px"><div class="from">'
        f"{''.join(_node_label(node) for node in left.values())}</div>"
        f'<div class="plot">{svg(ribbons, "draw", "Where retries went")}</div>'
        f'<div class="to">{"".join(_node_label(node) for node in right.values())}</div></div>'
        f"{note if rest else ''}"
    )


def _nodes(entries: Sequence[tuple[str, int]]) -> dict[str, _Node]:
    """The nodes of one side, placed from top to bottom in the order of their names."""
    totals: dict[str, int] = {}
    for name, count in entries:
        totals[name] = totals.get(name, 0) + count
    whole, room = sum(totals.values()), 1 - _NODE_GAP * (len(totals) - 1)
    nodes: dict[str, _Node] = {}
    top = 1.0
    for name in sorted(totals):
        height = room * totals[name] / whole
        nodes[name] = _Node(name, totals[name], top - height, top, 0.0)
        top -= height + _NODE_GAP
    return nodes


def _ribbon(route: Route, origin: _Node, target: _Node) -> str:
    ends: list[tuple[float, float]] = []
    for node in (origin, target):
        height = (node.high - node.low) * route.retries / node.total
        ends.append((node.high - node.used, node.high - node.used - height))
        node.used += height
    (top, bottom), (far_top, far_bottom) = ends
    half = f"{WIDE / 2:.0f}"
    d = (
        f"M0,{y_of(top)}C{half},{y_of(top)} {half},{y_of(far_top)} {x_of(1)},{y_of(far_top)}"
        f"V{y_of(far_bottom)}C{half},{y_of(far_bottom)} {half},{y_of(bottom)} 0,{y_of(bottom)}Z"
    )
    name = "stream again" if origin.name == target.name else "stream"
    note = (
        f"{origin.name} → {target.name}\n{some(route.retries, 'retry', 'retries')}, "
        f"{number(route.acknowledged)} stored"
    )
    return f'<path class="{name}" d="{d}"><title>{escape(note)}</title></path>'


def _node_label(node: _Node) -> str:
    middle = (node.low + node.high) / 2
    return (
        f'<span style="bottom:{middle * 100:.1f}%">{escape(node.name)} '
        f"<b>{short_number(node.total)}</b></span>"
    )


# -- shares of queues ---------------------------------------------------------------------------


def spread(topic: TopicSpread) -> str:
    """What each queue of a topic got, by broker, beside the even share."""
    queues = topic.queues
    groups = [(name, list(own)) for name, own in groupby(queues, key=lambda queue: queue.broker)]
    total = sum(queue.messages for queue in queues)
    if not total:
        return ""
    even = total / len(queues)
    most = max(*(queue.messages for queue in queues), even) * 1.04
    gap = min(_GAP, 0.3 / max(1, len(groups)))
    room = (1 - gap * (len(groups) - 1)) / len(queues)
    bars: list[str] = []
    names: list[str] = []
    at = 0.0
    for name, own in groups:
        names.append(
            f'<span class="group" style="left:{at * 100:.2f}%;width:{room * len(own) * 100:.2f}%">'
            f"{escape(name)}</span>"
        )
        for queue in own:
            across = at + room * 0.08, at + room * 0.92
            keyed = queue.keyed / most
            note = (
                f"{queue.broker}, queue {queue.queue}\n{some(queue.messages, 'message')}, "
                f"{queue.messages / even:.2f} of the even share\n{number(queue.keyed)} by key"
            )
            bars.append(box(across, (0, keyed), "keyed"))
            bars.append(box(across, (keyed, queue.messages / most), "free"))
            bars.append(box((at, at + room), (0, 1), "hit", note))
            at += room
        at += gap
    bars.append(level(even / most, "even"))
    return (
        f'<div class="spread"><div class="plot bars">{svg(bars, "draw", f"Queues of {topic.topic}")}'
        f"{label(f'even share: {short_number(even)}', 'even-name', bottom=even / most)}</div>"
        f'<div class="groups">{"".join(names)}</div></div>'
    )
