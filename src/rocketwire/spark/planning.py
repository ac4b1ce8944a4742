"""Where a batch starts and ends, from options and from what brokers have."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rocketwire.columns.lost_messages import DataLossError, what_is_there
from rocketwire.errors import ConfigError, RouteError
from rocketwire.message import MessageQueue
from rocketwire.spark.client import Bounds, Cluster
from rocketwire.spark.completeness import (
    NAMELESS,
    Completeness,
    describe_missing,
    missing_error,
)
from rocketwire.spark.option_values import EARLIEST, LATEST
from rocketwire.spark.options import Position, ReadOptions, TopicChoice
from rocketwire.spark.ranges import QueueRange
from rocketwire.spark.topic_view import TopicView

_log = logging.getLogger("rocketwire.spark")

#: Seconds between two looks for queues that can't be reached.
_LOOK_AGAIN: Final = 0.5
_BY_TIME: Final = "startingOffsetsByTimestamp"


def plan_batch(
    cluster: Cluster, options: ReadOptions, completeness: Completeness
) -> list[QueueRange]:
    """The ranges that a batch reads.

    Raises:
        TopicNotFoundError: a topic does not exist.
        MissingQueuesError: queues can't be reached for too long, and that matters.
        DataLossError: offsets asked for are not there, and that matters.
        ConfigError: no message is as new as the start.
    """
    bounds = whole_bounds(cluster, options, completeness)
    starts = start_offsets(cluster, options, bounds)
    ends = end_offsets(cluster, options, bounds)
    found: list[QueueRange] = []
    for queue in bounds.end:
        first, end = bounds.first[queue], bounds.end[queue]
        start = within(queue, starts[queue], first, end, options)
        stop = within(queue, ends[queue], first, end, options)
        found.append(QueueRange(queue, start, max(start, stop)))
    return found


def whole_bounds(
    cluster: Cluster,
    options: ReadOptions,
    completeness: Completeness,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Bounds:
    """Bounds of all queues that the topics have; queues that can't be reached are waited for.

    Raises:
        TopicNotFoundError: a topic does not exist.
        MissingQueuesError: they stay away for ``readTimeout``, and that matters.
    """
    began = clock()
    while True:
        queues, views = _queues_and_views(cluster, options, completeness)
        bounds = cluster.bounds(queues)
        missing = completeness.missing(views, bounds)
        if not missing:
            return bounds
        if not options.fail_on_data_loss:
            _log.warning("queues are left out: %s", describe_missing(missing))
            silent = {queue: RouteError(why) for queue, why in missing.items()}
            return Bounds(bounds.first, bounds.end, silent)
        waited = clock() - began
        if waited >= options.read_timeout:
            raise missing_error(missing, waited)
        sleep(min(_LOOK_AGAIN, options.read_timeout - waited))


def view_or_absent(
    cluster: Cluster,
    completeness: Completeness,
    topic: str,
    known: Iterable[MessageQueue] = (),
) -> TopicView | None:
    """What name servers say of a topic; None when it was deleted, or never was.

    They know nothing of it, either, while all of its brokers are away. Then it has an empty view,
    and what any record has of it is missing.
    """
    view = cluster.view_of(topic)
    if view is not None:
        return view
    empty = TopicView({}, {})
    lost = completeness.missing({topic: empty}, Bounds({}, {}, {}), known)
    brokers = {queue.broker for queue in lost} - {NAMELESS}
    is_away = bool(brokers) and not cluster.has_any(brokers)
    return empty if is_away or completeness.expects(topic) else None


def _queues_and_views(
    cluster: Cluster, options: ReadOptions, completeness: Completeness
) -> tuple[Sequence[MessageQueue], dict[str, TopicView | None]]:
    if options.choice.queues:
        return cluster.queues(options.choice), {}
    listed = set(cluster.topics(options.choice))
    views = {
        topic: view_or_absent(cluster, completeness, topic)
        for topic in sorted(listed | completeness.topics())
    }
    # One that only a record has was deleted since.
    views = {topic: view for topic, view in views.items() if view is not None or topic in listed}
    away = {topic for topic, view in views.items() if view is not None and not view.brokers}
    there = tuple(sorted(set(views) - away))
    return cluster.queues(TopicChoice(there)) if there else (), views


def start_offsets(
    cluster: Cluster, options: ReadOptions, bounds: Bounds
) -> dict[MessageQueue, int]:
    """Where each queue starts."""
    found, timed = _places(cluster, options.start, bounds, "starting")
    is_new = any(found[queue] < bounds.end[queue] for queue in timed)
    if timed and not is_new and not options.latest_if_none_that_new:
        name = "startingTimestamp" if options.start.at_ms is not None else _BY_TIME
        raise ConfigError(
            f"option {name}: no message is as new as {min(timed.values())}; choose an "
            "earlier one, or set startingTimestampStrategy to latest"
        )
    return found


def end_offsets(cluster: Cluster, options: ReadOptions, bounds: Bounds) -> dict[MessageQueue, int]:
    """Where each queue ends."""
    return _places(cluster, options.end, bounds, "ending")[0]


def _places(
    cluster: Cluster, position: Position, bounds: Bounds, which: str
) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
    """The offset of each queue; and the moments of those that are found by time."""
    if position.at_ms is not None:
        timed = dict.fromkeys(bounds.end, position.at_ms)
        return cluster.offsets_at(timed), timed
    found = _resolve(position, bounds, f"{which}Offsets")
    _refuse_unknown(position.moments, bounds, f"{which}OffsetsByTimestamp")
    timed = {queue: position.moments[queue] for queue in bounds.end if queue in position.moments}
    return found | cluster.offsets_at(timed), timed


def _refuse_unknown(named: Iterable[MessageQueue], bounds: Bounds, name: str) -> None:
    unknown = sorted(set(named) - set(bounds.end) - set(bounds.silent))
    if unknown:
        raise ConfigError(
            f"option {name}: there is no queue {unknown[0].id} of topic {unknown[0].topic} on "
            f"broker {unknown[0].broker}"
        )


def _resolve(position: Position, bounds: Bounds, name: str) -> dict[MessageQueue, int]:
    _refuse_unknown(position.offsets, bounds, name)
    found: dict[MessageQueue, int] = {}
    for queue in bounds.end:
        offset = position.offsets.get(queue, position.default)
        words = {EARLIEST: bounds.first[queue], LATEST: bounds.end[queue]}
        found[queue] = words.get(offset, offset)
    return found


def within(queue: MessageQueue, offset: int, first: int, end: int, options: ReadOptions) -> int:
    """The offset if the broker has it; else data is lost, and the nearest one serves.

    Raises:
        DataLossError: when that matters.
    """
    if first <= offset <= end:
        return offset
    lost = (offset, first) if offset < first else (end, offset)
    text = (
        f"topic {queue.topic}, broker {queue.broker}, queue {queue.id}: offsets {lost[0]} to "
        f"{lost[1] - 1} are not there; {what_is_there(first, end)}"
    )
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}. Set failOnDataLoss to false to go on without them")
    _log.warning("%s; going on without them", text)
    return max(first, min(offset, end))
