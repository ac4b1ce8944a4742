"""What brokers ask of producers: how transactions ended, and to take replies."""

from __future__ import annotations

import logging

from rocketwire.core.instance import Instance
from rocketwire.core.sending.checks import broker_at, read_check
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.pushed_reply import read_reply

_log = logging.getLogger("rocketwire.producer")


def answer(instance: Instance, address: str, command: Command) -> Command | None:
    """The answer to a request of the broker at ``address``, or None where it wants none."""
    if command.code == RequestCode.CHECK_TRANSACTION_STATE:
        _check(instance, address, command)
        return None
    if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
        instance.replies.arrived(*read_reply(command, broker_at(instance, address)))
        return Command(ResponseCode.SUCCESS)
    remark = f"request type {command.code} not supported"
    return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


def _check(instance: Instance, address: str, command: Command) -> None:
    """Hand a question over to the producer of its group; it is answered by a request of ours."""
    check = read_check(instance, address, command)
    runner = instance.check_runners.get(check.group)
    if runner is None:
        _log.debug("%s asks for transaction %s: no checker", address, check.transaction_id)
    else:
        runner.post(check)
