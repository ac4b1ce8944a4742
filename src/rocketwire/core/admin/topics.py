"""Topics: list, show, create, change, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from rocketwire.admin_values import Topic, TopicBroker, TopicKind, TopicQueue, TopicSummary
from rocketwire.core.admin.asking import (
    Answers,
    allowed,
    ask,
    ask_all,
    ask_each,
    check_all,
    checked,
    chosen_masters,
    every_master,
    is_success,
)
from rocketwire.core.admin.versions import require_version
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import (
    ask_name_servers,
    cluster_info,
    fetch_route,
    refresh_topic,
)
from rocketwire.core.naming import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPICS,
    with_namespace,
    without_namespace,
)
from rocketwire.core.reading.arguments import check_readable_topic
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import InvalidMessageError, RocketMQError, TopicNotFoundError, TransportError
from rocketwire.message import MessageQueue
from rocketwire.stored_message import utc_from_ms
from rocketwire.wire.admin_bodies import (
    MESSAGE_TYPE,
    TopicSettings,
    decode_all_topic_settings,
    decode_topic_settings,
)
from rocketwire.wire.client_bodies import QueueStats, decode_topic_list, decode_topic_stats
from rocketwire.wire.codes import Permission, RequestCode, ResponseCode
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import create_topic as topic_fields
from rocketwire.wire.headers import topic_only
from rocketwire.wire.route import MASTER_ID, ClusterInfo, TopicRoute

READ_WRITE: Final = Permission.READ | Permission.WRITE
#: Where name servers keep the queues of ordered topics.
ORDERED_TOPICS: Final = "ORDER_TOPIC_CONFIG"
_CHANGE_TOPIC: Final = RequestCode.UPDATE_AND_CREATE_TOPIC
MESSAGE_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_MOST_QUEUES: Final = 65535
_SYSTEM_PREFIXES: Final = ("RMQ_SYS_", "SCHEDULE_TOPIC_", "rmq_sys_", "wheel_")
_SYSTEM: Final = SYSTEM_TOPICS | {"DefaultCluster", "DefaultHeartBeatSyncerTopic"}


def list_topics(instance: Instance, deadline: float) -> Op[tuple[TopicSummary, ...]]:
    """Every topic that a name server knows; with a namespace, those in it and the system's."""
    code = RequestCode.GET_ALL_TOPICS_FROM_NAME_SERVER
    reply = yield from ask_name_servers(instance, code, {}, deadline)
    names = decode_topic_list(checked(reply, "the name server").body)
    info = yield from cluster_info(instance, deadline)
    namespace = instance.config.namespace
    found = [
        TopicSummary(without_namespace(name, namespace), kind_of(name, info))
        for name in sorted(names)
        if with_namespace(name, namespace) == name or kind_of(name, info) == "system"
    ]
    return tuple(found)


def kind_of(name: str, info: ClusterInfo) -> TopicKind:
    """What a topic is for. A broker has a topic named after itself, and after its cluster."""
    if name.startswith(RETRY_PREFIX):
        return "retry"
    if name.startswith(DEAD_LETTER_PREFIX):
        return "dead letter"
    own = {*info.brokers, *info.clusters, *(f"{c}_REPLY_TOPIC" for c in info.clusters)}
    is_system = name in _SYSTEM or name in own or name.startswith(_SYSTEM_PREFIXES)
    return "system" if is_system else "normal"


def show_topic(instance: Instance, topic: str, deadline: float) -> Op[Topic]:
    """Where a topic lives and what its queues hold; a broker's failure is in ``error``.

    Raises:
        TopicNotFoundError: the name server does not know it.
    """
    route = yield from known_route(instance, topic, deadline)
    name = with_namespace(topic, instance.config.namespace)
    info = yield from cluster_info(instance, deadline)
    addresses = _asked_at(instance, route)
    stats = yield from ask_all(
        instance, addresses, RequestCode.GET_TOPIC_STATS_INFO, topic_only(name), deadline
    )
    settings = yield from topic_settings(instance, name, addresses, deadline)
    return Topic(
        without_namespace(name, instance.config.namespace),
        kind_of(name, info),
        _brokers(route, settings),
        _queue_states(instance, topic, route, stats),
    )


