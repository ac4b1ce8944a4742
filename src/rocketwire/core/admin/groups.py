"""Consumer groups seen from outside: who is in one, how far it is; and deleting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rocketwire.admin_values import Connection, Group, GroupQueue, GroupSummary
from rocketwire.config import check_group
from rocketwire.core.admin.asking import (
    Answers,
    allowed,
    ask_all,
    check_all,
    checked,
    every_master,
    is_success,
)
from rocketwire.core.admin.topics import delete_topic
from rocketwire.core.effects import Invoke, Op, invoke_all
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import readable_brokers
from rocketwire.core.naming import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    with_namespace,
    without_namespace,
)
from rocketwire.errors import (
    GroupNotFoundError,
    InvalidMessageError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketwire.message import MessageQueue
from rocketwire.stored_message import utc_from_ms
from rocketwire.wire import admin_headers as headers
from rocketwire.wire.admin_bodies import (
    Connections,
    Progress,
    decode_connections,
    decode_consume_stats,
    decode_group_names,
    decode_running_queues,
)
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Reply

#: Members answer through a broker, and one that hangs must not keep the others.
_MEMBER_PATIENCE: Final = 3.0
_SYSTEM_PREFIXES: Final = ("CID_RMQ_SYS_", "CID_ONS", "CID_SYS_")
_SYSTEM: Final = frozenset({
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "SELF_TEST_P_GROUP",
    "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "DEFAULT_CONSUMER",
})  # fmt: skip


def list_groups(instance: Instance, deadline: float) -> Op[tuple[GroupSummary, ...]]:
    """Every group that a broker knows; with a namespace, those in it and the system's.

    Raises:
        TransportError: a broker could not be reached, so that groups may be missing.
        BrokerError: a broker refused.
    """
    known = yield from readable_brokers(instance, deadline)
    code = RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG
    answers = yield from ask_all(instance, known, code, {}, deadline)
    places: dict[str, list[str]] = {}
    for broker, reply in answers.items():
        for name in decode_group_names(checked(reply, broker).body):
            places.setdefault(name, []).append(broker)
    namespace = instance.config.namespace
    return tuple(
        GroupSummary(without_namespace(name, namespace), tuple(brokers), is_system(name))
        for name, brokers in sorted(places.items())
        if is_system(name) or with_namespace(name, namespace) == name
    )


def is_system(name: str) -> bool:
    """Whether a group is one of RocketMQ's own."""
    return name in _SYSTEM or name.startswith(_SYSTEM_PREFIXES)


def show_group(instance: Instance, group: str, deadline: float) -> Op[Group]:
    """Members, subscriptions and progress of a group, from all brokers that can be asked.

    Raises:
        GroupNotFoundError: no broker knows it.
        TransportError: no broker could be asked.
    """
    name = group_name(instance, group)
    known = yield from readable_brokers(instance, deadline)
    code = RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG
    settings = yield from ask_all(instance, known, code, {}, deadline)
    code = RequestCode.GET_CONSUME_STATS
    stats = yield from ask_all(instance, known, code, headers.group_only(name), deadline)
    seen = yield from connected(instance, name, known, deadline)
    # Apache's list has a topic only once a position in it is committed.
    wanted = {topic for told in seen.values() for topic in told.subscriptions}
    purged = {DEAD_LETTER_PREFIX + name} - wanted  # its place there is no progress
    progress = {q: told for q, told in _progress(stats).items() if q.topic not in purged}
    for topic in sorted(wanted - {queue.topic for queue in progress}):
        progress |= yield from progress_in(instance, name, topic, deadline)
    brokers = tuple(
        broker
        for broker, reply in allowed(settings).items()
        if isinstance(reply, Reply) and is_success(reply) and name in decode_group_names(reply.body)
    )
    errors = {b: str(reply) for b, reply in stats.items() if isinstance(reply, RocketMQError)}
    if not (brokers or progress or seen):
        raise _not_found(group, stats)
    owners = yield from _owners(instance, name, known, seen)
    return _make_group(instance, name, brokers, seen, progress, owners, errors)


