"""Brokers and name servers: what they are, and their settings."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from rocketwire.admin_values import Broker
from rocketwire.core.admin.asking import ask, ask_all, chosen_masters, is_success
from rocketwire.core.admin.versions import version_of
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import cluster_info
from rocketwire.errors import InvalidMessageError, RocketMQError
from rocketwire.stored_message import utc_from_ms
from rocketwire.wire.admin_bodies import decode_runtime, decode_settings, encode_settings
from rocketwire.wire.codes import RequestCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.route import MASTER_ID, BrokerData


def list_brokers(instance: Instance, deadline: float) -> Op[tuple[Broker, ...]]:
    """All brokers that the name server knows; one that gives no answer says so in ``error``."""
    info = yield from cluster_info(instance, deadline)
    addresses = {
        name: instance.routes.translate(data.addresses[MASTER_ID])
        for name, data in sorted(info.brokers.items())
        if MASTER_ID in data.addresses
    }
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    answers = yield from ask_all(instance, addresses, code, {}, deadline)
    return tuple(_broker(data, answers.get(name)) for name, data in sorted(info.brokers.items()))


def _broker(data: BrokerData, reply: Reply | RocketMQError | None) -> Broker:
    addresses = dict(sorted(data.addresses.items()))
    if not isinstance(reply, Reply) or not is_success(reply):
        why = _why(data.broker, reply)
        return Broker(data.broker, data.cluster, addresses, error=why)
    runtime = decode_runtime(reply.body)
    started = runtime.get("bootTimestamp", "")
    return Broker(
        data.broker,
        data.cluster,
        addresses,
        version_of(runtime) or None,
        utc_from_ms(int(started)) if started.isdecimal() and len(started) < 20 else None,
        runtime,
    )


def _why(broker: str, reply: Reply | RocketMQError | None) -> str:
    if reply is None:
        return f"{broker} has no master now: only slaves are registered"
    if isinstance(reply, Reply):
        asked = RequestCode.GET_BROKER_RUNTIME_INFO
        return str(error_for(reply.code, reply.remark, broker, asked=asked))
    return str(reply)


def settings_of(instance: Instance, who: tuple[str, str], deadline: float) -> Op[dict[str, str]]:
    """The settings of one broker, by Java's names."""
    reply = yield from ask(instance, who, RequestCode.GET_BROKER_CONFIG, {}, deadline)
    return decode_settings(reply.body)


def broker_settings(instance: Instance, broker: str, deadline: float) -> Op[dict[str, str]]:
    """The settings of a broker's master, by Java's names.

    Raises:
        RouteError: there is no such broker.
        BrokerError: it refused.
        TransportError: it could not be reached.
    """
    ((name, address),) = (yield from _one(instance, broker, deadline)).items()
    return (yield from settings_of(instance, (name, address), deadline))


def _one(instance: Instance, broker: str, deadline: float) -> Op[dict[str, str]]:
    if not isinstance(broker, str):
        raise InvalidMessageError(f"broker is {broker!r}: give the name of a broker")
    return (yield from chosen_masters(instance, [broker], deadline))


def change_broker_settings(
    instance: Instance, broker: str, changes: Mapping[str, Any], deadline: float
) -> Op[dict[str, str]]:
    """Change settings of a broker while it runs; returns what they were.

    Brokers take any name, and say nothing of one that they do not have: so it is looked up in
    their own list first. What is set is read back.

    Raises:
        InvalidMessageError: the broker has no such setting, or did not take the value.
        RouteError: there is no such broker.
        BrokerError: it refused.
        TransportError: it could not be reached.
    """
    texts = check_changes(changes)
    (who,) = (yield from _one(instance, broker, deadline)).items()
    before = yield from settings_of(instance, who, deadline)
    check_known(texts, before, who[0])
    body = encode_settings(texts)
    yield from ask(instance, who, RequestCode.UPDATE_BROKER_CONFIG, {}, deadline, body=body)
    after = yield from settings_of(instance, who, deadline)
    check_taken(texts, after, who[0])
    return {name: before[name] for name in texts}


def check_changes(changes: Any) -> dict[str, str]:
    """Settings as text.

    Raises:
        InvalidMessageError: they are no mapping of names to plain values, or there are none.
    """
    if not isinstance(changes, Mapping) or not changes:
        raise InvalidMessageError(f"changes is {changes!r}: give settings by name, at least one")
    found: dict[str, str] = {}
    for name, value in changes.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidMessageError(f"changes has {name!r}: a setting's name is one word")
        if not isinstance(value, (str, int, float)):
            raise InvalidMessageError(f"{name} is {value!r}: give text, a number or a bool")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if "\n" in text or "\r" in text or text != text.strip():
            raise InvalidMessageError(f"{name} is {value!r}: one line without blanks around it")
        found[name] = text
    return found


def check_known(changes: Mapping[str, str], known: Mapping[str, str], who: str) -> None:
    """Refuse a name that the server's own list does not have.

    Raises:
        InvalidMessageError: it has not; the text offers the nearest.
    """
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]}?" if near else ": see its list of settings"
            raise InvalidMessageError(f"{who} has no setting {name!r}{hint}")


def check_taken(changes: Mapping[str, str], after: Mapping[str, str], who: str) -> None:
    """Refuse to call it done where a server kept its old value: Java drops what it can't parse.

    Raises:
        InvalidMessageError: it did.
    """
    for name, wanted in changes.items():
        if after.get(name) != wanted and not _same_number(after.get(name), wanted):
            raise InvalidMessageError(
                f"{who} did not take {name}={wanted}: it has {after.get(name)!r}; check the value's "
                "type, and whether it can be changed while the server runs"
            )


def _same_number(one: str | None, other: str) -> bool:
    try:
        return one is not None and float(one) == float(other)
    except ValueError:
        return False


def name_server_settings(instance: Instance, deadline: float) -> Op[dict[str, dict[str, str]]]:
    """The settings of every name server, by address.

    Raises:
        BrokerError: one refused.
        TransportError: one could not be reached.
    """
    found = {}
    for server in instance.name_servers:
        who = (f"name server {server}", server)
        reply = yield from ask(instance, who, RequestCode.GET_NAMESRV_CONFIG, {}, deadline)
        found[server] = decode_settings(reply.body)
    return found


def change_name_server_settings(
    instance: Instance, changes: Mapping[str, Any], deadline: float
) -> Op[dict[str, dict[str, str]]]:
    """Change settings of every name server; returns what they were, by address.

    Raises:
        InvalidMessageError: one has no such setting, or did not take the value.
        BrokerError: one refused.
        TransportError: one could not be reached.
    """
    texts = check_changes(changes)
    before = yield from name_server_settings(instance, deadline)
    for server, known in before.items():
        check_known(texts, known, f"name server {server}")
    body = encode_settings(texts)
    for server in before:
        who = (f"name server {server}", server)
        yield from ask(instance, who, RequestCode.UPDATE_NAMESRV_CONFIG, {}, deadline, body=body)
    after = yield from name_server_settings(instance, deadline)
    for server, known in after.items():
        check_taken(texts, known, f"name server {server}")
    return {server: {name: known[name] for name in texts} for server, known in before.items()}