def known_route(instance: Instance, topic: str, deadline: float) -> Op[TopicRoute]:
    """Where a topic lives.

    Raises:
        TopicNotFoundError: the name server does not know it.
    """
    check_readable_topic(topic)
    name = with_namespace(topic, instance.config.namespace)
    route = yield from fetch_route(instance, name, deadline)
    if route is None:
        raise TopicNotFoundError(f"topic {topic} does not exist: rocketwire topic create {topic}")
    return route


def _asked_at(instance: Instance, route: TopicRoute) -> dict[str, str]:
    """Where to ask about each broker of a topic: the master, or its first slave."""
    found = {data.broker: data.addresses for data in route.brokers if data.addresses}
    return {
        name: instance.routes.translate(by_id.get(MASTER_ID) or by_id[min(by_id)])
        for name, by_id in sorted(found.items())
    }


def topic_settings(
    instance: Instance,
    name: str,
    addresses: Mapping[str, str],
    deadline: float,
    *,
    of_all: bool = False,
) -> Op[dict[str, TopicSettings]]:
    """A topic's settings on each broker that has it and answers; ``of_all``: each must answer.

    Brokers before 5.0 can be asked only for those of all topics together.

    Raises:
        PermissionDeniedError: a broker refused.
        TransportError: one that must answer did not.
    """
    one = yield from ask_all(
        instance, addresses, RequestCode.GET_TOPIC_CONFIG, topic_only(name), deadline
    )
    for reply in one.values() if of_all else ():
        if isinstance(reply, TransportError):
            raise reply
    found = {
        broker: decode_topic_settings(reply.body)
        for broker, reply in allowed(one).items()
        if isinstance(reply, Reply) and is_success(reply)
    }
    old = {broker: addresses[broker] for broker, reply in one.items() if is_unknown(reply)}
    if old:
        every = yield from ask_all(instance, old, RequestCode.GET_ALL_TOPIC_CONFIG, {}, deadline)
        for broker, reply in allowed(every).items():
            if isinstance(reply, Reply) and is_success(reply):
                table = decode_all_topic_settings(reply.body)
                found |= {broker: table[name]} if name in table else {}
    return found


def is_unknown(reply: Reply | RocketMQError) -> bool:
    """Whether a server does not know this kind of request."""
    return isinstance(reply, Reply) and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _brokers(route: TopicRoute, settings: Mapping[str, TopicSettings]) -> tuple[TopicBroker, ...]:
    places = {data.broker: data for data in route.brokers}
    found = []
    for data in sorted(route.queues, key=lambda data: data.broker):
        place, told = places.get(data.broker), settings.get(data.broker)
        found.append(
            TopicBroker(
                data.broker,
                place.cluster if place else "",
                dict(place.addresses) if place else {},
                data.read_queues,
                data.write_queues,
                can_read=bool(data.permission & Permission.READ),
                can_write=bool(data.permission & Permission.WRITE),
                order=told.order if told else None,
                message_type=told.attributes.get(MESSAGE_TYPE) if told else None,
                attributes=told.attributes if told else None,
            )
        )
    return tuple(found)


def _queue_states(
    instance: Instance, topic: str, route: TopicRoute, stats: Answers
) -> tuple[TopicQueue, ...]:
    shown = without_namespace(topic, instance.config.namespace)
    found: list[TopicQueue] = []
    for data in sorted(route.queues, key=lambda data: data.broker):
        reply = stats.get(data.broker)
        try:
            if reply is None:
                raise TopicNotFoundError(f"{data.broker} has no address: neither master nor slave")
            table = decode_topic_stats(
                checked(reply, data.broker, RequestCode.GET_TOPIC_STATS_INFO).body
            )
        except RocketMQError as error:
            found += [
                TopicQueue(MessageQueue(shown, data.broker, number), 0, 0, error=str(error))
                for number in range(data.read_queues)
            ]
        else:
            found += [
                _queue_state(MessageQueue(shown, data.broker, queue.id), told)
                for queue, told in sorted(table.items())
            ]
    return tuple(found)


