"""Asking brokers and name servers on an operator's behalf: every failure names its server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rocketwire.core.effects import Invoke, Op, invoke, invoke_all
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import cluster_info, masters
from rocketwire.errors import (
    BrokerError,
    InvalidMessageError,
    PermissionDeniedError,
    RocketMQError,
    RouteError,
    TransportError,
)
from rocketwire.wire.codes import ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.route import MASTER_ID

#: What each of several brokers answered, or why it did not.
Answers: TypeAlias = dict[str, Reply | RocketMQError]


def ask(
    instance: Instance,
    who: tuple[str, str],
    code: int,
    fields: dict[str, str],
    deadline: float,
    *,
    body: bytes = b"",
) -> Op[Reply]:
    """One request to one server, ``who`` being its name and its address.

    Raises:
        BrokerError: it refused.
        TransportError: it gave no answer.
    """
    name, address = who
    try:
        reply = yield from invoke(address, instance.request(code, fields, body), deadline)
    except TransportError as error:
        raise named(error, name) from error
    return checked(reply, name, code)


def ask_all(
    instance: Instance,
    addresses: Mapping[str, str],
    code: int,
    fields: dict[str, str],
    deadline: float,
    *,
    body: bytes = b"",
) -> Op[Answers]:
    """The same request to several brokers at once; what failed stands in its place."""
    calls = {name: (address, fields) for name, address in addresses.items()}
    return (yield from ask_each(instance, calls, code, deadline, body=body))


def ask_each(
    instance: Instance,
    calls: Mapping[str, tuple[str, dict[str, str]]],
    code: int,
    deadline: float,
    *,
    body: bytes = b"",
) -> Op[Answers]:
    """Likewise, ``calls`` being the address and the fields for each broker.

    A refusal for want of rights is a failure, too: nobody may take it for an empty answer.
    """
    requests = tuple(
        Invoke(address, instance.request(code, fields, body), deadline)
        for address, fields in calls.values()
    )
    replies = yield from invoke_all(requests)
    return {name: _judged(reply, name, code) for name, reply in zip(calls, replies, strict=True)}


def _judged(reply: Reply | RocketMQError, name: str, code: int) -> Reply | RocketMQError:
    if not isinstance(reply, Reply):
        return named(reply, name)
    if reply.code == ResponseCode.SUCCESS:
        return reply
    refusal = error_for(reply.code, reply.remark, name, asked=code)
    return refusal if isinstance(refusal, PermissionDeniedError) else reply


def allowed(answers: Answers) -> Answers:
    """The same answers, where every broker let itself be asked.

    Raises:
        PermissionDeniedError: one did not.
    """
    for reply in answers.values():
        if isinstance(reply, PermissionDeniedError):
            raise reply
    return answers


def check_all(answers: Answers, code: int) -> None:
    """Refuse unless every broker did it; the error names those that have done it already.

    ``code`` is what they were asked for.

    Raises:
        BrokerError: a broker refused.
        TransportError: a broker could not be reached.
    """
    done = [name for name, reply in answers.items() if is_success(reply)]
    told = f" (done on {', '.join(done)})" if done else ""
    for name, reply in answers.items():
        if isinstance(reply, TransportError):
            raise type(reply)(f"{reply}{told}")
        if isinstance(reply, BrokerError):
            raise error_for(reply.code, reply.remark + told, name, asked=code)
        if not isinstance(reply, Reply):
            raise reply
        if reply.code != ResponseCode.SUCCESS:
            raise error_for(reply.code, (reply.remark or "no remark") + told, name, asked=code)


def is_success(reply: Reply | RocketMQError) -> bool:
    """Whether a broker did what it was asked."""
    return isinstance(reply, Reply) and reply.code == ResponseCode.SUCCESS


def checked(reply: Reply | RocketMQError, name: str, code: int | None = None) -> Reply:
    """An answer that is no error; ``code`` is what was asked for.

    Raises:
        RocketMQError: it is one, or did not come.
    """
    if not isinstance(reply, Reply):
        raise reply
    if reply.code != ResponseCode.SUCCESS:
        raise error_for(reply.code, reply.remark, name, asked=code)
    return reply


def named(error: RocketMQError, name: str) -> RocketMQError:
    """A failed connection, told with the name of the broker and what to look at."""
    if not isinstance(error, TransportError):
        return error
    return type(error)(
        f"{name}: {error}; see that it is up and can be reached (rocketwire doctor)",
        written=error.written,
    )


def chosen_masters(
    instance: Instance, brokers: Iterable[str] | None, deadline: float
) -> Op[dict[str, str]]:
    """Names and addresses of the masters that were asked for, all of them by default.

    Raises:
        InvalidMessageError: ``brokers`` is no list of names.
        RouteError: there is none of that name.
    """
    if brokers is not None:
        brokers = check_names(brokers, "brokers")
    known = yield from masters(instance, deadline)
    wanted = tuple(known) if brokers is None else brokers
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise RouteError(
            f"no master of {', '.join(unknown) or 'any broker'} is registered with the name "
            f"server: check the name (known: {', '.join(known) or 'none'})"
        )
    return {name: known[name] for name in wanted}


def every_master(instance: Instance, deadline: float) -> Op[dict[str, str]]:
    """Names and addresses of all masters, for a change that no broker may miss.

    Raises:
        RouteError: a broker has only slaves now: it would keep what the others change.
    """
    info = yield from cluster_info(instance, deadline)
    absent = sorted(name for name, data in info.brokers.items() if MASTER_ID not in data.addresses)
    if absent or not info.brokers:
        raise RouteError(
            f"{', '.join(absent) or 'the cluster'} has no master now, and slaves take no changes: "
            "nothing was changed, try again when it is back"
        )
    return {
        name: instance.routes.translate(data.addresses[MASTER_ID])
        for name, data in sorted(info.brokers.items())
    }


def check_names(names: object, what: str) -> tuple[str, ...]:
    """Several names.

    Raises:
        InvalidMessageError: it is something else, such as a single text.
    """
    found: tuple[object, ...] = ()
    if isinstance(names, Iterable) and not isinstance(names, (str, bytes)):
        found = tuple(names)
    texts = tuple(name for name in found if isinstance(name, str) and name)
    if not found or len(texts) < len(found):
        raise InvalidMessageError(f"{what} is {names!r}: give a list of names, or None for all")
    return texts
