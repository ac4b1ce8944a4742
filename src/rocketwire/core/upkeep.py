"""What a client instance does while nobody sends: heartbeats, fresh routes, probes, goodbye.

Each is an operation; the endless ones (``keep_*``) are run by a shell beside everything else, on
connections of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketwire.core.effects import Invoke, Op, invoke, invoke_all
from rocketwire.core.failure_text import what_happened
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import masters, refresh_topic
from rocketwire.errors import (
    BrokerError,
    ProtocolError,
    RocketMQError,
    RouteError,
    TransportError,
)
from rocketwire.log_fields import about
from rocketwire.wire.codes import BROKER_UNWELL, RESPONSE_NAMES, RequestCode, ResponseCode
from rocketwire.wire.command import Reply, Request
from rocketwire.wire.headers import heartbeat_body, unregister_client

_log = logging.getLogger("rocketwire.upkeep")
_SETTLE = 0.05
_NEVER = 3600.0


def _heartbeat_request(instance: Instance) -> Request:
    consumers = [tell() for tell in list(instance.receivers.values())]
    body = heartbeat_body(instance.client_id, sorted(instance.producer_groups), consumers)
    return instance.request(RequestCode.HEART_BEAT, {}, body)


def heartbeat(instance: Instance) -> Op[int]:
    """Tell every master that our producers and simple consumers live; returns how many heard."""
    if not instance.producer_groups and not instance.receivers:
        return 0
    addresses = set(instance.routes.masters().values())
    is_to_all = instance.presence.is_wanted
    if is_to_all:
        addresses |= yield from _every_master(instance)
    deadline = instance.clock() + instance.config.request_timeout
    calls = tuple(
        Invoke(address, _heartbeat_request(instance), deadline) for address in sorted(addresses)
    )
    if not calls:
        return 0
    replies = yield from invoke_all(calls)
    if is_to_all and any(isinstance(reply, Reply) for reply in replies):
        instance.presence.told()
    for call, reply in zip(calls, replies, strict=True):
        if not isinstance(reply, Reply):
            _log.debug("heartbeat to %s failed: %s", call.address, reply)
        elif reply.code != ResponseCode.SUCCESS:
            _log.debug("heartbeat to %s: code %d, %s", call.address, reply.code, reply.remark)
    return sum(isinstance(r, Reply) and r.code == ResponseCode.SUCCESS for r in replies)


def _every_master(instance: Instance) -> Op[frozenset[str]]:
    """The addresses of all masters; those of before where no name server answers."""
    presence = instance.presence
    try:
        known = yield from masters(instance, instance.clock() + instance.config.request_timeout)
    except RocketMQError as error:
        _log.debug("the list of all masters did not come: %s", error)
    else:
        presence.masters = frozenset(known.values())
        presence.is_direct = True
    return presence.masters


def refresh_routes(instance: Instance) -> Op[int]:
    """Ask again for every topic; returns how many answers came."""
    count = 0
    for topic in instance.routes.topics():
        entry = instance.routes.get(topic)
        default_topic, default_queues = instance.defaults
        try:
            yield from refresh_topic(
                instance,
                topic,
                instance.clock() + instance.config.request_timeout,
                default_topic=default_topic if entry is not None and entry.is_fallback else None,
                default_queues=default_queues,
            )
        except (RouteError, BrokerError, ProtocolError) as error:
            _log.debug("route of %s was not refreshed: %s", topic, error, extra=about(topic=topic))
            continue
        count += 1
    return count


class _Stopwatch:
    """Notes when a probe was written: connecting must not count as latency."""

    def __init__(self, began: float) -> None:
        self.began = began

    def written(self, now: float, unanswered: int) -> None:
        self.began = now


def probe(instance: Instance, broker: str) -> Op[None]:
    """Ask a broker that was isolated whether it is well; the fault table judges the answer."""
    try:
        yield from _probe(instance, broker)
    except BaseException:
        # Its client was shut down, or an error of the caller's own function ended it. Another probe
        # must follow all the same, maybe by another client of this instance.
        instance.faults.probe_given_up(broker)
        instance.probe_wake_up.wake()
        raise


def _probe(instance: Instance, broker: str) -> Op[None]:
    address = instance.routes.masters().get(broker)
    if address is None:
        instance.faults.retain(instance.routes.masters())
        return
    watch = _Stopwatch(instance.clock())
    deadline = watch.began + instance.config.fault.probe_timeout
    good, latency, reason = False, None, ""
    try:
        reply = yield from invoke(address, _heartbeat_request(instance), deadline, watch)
    except (TransportError, ProtocolError) as error:
        _log.debug("probe of %s failed: %s", broker, error, extra=about(broker=broker))
        reason = what_happened(error, instance.clock() - watch.began)
    else:
        good, latency = reply.code not in BROKER_UNWELL, reply.arrived - watch.began
        if not good:
            reason = f"answered {RESPONSE_NAMES[reply.code]} ({reply.code})"
    instance.probed(broker, latency, reason, good=good)


def keep_heartbeats(instance: Instance) -> Op[None]:
    """Heartbeats for ever; the first one soon after a route is known."""
    while True:
        heard = yield from heartbeat(instance)
        pause = instance.config.heartbeat_interval if heard else 1.0
        yield from instance.heartbeat_wake_up.wait(instance.clock() + pause)


def keep_routes(instance: Instance, changed: Callable[[], None]) -> Op[None]:
    """Fresh routes for ever; ``changed`` is called after each round."""
    last = instance.clock()
    while True:
        rang = yield from instance.route_wake_up.wait(last + instance.config.route_refresh)
        if rang and instance.clock() - last < _SETTLE:
            # Many senders may have met the same dead broker: one question is enough.
            yield from instance.route_wake_up.wait(last + _SETTLE)
        last = instance.clock()
        yield from refresh_routes(instance)
        changed()


def keep_probing(instance: Instance, start: Callable[[Op[None]], None]) -> Op[None]:
    """Probes when they are due; ``start`` runs one beside the others, so that none waits."""
    while True:
        now = instance.clock()
        for broker in instance.faults.probe_due(now):
            instance.faults.probe_started(broker)
            start(probe(instance, broker))
        due = instance.faults.next_probe_at()
        yield from instance.probe_wake_up.wait(now + _NEVER if due is None else due)


def say_goodbye(instance: Instance, group: str) -> Op[None]:
    """Tell every broker that a producer group of ours is gone; nobody answering is no harm."""
    deadline = instance.clock() + min(1.0, instance.config.request_timeout)
    fields = unregister_client(instance.client_id, producer_group=group)
    calls = tuple(
        Invoke(address, instance.request(RequestCode.UNREGISTER_CLIENT, fields), deadline)
        for address in sorted(instance.routes.addresses())
    )
    if calls:
        yield from invoke_all(calls)
