"""Where a batch starts and ends, from options and from what brokers have."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rocketwire.columns.fetch import DataLossError
from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark.client import Bounds, Cluster
from rocketwire.spark.options import EARLIEST, LATEST, Position, ReadOptions
from rocketwire.spark.ranges import QueueRange

_log = logging.getLogger("rocketwire.spark")


def plan_batch(cluster: Cluster, options: ReadOptions) -> list[QueueRange]:
    """The ranges that a batch reads.

    Raises:
        TopicNotFoundError: a topic does not exist.
        TransportError: a broker does not answer.
        DataLossError: offsets asked for are not there, and that matters.
        ConfigError: no message is as new as the start.
    """
    queues = cluster.queues(options.choice)
    bounds = all_bounds(cluster, queues)
    starts = start_offsets(cluster, options, bounds)
    ends = end_offsets(cluster, options, bounds)
    found: list[QueueRange] = []
    for queue in queues:
        first, end = bounds.first[queue], bounds.end[queue]
        start = within(queue, starts[queue], first, end, options)
        stop = within(queue, ends[queue], first, end, options)
        found.append(QueueRange(queue, start, max(start, stop)))
    return found


def all_bounds(cluster: Cluster, queues: tuple[MessageQueue, ...]) -> Bounds:
    """Bounds of all queues; a batch without some of its queues would be a wrong answer."""
    bounds = cluster.bounds(queues)
    for error in bounds.silent.values():
        raise error
    return bounds


def start_offsets(
    cluster: Cluster, options: ReadOptions, bounds: Bounds
) -> dict[MessageQueue, int]:
    """Where each queue starts."""
    position = options.start
    if position.at_ms is None:
        return _resolve(position, bounds, "startingOffsets")
    found = cluster.offsets_at(bounds.end, position.at_ms)
    is_new = any(found[queue] < bounds.end[queue] for queue in found)
    if found and not is_new and not options.latest_if_none_that_new:
        raise ConfigError(
            f"option startingTimestamp: no message is as new as {position.at_ms}; choose an "
            "earlier one, or set startingTimestampStrategy to latest"
        )
    return found


def end_offsets(cluster: Cluster, options: ReadOptions, bounds: Bounds) -> dict[MessageQueue, int]:
    """Where each queue ends."""
    if options.end.at_ms is None:
        return _resolve(options.end, bounds, "endingOffsets")
    return cluster.offsets_at(bounds.end, options.end.at_ms)


def _resolve(position: Position, bounds: Bounds, name: str) -> dict[MessageQueue, int]:
    unknown = sorted(set(position.offsets) - set(bounds.end) - set(bounds.silent))
    if unknown:
        raise ConfigError(
            f"option {name}: there is no queue {unknown[0].id} of topic {unknown[0].topic} on "
            f"broker {unknown[0].broker}"
        )
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
        f"{lost[1] - 1} are not there; the broker has {first} to {end - 1}"
    )
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}. Set failOnDataLoss to false to go on without them")
    _log.warning("%s; going on without them", text)
    return max(first, min(offset, end))


def describe(silent: Mapping[MessageQueue, Exception]) -> str:
    """Which queues can't be read, and why, in one line."""
    brokers: dict[str, str] = {}
    for queue, error in silent.items():
        brokers.setdefault(queue.broker, str(error))
    return "; ".join(f"{broker}: {why}" for broker, why in sorted(brokers.items()))
