"""Users, policies and plain accounts, as brokers' requests and answers carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.admin_bodies import json_object, text
from rocketwire.wire.lenient_json import dumps, loads, shown

SUPER: Final = "Super"
NORMAL: Final = "Normal"
ENABLED: Final = "enable"
DISABLED: Final = "disable"
ALLOW: Final = "Allow"
DENY: Final = "Deny"
_SUBJECT: Final = "User:"


class UserData(NamedTuple):
    """A user; the password that brokers send along is left where it is."""

    name: str
    is_super: bool
    is_enabled: bool


class PolicyData(NamedTuple):
    """One rule of a user."""

    user: str
    resource: str
    actions: tuple[str, ...]
    is_allowed: bool
    sources: tuple[str, ...]


def subject(user: str) -> str:
    """A user as policies name it."""
    return _SUBJECT + user


def user_body(*, password: str | None, is_super: bool | None, is_enabled: bool | None) -> bytes:
    """AUTH_CREATE_USER and AUTH_UPDATE_USER; None leaves a thing as it is."""
    data: dict[str, Any] = {}
    if password is not None:
        data["password"] = password
    if is_super is not None:
        data["userType"] = SUPER if is_super else NORMAL
    if is_enabled is not None:
        data["userStatus"] = ENABLED if is_enabled else DISABLED
    return dumps(data)


def policy_body(rule: PolicyData) -> bytes:
    """AUTH_CREATE_ACL: one rule, which replaces the one for the same resource."""
    entry = {
        "resource": rule.resource,
        "actions": list(rule.actions),
        "sourceIps": list(rule.sources),
        "decision": ALLOW if rule.is_allowed else DENY,
    }
    policy = {"policyType": "Custom", "entries": [entry]}
    return dumps({"subject": subject(rule.user), "policies": [policy]})


def decode_users(body: bytes | memoryview) -> tuple[UserData, ...]:
    """The answer to AUTH_LIST_USER (a list), or to AUTH_GET_USER; an empty body means none.

    Raises:
        RemoteProtocolError: it is something else.
    """
    return tuple(
        UserData(
            text(item, "username"),
            item.get("userType") == SUPER,
            item.get("userStatus") != DISABLED,
        )
        for item in _items(body)
    )


def decode_policies(body: bytes | memoryview) -> tuple[PolicyData, ...]:
    """The answer to AUTH_LIST_ACL (a list), or to AUTH_GET_ACL; an empty body means none.

    Raises:
        RemoteProtocolError: it is something else.
    """
    return tuple(
        PolicyData(
            text(item, "subject").removeprefix(_SUBJECT),
            text(entry, "resource"),
            _texts(entry.get("actions")),
            entry.get("decision") != DENY,
            _texts(entry.get("sourceIps")),
        )
        for item in _items(body)
        for policy in _objects(item.get("policies"))
        for entry in _objects(policy.get("entries"))
    )


def _items(body: bytes | memoryview) -> list[dict[str, Any]]:
    if not len(body):
        return []
    value = loads(body)
    return _objects([value] if isinstance(value, dict) else value)


def _objects(value: Any) -> list[dict[str, Any]]:
    items = [] if value is None else value
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RemoteProtocolError(f"expected a list of JSON objects, found {shown(value)}")
    return items


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


class PlainAccountData(NamedTuple):
    """An account of the plain ACL, without its secret."""

    access_key: str
    is_admin: bool
    default_topic: str
    default_group: str
    topics: Mapping[str, str]
    groups: Mapping[str, str]
    white_address: str | None


def decode_plain_accounts(body: bytes | memoryview) -> tuple[PlainAccountData, ...]:
    """The answer to GET_BROKER_CLUSTER_ACL_CONFIG.

    Raises:
        RemoteProtocolError: it is something else.
    """
    return tuple(
        PlainAccountData(
            text(item, "accessKey"),
            item.get("admin") is True,
            str(item.get("defaultTopicPerm") or "DENY"),
            str(item.get("defaultGroupPerm") or "DENY"),
            _rights(item.get("topicPerms")),
            _rights(item.get("groupPerms")),
            item.get("whiteRemoteAddress") or None,
        )
        for item in _objects(json_object(body).get("plainAccessConfigs"))
    )


def _rights(value: Any) -> dict[str, str]:
    pairs = [item.partition("=") for item in _texts(value)]
    return {name: right for name, _, right in pairs}


def plain_account_fields(account: PlainAccountData, secret_key: str) -> dict[str, str]:
    """UPDATE_AND_CREATE_ACL_CONFIG."""
    fields = {
        "accessKey": account.access_key,
        "secretKey": secret_key,
        "admin": "true" if account.is_admin else "false",
        "defaultTopicPerm": account.default_topic,
        "defaultGroupPerm": account.default_group,
        "topicPerms": _joined(account.topics),
        "groupPerms": _joined(account.groups),
        "whiteRemoteAddress": account.white_address or "",
    }
    # An empty value would not survive a binary header, and would break the signature.
    return {name: value for name, value in fields.items() if value}


def _joined(rights: Mapping[str, str]) -> str:
    return ",".join(f"{name}={right}" for name, right in rights.items())


def user_only(name: str) -> dict[str, str]:
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER and AUTH_GET_USER."""
    return {"username": name}


def delete_policy(user: str, resource: str | None) -> dict[str, str]:
    """AUTH_DELETE_ACL; without a resource all rules of the user go."""
    fields = {"subject": subject(user), "policyType": "Custom"}
    return fields | ({"resource": resource} if resource else {})
