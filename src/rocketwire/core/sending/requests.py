"""Requests that are answered with a message: the requester's side.

A request is an ordinary message with three properties. Its handler sends a reply to any broker,
which pushes it to the requester over the connection of its heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.core.effects import Op, send, wait
from rocketwire.core.lookup import proxy_in_the_way
from rocketwire.core.sending.finish import interrupted
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.validate import with_added
from rocketwire.errors import (
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    Outcome,
    ReplyTimeoutError,
    SendFailedError,
    UnsupportedRequestError,
)
from rocketwire.message import Message
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.send_properties import id_of, request_fields

if TYPE_CHECKING:
    from rocketwire.core.sending.sender import Sender


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
    correlation_id, outcome, cause = "", Outcome.STORED, None
    try:
        correlation_id = id_of(attempt.properties)
        expected = instance.replies.expect(correlation_id, sender)
        added = request_fields(correlation_id, instance.client_id, timeout)
        attempt.properties = with_added(attempt.properties, added, "those of the request")
        try:
            yield from send(attempt)
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
