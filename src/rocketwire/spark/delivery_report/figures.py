"""The plots that have no time axis: latency profiles, the ways of retries, shares of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from rocketwire.spark.delivery_report.axes import LogAxis
from rocketwire.spark.delivery_report.findings import Findings, QueueShare, Route, TopicSpread
from rocketwire.spark.delivery_report.plots import drawing, box, label, path, x_of, y_of
from rocketwire.spark.delivery_report.tables import BARS_PER_DECADE
from rocketwire.spark.delivery_report.wording import latency, number, share, short_number, some

_MOST_ROUTES: Final = 24
_UNKNOWN: Final = "not recorded"
#: Between the groups of a plot, as a part of its width or height.
_GAP: Final = 0.02


def profiles(found: Findings) -> str:
    """How often each latency was, one ridge a broker."""
    every = [bar for bars in found.bars.values() for bar in bars]
    if not every:
        return ""
    low, high = min(every), max(every) + 1
    axis = LogAxis(10 ** (low / BARS_PER_DECADE), 10 ** (high / BARS_PER_DECADE))
    ridges = [
        _ridge(broker.name, found.bars.get(broker.name, {}), (low, high), axis, broker.counts)
        for broker in found.brokers
    ]
    marks = [
        label(latency(value), "tick", left=axis.place(value))
        for value in axis.ticks()
    ]
    ticks = f'<div class="row axis"><div class="who"></div><div class="ticks">{"".join(marks)}</div></div>'
    return "".join(ridges) + ticks
