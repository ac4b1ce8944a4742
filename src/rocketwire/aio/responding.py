"""What brokers ask of us, and what they are answered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from rocketwire.core.later_answer import LaterAnswer
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Command

_log: Final = logging.getLogger("rocketwire.aio")

#: Answers a request of the peer, at once or later; None leaves it unanswered.
Responder: TypeAlias = Callable[[Command], Command | LaterAnswer | None]
#: What answers the requests of the peer at an address.
ResponderOf: TypeAlias = Callable[[str], Responder]


def answer(
    responder: Responder, command: Command, address: str, send: Callable[[Command], None]
) -> None:
    """Answer a request of the peer at an address; ``send`` is called when there is an answer."""
    try:
        found = responder(command)
    except Exception as error:  # noqa: BLE001 - the peer's request must not break our own
        _log.exception("request %d of %s could not be answered", command.code, address)
        found = Command(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
    if isinstance(found, LaterAnswer):
        found.when_given(send)
    elif found is not None:
        send(found)


def refuse(command: Command) -> Command:
    """The answer to a request that we do not know."""
    return Command(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"request type {command.code} not supported",
    )


def refusing(address: str) -> Responder:
    """No request of any peer is known."""
    return refuse
