"""Moving a consumer group: to a time, to offsets, or to where another group is.

Brokers from 5.0 on move a group themselves (``useServerSideResetOffset``), queue by queue, and its
members learn of it with their next pull. Older ones tell the members, and know only of times; what
is nobody's business is written as if it were consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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

#: A request, and what makes the fields of as many of them as it takes.
_Way: TypeAlias = tuple[int, Callable[[Sequence[OffsetChange]], list[dict[str, str]]]]


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
        yield from _Move(instance, name, wire_topic, _milliseconds(to), deadline).carry_out(plan)
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


@dataclass(frozen=True, slots=True)
class _Move:
    """A move of one group in one topic; ``moment_ms`` is None for offsets."""

    instance: Instance
    group: str
    topic: str
    moment_ms: int | None
    deadline: float

    def carry_out(self, plan: Sequence[OffsetChange]) -> Op[None]:
        """Move the group on all brokers that are concerned, or on none."""
        known = yield from masters(self.instance, self.deadline)
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
            ways[broker] = yield from self._way((broker, known[broker]))
        for broker, changes in by_broker.items():
            code, fields = ways[broker]
            for each in fields(changes):
                yield from ask(self.instance, (broker, known[broker]), code, each, self.deadline)

    def _way(self, who: tuple[str, str]) -> Op[_Way]:
        """How to move the group on one broker. Asked of all brokers before any is changed."""
        settings = yield from settings_of(self.instance, who, self.deadline)
        if settings.get("useServerSideResetOffset") == "true":
            return RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._on_broker
        seen = yield from connected(self.instance, self.group, dict([who]), self.deadline)
        if not seen:
            return RequestCode.UPDATE_CONSUMER_OFFSET, self._written
        if self.moment_ms is None:
            raise UnsupportedRequestError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "it can move a group that has members to a time only, not to offsets: stop the "
                "members, or give a time",
                who[0],
                name="REQUEST_CODE_NOT_SUPPORTED",
            )
        return RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._by_members

    def _on_broker(self, changes: Sequence[OffsetChange]) -> list[dict[str, str]]:
        """What moves each queue on the broker itself."""
        return [
            headers.reset_queue(self.group, self.topic, change.queue.id, change.after)
            for change in changes
        ]

    def _by_members(self, _: Sequence[OffsetChange]) -> list[dict[str, str]]:
        """What has a broker tell the members of the group: all queues at once, by a time."""
        return [headers.reset_by_time(self.group, self.topic, self.moment_ms or 0)]

    def _written(self, changes: Sequence[OffsetChange]) -> list[dict[str, str]]:
        """What writes each offset as a member would."""
        return [
            update_consumer_offset(
                self.group, self.topic, change.queue.id, change.after, broker=change.queue.broker
            )
            for change in changes
        ]


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
