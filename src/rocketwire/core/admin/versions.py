"""What a broker is, and whether it is new enough for what was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rocketwire.core.admin.asking import ask
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.errors import UnsupportedRequestError
from rocketwire.wire.admin_bodies import decode_runtime
from rocketwire.wire.codes import RequestCode, ResponseCode

_VERSION: Final = re.compile(r"V(\d+)_(\d+)_(\d+)")


def broker_runtime(instance: Instance, who: tuple[str, str], deadline: float) -> Op[dict[str, str]]:
    """What a broker says about itself, by Java's names."""
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    reply = yield from ask(instance, who, code, {}, deadline)
    return decode_runtime(reply.body)


def version_of(runtime: Mapping[str, str]) -> str:
    """A broker's release, such as ``5.3.3``; as it is written where that is no release."""
    text = runtime.get("brokerVersionDesc", "")
    found = _VERSION.match(text)
    return ".".join(found.groups()) if found else text


def parts(version: str) -> tuple[int, ...]:
    """A release to compare.

    >>> parts("4.9.7") < parts("5.0.0")
    True
    """
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", version))


def require_version(
    instance: Instance, brokers: Mapping[str, str], least: str, what: str, deadline: float
) -> Op[None]:
    """Refuse to ask older brokers for what they would ignore, or misunderstand.

    Raises:
        UnsupportedRequestError: a broker is older.
    """
    for who in brokers.items():
        version = version_of((yield from broker_runtime(instance, who, deadline)))
        if parts(version) and parts(version) < parts(least):
            raise UnsupportedRequestError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"{what} needs RocketMQ {least} or later, and this is {version}",
                who[0],
                name="REQUEST_CODE_NOT_SUPPORTED",
            )
