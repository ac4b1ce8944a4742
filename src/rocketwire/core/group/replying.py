"""Replies to requests: the side of their handlers."""

from __future__ import annotations

from typing import Final

from rocketwire.core.effects import Op, invoke
from rocketwire.core.group.membership import Group, log
from rocketwire.core.sending.validate import check_message, with_added
from rocketwire.errors import InvalidMessageError, RocketMQError
from rocketwire.log_fields import about
from rocketwire.message import Message
from rocketwire.stored_message import Reply, StoredMessage
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.lazy_message import broker_property
from rocketwire.wire.properties import Property
from rocketwire.wire.send_properties import ID_END, ID_NAME, encode_fields, reply_fields
from rocketwire.wire.send_request import send_fields

#: Brokers that are tried for one reply; any of them can pass it on.
_MOST_BROKERS: Final = 3
_MAX_SIZE: Final = 4 * 1024 * 1024


def replies_in(
    result: object, given: StoredMessage | list[StoredMessage]
) -> list[tuple[StoredMessage, Reply]]:
    """The replies in what a handler returned, each with the request that it answers."""
    found = []
    for reply in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(reply, Reply):
            request = reply.to or (given[0] if isinstance(given, list) else given)
            found.append((request, reply))
    return found


def send_reply(group: Group, request: StoredMessage, reply: Reply) -> Op[None]:
    """Send a reply to the asker. What goes wrong is logged and counted: the request is handled."""
    try:
        yield from _send(group, request, reply)
    except RocketMQError as error:
        group.counters.failed_replies += 1
        log.error(
            "the reply to %s (group %s, topic %s) could not be sent: %s",
            request.message_id,
            group.name,
            request.topic,
            error,
            extra=about(request, group=group.name),
        )
    else:
        group.counters.replies += 1


def _send(group: Group, request: StoredMessage, reply: Reply) -> Op[None]:
    instance = group.instance
    topic, properties = _address(request)
    content = Message(topic, reply.body, properties=reply.properties)
    check_message(content, _MAX_SIZE)
    added = ID_NAME + instance.ids.next().encode() + ID_END + properties
    encoded = with_added(added, encode_fields(content), "those of the reply")
    deadline = instance.clock() + instance.config.request_timeout
    failure: RocketMQError | None = None
    for broker, address in _ways(group, request):
        fields = send_fields(
            group=group.wire_name,
            topic=topic,
            default_topic="TBW102",
            default_queues=4,
            queue_id=0,
            broker=broker,
            batch=False,
        ) | {
            "f": "0",
            "g": str(int(instance.wall() * 1000)),
            "h": "0",
            "i": encoded.decode(),
        }
        message = instance.request(RequestCode.SEND_REPLY_MESSAGE_V2, fields, content.body)
        try:
            answer = yield from invoke(address, message, deadline)
        except RocketMQError as error:
            failure = failure or error
            continue
        if answer.code == ResponseCode.SUCCESS:
            return
        # The requester is not known there, or does not answer: another broker may reach it.
        asked = RequestCode.SEND_REPLY_MESSAGE_V2
        failure = failure or error_for(answer.code, answer.remark, broker, asked=asked)
    raise failure or InvalidMessageError("no broker is known to send it to")


def _address(request: StoredMessage) -> tuple[str, bytes]:
    """The topic of a reply, and the properties that bring it to the requester."""
    cluster = broker_property(request, Property.CLUSTER)
    correlation_id = broker_property(request, Property.CORRELATION_ID)
    client_id = broker_property(request, Property.REPLY_TO_CLIENT)
    if not (cluster and correlation_id and client_id):
        raise InvalidMessageError(
            "it answers no request: the message has no property CLUSTER, CORRELATION_ID or "
            "REPLY_TO_CLIENT; return a Reply only to messages that were sent by request()"
        )
    ttl = broker_property(request, Property.TTL) or "3000"
    return f"{cluster}_REPLY_TOPIC", reply_fields(correlation_id, client_id, ttl)


def _ways(group: Group, request: StoredMessage) -> list[tuple[str, str]]:
    """The brokers that can pass a reply on, that of the request first."""
    masters = sorted(group.instance.routes.masters().items())
    masters.sort(key=lambda item: item[0] != request.queue.broker)
    return masters[:_MOST_BROKERS]
