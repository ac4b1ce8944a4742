"""Operations on topics, for producers and the command line."""

from __future__ import annotations

from typing import Final

from rocketwire.core.effects import Invoke, Op, invoke, invoke_all
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import ask_name_servers, refresh_topic
from rocketwire.core.naming import with_namespace
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import InvalidMessageError, RocketMQError, TopicNotFoundError
from rocketwire.wire.codes import Permission, RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import create_topic as topic_fields
from rocketwire.wire.headers import topic_only
from rocketwire.wire.route import ClusterInfo, decode_cluster_info

MASTER = 0
READ_WRITE = Permission.READ | Permission.WRITE
#: Where name servers keep the queues of ordered topics.
ORDERED_TOPICS: Final = "ORDER_TOPIC_CONFIG"


def cluster_info(instance: Instance, deadline: float) -> Op[ClusterInfo]:
    """All brokers of all clusters that the name server knows."""
    reply = yield from ask_name_servers(instance, RequestCode.GET_BROKER_CLUSTER_INFO, {}, deadline)
    if reply.code != ResponseCode.SUCCESS:
        raise error_for(reply.code, reply.remark, "the name server")
    return decode_cluster_info(reply.body)


def masters(instance: Instance, deadline: float) -> Op[dict[str, str]]:
    """The master address of every broker."""
    info = yield from cluster_info(instance, deadline)
    return {
        name: instance.routes.translate(data.addresses[MASTER])
        for name, data in sorted(info.brokers.items())
        if MASTER in data.addresses
    }


def create_topic(
    instance: Instance,
    topic: str,
    *,
    queues: int,
    permission: int = READ_WRITE,
    order: bool = False,
    brokers: tuple[str, ...] | None = None,
    deadline: float,
) -> Op[tuple[str, ...]]:
    """Create or change a topic on every master (or on some); returns the brokers.

    With ``order`` the name servers are told which queues belong to it. Those that hand this out
    (``orderMessageEnable``) let every client keep to that list while a broker is away, so that a
    sharding key never moves.

    Raises:
        InvalidMessageError: the name or the number of queues is wrong.
        BrokerError: a broker refused.
        TransportError: a broker could not be reached.
    """
    check_topic(topic)
    if not 1 <= queues <= 65535:
        raise InvalidMessageError(f"queues is {queues}: 1 to 65535")
    known = yield from masters(instance, deadline)
    wanted = tuple(known) if brokers is None else brokers
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise TopicNotFoundError(
            f"no master of {', '.join(unknown) or 'any broker'} is registered "
            f"(known: {', '.join(known) or 'none'})"
        )
    name = with_namespace(topic, instance.config.namespace)
    fields = topic_fields(
        name, read_queues=queues, write_queues=queues, permission=permission, ordered=order
    )
    calls = tuple(
        Invoke(
            known[broker],
            instance.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields),
            deadline,
        )
        for broker in wanted
    )
    replies = yield from invoke_all(calls)
    for broker, reply in zip(wanted, replies, strict=True):
        _check(reply, broker)
    if order:
        text = ";".join(f"{broker}:{queues}" for broker in wanted)
        yield from _configure(instance, RequestCode.PUT_KV_CONFIG, name, deadline, value=text)
    if instance.routes.get(name) is not None:
        yield from refresh_topic(instance, name, deadline)
    return wanted


def delete_topic(instance: Instance, topic: str, deadline: float) -> Op[tuple[str, ...]]:
    """Delete a topic on every master and on the name servers."""
    known = yield from masters(instance, deadline)
    name = with_namespace(topic, instance.config.namespace)
    fields = topic_only(name)
    for broker, address in known.items():
        request = instance.request(RequestCode.DELETE_TOPIC_IN_BROKER, fields)
        _check((yield from invoke(address, request, deadline)), broker)
    for server in instance.name_servers:
        request = instance.request(RequestCode.DELETE_TOPIC_IN_NAME_SERVER, fields)
        _check((yield from invoke(server, request, deadline)), server)
    yield from _configure(instance, RequestCode.DELETE_KV_CONFIG, name, deadline)
    instance.routes.forget(name)
    return tuple(known)


def _configure(
    instance: Instance, code: int, topic: str, deadline: float, **value: str
) -> Op[None]:
    """Change the ordered-topic configuration on every name server."""
    fields = {"namespace": ORDERED_TOPICS, "key": topic} | value
    for server in instance.name_servers:
        reply = yield from invoke(server, instance.request(code, fields), deadline)
        _check(reply, server)


def _check(reply: Reply | RocketMQError, who: str) -> None:
    if not isinstance(reply, Reply):
        raise reply
    if reply.code != ResponseCode.SUCCESS:
        raise error_for(reply.code, reply.remark, who)