def _queue_state(queue: MessageQueue, told: QueueStats) -> TopicQueue:
    updated = utc_from_ms(told.updated_ms) if told.updated_ms > 0 else None
    return TopicQueue(queue, max(0, told.min_offset), max(0, told.max_offset), updated)


def create_topic(
    instance: Instance,
    topic: str,
    *,
    queues: int,
    permission: int = READ_WRITE,
    order: bool = False,
    brokers: Iterable[str] | None = None,
    message_type: str | None = None,
    deadline: float,
) -> Op[tuple[str, ...]]:
    """Create or change a topic on every master (or on some); returns the brokers.

    With ``order`` the name servers are told which queues belong to it. Those that hand this out
    (``orderMessageEnable``) let every client keep to that list while a broker is away, so that a
    sharding key never moves.

    Raises:
        InvalidMessageError: the name, the number of queues or the message type is wrong.
        RouteError: no master of that name is known.
        BrokerError: a broker refused.
        TransportError: a broker could not be reached.
    """
    check_topic(topic)
    check_queues(queues, "queues")
    if not isinstance(order, bool):
        raise InvalidMessageError(f"order is {order!r}: True or False")
    attributes = check_message_type(message_type)
    chosen = yield from chosen_masters(instance, brokers, deadline)
    if attributes:
        yield from require_version(instance, chosen, "5.0.0", "message_type", deadline)
    name = with_namespace(topic, instance.config.namespace)
    fields = topic_fields(
        name,
        read_queues=queues,
        write_queues=queues,
        permission=permission,
        ordered=order,
        attributes=attributes,
    )
    answers = yield from ask_all(instance, chosen, _CHANGE_TOPIC, fields, deadline)
    check_all(answers, _CHANGE_TOPIC)
    if order:
        yield from _list_queues(instance, name, dict.fromkeys(chosen, queues), deadline)
    if instance.routes.get(name) is not None:
        yield from refresh_topic(instance, name, deadline)
    return tuple(chosen)


def check_queues(queues: Any, what: str) -> None:
    """Refuse a number of queues that no broker takes.

    Raises:
        InvalidMessageError: it is none, or out of range.
    """
    if type(queues) is not int or not 1 <= queues <= _MOST_QUEUES:
        raise InvalidMessageError(f"{what} is {queues!r}: 1 to {_MOST_QUEUES}")


def check_message_type(message_type: Any) -> dict[str, str]:
    """The attribute that says which messages a topic is for; none for None.

    Raises:
        InvalidMessageError: there is no such type.
    """
    if message_type is None:
        return {}
    if not isinstance(message_type, str) or message_type.upper() not in MESSAGE_TYPES:
        raise InvalidMessageError(
            f"message_type is {message_type!r}: one of {', '.join(MESSAGE_TYPES)}"
        )
    return {MESSAGE_TYPE: message_type.upper()}


def alter_topic(
    instance: Instance,
    topic: str,
    *,
    changes: TopicChanges,
    brokers: Iterable[str] | None = None,
    dry_run: bool = False,
    deadline: float,
) -> Op[tuple[str, ...]]:
    """Change some settings of a topic and keep the others, on all of its brokers or on some.

    Raises:
        TopicNotFoundError: the name server, or one of the chosen brokers, does not know it.
        InvalidMessageError: a change makes no sense, or there is none.
        BrokerError: a broker refused.
        TransportError: a broker could not be reached.
    """
    attributes = _check_changes(changes)
    route = yield from known_route(instance, topic, deadline)
    owners = sorted(data.broker for data in route.queues)
    chosen = yield from chosen_masters(instance, owners if brokers is None else brokers, deadline)
    if attributes:
        yield from require_version(instance, chosen, "5.0.0", "message_type", deadline)
    name = with_namespace(topic, instance.config.namespace)
    settings = yield from topic_settings(instance, name, chosen, deadline, of_all=True)
    absent = [broker for broker in chosen if broker not in settings]
    if absent:
        raise TopicNotFoundError(f"topic {topic} is not on {', '.join(absent)}, or it did not say")
    if not dry_run:
        calls = {
            broker: (chosen[broker], _altered(name, told, changes, attributes))
            for broker, told in settings.items()
        }
        answers = yield from ask_each(instance, calls, _CHANGE_TOPIC, deadline)
        check_all(answers, _CHANGE_TOPIC)
        if changes.write_queues and any(told.order for told in settings.values()):
            counts = {data.broker: data.write_queues for data in route.queues}
            counts |= dict.fromkeys(settings, changes.write_queues)
            yield from _list_queues(instance, name, counts, deadline)
        if instance.routes.get(name) is not None:
            yield from refresh_topic(instance, name, deadline)
    return tuple(settings)


