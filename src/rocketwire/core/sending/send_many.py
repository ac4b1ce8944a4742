"""Sending any number of messages: split into batches, kept in order per sharding key.

The split yields *streams*. The batches of one stream go one after another, streams go side by
side; how many at once is decided by the shell. A keyed message belongs to the stream of its queue,
all others are dealt out evenly and find their queue by the default strategy when their turn comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

from rocketwire.core.effects import Op, Sleep
from rocketwire.core.faults.selection import hash_queue
from rocketwire.core.lookup import locate_topic
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.finish import interrupted
from rocketwire.core.sending.order import not_sent_after
from rocketwire.core.sending.results import share_all
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.validate import needs_own_request
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
#: Messages that are checked, or encoded, before the caller may do other things.
CHECKED_AT_ONCE: Final = 2000

_topic_of: Final = attrgetter("topic")
_key_of: Final = attrgetter("sharding_key")
_NO_KEYS: Final = {None}

_V = TypeVar("_V")
Pieces = Sequence[Sequence[int]]
Results = list[SendResult | RocketMQError | None]


class Part:
    """Messages that travel in one request, with their places in the caller's list."""

    __slots__ = ("fields", "indexes", "messages")

    def __init__(
        self, indexes: Sequence[int], messages: list[Message], fields: list[bytes]
    ) -> None:
        self.indexes = indexes
        self.messages = messages
        self.fields = fields


class Stream:
    """Parts that go one after another; on one queue if their messages are ordered."""

    __slots__ = ("parts", "queue")

    def __init__(self, queue: MessageQueue | None = None) -> None:
        self.queue = queue
        self.parts: list[Part] = []


