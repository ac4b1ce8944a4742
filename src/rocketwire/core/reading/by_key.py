"""Messages by a key or by their id, from the indexes of brokers.

A broker gives the newest 64 with a key (32 with an id), and tells of no more. So it is asked again, up
to the oldest that came. Its index knows seconds: of one second it gives no more than that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rocketwire.core.effects import Op, invoke
from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.pull import address_of, read_queues
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire import headers
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.lazy_message import messages_in

#: The fewest that brokers give where there are more.
_FULL: Final = 32


class Wanted(NamedTuple):
    """Which messages: at most so many, stored in a span of time given in epoch seconds."""

    key: str
    unique: bool
    most: int
    begin: float
    end: float

    def fits(self, message: StoredMessage) -> bool:
        """Whether it has the key: the index knows hashes only, and strangers may be among them."""
        if self.unique:
            return message.message_id == self.key
        return self.key in (message.keys or "").split() or message.message_id == self.key


def messages_by_key(
    instance: Instance,
    topic: str,
    key: str,
    *,
    unique: bool,
    max_messages: int,
    begin: float,
    end: float,
    deadline: float,
) -> Op[tuple[StoredMessage, ...]]:
    """The newest messages that brokers have indexed under a key, oldest first.

    ``unique`` looks for an id: that is shared by retries and copies, and the oldest count.
    """
    yield from read_queues(instance, topic, deadline)
    entry = instance.routes.get(with_namespace(topic, instance.config.namespace))
    wanted = Wanted(key, unique, max_messages, begin, end)
    found: list[StoredMessage] = []
    for broker in sorted({data.broker for data in entry.route.queues} if entry else ()):
        found += yield from _of_broker(instance, MessageQueue(topic, broker, 0), wanted, deadline)
    found.sort(key=lambda message: (message.stored_at, message.queue, message.offset))
    return tuple(found[:max_messages] if unique else found[-max_messages:])


def _of_broker(
    instance: Instance, queue: MessageQueue, wanted: Wanted, deadline: float
) -> Op[list[StoredMessage]]:
    """What one broker has, asked for until there is enough or nothing more."""
    found: dict[str, StoredMessage] = {}
    until_ms = min(round(wanted.end * 1000), 2**63 - 1)
    while True:
        page = yield from _page(instance, queue, wanted, until_ms, deadline)
        new = [m for m in page if wanted.fits(m) and m.offset_message_id not in found]
        found |= {message.offset_message_id: message for message in new}
        if not new or wanted.unique or len(page) < _FULL or len(found) >= wanted.most:
            return list(found.values())
        until_ms = min(round(message.stored_at.timestamp() * 1000) for message in page)


def _page(
    instance: Instance, queue: MessageQueue, wanted: Wanted, until_ms: int, deadline: float
) -> Op[list[StoredMessage]]:
    fields = headers.query_message(
        topic=with_namespace(queue.topic, instance.config.namespace),
        key=wanted.key,
        max_messages=_FULL if wanted.unique else wanted.most,
        begin_ms=round(wanted.begin * 1000),
        end_ms=until_ms,
        unique=None if instance.config.credentials is not None else wanted.unique,
    )
    address = yield from address_of(instance, queue, deadline)
    request = instance.request(RequestCode.QUERY_MESSAGE, fields)
    reply = yield from invoke(address, request, deadline)
    if reply.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    if reply.code != ResponseCode.SUCCESS:
        asked = RequestCode.QUERY_MESSAGE
        raise error_for(reply.code, reply.remark, queue.broker, asked=asked)
    return messages_in(reply.body, broker=queue.broker)
