"""Filling one queue: pull after pull, as long as it is ours.

Each queue has its own loop, so that a dead or slow broker stops nobody else's. A queue that is far
behind is pulled several times at once, at the offsets where the next pulls will most likely begin;
an answer that does not fit on to the one before it is thrown away.

Pulls carry their subscription (flag 4) where Java's consumers rely on their heartbeat: it costs the
broker a split of a short text, and spares us the refusals (24, 25) of a broker which was restarted,
or which a heartbeat has not reached yet. Unlike Java's they carry no offset to commit: a broker may
take the last pull after the last commit, and a group that was stopped would begin too early.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from rocketwire.core.effects import Invoke, Op, invoke, invoke_all
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.reading.pull import HOLD_SLACK, Fetched, address_of, read_pull
from rocketwire.errors import ClientClosedError, RocketMQError, TransportError
from rocketwire.hooks import QueueEvent, call_hooks
from rocketwire.log_fields import about
from rocketwire.wire import headers
from rocketwire.wire.codes import PullFlag, RequestCode
from rocketwire.wire.command import Reply, Request
from rocketwire.wire.lazy_message import weigh
from rocketwire.wire.pull_request import PullTemplate
from rocketwire.wire.route import MASTER_ID

#: The first and the longest pause after a failure.
_SHORT_REST: Final = 0.1
_LONG_REST: Final = 3.0
#: How long a pull loop waits for room, or for its lock, before it looks again.
_LOOK_AGAIN: Final = 1.0


def begin_pulling(group: Group, held: ProcessQueue) -> None:
    """Pull a queue from its next offset on.

    A loop that is pulling it already ends when its answer comes, which may be held for long.
    """
    held.loop += 1
    group.start_pulling(keep_pulling(group, held, held.loop))


def go_on_at(group: Group, held: ProcessQueue, offset: int) -> None:
    """Forget what is held of a queue, and go on somewhere else at once."""
    group.workload.restart(held, offset)
    begin_pulling(group, held)
    group.commit_wake_up.wake()


def keep_pulling(group: Group, held: ProcessQueue, loop: int) -> Op[None]:
    """Pull a queue until it is dropped, or another loop does; whatever comes, it goes on."""
    rest = 0.0
    while not held.is_dropped and held.loop == loop:
        try:
            if rest:
                yield from held.wake_up.wait(group.instance.clock() + rest)
            if (yield from _wait_for_leave(group, held)) and held.loop == loop:
                yield from _pull(group, held, loop)
                rest = 0.0
        except ClientClosedError:
            return
        except Exception as error:  # noqa: BLE001 - whatever came, the queue must go on
            before, rest = rest, _LONG_REST
            with suppress(Exception):  # a log may fail, too
                rest = _bear(group, held, error, before)


def _bear(group: Group, held: ProcessQueue, error: Exception, rest: float) -> float:
    """A pull failed; how long to rest."""
    group.counters.pull_errors += 1
    if not rest and not held.is_dropped:
        unforeseen = None if isinstance(error, RocketMQError) else error
        log.warning(
            "%s can't be pulled, trying again: %s",
            held.queue,
            error,
            exc_info=unforeseen,
            extra=about(group=group.name, offset=held.next_offset),
        )
    held.source = MASTER_ID
    if isinstance(error, TransportError):
        # It may live elsewhere now, or have forgotten us, and how far we had come.
        held.committed = None
        group.instance.route_wake_up.wake()
        group.heartbeat_wake_up.wake()
        if group.needs_locks:
            # A broker that was restarted has forgotten its locks: make sure of ours first.
            held.locked_until = min(held.locked_until, group.instance.clock())
            group.lock_wake_up.wake()
    return min(_LONG_REST, rest * 2 or _SHORT_REST)


def _wait_for_leave(group: Group, held: ProcessQueue) -> Op[bool]:
    """Wait while it is paused, full, or not locked by us; True when a pull may begin."""
    clock = group.instance.clock
    if held.is_dropped:
        return False
    if held.is_paused or (group.needs_locks and clock() >= held.locked_until):
        yield from held.wake_up.wait(clock() + _LOOK_AGAIN)
        return False
    why = group.workload.full(held)
    if why is None:
        return True
    group.counters.pauses += 1
    if group.hooks.paused:
        event = QueueEvent(group.instance.wall(), group.name, held.queue, why)
        call_hooks(group.hooks.paused, event)
    while why is not None and not _is_dropped(held):
        yield from held.wake_up.wait(clock() + _LOOK_AGAIN)
        why = group.workload.full(held)
    return not _is_dropped(held) and not held.is_paused


def _is_dropped(held: ProcessQueue) -> bool:
    """Asked anew each time: it changes while we wait."""
    return held.is_dropped


def _pull(group: Group, held: ProcessQueue, loop: int) -> Op[None]:
    """One round: one pull that waits for messages, or several that need not."""
    calls = yield from _calls(group, held)
    if len(calls) == 1:
        call = calls[0][1]
        replies: list[Reply | RocketMQError] = [
            (yield from invoke(call.address, call.request, call.deadline))
        ]
    else:
        replies = yield from invoke_all(tuple(call for _, call in calls))
    for (offset, _), reply in zip(calls, replies, strict=True):
        if held.is_dropped or held.loop != loop or offset != held.next_offset:
            return
        if not isinstance(reply, Reply):
            raise reply
        if not _take(group, held, _read(group, held, reply, offset)):
            return


def _read(group: Group, held: ProcessQueue, reply: Reply, offset: int) -> Fetched:
    """What a pull brought, each message under the name of the topic that it was sent to."""
    return read_pull(
        reply,
        held.queue,
        offset,
        held.tags,
        namespace=group.config.namespace,
        is_retry=held.queue.topic == group.retry_topic,
    )


def _calls(group: Group, held: ProcessQueue) -> Op[list[tuple[int, Invoke]]]:
    config, instance = group.config, group.instance
    depth = _depth(group, held)
    limit = config.pull_timeout if depth > 1 else config.pull_wait + HOLD_SLACK
    deadline = instance.clock() + limit + (0.0 if depth > 1 else config.pull_timeout)
    address = yield from _address(group, held, deadline)
    offsets = [held.next_offset + n * held.stride for n in range(depth)]
    return [
        (offset, Invoke(address, _request(group, held, offset, is_held=depth == 1), deadline))
        for offset in offsets
    ]


def _depth(group: Group, held: ProcessQueue) -> int:
    """How many pulls to send at once."""
    if held.stride < 2 or not held.tags.is_all:
        return 1
    behind = (held.end - held.next_offset) // held.stride
    room = group.workload.room(held) // held.stride
    return max(1, min(group.config.pipeline, behind, room))


def _address(group: Group, held: ProcessQueue, deadline: float) -> Op[str]:
    """The master, or the slave that the master suggested."""
    if held.source != MASTER_ID:
        addresses = group.instance.routes.addresses_of(held.queue.broker)
        if held.source in addresses:
            return addresses[held.source]
        held.source = MASTER_ID
    return (yield from address_of(group.instance, held.queue, deadline))


def _request(group: Group, held: ProcessQueue, offset: int, *, is_held: bool) -> Request:
    if not group.instance.is_plain:
        fields = _fields(group, held, offset, is_held=is_held)
        return group.instance.request(RequestCode.PULL_MESSAGE, fields)
    key = (is_held, group.version, held.tags.expression)
    template = held.templates.get(key)
    if template is None:
        held.templates = {k: kept for k, kept in held.templates.items() if k[1:] == key[1:]}
        template = PullTemplate(_fields(group, held, offset, is_held=is_held))
        held.templates[key] = template
    return template.request(offset, group.config.pull_batch)


def _fields(group: Group, held: ProcessQueue, offset: int, *, is_held: bool) -> dict[str, str]:
    config = group.config
    return headers.pull(
        group=group.wire_name,
        topic=group.wire_topic(held.queue.topic),
        queue_id=held.queue.id,
        offset=offset,
        max_messages=config.pull_batch,
        system_flag=PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if is_held else 0),
        suspend_ms=round(config.pull_wait * 1000) if is_held else 0,
        subscription=held.tags.expression,
        expression_type=held.tags.kind,
        subscription_version=group.version,
        broker=held.queue.broker,
    )


def _take(group: Group, held: ProcessQueue, found: Fetched) -> bool:
    """Keep what a pull brought; False if what was pulled along with it is of no use."""
    counters = group.counters
    counters.pulls += 1
    held.source = found.suggested_broker_id
    held.end = max(found.max_offset, found.next_offset)
    if found.moved_from is not None:
        _move(group, held, found)
        return False
    before = held.next_offset
    size = 0
    if found.messages:
        size = weigh(found.messages)
        counters.pulled += len(found.messages)
        counters.pulled_bytes += size
    else:
        counters.empty_pulls += 1
    covered = found.next_offset - before
    if covered > len(found.messages) and held.tags.is_all:
        log.warning(
            "%s: of the offsets %d to %d only %d are there (the others are gone, unless the topic is "
            "compacted)",
            held.queue,
            before,
            found.next_offset - 1,
            len(found.messages),
            extra=about(group=group.name, offset=before),
        )
    group.workload.put(held, found.messages, max(before, found.next_offset), size)
    is_full_stride = covered == held.stride
    if found.messages:
        held.stride = covered
    return is_full_stride


def _move(group: Group, held: ProcessQueue, found: Fetched) -> None:
    """The broker has not what was asked for, or an operator has set the group's offset."""
    why = (
        f"offset {found.moved_from} is not there, the broker has {found.min_offset} to "
        f"{found.max_offset}; going on at {found.next_offset}"
    )
    log.warning("%s: %s", held.queue, why, extra=about(group=group.name, offset=found.moved_from))
    group.counters.moved_offsets += 1
    group.workload.restart(held, found.next_offset)
    group.commit_wake_up.wake()
    if group.hooks.offset_moved:
        event = QueueEvent(group.instance.wall(), group.name, held.queue, why)
        call_hooks(group.hooks.offset_moved, event)
