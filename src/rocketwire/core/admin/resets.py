"""Moving a consumer group: to a time, to offsets, or to where another group is.

Brokers from 5.0 on move a group themselves (``useServerSideResetOffset``), queue by queue, and its
members learn of it with their next pull. Older ones tell the members, and know only of times; what
is nobody's business is written as if it were consumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocketwire.admin_values import OffsetChange
from rocketwire.core.admin.asking import ask, ask_all, check_all, every_master
from rocketwire.core.admin.brokers import settings_of
from rocketwire.core.admin.groups import (
    connected,
    group_name,
    progress_in,
    refuse_members,
    require_group,
)
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import masters
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.arguments import check_position, check_readable_topic
from rocketwire.core.reading.pull import max_offset, min_offset, read_queues
from rocketwire.core.reading.topics import Position, resolve
from rocketwire.errors import InvalidMessageError, RouteError, UnsupportedRequestError
from rocketwire.message import MessageQueue, epoch_of
from rocketwire.wire import admin_headers as headers
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.headers import update_consumer_offset


def reset(
    instance: Instance,
    group: str,
    topic: str,
    to: Position,
    *,
    dry_run: bool,
    reader_group: str,
    deadline: float,
) -> Op[tuple[OffsetChange, ...]]:
    """Move a group in one topic; returns what changed, or with ``dry_run`` what would.

    Raises:
        GroupNotFoundError: no broker knows the group.
        TopicNotFoundError: no name server knows the topic.
        InvalidMessageError: ``to`` means nothing, or a queue does not have such an offset.
        UnsupportedRequestError: brokers are too old to move a group with members to offsets.
    """
    check_readable_topic(topic)
    check_position(to, "to")
    name = yield from require_group(instance, group, deadline)
    queues = yield from read_queues(instance, topic, deadline)
    if isinstance(to, Mapping):
        queues = yield from _asked_for(instance, queues, to, deadline)
    wire_topic = with_namespace(topic, instance.config.namespace)
    progress = yield from progress_in(instance, name, wire_topic, deadline)
    before = {(q.broker, q.id): told.consumed for q, told in progress.items()}
    plan: list[OffsetChange] = []
    for queue in queues:
        after = yield from resolve(instance, queue, to, reader_group, deadline)
        plan.append(OffsetChange(queue, before.get((queue.broker, queue.id), 0), after))
    if not dry_run:
        yield from _carry_out(instance, name, wire_topic, plan, _milliseconds(to), deadline)
    return tuple(plan)


def _asked_for(
    instance: Instance,
    queues: tuple[MessageQueue, ...],
    to: Mapping[MessageQueue, int],
    deadline: float,
) -> Op[tuple[MessageQueue, ...]]:
    """The queues that offsets were given for, once it is sure that they have those."""
    for queue, offset in to.items():
        if queue not in queues:
            raise InvalidMessageError(f"to has {queue}, which is no queue of the topic")
        first = yield from min_offset(instance, queue, deadline)
        end = yield from max_offset(instance, queue, deadline)
        if not first <= offset <= end:
            raise InvalidMessageError(f"to has {offset} for {queue}: give {first} to {end}")
    if not to:
        raise InvalidMessageError("to has no queue: give offsets by MessageQueue")
    return tuple(queue for queue in queues if queue in to)


def _milliseconds(to: Position) -> int | None:
    """A position as old brokers take it; None for offsets."""
    if isinstance(to, Mapping):
        return None
    if isinstance(to, str):
        return 0 if to == "earliest" else -1
    return int(epoch_of(to, "to") * 1000)


def _carry_out(
    instance: Instance,
    name: str,
    topic: str,
    plan: list[OffsetChange],
    moment_ms: int | None,
    deadline: float,
) -> Op[None]:
    known = yield from masters(instance, deadline)
    by_broker: dict[str, list[OffsetChange]] = {}
    for change in plan:
        by_broker.setdefault(change.queue.broker, []).append(change)
    absent = [broker for broker in by_broker if broker not in known]
    if absent:
        raise RouteError(
            f"{', '.join(absent)} has no master now, and slaves keep no positions: nothing was "
            "changed, try again when it is back"
        )
    ways = {}
    for broker in by_broker:
        who = (broker, known[broker])
        ways[broker] = yield from _way(instance, name, who, moment_ms, deadline)
    for broker, changes in by_broker.items():
        who = (broker, known[broker])
        yield from ways[broker](instance, name, who, topic, changes, moment_ms, deadline)


def _way(
    instance: Instance, name: str, who: tuple[str, str], moment_ms: int | None, deadline: float
) -> Op[Any]:
    """How to move a group on one broker. Asked of all brokers before any is changed."""
    settings = yield from settings_of(instance, who, deadline)
    if settings.get("useServerSideResetOffset") == "true":
        return _move_on_broker
    seen = yield from connected(instance, name, dict([who]), deadline)
    if not seen:
        return _write
    if moment_ms is None:
        raise UnsupportedRequestError(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            "it can move a group that has members to a time only, not to offsets: stop the "
            "members, or give a time",
            who[0],
            name="REQUEST_CODE_NOT_SUPPORTED",
        )
    return _tell_members


def _move_on_broker(
    instance: Instance,
    name: str,
    who: tuple[str, str],
    topic: str,
    changes: list[OffsetChange],
    moment_ms: int | None,
    deadline: float,
) -> Op[None]:
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    for change in changes:
        fields = headers.reset_queue(name, topic, change.queue.id, change.after)
        yield from ask(instance, who, code, fields, deadline)


def _tell_members(
    instance: Instance,
    name: str,
    who: tuple[str, str],
    topic: str,
    changes: list[OffsetChange],
    moment_ms: int | None,
    deadline: float,
) -> Op[None]:
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    fields = headers.reset_by_time(name, topic, moment_ms or 0)
    yield from ask(instance, who, code, fields, deadline)


def _write(
    instance: Instance,
    name: str,
    who: tuple[str, str],
    topic: str,
    changes: list[OffsetChange],
    moment_ms: int | None,
    deadline: float,
) -> Op[None]:
    for change in changes:
        fields = update_consumer_offset(
            name, topic, change.queue.id, change.after, broker=change.queue.broker
        )
        yield from ask(instance, who, RequestCode.UPDATE_CONSUMER_OFFSET, fields, deadline)


def clone_offsets(
    instance: Instance, source: str, target: str, topic: str, *, dry_run: bool, deadline: float
) -> Op[tuple[OffsetChange, ...]]:
    """Put a group where another one is in a topic; returns what changed, or would.

    Raises:
        GroupNotFoundError: no broker knows the source.
        TopicNotFoundError: no name server knows the topic.
        InvalidMessageError: the target has members, or the source never consumed the topic.
        BrokerError: a broker refused.
    """
    check_readable_topic(topic)
    target_name = group_name(instance, target)
    source_name = yield from require_group(instance, source, deadline)
    queues = yield from read_queues(instance, topic, deadline)
    wire_topic = with_namespace(topic, instance.config.namespace)
    everything = yield from progress_in(instance, source_name, None, deadline)
    theirs = {queue: told for queue, told in everything.items() if queue.topic == wire_topic}
    if not theirs:
        raise InvalidMessageError(f"group {source} has consumed nothing of topic {topic} yet")
    own = yield from progress_in(instance, target_name, wire_topic, deadline)
    known = yield from every_master(instance, deadline)
    yield from refuse_members(instance, target_name, known, deadline)
    before = {(q.broker, q.id): told.consumed for q, told in own.items()}
    after = {(q.broker, q.id): told.consumed for q, told in theirs.items()}
    places = [(queue.broker, queue.id) for queue in queues]
    plan = tuple(
        OffsetChange(queue, before.get(place, 0), after[place])
        for queue, place in zip(queues, places, strict=True)
        if place in after
    )
    if not dry_run:
        concerned = {b: a for b, a in known.items() if any(c.queue.broker == b for c in plan)}
        fields = headers.clone_offsets(source_name, target_name, wire_topic)
        code = RequestCode.CLONE_GROUP_OFFSET
        check_all((yield from ask_all(instance, concerned, code, fields, deadline)), code)
    return plan
