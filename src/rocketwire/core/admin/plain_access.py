"""Accounts of the plain ACL of 4.x, kept in each broker's ``plain_acl.yml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rocketwire.access_values import PlainAccount
from rocketwire.core.admin.asking import ask_all, check_all, checked, every_master
from rocketwire.core.admin.brokers import settings_of
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.errors import InvalidMessageError, UnsupportedRequestError
from rocketwire.wire import access_bodies as bodies
from rocketwire.wire.codes import RequestCode, ResponseCode

RIGHTS: Final = ("PUB", "SUB", "PUB|SUB", "DENY")
_FEWEST: Final = 7


def _guarded(instance: Instance, deadline: float) -> Op[dict[str, str]]:
    """All masters, once it is sure that they have a plain ACL: without one 4.x gives no answer.

    Raises:
        UnsupportedRequestError: one has none.
    """
    known = yield from every_master(instance, deadline)
    for who in known.items():
        settings = yield from settings_of(instance, who, deadline)
        if settings.get("aclEnable") != "true":
            raise UnsupportedRequestError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "it has no plain ACL: that is a thing of 4.x with aclEnable=true; from 5.3.0 on "
                "there are users and policies",
                who[0],
                name="REQUEST_CODE_NOT_SUPPORTED",
            )
    return known


def list_accounts(instance: Instance, deadline: float) -> Op[tuple[PlainAccount, ...]]:
    """All accounts, without their secrets, and the brokers that have them.

    Raises:
        UnsupportedRequestError: a broker has no plain ACL.
    """
    known = yield from _guarded(instance, deadline)
    code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
    answers = yield from ask_all(instance, known, code, {}, deadline)
    places: dict[str, tuple[bodies.PlainAccountData, list[str]]] = {}
    for broker, reply in answers.items():
        for told in bodies.decode_plain_accounts(checked(reply, broker).body):
            places.setdefault(told.access_key, (told, []))[1].append(broker)
    return tuple(
        PlainAccount(*told, brokers=tuple(brokers)) for _, (told, brokers) in sorted(places.items())
    )


def put_account(
    instance: Instance, account: PlainAccount, secret_key: str, deadline: float
) -> Op[tuple[str, ...]]:
    """Make or change an account on every master; returns the brokers.

    Raises:
        InvalidMessageError: the account makes no sense.
        UnsupportedRequestError: a broker has no plain ACL.
        BrokerError: a broker refused.
    """
    _check(account, secret_key)
    addresses = yield from _guarded(instance, deadline)
    data = bodies.PlainAccountData(
        account.access_key,
        account.is_admin,
        account.default_topic,
        account.default_group,
        account.topics,
        account.groups,
        account.white_address,
    )
    fields = bodies.plain_account_fields(data, secret_key)
    code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    check_all((yield from ask_all(instance, addresses, code, fields, deadline)), code)
    return tuple(addresses)


def _check(account: Any, secret_key: Any) -> None:
    if not isinstance(account, PlainAccount):
        raise InvalidMessageError(f"account is {account!r}: give a PlainAccount")
    for what, text in (("access_key", account.access_key), ("secret_key", secret_key)):
        if not isinstance(text, str) or len(text) < _FEWEST:
            raise InvalidMessageError(f"{what} has too few characters: at least {_FEWEST}")
    rights = {"default_topic": account.default_topic, "default_group": account.default_group}
    for mapping in (account.topics, account.groups):
        if not isinstance(mapping, Mapping):
            raise InvalidMessageError(f"rights are {mapping!r}: give rights by name")
        rights |= mapping
    for name, right in rights.items():
        if right not in RIGHTS:
            raise InvalidMessageError(f"{name} is {right!r}: one of {', '.join(RIGHTS)}")


def delete_account(instance: Instance, access_key: str, deadline: float) -> Op[tuple[str, ...]]:
    """Delete an account on every master; returns the brokers.

    Raises:
        InvalidMessageError: there is no such account.
        UnsupportedRequestError: a broker has no plain ACL.
        BrokerError: a broker refused.
    """
    known = yield from list_accounts(instance, deadline)
    if all(account.access_key != access_key for account in known):
        raise InvalidMessageError(f"there is no account {access_key!r}")
    addresses = yield from every_master(instance, deadline)
    code, fields = RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key}
    check_all((yield from ask_all(instance, addresses, code, fields, deadline)), code)
    return tuple(addresses)
