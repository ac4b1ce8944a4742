"""Handling one message because an operator wants it now (request 309).

The handler runs as for any message, but nothing is settled, retried or committed by it: the message
has been handled before, or will be in its own order. The operator gets Java's words for what came
of it.
"""

from __future__ import annotations

from functools import partial

from rocketwire.core.group.handling import Failure, error_of, wanted_retry
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.returning import why_of
from rocketwire.core.later_answer import LaterAnswer
from rocketwire.core.naming import without_namespace
from rocketwire.errors import RemoteProtocolError
from rocketwire.log_fields import about
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.lazy_message import cut
from rocketwire.wire.lenient_json import dumps
from rocketwire.wire.message_fields import Source


def handle_directly(group: Group, command: Command) -> Command | LaterAnswer:
    """Have the handler handle the message in a request; the answer follows when it is done."""
    wanted, broker = command.ext.get("consumerGroup"), command.ext.get("brokerName") or ""
    if wanted not in {None, group.wire_name}:
        # In Java's words, which its tools show.
        return _refusal(f"The Consumer Group <{wanted}> not exist in this consumer")
    call = group.call_handler
    if call is None:
        return _refusal(
            f"this member of {group.name} has no handler that could be called: it iterates, or does "
            "not run now"
        )
    message = _message_in(group, bytes(command.body), broker)
    later, began = LaterAnswer(), group.instance.clock()

    def done(result: object) -> None:
        spent = group.instance.clock() - began
        later.give(_answer(group, message, result, spent))

    call(message, done)
    return later


def _refusal(remark: str) -> Command:
    return Command(ResponseCode.SYSTEM_ERROR, remark=remark)


def _message_in(group: Group, data: bytes, broker: str) -> StoredMessage:
    namespace = group.config.namespace
    shown = partial(without_namespace, namespace=namespace) if namespace else None
    found = cut(Source(data, None, broker, 0, shown)).messages
    if not found:
        raise RemoteProtocolError(f"{broker} sent no whole message to be handled")
    if found[0].topic == group.retry_topic:  # it shows the topic that it was sent to
        found = cut(Source(data, None, broker, 0, shown, is_retry=True)).messages
    return found[0]


def _answer(group: Group, message: StoredMessage, result: object, spent: float) -> Command:
    retry = wanted_retry(result, message, group.name)
    error = error_of(result)
    word = "CR_SUCCESS" if retry is None else "CR_LATER"
    if isinstance(result, Failure):
        word = "CR_THROW_EXCEPTION"
    log.info(
        "%s was handled because an operator wanted it: %s",
        message.message_id,
        word,
        extra=about(message, group=group.name),
    )
    body = {
        "autoCommit": True,
        "consumeResult": word,
        "order": group.config.ordered,
        "remark": None if error is None else why_of(error),
        "spentTimeMills": round(spent * 1000),
    }
    return Command(ResponseCode.SUCCESS, body=dumps(body))
