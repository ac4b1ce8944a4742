"""Locks on queues, by which ordered members of a group keep out of each other's way.

A broker gives a queue to one client id at a time and forgets a lock that is not renewed for a
minute. We trust ours for half of that, counted from before the request was sent, so that two
members never both believe to have it unless a clock runs at half speed.

A broker that is restarted forgets all locks. The member that had one notices it by its broken
connections, hands out nothing until it has the lock again, and asks for it several times a second;
a member that would take such a queue over leaves it the first seconds after the broker's return.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketwire.core.effects import Invoke, Op, invoke_all
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.offsets import committed_offset
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.pull_loop import go_on_at
from rocketwire.errors import RocketMQError
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import decode_lock_reply, lock_body

_LIMIT = 1.0
#: How often a lock is asked for that was lost, and how long others leave its last owner alone.
_HURRY = 0.25
_COURTESY = 3.0


def _by_broker(group: Group, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Queues by the broker that they really live on."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        entry = group.instance.routes.get(group.wire_topic(queue.topic))
        broker = queue.broker if entry is None else entry.owner_of(queue)
        found.setdefault(broker, []).append(queue)
    return found


def _ask(
    group: Group, code: int, queues: Iterable[MessageQueue]
) -> Op[list[tuple[list[MessageQueue], Reply | RocketMQError]]]:
    instance = group.instance
    masters = instance.routes.masters()
    limit = max(_LIMIT, instance.config.request_timeout)
    deadline = instance.clock() + limit
    asked, calls = [], []
    for broker, own in sorted(_by_broker(group, queues).items()):
        if broker in masters:
            body = lock_body(instance.client_id, group.wire_name, map(group.on_wire, own))
            asked.append(own)
            calls.append(Invoke(masters[broker], instance.request(code, {}, body), deadline))
    if not calls:
        return []
    replies = yield from invoke_all(tuple(calls))
    return list(zip(asked, replies, strict=True))


def lock(group: Group, queues: Iterable[MessageQueue]) -> Op[dict[MessageQueue, bool]]:
    """Take or renew locks; says which are ours, and leaves out those whose broker was silent."""
    answers = yield from _ask(group, RequestCode.LOCK_BATCH_QUEUES, queues)
    found: dict[MessageQueue, bool] = {}
    for own, reply in answers:
        if not isinstance(reply, Reply) or reply.code != ResponseCode.SUCCESS:
            why = reply.remark if isinstance(reply, Reply) else reply
            log.info(
                "queues of %s could not be locked: %s",
                own[0].broker,
                why,
                extra=about(group=group.name, broker=own[0].broker),
            )
            continue
        locked = decode_lock_reply(reply.body)
        found |= {queue: group.on_wire(queue) in locked for queue in own}
    return found


def unlock(group: Group, queues: Iterable[MessageQueue]) -> Op[None]:
    """Give locks back, so that the next owner need not wait for their end."""
    for own, reply in (yield from _ask(group, RequestCode.UNLOCK_BATCH_QUEUES, queues)):
        if not isinstance(reply, Reply):
            log.debug(
                "queues of %s could not be unlocked: %s",
                own[0].broker,
                reply,
                extra=about(group=group.name, broker=own[0].broker),
            )


def renew(group: Group, held: Iterable[ProcessQueue]) -> Op[None]:
    """Renew the locks of queues, those that are on their way out included."""
    queues = {item.queue: item for item in held}
    began = group.instance.clock()
    for queue, is_ours in (yield from lock(group, queues)).items():
        process_queue = queues[queue]
        if is_ours:
            yield from _locked(group, process_queue, began)
        elif process_queue.locked_until:
            log.warning(
                "%s is locked by another member: nothing more is handled of it",
                queue,
                extra=about(group=group.name),
            )
            process_queue.locked_until = 0.0
            group.rebalance_wake_up.wake()


def _locked(group: Group, held: ProcessQueue, began: float) -> Op[None]:
    """A lock is ours; if it was not for a while, see first what others did meanwhile."""
    clock = group.instance.clock
    if clock() >= held.locked_until:
        deadline = clock() + group.config.request_timeout
        try:
            offset = yield from committed_offset(group, held.queue, deadline)
        except RocketMQError as error:
            log.warning(
                "%s is locked again, but its offset is unknown: %s",
                held.queue,
                error,
                extra=about(group=group.name),
            )
            return
        if offset is not None and offset > group.floors((held,))[held.queue]:
            log.warning(
                "%s: others have handled it up to %d meanwhile",
                held.queue,
                offset,
                extra=about(group=group.name, offset=offset),
            )
            go_on_at(group, held, offset)
    is_news = clock() >= held.locked_until
    held.locked_until = began + group.config.lock_lifetime
    if is_news:
        held.wake_up.wake()
        group.workload.look_again(held)


def keep_locks(group: Group) -> Op[None]:
    """Renew all locks, for ever; sooner where one is in danger."""
    while True:
        yield from group.lock_wake_up.wait(group.instance.clock() + _pause(group))
        held = group.every_queue()
        if held:
            yield from renew(group, held)


def _pause(group: Group) -> float:
    """Until the next round: the usual time, or a short one while a renewal has failed."""
    config, now = group.config, group.instance.clock()
    left = [held.locked_until - now for held in group.every_queue()]
    if left and min(left) < config.lock_lifetime - config.lock_interval / 2:
        return min(_HURRY, config.lock_interval)
    return config.lock_interval


def left_alone(group: Group, queue: MessageQueue) -> bool:
    """Whether a queue's broker was away until a moment ago, and its last owner goes first."""
    address = group.instance.routes.masters().get(queue.broker, "")
    return group.instance.clock() - group.failed_at.get(address, -_COURTESY) < _COURTESY
