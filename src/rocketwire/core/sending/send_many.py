"""Sending any number of messages: split into batches, kept in order per sharding key.

The split yields *streams*. The batches of one stream go one after another, streams go side by
side; how many at once is decided by the shell. A keyed message belongs to the stream of its queue,
all others are dealt out evenly and find their queue by the default strategy when their turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rocketwire.core.effects import Op
from rocketwire.core.faults.selection import hash_queue
from rocketwire.core.lookup import locate_topic
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.order import not_sent_after
from rocketwire.core.sending.results import share
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.validate import travels_alone
from rocketwire.errors import (
    InvalidMessageError,
    Outcome,
    RocketMQError,
    RouteError,
    SendFailedError,
    SendManyError,
)
from rocketwire.message import USUAL, Message, MessageQueue, SendResult

_BATCH_BYTES: Final = 256 * 1024
_BATCH_MESSAGES: Final = 1000
_STREAMS: Final = 8
#: Messages that are checked before the caller may do other things.
CHECKED_AT_ONCE: Final = 2000

Results = list[SendResult | RocketMQError | None]


class Part:
    """Messages that travel in one request, with their places in the caller's list."""

    __slots__ = ("fields", "indexes", "messages", "size")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.messages: list[Message] = []
        self.fields: list[bytes] = []
        self.size = 0


class Stream:
    """Parts that go one after another; on one queue if their messages are ordered."""

    __slots__ = ("parts", "queue")

    def __init__(self, queue: MessageQueue | None = None) -> None:
        self.queue = queue
        self.parts: list[Part] = []


