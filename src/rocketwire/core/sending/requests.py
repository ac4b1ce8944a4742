"""Requests that are answered with a message: the requester's side.

A request is an ordinary message with three properties. Who handles it sends a reply to any broker,
which pushes it to the requester over the connection of its heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.core.effects import Op, wait
from rocketwire.core.sending.retry import SendMode
from rocketwire.errors import (
    ConfigError,
    InvalidMessageError,
    LocalProtocolError,
    Outcome,
    ReplyTimeoutError,
    SendFailedError,
)
from rocketwire.message import Message
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.broker_requests import PushedReply, decode_pushed_reply
from rocketwire.wire.command import Command
from rocketwire.wire.lazy_message import messages_in
from rocketwire.wire.properties import Property, encode_properties
from rocketwire.wire.send_properties import id_of, request_fields
from rocketwire.wire.stored_message import encode_record, pack_host

if TYPE_CHECKING:
    from rocketwire.core.sending.sender import Sender


def read_reply(command: Command, broker: str) -> tuple[str, StoredMessage]:
    """A pushed reply, and the correlation id of its request.

    Raises:
        RemoteProtocolError: it can't be read.
    """
    pushed = decode_pushed_reply(command.ext)
    record = encode_record(
        topic=pushed.topic,
        body=bytes(command.body),
        properties=encode_properties(pushed.properties).encode(),
        queue_id=pushed.queue_id,
        born_ms=pushed.born_ms,
        born_host=_host(pushed.born_host),
        store_ms=pushed.store_ms,
        store_host=_host(pushed.store_host),
        flag=pushed.flag,
        system_flag=pushed.system_flag,
        reconsume_times=pushed.reconsume_times,
    )
    (message,) = messages_in(record, broker=broker)
    return _correlation(pushed), message


def _correlation(pushed: PushedReply) -> str:
    return pushed.properties.get(Property.CORRELATION_ID, "")


def _host(text: str) -> bytes:
    """An address as a broker writes it; Java puts a slash before it."""
    try:
        return pack_host(text.rpartition("/")[2])
    except LocalProtocolError:
        return pack_host("0.0.0.0:0")


def check_request(message: object, *, background: bool) -> Message:
    """The message, if it can be a request.

    Raises:
        InvalidMessageError: it is none.
        ConfigError: no reply could ever come.
    """
    if not isinstance(message, Message):
        raise InvalidMessageError(
            f"message is a {type(message).__name__}: a request is one Message"
        )
    if message.delay_level or message.deliver_at is not None:
        raise InvalidMessageError(
            "a request can't be delayed or timed: its sender waits for the reply; "
            "leave delay_level and deliver_at out"
        )
    if not background:
        raise ConfigError(
            "request needs background=True: replies come over the connection of the heartbeats"
        )
    return message


def request(
    sender: Sender,
    message: Message,
    mode: SendMode,
    timeout: float,
) -> Op[StoredMessage]:
    """Send a request and wait for its reply.

    Args:
        sender: of the producer.
        message: the request.
        mode: how the caller waits.
        timeout: seconds for all of it, until the reply is there.

    Raises:
        InvalidMessageError: something is wrong with it; nothing was sent.
        SendFailedError: the request was not sent, or refused.
        ReplyTimeoutError: no reply came in time.
    """
    instance = sender.instance
    began = instance.clock()
    deadline = began + timeout
    known = instance.presence.want()
    if not known.is_open:
        # A reply may come through any broker. One that does not answer must not cost all the time.
        instance.heartbeat_wake_up.wake()
        yield from wait(known, began + timeout / 2)
    left = max(deadline - instance.clock(), 0.001)
    attempt = sender.start_here(message, mode, timeout=left)
    correlation_id = id_of(attempt.properties)
    attempt.properties += request_fields(correlation_id, instance.client_id, timeout)
    expected = instance.replies.expect(correlation_id)
    outcome, cause = Outcome.STORED, None
    try:
        try:
            yield from sender.operation(attempt)
        except SendFailedError as error:
            is_over = isinstance(error, TimeoutError) or error.outcome is Outcome.MAYBE_STORED
            if not is_over:
                raise
            outcome, cause = error.outcome, error
        # Also after a failure: the request may be on its way to who answers it.
        yield from wait(expected.gate, deadline)
    finally:
        instance.replies.forget(correlation_id)
    if expected.reply is not None:
        return expected.reply
    raise _no_reply(message, timeout, outcome, cause) from cause


_TOLD = {
    Outcome.STORED: "the request was stored: who handles it may be slow, or not there, or return no Reply",
    Outcome.MAYBE_STORED: "the request may be stored: it got no answer either",
    Outcome.NOT_SENT: "the request was not sent",
    Outcome.REJECTED: "the request was rejected",
}


def _no_reply(
    message: Message, timeout: float, outcome: Outcome, cause: SendFailedError | None
) -> ReplyTimeoutError:
    why = "" if cause is None else f" ({cause})"
    return ReplyTimeoutError(
        f"no reply to the request to topic {message.topic} within {timeout:g} s: "
        f"{_TOLD[outcome]}{why}",
        outcome=outcome,
    )
