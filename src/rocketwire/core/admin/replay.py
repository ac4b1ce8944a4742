"""Messages that are put into another topic, each once, however often it is repeated.

A copy is marked with the place of its original: topic, broker, queue and offset. That is the same
whether the original is read from its topic or from an archive of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Any, Final

from rocketwire.admin_values import Replayed
from rocketwire.core.admin.copies import CopyOutcome, MarkedCopy, deliver, find_soon
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import fetch_route
from rocketwire.core.naming import with_namespace
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import InvalidMessageError, RouteError, TopicNotFoundError
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.java_hash import hash_index
from rocketwire.wire.message_copy import copy_of
from rocketwire.wire.properties import NAME_END, VALUE_END, Property
from rocketwire.wire.route import publish_queues

_LARGEST_BATCH: Final = 1024
#: What a broker would act on, or what belongs to the original alone.
_NOT_COPIED: Final = (Property.RETRY_TOPIC, Property.ORIGIN_MESSAGE_ID, Property.DEAD_LETTER)


def check_batch(batch: object) -> None:
    """Refuse a number of messages at a time that makes no sense.

    Raises:
        InvalidMessageError: it does not.
    """
    if type(batch) is not int or not 1 <= batch <= _LARGEST_BATCH:
        raise InvalidMessageError(f"batch is {batch!r}: 1 to {_LARGEST_BATCH} messages at a time")


def check_messages(messages: object) -> None:
    """Refuse what can't be gone through; what is in it is checked message by message.

    Raises:
        InvalidMessageError: it can't.
    """
    if isinstance(messages, str) or not isinstance(messages, (Iterable, AsyncIterable)):
        raise InvalidMessageError(
            f"messages is {messages!r:.80}: give several StoredMessages, e.g. those of read(topic)"
        )


def is_unfinished(results: Sequence[Replayed]) -> bool:
    """Whether a message is not there, so that none may come behind it."""
    return any(result.status in {"failed", "in doubt"} for result in results)


class Replay:
    """One run, which puts messages into a topic.

    Args:
        instance: the client instance.
        into: the topic.
        keep_order: messages of one queue stay in their order, in one queue.
        label: tells this replay from an earlier one of the same messages, which else counts.
        group: in whose name the copies are sent.
        timeout: of one request.
    """

    def __init__(
        self,
        instance: Instance,
        into: Any,
        *,
        keep_order: bool,
        label: Any,
        group: str,
        timeout: float,
    ) -> None:
        check_topic(into)
        if not isinstance(label, str) or {NAME_END, VALUE_END} & {*label} or len(label) > 255:
            raise InvalidMessageError(f"label is {label!r:.80}: give a short text, or none")
        self._instance = instance
        self._into: str = into
        self._keep_order = keep_order
        self._label = label
        self._group = group
        self._timeout = timeout
        self._queues: list[MessageQueue] = []
        self._brokers: dict[str, str] = {}

    def begin(self) -> Op[None]:
        """Find the topic.

        Raises:
            TopicNotFoundError: it does not exist.
            RouteError: it can't be written to.
        """
        instance, topic = self._instance, self._into
        name = with_namespace(topic, instance.config.namespace)
        route = yield from fetch_route(instance, name, instance.clock() + self._timeout)
        if route is None:
            raise TopicNotFoundError(
                f"topic {topic} does not exist: rocketwire topic create {topic}"
            )
        found = {d.broker: instance.routes.translate(d.master) for d in route.brokers if d.master}
        self._brokers = found
        self._queues = [q for q in publish_queues(topic, route) if q.broker in found]
        if not self._queues:
            raise RouteError(f"topic {topic} has no queue that can be written to: see its brokers")

    def put(self, messages: Sequence[StoredMessage]) -> Op[list[Replayed]]:
        """Put some messages there that are not there yet; one result for each.

        Raises:
            InvalidMessageError: one is no message that was read.
            RocketMQError: a broker could not be asked for what is there, and nothing was sent.
        """
        copies = [self._copy(message) for message in messages]
        since = min(message.stored_at.timestamp() for message in messages)
        outcomes = yield from deliver(
            self._instance,
            copies,
            self._brokers,
            group=self._group,
            since=since,
            in_order=self._keep_order,
        )
        yield from self._check_index(outcomes, since)
        return [
            Replayed(message, o.status, o.queue, o.offset, o.error)
            for message, o in zip(messages, outcomes, strict=True)
        ]

    def _copy(self, message: Any) -> MarkedCopy:
        if not isinstance(message, StoredMessage):
            raise InvalidMessageError(
                f"{message!r:.80} can't be replayed: give StoredMessages, as readers have them"
            )
        if message.queue.topic == self._into:
            raise InvalidMessageError(
                f"{self._into} would be replayed into itself, and again what that adds: choose "
                "another topic"
            )
        content = copy_of(message)
        for name in _NOT_COPIED:
            content.properties.pop(name, None)
        origin = f"{message.queue.topic}/{message.queue.broker}/{message.queue.id}/{message.offset}"
        mark = f"{origin}/{self._label}" if self._label else origin
        queue = self._queue_for(message, mark)
        return MarkedCopy(Property.REPLAYED, mark, message.message_id, content, queue)

    def _queue_for(self, message: StoredMessage, mark: str) -> MessageQueue:
        """The queue of a sharding key; of a source's queue, where order is kept; else any."""
        queues = self._queues
        source = f"{message.queue.broker}/{message.queue.id}" if self._keep_order else mark
        return queues[hash_index(message.sharding_key or source, len(queues))]

    def _check_index(self, outcomes: Sequence[CopyOutcome], since: float) -> Op[None]:
        """Refuse to go on where a repeat would find nothing of what was sent.

        Raises:
            RouteError: brokers do not find what they have just stored.
        """
        lost = yield from find_soon(self._instance, outcomes, self._brokers, since)
        if lost is None:
            return
        raise RouteError(
            f"{lost.queue.broker} does not find {lost.message_id}, which it has just stored in "
            f"{self._into}: its index is off or far behind, and a repeat would send all again; set "
            "messageIndexEnable=true there, or replay into a topic of other brokers"
        )