class ManySender:
    """One call of ``send_many``.

    Raises:
        InvalidMessageError: ``messages`` are none.
    """

    def __init__(
        self, sender: Sender, messages: Iterable[Message], timeout: float | str | None
    ) -> None:
        self._sender = sender
        self._timeout = sender.check_timeout(timeout)
        self._limit = min(_BATCH_BYTES, sender.config.max_message_size)
        self._overhead = sender.encoder.item_overhead
        given: Any = messages  # annotations bind nobody
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
            raise InvalidMessageError(f"messages is a {type(given).__name__}: give a list")
        self.messages = list(messages)
        self._fields: list[bytes] = []
        self.results: Results = [None] * len(self.messages)

    def check(self) -> bool:
        """Check and encode the next messages; False when all are checked. Nothing is sent before.

        Raises:
            InvalidMessageError: one of them is wrong.
        """
        fields, start = self._fields, len(self._fields)
        encode = self._sender.encoder.checked_fields
        for message in self.messages[start : start + CHECKED_AT_ONCE]:
            try:
                fields.append(encode(message))
            except InvalidMessageError as error:
                raise InvalidMessageError(f"message {len(fields)}: {error}") from None
        return len(fields) < len(self.messages)

    def streams(self) -> Op[list[Stream]]:
        """Ask for the routes of all topics and split."""
        while self.check():
            pass
        by_topic: dict[str, list[int]] = {}
        for index, message in enumerate(self.messages):
            by_topic.setdefault(message.topic, []).append(index)
        found: list[Stream] = []
        for indexes in by_topic.values():
            try:
                found += yield from self._streams_of_topic(indexes)
            except RouteError as error:
                failed = SendFailedError(f"not sent: {error}", outcome=Outcome.NOT_SENT)
                failed.__cause__ = error
                for index in indexes:
                    self.results[index] = failed
        return found

    def _streams_of_topic(self, indexes: list[int]) -> Op[list[Stream]]:
        sender, messages = self._sender, self.messages
        topic = sender.wire_topic(messages[indexes[0]].topic)
        deadline = sender.instance.clock() + self._timeout
        route = yield from locate_topic(sender.instance, topic, deadline, *sender.defaults)
        keyed = [i for i in indexes if messages[i].sharding_key is not None]
        if not keyed:
            return self._deal(indexes)
        others = [i for i in indexes if messages[i].sharding_key is None]
        return self._deal(others) + self._by_queue(keyed, route)

    def _by_queue(self, indexes: list[int], route: TopicEntry) -> list[Stream]:
        sender = self._sender
        queues, now = sender.queues_of(route), sender.instance.clock()
        by_queue: dict[MessageQueue, list[int]] = {}
        for index in indexes:
            message = self.messages[index]
            queue = queues.select(hash_queue, message, None, sender.positions, now)
            by_queue.setdefault(queue, []).append(index)
        streams: list[Stream] = []
        for queue, places in by_queue.items():
            stream = Stream(queue)
            stream.parts = self._split(places)
            streams.append(stream)
        return streams

    def _deal(self, indexes: list[int]) -> list[Stream]:
        """Parts without keys, dealt out to a few streams."""
        parts = self._split(indexes)
        streams = [Stream() for _ in range(min(_STREAMS, len(parts)))]
        for number, part in enumerate(parts):
            streams[number % len(streams)].parts.append(part)
        return streams

    def _split(self, indexes: list[int]) -> list[Part]:
        """Messages of one topic as parts that each fit into a request, in order."""
        parts: list[Part] = []
        part: Part | None = None
        all_messages, all_fields = self.messages, self._fields
        limit, overhead = self._limit, self._overhead
        for index in indexes:
            message, fields = all_messages[index], all_fields[index]
            size = len(message.body) + len(fields) + overhead
            if (
                part is None
                or part.size + size > limit
                or len(part.indexes) >= _BATCH_MESSAGES
                or (
                    (message.handling is not USUAL or part.messages[0].handling is not USUAL)
                    and not _go_together(part.messages[0], message)
                )
            ):
                part = Part()
                parts.append(part)
            part.indexes.append(index)
            part.messages.append(message)
            part.fields.append(fields)
            part.size += size
        return parts

    def run(self, stream: Stream) -> Op[None]:
        """Send the parts of a stream; results go to their places."""
        sender = self._sender
        broken: dict[str, SendFailedError] = {}
        for part in stream.parts:
            if broken:
                self._drop_broken(part, broken)
            if not part.indexes:
                continue
            try:
                sender.announce(part.messages)
                attempt = sender.start_joined(
                    part.messages, part.fields, self._timeout, stream.queue
                )
                result = yield from sender.operation(attempt)
            except SendFailedError as error:
                self._fail(part, error, broken)
            else:
                self._spread(part.indexes, result)
            part.messages, part.fields = [], []  # not kept until the last one is sent

    def _fail(self, part: Part, error: SendFailedError, broken: dict[str, SendFailedError]) -> None:
        for index, message in zip(part.indexes, part.messages, strict=True):
            self.results[index] = error
            if message.sharding_key is not None:
                broken[message.sharding_key] = error

    def _drop_broken(self, part: Part, broken: dict[str, SendFailedError]) -> None:
        """Take out of a part what comes after a failed message of its key."""
        kept = Part()
        for index, message, fields in zip(part.indexes, part.messages, part.fields, strict=True):
            before = broken.get(message.sharding_key or "")
            if before is None:
                kept.indexes.append(index)
                kept.messages.append(message)
                kept.fields.append(fields)
            else:
                self.results[index] = not_sent_after(before)
        part.indexes, part.messages, part.fields = kept.indexes, kept.messages, kept.fields

    def _spread(self, indexes: list[int], result: SendResult) -> None:
        """One result for each message of a batch."""
        results = self.results
        if len(indexes) == 1:
            results[indexes[0]] = result
            return
        for place, index in enumerate(indexes):
            results[index] = share(result, place)

    def finish(self, *, return_errors: bool) -> list[SendResult | RocketMQError]:
        """The results in the order given.

        Raises:
            SendManyError: some failed, and the caller did not ask for a list of errors.
        """
        results = [r if r is not None else SendFailedError("not sent") for r in self.results]
        failed = [r for r in results if isinstance(r, RocketMQError)]
        if failed and not return_errors:
            raise SendManyError(results)
        return results


def _go_together(first: Message, message: Message) -> bool:
    """Whether two messages may be in one batch."""
    return (
        first.wait_store_ok == message.wait_store_ok
        and not travels_alone(first)
        and not travels_alone(message)
    )
