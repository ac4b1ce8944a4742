"""Operations that ask name servers where topics and brokers live."""

from __future__ import annotations

from typing import Final

from rocketwire.core.effects import Op, invoke, wait
from rocketwire.core.instance import Instance
from rocketwire.core.routes import TopicEntry, fallback_route
from rocketwire.errors import (
    BrokerError,
    ConfigError,
    NameServerUnavailableError,
    NoWritableQueueError,
    PermissionDeniedError,
    RemoteProtocolError,
    RocketMQError,
    RouteError,
    TopicNotFoundError,
    TransportError,
    UnsupportedRequestError,
)
from rocketwire.wire import headers
from rocketwire.wire.codes import RESPONSE_NAMES, RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.route import (
    MASTER_ID,
    ClusterInfo,
    TopicRoute,
    decode_cluster_info,
    decode_route,
)

#: Behind the first question to a name server. A web server waits for the end of a line before it
#: refuses what it can't understand; a name server never looks at it.
_BLANK_LINES: Final = b"\r\n\r\n"
_UNSUPPORTED: Final = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def ask_name_servers(
    instance: Instance, code: int, ext: dict[str, str], deadline: float
) -> Op[Reply]:
    """The first answer from any name server, tried in turn.

    One server gets at most its share of the time, so that a dead one does not eat it all.

    Raises:
        NameServerUnavailableError: none answered.
        UnsupportedRequestError: the one that answered is a proxy, and was asked for more than a route.
    """
    servers = instance.servers_in_turn()
    if not servers:
        raise ConfigError("name_servers is empty: give Producer('host:port'), or set NAMESRV_ADDR")
    failures: list[str] = []
    for number, server in enumerate(servers):
        now = instance.clock()
        share = (deadline - now) / (len(servers) - number)
        limit = min(deadline, now + max(share, 0.001), now + instance.config.request_timeout)
        body = b"" if server in instance.heard_servers else _BLANK_LINES
        try:
            reply = yield from invoke(server, instance.request(code, ext, body), limit)
        except (TransportError, RemoteProtocolError) as error:
            failures.append(str(error) if server in str(error) else f"{server}: {error}")
            continue
        if code == RequestCode.GET_ROUTE_BY_TOPIC and reply.code == _UNSUPPORTED:
            failures.append(
                f"{server} is no name server; it seems to be a broker: give the address of the name "
                "server, whose port is usually 9876"
            )
            continue
        if reply.code == _UNSUPPORTED:
            raise _no_name_server(server, reply)
        instance.prefer_server(server)
        return reply
    raise NameServerUnavailableError(
        f"no name server answered ({'; '.join(failures)}): check name_servers and the network"
    )


def _no_name_server(server: str, reply: Reply) -> UnsupportedRequestError:
    """What every name server knows, and this one does not: it gives routes, and that is all."""
    return UnsupportedRequestError(
        reply.code,
        f"it is no name server but a proxy of RocketMQ 5, or a broker: it serves producers and "
        f"consumers, not operators; give the address of a name server, usually with port 9876 "
        f"({reply.remark or 'no remark'})",
        server,
        name=RESPONSE_NAMES[reply.code],
    )


def cluster_info(instance: Instance, deadline: float) -> Op[ClusterInfo]:
    """All brokers of all clusters that the name server knows.

    Raises:
        UnsupportedRequestError: it is a proxy.
    """
    reply = yield from ask_name_servers(instance, RequestCode.GET_BROKER_CLUSTER_INFO, {}, deadline)
    if reply.code != ResponseCode.SUCCESS:
        raise error_for(reply.code, reply.remark, "the name server")
    return decode_cluster_info(reply.body)


def proxy_in_the_way(instance: Instance, deadline: float) -> Op[UnsupportedRequestError | None]:
    """What a proxy says that stands in the place of name servers; None where there is none.

    Asked once, and before what a proxy would take and never answer.
    """
    presence = instance.presence
    if not presence.is_direct and presence.proxy is None:
        try:
            yield from cluster_info(instance, deadline)
        except UnsupportedRequestError as error:
            presence.proxy = error
        except RocketMQError:  # what is wrong is told by callers that need the answer
            return None
        else:
            presence.is_direct = True
    return presence.proxy


def masters(instance: Instance, deadline: float) -> Op[dict[str, str]]:
    """The master address of every broker."""
    info = yield from cluster_info(instance, deadline)
    return {
        name: instance.routes.translate(data.addresses[MASTER_ID])
        for name, data in sorted(info.brokers.items())
        if MASTER_ID in data.addresses
    }


def readable_brokers(instance: Instance, deadline: float) -> Op[dict[str, str]]:
    """Where to ask each broker about what it has: at its master, or at its first slave."""
    info = yield from cluster_info(instance, deadline)
    return {
        name: instance.routes.translate(data.addresses[min(data.addresses)])
        for name, data in sorted(info.brokers.items())
        if data.addresses
    }


