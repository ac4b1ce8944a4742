"""Being a member: heartbeats, what brokers ask of us, and leaving.

Heartbeats go over the connections on which this consumer listens, and over no others: a broker
takes each connection that sends one for a member, and tells changes only there.
"""

from __future__ import annotations

from rocketwire.core.effects import Invoke, Op, invoke_all, wait
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.offsets import commit
from rocketwire.core.group.queue_locks import unlock
from rocketwire.core.group.rebalance import rebalance, tell_of_revocation
from rocketwire.core.lookup import refresh_topic
from rocketwire.core.reading.filters import check_filter
from rocketwire.errors import PermissionDeniedError, RocketMQError, TopicNotFoundError
from rocketwire.log_fields import about
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply, decode_command
from rocketwire.wire.headers import heartbeat_body, unregister_client

_SOON = 1.0


def join(group: Group) -> Op[None]:
    """Become a member: find the topics, tell every broker, take the first queues.

    Raises:
        RouteError: no name server answered, or none knows any of the topics.
        ConfigError: a broker can't read an SQL92 expression.
        PermissionDeniedError: no broker takes us for a member.
    """
    instance = group.instance
    found = 0
    for topic in sorted(group.subscriptions):
        deadline = instance.clock() + instance.config.request_timeout
        entry = yield from refresh_topic(instance, group.wire_topic(topic), deadline)
        found += entry is not None and topic != group.retry_topic
    if not found:
        wanted = ", ".join(t for t in group.subscriptions if t != group.retry_topic)
        raise TopicNotFoundError(f"topic {wanted} is unknown: check its name, or create it")
    for topic, wanted_of_it in group.subscriptions.items():
        deadline = instance.clock() + instance.config.request_timeout
        yield from check_filter(instance, group.name, topic, wanted_of_it, deadline)
    yield from heartbeat(group)
    if group.denied and group.denied.keys() >= instance.routes.addresses():
        raise next(iter(group.denied.values()))
    yield from rebalance(group)


def heartbeat(group: Group) -> Op[bool]:
    """Tell every broker that we are there, and what we want; True if all have heard."""
    instance = group.instance
    body = heartbeat_body(instance.client_id, (), [group.data()])
    deadline = instance.clock() + instance.config.request_timeout
    calls = tuple(
        Invoke(address, instance.request(RequestCode.HEART_BEAT, {}, body), deadline)
        for address in sorted(instance.routes.addresses())
    )
    if not calls:
        return False
    replies = yield from invoke_all(calls)
    heard = 0
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, Reply) and reply.code == ResponseCode.SUCCESS:
            heard += 1
            group.versions[call.address] = decode_command(reply.frame).version
            group.denied.pop(call.address, None)
        else:
            group.failed_at[call.address] = instance.clock()
            _tell_of_failure(group, call.address, reply)
    return heard == len(calls)


def _tell_of_failure(group: Group, address: str, reply: Reply | RocketMQError) -> None:
    """One that lacks a right gets no queues, for ever: that is said aloud, once."""
    why: object = reply
    if isinstance(reply, Reply):
        routes = group.instance.routes
        names = [name for name in routes.brokers() if address in routes.addresses_of(name).values()]
        broker = names[0] if names else address
        why = error_for(reply.code, reply.remark, broker, asked=RequestCode.HEART_BEAT)
    if not isinstance(why, PermissionDeniedError):
        log.debug("heartbeat to %s failed: %s", address, why, extra=about(group=group.name))
        return
    if str(why) != str(group.denied.get(address)):
        log.warning("%s gets no messages: %s", group.name, why, extra=about(group=group.name))
    group.denied[address] = why


def keep_heartbeats(group: Group) -> Op[None]:
    """Heartbeats for ever: at the usual pace, when called for, and sooner while one fails."""
    clock, usual = group.instance.clock, group.config.heartbeat_interval
    known = group.instance.routes.addresses()
    all_heard = True
    while True:
        pause = usual if all_heard else min(usual, _SOON)
        began = clock()
        woken = yield from group.heartbeat_wake_up.wait(began + pause)
        if woken and clock() - began < _SOON / 10:
            # Many pulls may have met the same dead broker: one heartbeat is enough.
            yield from group.heartbeat_wake_up.wait(began + _SOON / 2)
        all_heard = yield from heartbeat(group)
        addresses = group.instance.routes.addresses()
        if woken or addresses != known:
            known = addresses
            group.rebalance_wake_up.wake()


def leave(group: Group, deadline: float) -> Op[bool]:
    """Give every queue back and say goodbye; False if a handler was still at work.

    Handlers get nothing new from now on. A queue that a handler still has at the deadline is
    committed as far as it is handled, and stays locked until the broker forgets the lock.
    """
    group.is_leaving = True
    instance = group.instance
    tell_of_revocation(group, sorted(group.queues))
    held = group.every_queue()
    for item in held:
        group.workload.drop(item)
        group.workload.let_go_open(item)
    for item in held:
        yield from wait(item.idle_event(), deadline)
    yield from commit(group, held, instance.clock() + instance.config.request_timeout)
    idle = [item for item in held if not item.in_hand]
    if group.needs_locks and idle:
        yield from unlock(group, [item.queue for item in idle])
    group.queues.clear()
    group.releasing.clear()
    yield from _say_goodbye(group)
    return len(idle) == len(held)


def give_up_waiting(group: Group) -> None:
    """Let ``leave`` go on without the handlers that it waits for."""
    for item in group.every_queue():
        item.idle_event().set()


def _say_goodbye(group: Group) -> Op[None]:
    instance = group.instance
    fields = unregister_client(instance.client_id, consumer_group=group.wire_name)
    limit = instance.clock() + min(1.0, instance.config.request_timeout)
    calls = tuple(
        Invoke(address, instance.request(RequestCode.UNREGISTER_CLIENT, fields), limit)
        for address in sorted(instance.routes.addresses())
    )
    if calls:
        yield from invoke_all(calls)
