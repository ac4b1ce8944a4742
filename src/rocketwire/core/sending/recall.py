"""Calling a timed message back before its time."""

from __future__ import annotations

from typing import Final

from rocketwire.core.effects import Op, invoke
from rocketwire.core.lookup import locate_topic
from rocketwire.core.naming import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import (
    InvalidMessageError,
    LocalProtocolError,
    NoWritableQueueError,
    RecallError,
    RecallProblem,
)
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import recall_message, text_field
from rocketwire.wire.message_id import RecallHandle, decode_recall_handle

#: What Apache's brokers remark on a handle whose time has come.
_TIME_IS_OVER: Final = "timestamp invalid"
#: What they remark where recalls are switched off; other permissions have the same code.
_SWITCHED_OFF: Final = "operation is forbidden"


def recall(sender: Sender, topic: str, handle: str, deadline: float) -> Op[str]:
    """Ask the broker that keeps a timed message to drop it.

    Args:
        sender: of the producer that asks.
        topic: the message's.
        handle: as the result of its send has it.
        deadline: for all of it.

    Returns:
        The id of the message. The broker has accepted the recall, and does not say whether it found
        the message.

    Raises:
        InvalidMessageError: no message can be called back from that topic.
        RecallError: its ``problem`` tells what is wrong.
        RouteError: the broker can't be found.
        TransportError: it could not be reached, or did not answer.
    """
    check_topic(topic)
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise InvalidMessageError(f"topic is {topic!r}: nothing in it waits for a time")
    wire_topic = sender.wire_topic(topic)
    parts = _decode(handle, wire_topic)
    instance = sender.instance
    route = yield from locate_topic(instance, wire_topic, deadline, *sender.defaults)
    address = route.masters.get(parts.broker)
    if address is None:
        known = ", ".join(sorted(route.masters)) or "none"
        raise NoWritableQueueError(
            f"broker {parts.broker}, which keeps the message, has no master for topic {topic} now "
            f"(masters: {known})"
        )
    fields = recall_message(
        group=sender.group, topic=wire_topic, handle=handle, broker=parts.broker
    )
    request = instance.request(RequestCode.RECALL_MESSAGE, fields)
    reply = yield from invoke(address, request, deadline)
    if reply.code == ResponseCode.SUCCESS:
        return text_field(reply.ext, "msgId")
    raise _refused(reply, parts, instance.wall())


def _decode(handle: object, wire_topic: str) -> RecallHandle:
    if not isinstance(handle, str):
        raise RecallError(
            f"handle is {handle!r}: give the recall_handle of a send's result; it is None where "
            "the message waits for no time, or its broker is older than 5.3.2",
            RecallProblem.MALFORMED,
        )
    try:
        parts = decode_recall_handle(handle, error=LocalProtocolError)
    except LocalProtocolError as error:
        raise RecallError(f"handle: {error}", RecallProblem.MALFORMED) from None
    if parts.topic != wire_topic:
        raise RecallError(
            f"the handle is one of topic {parts.topic!r}, not of {wire_topic!r}: give both of one "
            "message",
            RecallProblem.MALFORMED,
        )
    return parts


def _refused(reply: Reply, handle: RecallHandle, wall: float) -> RecallError | Exception:
    """What a broker's refusal means."""
    cause = error_for(reply.code, reply.remark, handle.broker, asked=RequestCode.RECALL_MESSAGE)
    remark = reply.remark or ""
    if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        text, problem = "it is too old: recalls need 5.3.2", RecallProblem.BROKER_TOO_OLD
    elif reply.code == ResponseCode.NO_PERMISSION and _SWITCHED_OFF in remark:
        text = "it has recalls switched off: set recallMessageEnable=true in its configuration"
        problem = RecallProblem.SWITCHED_OFF
    elif reply.code != ResponseCode.ILLEGAL_OPERATION:
        return cause
    elif _TIME_IS_OVER in remark or handle.deliver_ms <= wall * 1000:
        text = "the time of the message has come: it was delivered, or is about to be"
        problem = RecallProblem.TOO_LATE
    else:
        text, problem = "it can't use the handle", RecallProblem.MALFORMED
    error = RecallError(
        f"broker {handle.broker} did not recall the message: {text} ({cause})", problem
    )
    error.__cause__ = cause
    return error