def fetch_route(instance: Instance, topic: str, deadline: float) -> Op[TopicRoute | None]:
    """The route of a topic, or None where the name server does not know it.

    Raises:
        RouteError: no name server answered.
        BrokerError: it answered with another error, such as wrong credentials.
    """
    asked = RequestCode.GET_ROUTE_BY_TOPIC
    reply = yield from ask_name_servers(instance, asked, headers.route(topic), deadline)
    if reply.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if reply.code != ResponseCode.SUCCESS:
        raise error_for(reply.code, reply.remark, "the name server", asked=asked)
    return decode_route(reply.body)


def refresh_topic(
    instance: Instance,
    topic: str,
    deadline: float,
    *,
    default_topic: str | None = None,
    default_queues: int = 4,
) -> Op[TopicEntry | None]:
    """Ask for a topic's route and put it into the table.

    A topic that is gone keeps its last route: a name server that has just been restarted knows
    nothing for a while, and the brokers will say what is wrong.
    """
    route = yield from fetch_route(instance, topic, deadline)
    is_fallback = False
    if route is None and default_topic is not None:
        entry = instance.routes.get(topic)
        if entry is not None and not entry.is_fallback:
            return entry
        template = yield from fetch_route(instance, default_topic, deadline)
        if template is not None:
            route, is_fallback = fallback_route(template, default_queues), True
    if route is None:
        return None
    change = instance.routes.update(topic, route, is_fallback=is_fallback)
    instance.learned(change)
    return change.entry


def locate_topic(
    instance: Instance, topic: str, deadline: float, default_topic: str, default_queues: int
) -> Op[TopicEntry]:
    """The entry of a topic with at least one queue, from the table or from a name server.

    Only one of many senders asks; the others wait for its answer.

    Raises:
        RouteError: there is none; the text says why and what to do.
    """
    while True:
        entry = instance.routes.get(topic)
        if entry is not None and entry.queues and instance.clock() <= instance.fresh_until(entry):
            return entry
        event, is_mine = instance.routes.begin_lookup(topic)
        if is_mine:
            break
        if not (yield from wait(event, deadline)):
            if instance.clock() < deadline:
                break  # what asks is the code that this signal handler has interrupted
            raise NameServerUnavailableError(
                f"topic {topic}: the route did not come before the deadline"
            )
        fresh = instance.routes.get(topic)
        if fresh is not None and fresh.queues:
            return fresh
    failure: RocketMQError | None = None
    found: TopicEntry | None = None
    try:
        found = yield from refresh_topic(
            instance, topic, deadline, default_topic=default_topic, default_queues=default_queues
        )
    except (RouteError, BrokerError, RemoteProtocolError) as error:
        failure = error
    finally:
        instance.routes.end_lookup(topic)
    if found is None or not found.queues:
        found = found or entry
    if found is not None and found.queues:
        return found
    if failure is None and found is None:
        raise (yield from _explain_unknown(instance, topic, deadline))
    raise _no_route(topic, found, failure) from failure


def _explain_unknown(instance: Instance, topic: str, deadline: float) -> Op[RouteError]:
    """Why the name server knows neither a topic nor the one from which topics are made.

    A broker that is down is forgotten with all its topics, so the topic may well exist.
    """
    try:
        info = yield from cluster_info(instance, deadline)
    except RocketMQError:
        return _unknown(topic, "")
    if not info.brokers:
        servers = ", ".join(instance.name_servers)
        return NoWritableQueueError(
            f"topic {topic}: none of its brokers can be reached, because no broker at all is registered "
            f"at {servers} now: start them, or look at their logs for why they can't register"
        )
    return _unknown(topic, f"; registered now: {', '.join(sorted(info.brokers))}")


def _unknown(topic: str, who: str) -> TopicNotFoundError:
    return TopicNotFoundError(
        f"topic {topic} is unknown and can't be created on first use: create it, turn on "
        f"autoCreateTopicEnable on the brokers, or start the broker that has it{who}"
    )


def _no_route(topic: str, found: TopicEntry | None, failure: RocketMQError | None) -> RocketMQError:
    if isinstance(failure, PermissionDeniedError):
        return RouteError(f"topic {topic}: {failure}; check the credentials")
    if isinstance(failure, RouteError):
        return type(failure)(f"topic {topic}: {failure}")
    if failure is not None:
        return RouteError(f"topic {topic}: {failure}")
    if found is not None:
        return NoWritableQueueError(
            f"topic {topic} exists, but no broker with a master lets us write to it: "
            "check its permission and that its brokers are up"
        )
    return _unknown(topic, "")