def _make_group(
    instance: Instance,
    name: str,
    brokers: tuple[str, ...],
    seen: Mapping[str, Connections],
    progress: Mapping[MessageQueue, Progress],
    owners: Mapping[MessageQueue, str],
    errors: Mapping[str, str],
) -> Group:
    namespace = instance.config.namespace

    def shown(queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=without_namespace(queue.topic, namespace))

    wanted = {topic: text for found in seen.values() for topic, text in found.subscriptions.items()}
    return Group(
        without_namespace(name, namespace),
        brokers,
        merged(seen, "consumer"),
        {without_namespace(topic, namespace): text for topic, text in sorted(wanted.items())},
        tuple(
            GroupQueue(
                shown(queue),
                told.consumed,
                told.end,
                owners.get(queue),
                utc_from_ms(told.consumed_ms) if told.consumed_ms > 0 else None,
            )
            for queue, told in sorted(progress.items())
        ),
        errors,
    )


def group_name(instance: Instance, group: Any) -> str:
    """The name by which servers know a group.

    Raises:
        InvalidMessageError: it is no name of a group.
    """
    try:
        if not isinstance(group, str):
            raise InvalidMessageError(f"group is {group!r}: give the name of a group")
        check_group(group)
    except ValueError as error:
        raise InvalidMessageError(str(error)) from None
    return with_namespace(group, instance.config.namespace)


def _not_found(group: str, answers: Answers) -> RocketMQError:
    failed = [reply for reply in answers.values() if isinstance(reply, RocketMQError)]
    if failed:
        return failed[0]
    return GroupNotFoundError(
        f"no broker knows the group {group}: has a member of it ever run? "
        f"(rocketwire consume TOPIC --group {group})"
    )


def require_group(instance: Instance, group: str, deadline: float) -> Op[str]:
    """The name by which servers know a group that exists.

    Raises:
        GroupNotFoundError: no broker knows it.
    """
    name = group_name(instance, group)
    known = yield from list_groups(instance, deadline)
    shown = without_namespace(name, instance.config.namespace)
    if all(each.name != shown for each in known):
        addresses = yield from readable_brokers(instance, deadline)
        fields = headers.group_only(name)
        code = RequestCode.GET_CONSUME_STATS
        stats = yield from ask_all(instance, addresses, code, fields, deadline)
        if not _progress(stats):
            raise _not_found(group, stats)
    return name


def _progress(stats: Answers) -> dict[MessageQueue, Progress]:
    """How far a group is on the brokers that answered; one that has no such group says so."""
    found: dict[MessageQueue, Progress] = {}
    for reply in allowed(stats).values():
        if isinstance(reply, Reply) and is_success(reply):
            found |= decode_consume_stats(reply.body)
    return found


def progress_in(
    instance: Instance, name: str, topic: str | None, deadline: float
) -> Op[dict[MessageQueue, Progress]]:
    """How far a group is in a topic (0 where it has no position), or in all where it has one."""
    known = yield from readable_brokers(instance, deadline)
    fields = headers.group_only(name, topic)
    stats = yield from ask_all(instance, known, RequestCode.GET_CONSUME_STATS, fields, deadline)
    return _progress(stats)


