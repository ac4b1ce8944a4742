"""Which queues are ours: asked for, taken over, and given back.

Every member works out the same split from the same lists. A queue that goes to another member is
given back in order: no new messages to handlers, those in hand finished as far as time allows, the
offset committed, the lock released. Only then does an ordered queue become free for the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketwire.core.effects import Invoke, Op, invoke_all, wait
from rocketwire.core.group.allocation import java_order
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.offsets import commit, start_offset
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.pull_loop import begin_pulling
from rocketwire.core.group.queue_locks import left_alone, lock, unlock
from rocketwire.core.lookup import refresh_topic
from rocketwire.errors import RocketMQError, TransportError
from rocketwire.hooks import QueuesEvent, call_hooks
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import consumer_list, decode_consumer_list

#: Pauses while something is not as it should be: short at first, then longer, up to a limit that
#: keeps a queue from lying idle when its last owner is done with it.
_SHORT = 0.25
_GROWTH = 1.5
_LONG = 1.0
_PATIENT = 5.0


def keep_rebalancing(group: Group) -> Op[None]:
    """Share queues anew: now and then, when the group changes, and soon while it is incomplete."""
    clock, usual = group.instance.clock, group.config.rebalance_interval
    pause = _SHORT
    while not group.is_leaving:
        is_done = yield from rebalance(group)
        if is_done and not _lacks_retries(group):
            pause = _SHORT
            yield from group.rebalance_wake_up.wait(clock() + usual)
        else:
            yield from group.rebalance_wake_up.wait(clock() + min(usual, pause))
            # Only the retry topic may be missing for long: a broker may be set up without.
            limit = _PATIENT if is_done or _has_all_but_retries(group) else _LONG
            pause = min(limit, pause * _GROWTH)


def _lacks_retries(group: Group) -> bool:
    """Whether a broker has messages for us, and no queue yet that we know of for their retries.

    Brokers make that queue when they first hear of a group, and tell name servers one by one.
    """
    if group.retry_topic not in group.subscriptions:
        return False
    brokers = {topic: _brokers_of(group, topic) for topic in group.subscriptions}
    with_retries = brokers.pop(group.retry_topic)
    return any(found - with_retries for found in brokers.values())


def _brokers_of(group: Group, topic: str) -> set[str]:
    queues = group.instance.routes.read_queues(group.wire_topic(topic))
    return {queue.broker for queue in queues}


def _has_all_but_retries(group: Group) -> bool:
    topics = {queue.topic for queue in group.queues}
    return topics == set(group.subscriptions) - {group.retry_topic}


def rebalance(group: Group) -> Op[bool]:
    """Take what is ours and give back what is not; True when nothing is left to be done."""
    group.counters.rebalances += 1
    complete = True
    for topic in sorted(group.subscriptions):
        try:
            complete &= yield from _rebalance_topic(group, topic)
        except RocketMQError as error:
            level = log.debug if topic == group.retry_topic else log.warning
            level("queues of %s can't be shared just now: %s", topic, error)
            complete = False
    strangers = [q for q in group.queues if q.topic not in group.subscriptions]
    _give_back(group, strangers)
    return complete


def _adopt_tags(group: Group, topic: str) -> None:
    """Pull with other tags from now on, if others are wanted."""
    wanted = group.subscriptions[topic]
    for queue, held in group.queues.items():
        if queue.topic == topic and held.tags != wanted:
            held.tags = wanted
            begin_pulling(group, held)


def _rebalance_topic(group: Group, topic: str) -> Op[bool]:
    _adopt_tags(group, topic)
    queues = yield from _queues_of(group, topic)
    if not queues:
        return False
    if group.config.broadcast:
        mine = set(queues)
    else:
        members = yield from group_members(group, queues)
        if group.instance.client_id not in members:
            # A broker that was restarted has not heard of us yet. What we have, we keep.
            group.heartbeat_wake_up.wake()
            return False
        split = group.allocate(
            group.instance.client_id,
            [group.on_wire(queue) for queue in queues],
            sorted(members, key=java_order),
        )
        wire = set(split)
        mine = {queue for queue in queues if group.on_wire(queue) in wire}
    _give_back(group, [q for q in group.queues if q.topic == topic and q not in mine])
    fresh = [q for q in sorted(mine) if q not in group.queues]
    taken = yield from _take_over(group, fresh)
    return len(taken) == len(fresh)


def _queues_of(group: Group, topic: str) -> Op[tuple[MessageQueue, ...]]:
    """The queues of a topic, from a route that is not too old."""
    instance, name = group.instance, group.wire_topic(topic)
    if instance.recent_route(name) is None or (
        topic == group.retry_topic and _lacks_retries(group)
    ):
        deadline = instance.clock() + instance.config.request_timeout
        yield from refresh_topic(instance, name, deadline)
    queues = instance.routes.read_queues(name)
    return tuple(sorted(queues, key=lambda q: (java_order(q.broker), q.id)))


def group_members(group: Group, queues: Iterable[MessageQueue]) -> Op[set[str]]:
    """The client ids of the group, as the brokers of some queues know them.

    All of them are asked: one that was restarted a moment ago does not know all members yet.

    Raises:
        RocketMQError: no broker answered.
    """
    instance = group.instance
    deadline = instance.clock() + instance.config.request_timeout
    fields = consumer_list(group.wire_name)
    calls = []
    for broker in sorted({queue.broker for queue in queues}):
        addresses = instance.routes.addresses_of(broker)
        if addresses:
            request = instance.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
            calls.append(Invoke(addresses[min(addresses)], request, deadline))
    replies = yield from invoke_all(tuple(calls))
    members: set[str] = set()
    failure: RocketMQError | None = None
    answered = False
    for reply in replies:
        if not isinstance(reply, Reply):
            failure = reply
        else:
            answered = True
            if reply.code == ResponseCode.SUCCESS:
                members.update(decode_consumer_list(reply.body))
    if not answered and failure is not None:
        raise failure
    return members


def _take_over(group: Group, queues: list[MessageQueue]) -> Op[list[MessageQueue]]:
    """Begin with queues that have become ours; returns those with which it worked."""
    free = [queue for queue in queues if queue not in group.releasing]
    began = group.instance.clock()
    if group.needs_locks and free:
        free = [queue for queue in free if not left_alone(group, queue)]
        locks = yield from lock(group, free)
        free = [queue for queue in free if locks.get(queue)]
    taken, failed = [], []
    away: set[str] = set()
    for queue in free:
        if queue.broker in away:  # to ask for each of its queues would keep the others waiting
            failed.append(queue)
            continue
        try:
            offset = yield from start_offset(group, queue)
        except RocketMQError as error:
            log.warning(
                "%s can't be taken over yet: %s", queue, error, extra=about(group=group.name)
            )
            failed.append(queue)
            if isinstance(error, TransportError):
                away.add(queue.broker)
            continue
        if group.is_leaving or queue.topic not in group.subscriptions:
            failed.append(queue)
            continue
        _begin(group, queue, offset, began)
        taken.append(queue)
    if failed and group.needs_locks:
        yield from unlock(group, failed)
    if taken:
        group.counters.assigned += len(taken)
        log.info(
            "%s: %d queues taken over, %d now",
            group.name,
            len(taken),
            len(group.queues),
            extra=about(group=group.name),
        )
        if group.hooks.assigned:
            event = QueuesEvent(group.instance.wall(), group.name, tuple(taken))
            call_hooks(group.hooks.assigned, event)
    return taken


def _begin(group: Group, queue: MessageQueue, offset: int, locked_at: float) -> None:
    held = ProcessQueue(queue, offset, group.make_wake_up(), group.subscriptions[queue.topic])
    if group.needs_locks:
        held.locked_until = locked_at + group.config.lock_lifetime
    group.queues[queue] = held
    group.apply_pause(held)
    begin_pulling(group, held)


def _give_back(group: Group, queues: list[MessageQueue]) -> None:
    """Begin to give queues back; each is done with by itself."""
    tell_of_revocation(group, queues)
    for queue in queues:
        held = group.queues.pop(queue)
        group.releasing[queue] = held
        group.workload.drop(held)
        group.start(_release(group, held))
    if queues:
        group.counters.revoked += len(queues)
        log.info(
            "%s: %d queues given back, %d left",
            group.name,
            len(queues),
            len(group.queues),
            extra=about(group=group.name),
        )


def tell_of_revocation(group: Group, queues: list[MessageQueue]) -> None:
    """Say which queues are about to be taken away."""
    if queues and group.hooks.queues_revoked:
        event = QueuesEvent(group.instance.wall(), group.name, tuple(queues))
        call_hooks(group.hooks.queues_revoked, event)


def _release(group: Group, held: ProcessQueue) -> Op[None]:
    """Give one queue back when its handlers are done."""
    try:
        yield from _drain(group, held)
    except Exception:  # noqa: BLE001 - it is logged
        # It must not stay on its way out for ever: nobody else of us would take it over again.
        log.exception(
            "%s was not given back as it should be", held.queue, extra=about(group=group.name)
        )
    group.workload.let_go_open(held)
    group.releasing.pop(held.queue, None)
    group.rebalance_wake_up.wake()
    if group.hooks.revoked:
        event = QueuesEvent(group.instance.wall(), group.name, (held.queue,))
        call_hooks(group.hooks.revoked, event)


def _drain(group: Group, held: ProcessQueue) -> Op[None]:
    clock, config = group.instance.clock, group.config
    yield from release(group, held, clock() + config.drain_timeout)
    while group.needs_locks and held.in_hand:
        # The next holder of the lock would handle it at the same time as we do.
        yield from wait(held.idle_event(), clock() + config.lock_lifetime)
        if not held.in_hand:
            yield from release(group, held, clock())


def release(group: Group, held: ProcessQueue, deadline: float) -> Op[bool]:
    """Wait for the handlers of a queue, commit, unlock; False if a handler was still at it."""
    instance = group.instance
    yield from wait(held.idle_event(), deadline)
    yield from commit(group, [held], instance.clock() + instance.config.request_timeout)
    if held.in_hand:
        return False
    if group.needs_locks and held.locked_until:
        held.locked_until = 0.0
        yield from unlock(group, [held.queue])
    return True