class ManySender:
    """One call of ``send_many``.

    Whatever goes through all messages does so in pieces, so that a list of a million does not keep
    an event loop.

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
        given: Any = messages  # annotations are not enforced
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
            raise InvalidMessageError(f"messages is a {type(given).__name__}: give a list")
        self.messages = list(messages)
        #: Those whose bodies are compressed if they travel alone; known when all are checked.
        self.large: list[Message] = []
        self.results: Results = [None] * len(self.messages)
        self._fields: list[bytes] = []
        #: The bytes of each in a batch, and whether none says anything of how it is handled.
        self._sizes: list[int] = []
        self._is_usual = True
        #: The places of the messages of each topic, in pieces: those without a key, and the others.
        self._free: dict[str, list[Sequence[int]]] = {}
        self._keyed: dict[str, list[Sequence[int]]] = {}
        self._stored = 0
        #: Messages for which a selector found no queue.
        self._refused = 0
        #: Messages that were encoded since the last turn, and the number of that.
        self._encoded = 0
        self._turn = 0

    def check(self) -> bool:
        """Check and encode the next messages; False when all are checked. Nothing is sent before.

        Raises:
            InvalidMessageError: one of them is wrong.
        """
        fields, start = self._fields, len(self._fields)
        encoder = self._sender.encoder
        some = self.messages[start : start + CHECKED_AT_ONCE]
        if not some:
            return False
        own = encoder.ordinary_fields(some)
        is_ordinary = own is not None
        if own is None:
            own = []
            for message in some:
                try:
                    own.append(encoder.checked_fields(message))
                except InvalidMessageError as error:
                    raise InvalidMessageError(f"message {start + len(own)}: {error}") from None
        fields += own
        # Whatever looks at each message does it here, while it is near: the memory of a long list
        # is far away by the time at which it is cut.
        overhead = self._overhead
        self._sizes += [len(m.body) + len(f) + overhead for m, f in zip(some, own, strict=True)]
        self.large += encoder.compressed_among(some)
        if not is_ordinary and self._is_usual:
            self._is_usual = all([m.handling is USUAL for m in some])  # noqa: C419  half the time
        self._sort_in(start, some, is_one_topic=is_ordinary)
        return len(fields) < len(self.messages)

    def _sort_in(self, start: int, some: Sequence[Message], *, is_one_topic: bool) -> None:
        """Note the topics and places of the next messages."""
        is_one_topic = is_one_topic or len(set(map(_topic_of, some))) == 1
        if is_one_topic and set(map(_key_of, some)) == _NO_KEYS:  # as most pieces have it
            places = range(start, start + len(some))
            self._free.setdefault(some[0].topic, []).append(places)
            return
        free: dict[str, list[int]] = {}
        keyed: dict[str, list[int]] = {}
        for index, message in enumerate(some, start):
            found = free if message.sharding_key is None else keyed
            found.setdefault(message.topic, []).append(index)
        for topic, indexes in free.items():
            self._free.setdefault(topic, []).append(indexes)
        for topic, indexes in keyed.items():
            self._keyed.setdefault(topic, []).append(indexes)

    def streams(self) -> Op[list[Stream]]:
        """Ask for the routes of all topics and split."""
        while self.check():
            pass
        found: list[Stream] = []
        for topic in dict.fromkeys([*self._free, *self._keyed]):
            free, keyed = self._free.get(topic, []), self._keyed.get(topic, [])
            try:
                found += yield from self._streams_of_topic(topic, free, keyed)
            except RouteError as error:
                failed = SendFailedError(f"not sent: {error}", outcome=Outcome.NOT_SENT)
                failed.__cause__ = error
                for index in chain(*free, *keyed):
                    self.results[index] = failed
        return found

    def _streams_of_topic(self, topic: str, free: Pieces, keyed: Pieces) -> Op[list[Stream]]:
        sender = self._sender
        deadline = sender.instance.clock() + self._timeout
        name = sender.wire_topic(topic)
        route = yield from locate_topic(sender.instance, name, deadline, *sender.defaults)
        streams = yield from self._deal(free)
        if keyed:
            streams += yield from self._by_queue(keyed, route)
        return streams

    def _by_queue(self, keyed: Pieces, route: TopicEntry) -> Op[list[Stream]]:
        """Parts with keys, one stream for each queue."""
        sender = self._sender
        queues, now = sender.queues_of(route), sender.instance.clock()
        by_queue: dict[MessageQueue, list[Sequence[int]]] = {}
        for places in keyed:
            found: dict[MessageQueue, list[int]] = {}
            for index in places:
                message = self.messages[index]
                queue = queues.select(hash_queue, message, None, sender.positions, now)
                found.setdefault(queue, []).append(index)
            for queue, own in found.items():
                by_queue.setdefault(queue, []).append(own)
            if places is not keyed[-1]:
                yield from self._take_turns()
        streams: list[Stream] = []
        for queue, pieces in by_queue.items():
            stream = Stream(queue)
            stream.parts = yield from self._split(pieces)
            streams.append(stream)
        return streams

    def _deal(self, free: Pieces) -> Op[list[Stream]]:
        """Parts without keys, dealt out to a few streams."""
        parts = yield from self._split(free)
        streams = [Stream() for _ in range(min(_STREAMS, len(parts)))]
        for number, part in enumerate(parts):
            streams[number % len(streams)].parts.append(part)
        return streams

    def _split(self, pieces: Pieces) -> Op[list[Part]]:
        """Messages of one topic as parts that each fit into a request, in order."""
        parts: list[Part] = []
        rest: Sequence[int] = ()
        for number, piece in enumerate(pieces, 1):
            is_last = number == len(pieces)
            rest = self._cut(_joined(rest, piece), parts, is_last=is_last)
            if not is_last:  # a list of a few has no turn to wait for
                yield from self._take_turns()
        return parts

    def _cut(self, indexes: Sequence[int], parts: list[Part], *, is_last: bool) -> Sequence[int]:
        """Cut parts off; returns the places of what may go on with the next messages.

        Column by column: a loop that puts each message into its part takes three times as long.
        """
        messages, fields = _picked(self.messages, indexes), _picked(self._fields, indexes)
        sizes = _picked(self._sizes, indexes)
        start, count = 0, len(messages)
        while start < count:
            most = sizes[start : start + _BATCH_MESSAGES]
            end = start + max(1, bisect_right(list(accumulate(most)), self._limit))
            if not self._is_usual:
                end = _end_of_kind(messages, start, end)
            if end == count and not is_last:
                return indexes[start:]
            parts.append(Part(indexes[start:end], messages[start:end], fields[start:end]))
            start = end
        return ()

    def _take_turns(self) -> Op[None]:
        """Let an event loop do other things."""
        yield Sleep(self._sender.instance.clock())

    def _take_share(self, count: int) -> Op[None]:
        """Wait until so many more messages may be encoded before an event loop does other things.

        Answers to all streams may come together: all of them would encode their next part in one tick.
        """
        while self._encoded and self._encoded + count > CHECKED_AT_ONCE:
            turn = self._turn
            yield from self._take_turns()
            if turn == self._turn:  # the first one that is back
                self._turn, self._encoded = turn + 1, 0
        self._encoded += count

    def run(self, stream: Stream, *, in_turns: bool = False) -> Op[None]:
        """Send the parts of a stream; results go to their places.

        Args:
            stream: one of ``streams``.
            in_turns: whether other tasks of an event loop run between the parts of all streams.
        """
        sender = self._sender
        broken: dict[str, RocketMQError] = {}
        for part in stream.parts:
            if broken:
                self._drop_broken(part, broken)
            if not part.indexes:
                continue
            if in_turns:
                yield from self._take_share(len(part.indexes))
            attempt = None
            try:
                sender.announce(part.messages)
                attempt = sender.start_joined(
                    part.messages, part.fields, self._timeout, stream.queue
                )
                result = yield from sender.operation(attempt)
            except RocketMQError as error:  # a selector's fault, too: others may be stored by now
                self._fail(part, error, broken)
            except BaseException:  # an interrupt may come at any moment
                if attempt is not None:
                    interrupted(attempt)
                raise
            else:
                self._spread(part.indexes, result)
            part.messages, part.fields = [], []  # not kept until the last one is sent

    def _fail(self, part: Part, error: RocketMQError, broken: dict[str, RocketMQError]) -> None:
        if not isinstance(error, SendFailedError):
            self._refused += len(part.indexes)
        for index, message in zip(part.indexes, part.messages, strict=True):
            self.results[index] = error
            if message.sharding_key is not None:
                broken[message.sharding_key] = error

    def _drop_broken(self, part: Part, broken: dict[str, RocketMQError]) -> None:
        """Take out of a part what comes after a failed message of its key."""
        kept: list[tuple[int, Message, bytes]] = []
        for index, message, fields in zip(part.indexes, part.messages, part.fields, strict=True):
            before = broken.get(message.sharding_key or "")
            if before is None:
                kept.append((index, message, fields))
            else:
                self.results[index] = not_sent_after(before)
        part.indexes = [index for index, _, _ in kept]
        part.messages = [message for _, message, _ in kept]
        part.fields = [fields for _, _, fields in kept]

    def _spread(self, indexes: Sequence[int], result: SendResult) -> None:
        """One result for each message of a batch."""
        results, count = self.results, len(indexes)
        self._stored += count
        if count == 1:
            results[indexes[0]] = result
        elif isinstance(indexes, range):
            results[indexes.start : indexes.stop] = share_all(result, count)
        else:
            for index, own in zip(indexes, share_all(result, count), strict=True):
                results[index] = own

    def finish(self, *, return_errors: bool) -> list[SendResult | RocketMQError]:
        """The results in the order given.

        Raises:
            SendManyError: some failed, and the caller did not ask for a list of errors.
            RocketMQError: a selector is to blame that nothing was sent.
        """
        if self._stored == len(self.results):
            return cast("list[SendResult | RocketMQError]", self.results)
        if self._refused == len(self.results) and isinstance(self.results[0], RocketMQError):
            raise self.results[0]
        results = [r if r is not None else SendFailedError("not sent") for r in self.results]
        if not return_errors:
            raise SendManyError(results)
        return results


def _joined(before: Sequence[int], after: Sequence[int]) -> Sequence[int]:
    """Places one behind the other; a range as long as they are without a gap."""
    if not before:
        return after
    if isinstance(before, range) and isinstance(after, range) and before.stop == after.start:
        return range(before.start, after.stop)
    return [*before, *after]


def _picked(values: list[_V], places: Sequence[int]) -> list[_V]:
    """The values at some places."""
    if isinstance(places, range):
        return values[places.start : places.stop]
    return [values[place] for place in places]


def _end_of_kind(messages: Sequence[Message], start: int, end: int) -> int:
    """Where the messages before ``end`` cease to be of a kind with the one at ``start``."""
    first = messages[start]
    for place in range(start + 1, end):
        if not _go_together(first, messages[place]):
            return place
    return end


def _go_together(first: Message, message: Message) -> bool:
    """Whether two messages may be in one batch."""
    return (
        first.wait_store_ok == message.wait_store_ok
        and not needs_own_request(first)
        and not needs_own_request(message)
    )
