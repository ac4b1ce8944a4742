"""What a program asks of its own membership: to go on elsewhere, and how far it has come."""

from __future__ import annotations

from datetime import datetime

from rocketwire.consumer_config import start_position
from rocketwire.core.effects import Op
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.offsets import committed_offset
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.pull_loop import go_on_at
from rocketwire.core.reading.pull import max_offset, min_offset, offset_for_time
from rocketwire.errors import ConfigError
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue
from rocketwire.setting_values import seconds


def stop_limit(timeout: object) -> float | None:
    """For how long a stopped consumer waits for its handlers; None: as configured.

    Raises:
        ConfigError: it is no time.
    """
    if timeout is None:
        return None
    try:
        limit = seconds(timeout)
    except ValueError as error:
        raise ConfigError(f"timeout is {timeout!r}: {error}") from None
    if not limit >= 0:
        raise ConfigError(f"timeout is {timeout!r}: seconds, zero or more, or None")
    return limit


def seek(
    group: Group, queue: MessageQueue, where: int | str | datetime, deadline: float
) -> Op[int]:
    """Go on elsewhere in one of our queues; returns the offset.

    Raises:
        ConfigError: the queue is not ours, or has no such place.
        TransportError: its broker could not be reached.
        BrokerError: it refused.
    """
    held = _owned(group, queue)
    offset = yield from _offset(group, queue, where, deadline)
    if group.queues.get(queue) is not held:
        raise _not_ours(queue)  # it went away meanwhile
    log.info(
        "%s: going on at offset %d, as the program wants",
        queue,
        offset,
        extra=about(group=group.name, offset=offset),
    )
    go_on_at(group, held, offset)
    return offset


def _offset(
    group: Group, queue: MessageQueue, where: int | str | datetime, deadline: float
) -> Op[int]:
    instance = group.instance
    if isinstance(where, datetime):
        moment = float(start_position(where))
        return (yield from offset_for_time(instance, queue, moment, group.name, deadline))
    if where == "earliest":
        return (yield from min_offset(instance, queue, deadline))
    if where == "latest":
        return (yield from max_offset(instance, queue, deadline))
    if not isinstance(where, int) or isinstance(where, bool):
        raise ConfigError(
            f"{where!r} is no place in a queue: an offset, 'earliest', 'latest' or an aware datetime"
        )
    first = yield from min_offset(instance, queue, deadline)
    end = yield from max_offset(instance, queue, deadline)
    if not first <= where <= end:
        raise ConfigError(
            f"{queue} has no offset {where}: it begins at {first}, and {end} comes next "
            "('earliest' and 'latest' name these)"
        )
    return where


def position(group: Group, queue: MessageQueue) -> int:
    """The offset of what one of our queues hands out next.

    Raises:
        ConfigError: the queue is not ours.
    """
    held = _owned(group, queue)
    with group.workload.lock:
        return held.position


def committed(group: Group, queue: MessageQueue, deadline: float) -> Op[int | None]:
    """How far the group has come in a queue, as is known to its broker, or here; None if not at all.

    Raises:
        ConfigError: it is no queue.
        TransportError: its broker could not be reached.
        BrokerError: it refused.
    """
    _check_queue(queue)
    if group.local is not None:
        return group.local.get(queue)
    return (yield from committed_offset(group, queue, deadline))


def _owned(group: Group, queue: MessageQueue) -> ProcessQueue:
    _check_queue(queue)
    held = group.queues.get(queue)
    if held is None:
        raise _not_ours(queue)
    return held


def _check_queue(queue: object) -> None:
    if not isinstance(queue, MessageQueue):
        raise ConfigError(f"{queue!r} is no MessageQueue: assignment() lists those that are ours")


def _not_ours(queue: MessageQueue) -> ConfigError:
    return ConfigError(f"{queue} is not ours now: assignment() lists the queues that are")
