"""Requests that are answered with a message: the requester's side.

A request is an ordinary message with three properties. Its handler sends a reply to any broker,
which pushes it to the requester over the connection of its heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.core.effects import Op, wait
from rocketwire.core.lookup import proxy_in_the_way
from rocketwire.core.sending.finish import interrupted
from rocketwire.core.sending.retry import SendMode
from rocketwire.core.sending.validate import with_added
from rocketwire.errors import (
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    LocalProtocolError,
    Outcome,
    ReplyTimeoutError,
    SendFailedError,
    UnsupportedRequestError,
)
from rocketwire.message import Message
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.broker_requests import PushedReply, decode_pushed_reply
from rocketwire.wire.command import Command
from rocketwire.wire.lazy_message import messages_in
from rocketwire.wire.properties import Property, rewritten_bytes
from rocketwire.wire.record_layout import INNER_BATCH
from rocketwire.wire.send_properties import id_of, request_fields
from rocketwire.wire.stored_message import encode_record, pack_host

if TYPE_CHECKING:
    from rocketwire.core.sending.sender import Sender


def read_reply(command: Command, broker: str) -> tuple[str, StoredMessage]:
    """A pushed reply, and the correlation id of its request.

    Raises:
        RemoteProtocolError: it can't be read.
        InvalidMessageError: it has more properties than a message can have.
    """
    pushed = decode_pushed_reply(command.ext)
    # The replier wrote the properties, the topic and the flags: they are taken as they are.
    record = encode_record(
        topic=pushed.topic.encode(errors="replace"),
        body=bytes(command.body),
        properties=rewritten_bytes(pushed.properties),
        queue_id=pushed.queue_id,
        born_ms=pushed.born_ms,
        born_host=_host(pushed.born_host),
        store_ms=pushed.store_ms,
        store_host=_host(pushed.store_host),
        flag=pushed.flag,
        system_flag=pushed.system_flag & ~INNER_BATCH,  # one message, whatever it claims
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
        ClientClosedError: the producer was shut down meanwhile.
        UnsupportedRequestError: it would go through a proxy; nothing was sent.
    """
    instance = sender.instance
    began = instance.clock()
    deadline = began + timeout
    if not instance.presence.is_direct:
        proxy = yield from proxy_in_the_way(instance, began + timeout / 2)
        if proxy is not None:
            raise _behind_proxy(proxy)
    known = instance.presence.want()
    if not known.is_set:
        # A reply may come through any broker. One that does not answer must not cost all the time.
        instance.heartbeat_wake_up.wake()
        yield from wait(known, began + timeout / 2)
    left = max(deadline - instance.clock(), 0.001)
    attempt = sender.start_here(message, mode, timeout=left)
    correlation_id = id_of(attempt.properties)
    expected = instance.replies.expect(correlation_id, sender)
    outcome, cause = Outcome.STORED, None
    try:
        added = request_fields(correlation_id, instance.client_id, timeout)
        attempt.properties = with_added(attempt.properties, added, "those of the request")
        try:
            yield from sender.operation(attempt)
        except SendFailedError as error:
            is_over = isinstance(error, TimeoutError) or error.outcome is Outcome.MAYBE_STORED
            if not is_over:
                raise
            outcome, cause = error.outcome, error
        # Also after a failure: the request may be on its way to its handler.
        yield from wait(expected.ready, deadline)
    except BaseException:  # an interrupt may come at any moment
        interrupted(attempt)
        raise
    finally:
        instance.replies.forget(correlation_id)
    if expected.reply is not None:
        return expected.reply
    if expected.is_given_up:
        raise ClientClosedError(
            f"the producer was shut down before a reply came: {_TOLD[outcome].partition(':')[0]}"
        )
    raise _no_reply(message, timeout, outcome, cause) from cause


def _behind_proxy(told: UnsupportedRequestError) -> UnsupportedRequestError:
    return UnsupportedRequestError(
        told.code,
        "a proxy passes no replies on, so that none would ever come, and nothing was sent: give the "
        "address of a name server, or answer by a message to a topic",
        told.broker,
        name=told.code_name,
    )


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
        f"no reply to the request to topic {message.topic} within {round(timeout, 3):g} s: "
        f"{_TOLD[outcome]}{why}",
        outcome=outcome,
    )
