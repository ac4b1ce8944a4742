"""What all name servers together say of a topic.

One name server that was restarted, or that a broker can't reach, knows less than the others. A read
that asked only that one would return less, so all of them are asked, and their answers are put
together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketwire.columns.client_parts import ClientParts
from rocketwire.core.effects import Op, invoke
from rocketwire.core.lookup import fetch_route
from rocketwire.core.naming import with_namespace
from rocketwire.core.side_by_side import run_together
from rocketwire.errors import RemoteProtocolError, TransportError
from rocketwire.wire import headers
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute, decode_route, publish_queues

#: How long servers beside the first one may take; what they add is rarely needed.
_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker of a topic: its cluster, its address, and which queues can be read there."""

    cluster: str
    address: str
    queues: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """The brokers that are registered for a topic, and those that its order configuration names."""

    brokers: Mapping[str, BrokerView]
    #: How many queues each broker has by the order configuration; empty without one.
    ordered: Mapping[str, int]


def learn_route(parts: ClientParts, topic: str) -> TopicRoute | None:
    """Ask all name servers for a topic, and let the client use their answers together.

    None when none of them knows it.

    Raises:
        NameServerUnavailableError: none answered.
        BrokerError: they refuse us.
    """
    instance = parts.instance
    name = with_namespace(topic, instance.config.namespace)
    deadline = parts.clock() + parts.request_timeout
    servers = instance.servers_in_turn()
    first: TopicRoute | None = parts.run(fetch_route(instance, name, deadline))
    found = [first] if first is not None else []
    found += _ask(parts, servers, name) if len(servers) > 1 else []
    if not found:
        return None
    route = merged(found)
    instance.learned(instance.routes.update(name, route))
    return route


def _ask(parts: ClientParts, servers: tuple[str, ...], name: str) -> list[TopicRoute]:
    """The routes of all servers that answer soon and know the topic."""
    found: list[TopicRoute] = []
    for server, reply in ask_all(
        parts, servers, RequestCode.GET_ROUTE_BY_TOPIC, headers.route(name)
    ).items():
        if reply.code == ResponseCode.SUCCESS:
            with contextlib.suppress(RemoteProtocolError):
                found.append(decode_route(reply.body))
        elif reply.code != ResponseCode.TOPIC_NOT_EXIST:
            raise error_for(reply.code, reply.remark, f"the name server {server}")
    return found


def ask_all(
    parts: ClientParts, servers: tuple[str, ...], code: int, ext: dict[str, str]
) -> dict[str, Reply]:
    """What each name server answers, in their order; one that does not answer soon is left out."""
    instance = parts.instance
    limit = parts.clock() + min(_PATIENCE, parts.request_timeout)
    found: dict[str, Reply] = {}

    def ask(server: str) -> Op[None]:
        with contextlib.suppress(TransportError, RemoteProtocolError):
            found[server] = yield from invoke(server, instance.request(code, ext), limit)

    parts.run(run_together([ask(server) for server in servers]))
    return {server: found[server] for server in servers if server in found}


def merged(routes: list[TopicRoute]) -> TopicRoute:
    """Several answers as one: everything that any of them names."""
    queues: dict[str, QueueData] = {}
    brokers: dict[str, BrokerData] = {}
    for route in routes:
        for data in route.queues:
            before = queues.get(data.broker)
            if before is None or before.read_queues < data.read_queues:
                queues[data.broker] = data
        for broker in route.brokers:
            known = brokers.get(broker.broker)
            if known is None or len(known.addresses) < len(broker.addresses):
                brokers[broker.broker] = broker
    head = routes[0]
    order = next((route.order_conf for route in routes if route.order_conf is not None), None)
    mappings = next((route.mappings for route in routes if route.mappings), {})
    whole = TopicRoute(tuple(queues.values()), tuple(brokers.values()), order, mappings)
    return head if head == whole else whole


def view_of(parts: ClientParts, topic: str, route: TopicRoute, queues: Any) -> TopicView:
    """What a route says, by broker."""
    numbers: dict[str, list[int]] = {}
    for queue in queues:
        numbers.setdefault(queue.broker, []).append(queue.id)
    brokers = {
        name: BrokerView(data.cluster, data.addresses[min(data.addresses)], tuple(ids))
        for name, ids in numbers.items()
        if (data := route.broker(name)) is not None and data.addresses
    }
    ordered: dict[str, int] = {}
    if route.order_conf:
        for queue in publish_queues(topic, route):
            ordered[queue.broker] = max(ordered.get(queue.broker, 0), queue.id + 1)
    return TopicView(brokers, ordered)