def connected(
    instance: Instance, name: str, addresses: Mapping[str, str], deadline: float
) -> Op[dict[str, Connections]]:
    """The members of a group that each broker sees; brokers that see none are left out."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    answers = yield from ask_all(instance, addresses, code, headers.group_only(name), deadline)
    found = {
        broker: decode_connections(reply.body)
        for broker, reply in allowed(answers).items()
        if isinstance(reply, Reply) and is_success(reply)
    }
    return {broker: told for broker, told in found.items() if told.clients}


def merged(seen: Mapping[str, Connections], role: Any) -> tuple[Connection, ...]:
    """Each client once, with the brokers that see it."""
    found: dict[str, Connection] = {}
    for broker, told in seen.items():
        for client in told.clients:
            before = found[client.client_id].brokers if client.client_id in found else ()
            found[client.client_id] = Connection(*client, role=role, brokers=(*before, broker))
    return tuple(found[name] for name in sorted(found))


def _owners(
    instance: Instance, name: str, known: Mapping[str, str], seen: Mapping[str, Connections]
) -> Op[dict[MessageQueue, str]]:
    """Which member has which queue; members are asked through a broker, and may not answer."""
    asked = {
        client.client_id: known[broker] for broker, told in seen.items() for client in told.clients
    }
    deadline = instance.clock() + _MEMBER_PATIENCE
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    calls = tuple(
        Invoke(address, instance.request(code, headers.running_info(name, client_id)), deadline)
        for client_id, address in asked.items()
    )
    replies = yield from invoke_all(calls)
    found: dict[MessageQueue, str] = {}
    for client_id, reply in zip(asked, replies, strict=True):
        if isinstance(reply, Reply) and is_success(reply):
            found |= dict.fromkeys(decode_running_queues(reply.body), client_id)
    return found


def show_connections(instance: Instance, group: str, deadline: float) -> Op[tuple[Connection, ...]]:
    """All clients, consumers first, that are connected with a group of that name.

    Raises:
        GroupNotFoundError: there is none.
    """
    name = group_name(instance, group)
    known = yield from readable_brokers(instance, deadline)
    consumers = yield from connected(instance, name, known, deadline)
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    fields = headers.producer_group_only(name)
    answers = yield from ask_all(instance, known, code, fields, deadline)
    producers = {
        broker: decode_connections(reply.body)
        for broker, reply in allowed(answers).items()
        if isinstance(reply, Reply) and is_success(reply)
    }
    found = merged(consumers, "consumer") + merged(producers, "producer")
    failed = [reply for reply in answers.values() if isinstance(reply, RocketMQError)]
    if not found:
        raise (
            failed[0]
            if failed
            else GroupNotFoundError(
                f"no client of the group {group} is connected: clients show up with their first "
                "heartbeat, and stay for two minutes after their last"
            )
        )
    return found


def delete_group(
    instance: Instance, group: str, deadline: float, *, with_topics: bool = False
) -> Op[tuple[str, ...]]:
    """Delete a group and what it has consumed, on every master; returns the brokers.

    Raises:
        GroupNotFoundError: no broker knows it.
        InvalidMessageError: it has members, who would make it anew.
        RouteError: a broker has only slaves now.
        BrokerError: a broker refused.
        TransportError: a broker could not be reached.
    """
    name = yield from require_group(instance, group, deadline)
    known = yield from every_master(instance, deadline)
    yield from refuse_members(instance, name, known, deadline)
    code = RequestCode.DELETE_SUBSCRIPTION_GROUP
    fields = headers.delete_group(name)
    check_all((yield from ask_all(instance, known, code, fields, deadline)), code)
    if with_topics:
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            try:
                yield from delete_topic(instance, prefix + group, deadline)
            except TopicNotFoundError:
                continue
    return tuple(known)


def refuse_members(
    instance: Instance, name: str, addresses: Mapping[str, str], deadline: float
) -> Op[None]:
    """Refuse to change what members of a group would change back.

    Raises:
        InvalidMessageError: it has members.
    """
    seen = yield from connected(instance, name, addresses, deadline)
    members = merged(seen, "consumer")
    if members:
        ids = ", ".join(member.client_id for member in members[:3])
        more = "" if len(members) <= 3 else f" and {len(members) - 3} more"
        raise InvalidMessageError(
            f"group {without_namespace(name, instance.config.namespace)} has members ({ids}{more}), "
            "who would write their own positions again: stop them first"
        )