def _altered(
    name: str, told: TopicSettings, changes: TopicChanges, attributes: dict[str, str]
) -> dict[str, str]:
    return topic_fields(
        name,
        read_queues=changes.read_queues or told.read_queues,
        write_queues=changes.write_queues or told.write_queues,
        permission=_permission(told.permission, changes),
        system_flag=told.system_flag,
        ordered=told.order,
        attributes=attributes,
    )


class TopicChanges(NamedTuple):
    """What to change of a topic; None leaves a thing as it is."""

    read_queues: int | None = None
    write_queues: int | None = None
    can_read: bool | None = None
    can_write: bool | None = None
    message_type: str | None = None


def _check_changes(changes: TopicChanges) -> dict[str, str]:
    if changes == TopicChanges():
        raise InvalidMessageError(
            "nothing to change: give queues, read_queues, write_queues, can_read, can_write or "
            "message_type"
        )
    for what in ("read_queues", "write_queues"):
        if getattr(changes, what) is not None:
            check_queues(getattr(changes, what), what)
    for what in ("can_read", "can_write"):
        if getattr(changes, what) not in {None, True, False}:
            raise InvalidMessageError(f"{what} is {getattr(changes, what)!r}: True or False")
    return check_message_type(changes.message_type)


def _permission(old: int, changes: TopicChanges) -> int:
    for bit, wanted in ((Permission.READ, changes.can_read), (Permission.WRITE, changes.can_write)):
        if wanted is not None:
            old = old | bit if wanted else old & ~bit
    return old


def delete_topic(instance: Instance, topic: str, deadline: float) -> Op[tuple[str, ...]]:
    """Delete a topic on every master and on the name servers; returns the brokers.

    Raises:
        TopicNotFoundError: the name server does not know it.
        RouteError: a broker has only slaves now.
        BrokerError: a server refused.
        TransportError: a server could not be reached.
    """
    yield from known_route(instance, topic, deadline)
    known = yield from every_master(instance, deadline)
    name = with_namespace(topic, instance.config.namespace)
    fields = topic_only(name)
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    check_all((yield from ask_all(instance, known, code, fields, deadline)), code)
    for server in instance.name_servers:
        code = RequestCode.DELETE_TOPIC_IN_NAME_SERVER
        yield from ask(instance, (f"name server {server}", server), code, fields, deadline)
    yield from _configure(instance, RequestCode.DELETE_KV_CONFIG, name, deadline)
    instance.routes.forget(name)
    return tuple(known)


def _list_queues(
    instance: Instance, topic: str, counts: Mapping[str, int], deadline: float
) -> Op[None]:
    """Tell the name servers which queues an ordered topic has."""
    text = ";".join(f"{broker}:{queues}" for broker, queues in sorted(counts.items()))
    yield from _configure(instance, RequestCode.PUT_KV_CONFIG, topic, deadline, value=text)


def _configure(
    instance: Instance, code: int, topic: str, deadline: float, **value: str
) -> Op[None]:
    """Change the ordered-topic configuration on every name server."""
    fields = {"namespace": ORDERED_TOPICS, "key": topic} | value
    for server in instance.name_servers:
        yield from ask(instance, (f"name server {server}", server), code, fields, deadline)
