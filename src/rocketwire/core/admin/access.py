"""Users and policies of brokers from 5.3.0 on.

Every broker, slaves included, keeps its own list, so each change goes to all of them, and each
look asks all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from rocketwire.access_values import Policy, User
from rocketwire.core.admin.asking import Answers, ask_all, check_names, checked
from rocketwire.core.admin.topics import is_unknown
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import cluster_info
from rocketwire.errors import (
    BrokerError,
    InvalidMessageError,
    RocketMQError,
    UnsupportedRequestError,
)
from rocketwire.wire import access_bodies as bodies
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Reply
from rocketwire.wire.route import MASTER_ID

LEAST_VERSION: Final = "5.3.0"
ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_KINDS: Final = ("Topic", "Group", "Cluster")

V = TypeVar("V")


def list_users(instance: Instance, deadline: float) -> Op[tuple[User, ...]]:
    """All users, and which brokers know them.

    Raises:
        UnsupportedRequestError: a broker is too old, or keeps no users.
    """
    answers = yield from _ask_everywhere(instance, RequestCode.AUTH_LIST_USER, {}, deadline)
    found = _merged(answers, bodies.decode_users)
    return tuple(User(*told, brokers=brokers) for told, brokers in found)


def _merged(
    answers: Answers, decode: Callable[[bytes | memoryview], tuple[V, ...]]
) -> list[tuple[V, tuple[str, ...]]]:
    """Each value once, with the brokers that told it."""
    places: dict[Any, list[str]] = {}
    for broker, reply in answers.items():
        for told in decode(_reply(reply, broker).body):
            places.setdefault(told, []).append(broker)
    return [(told, tuple(brokers)) for told, brokers in sorted(places.items())]


def _ask_everywhere(
    instance: Instance, code: int, fields: dict[str, str], deadline: float, *, body: bytes = b""
) -> Op[Answers]:
    info = yield from cluster_info(instance, deadline)
    addresses = {
        name if number == MASTER_ID else f"{name} (slave {number})": instance.routes.translate(
            address
        )
        for name, data in sorted(info.brokers.items())
        for number, address in sorted(data.addresses.items())
    }
    return (yield from ask_all(instance, addresses, code, fields, deadline, body=body))


def _reply(reply: Reply | RocketMQError, broker: str) -> Reply:
    """An answer that is no error; what is none of the user's business is said otherwise.

    Raises:
        UnsupportedRequestError: the broker is too old, or keeps no users.
        RocketMQError: another error, or no answer.
    """
    if is_unknown(reply):
        raise _unsupported(f"users and policies need RocketMQ {LEAST_VERSION} or later", broker)
    try:
        return checked(reply, broker)
    except BrokerError as error:
        # Java says in two ways that no provider is configured, one of them a general failure.
        words = ("system error", "not configured")
        if error.code == ResponseCode.SYSTEM_ERROR and any(w in error.remark for w in words):
            raise _unsupported(
                "it keeps no users: set authenticationEnabled=true and "
                "authenticationMetadataProvider (see the page on TLS and ACL)",
                broker,
            ) from error
        raise


def _unsupported(remark: str, broker: str) -> UnsupportedRequestError:
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return UnsupportedRequestError(code, remark, broker, name="REQUEST_CODE_NOT_SUPPORTED")


def _change(
    instance: Instance, code: int, fields: dict[str, str], deadline: float, *, body: bytes = b""
) -> Op[tuple[str, ...]]:
    answers = yield from _ask_everywhere(instance, code, fields, deadline, body=body)
    for broker, reply in answers.items():
        _reply(reply, broker)
    return tuple(answers)


def create_user(
    instance: Instance, name: str, password: str, *, is_super: bool, deadline: float
) -> Op[tuple[str, ...]]:
    """Make a user on every broker; returns the brokers.

    Raises:
        InvalidMessageError: the name or password is none, or there is such a user.
        UnsupportedRequestError: a broker is too old, or keeps no users.
        PermissionDeniedError: the credentials may not.
    """
    _check_user(name)
    _check_password(password)
    known = yield from list_users(instance, deadline)
    if any(user.name == name for user in known):
        raise InvalidMessageError(f"user {name} exists already: change_user changes it")
    body = bodies.user_body(password=password, is_super=is_super, is_enabled=True)
    code, fields = RequestCode.AUTH_CREATE_USER, bodies.user_only(name)
    return (yield from _change(instance, code, fields, deadline, body=body))


def change_user(
    instance: Instance,
    name: str,
    *,
    password: str | None,
    is_super: bool | None,
    is_enabled: bool | None,
    deadline: float,
) -> Op[tuple[str, ...]]:
    """Change what is given of a user, on every broker; returns the brokers.

    Raises:
        InvalidMessageError: there is no such user, or nothing to change.
    """
    if password is None and is_super is None and is_enabled is None:
        raise InvalidMessageError("nothing to change: give password, is_super or is_enabled")
    if password is not None:
        _check_password(password)
    yield from _require_user(instance, name, deadline)
    body = bodies.user_body(password=password, is_super=is_super, is_enabled=is_enabled)
    code, fields = RequestCode.AUTH_UPDATE_USER, bodies.user_only(name)
    return (yield from _change(instance, code, fields, deadline, body=body))


def delete_user(instance: Instance, name: str, deadline: float) -> Op[tuple[str, ...]]:
    """Delete a user with its policies, on every broker; returns the brokers.

    Raises:
        InvalidMessageError: there is no such user.
    """
    yield from _require_user(instance, name, deadline)
    code, fields = RequestCode.AUTH_DELETE_USER, bodies.user_only(name)
    return (yield from _change(instance, code, fields, deadline))


def _check_user(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InvalidMessageError(f"user is {name!r}: give the name of a user")


def _check_password(password: Any) -> None:
    if not isinstance(password, str) or not password:
        raise InvalidMessageError("password is empty or no text: give the user's secret key")


def _require_user(instance: Instance, name: str, deadline: float) -> Op[None]:
    _check_user(name)
    known = yield from list_users(instance, deadline)
    if all(user.name != name for user in known):
        shown = ", ".join(user.name for user in known[:10]) or "none"
        raise InvalidMessageError(
            f"there is no user {name}: create_user makes one (known: {shown})"
        )


def list_policies(instance: Instance, user: str | None, deadline: float) -> Op[tuple[Policy, ...]]:
    """The rules of all users, or of one.

    Raises:
        InvalidMessageError: there is no such user.
        UnsupportedRequestError: a broker is too old, or keeps no users.
    """
    if user is not None:
        yield from _require_user(instance, user, deadline)
    answers = yield from _ask_everywhere(instance, RequestCode.AUTH_LIST_ACL, {}, deadline)
    found = _merged(answers, bodies.decode_policies)
    return tuple(
        Policy(*told, brokers=brokers)
        for told, brokers in found
        if user is None or told.user == user
    )


def set_policy(
    instance: Instance,
    user: str,
    resource: str,
    actions: Iterable[str],
    *,
    is_allowed: bool,
    sources: Iterable[str],
    deadline: float,
) -> Op[tuple[str, ...]]:
    """Put a rule in place of the user's one for the same resource; returns the brokers.

    Raises:
        InvalidMessageError: the resource or an action is none, or there is no such user.
    """
    _check_resource(resource)
    chosen = _check_actions(actions)
    origins = tuple(sources) if not isinstance(sources, str) else (sources,)
    rule = bodies.PolicyData(user, resource, chosen, is_allowed, origins)
    yield from _require_user(instance, user, deadline)
    code, fields = RequestCode.AUTH_CREATE_ACL, {"subject": bodies.subject(user)}
    body = bodies.policy_body(rule)
    return (yield from _change(instance, code, fields, deadline, body=body))


def _check_resource(resource: Any) -> None:
    kind, mark, name = resource.partition(":") if isinstance(resource, str) else ("", "", "")
    if resource != "*" and (kind not in _KINDS or not mark or not name):
        raise InvalidMessageError(
            f"resource is {resource!r}: give Topic:NAME, Group:NAME or Cluster:NAME, where a NAME "
            "may end in *, or * for all"
        )


def _check_actions(actions: Iterable[str]) -> tuple[str, ...]:
    known = {action.lower(): action for action in ACTIONS}
    names = check_names(actions, "actions")
    for name in names:
        if name.lower() not in known:
            raise InvalidMessageError(f"actions has {name!r}: some of {', '.join(ACTIONS)}")
    return tuple(known[name.lower()] for name in names)


def delete_policy(
    instance: Instance, user: str, resource: str | None, deadline: float
) -> Op[tuple[str, ...]]:
    """Take a rule away, or all rules of a user; returns the brokers.

    Raises:
        InvalidMessageError: there is no such user or rule.
    """
    if resource is not None:
        _check_resource(resource)
    rules = yield from list_policies(instance, user, deadline)
    if not any(resource in {None, rule.resource} for rule in rules):
        shown = ", ".join(rule.resource for rule in rules) or "none"
        what = "" if resource is None else f" for {resource}"
        raise InvalidMessageError(f"user {user} has no policy{what} (there are: {shown})")
    code, fields = RequestCode.AUTH_DELETE_ACL, bodies.delete_policy(user, resource)
    return (yield from _change(instance, code, fields, deadline))
