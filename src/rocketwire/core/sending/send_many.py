"""Sending any number of messages: split into batches, kept in order per sharding key.

The split yields *streams*. The batches of one stream go one after another, streams go side by
side; how many at once is decided by the shell. A keyed message belongs to the stream of its queue,
all others are dealt out evenly and find their queue by the default strategy when their turn comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice, repeat
from operator import add, attrgetter
from typing import Any, Final, TypeVar, cast

from rocketwire.core.effects import Op, Sleep
from rocketwire.core.faults.selection import hash_queue
from rocketwire.core.lookup import locate_topic
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.encode import Collected, Encoder
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
CHECKED_AT_ONCE: Final = 1000
#: Bytes of batches that are encoded as soon as their messages are checked: in all, and of those that
#: are checked at once.
_AHEAD: Final = 64 * 1024 * 1024
_AHEAD_AT_ONCE: Final = 2 * 1024 * 1024

_topic_of: Final = attrgetter("topic")
_key_of: Final = attrgetter("sharding_key")
_NO_KEYS: Final = {None}

_V = TypeVar("_V")
Results = list[SendResult | RocketMQError | None]


class Messages:
    """Checked messages of one topic, by columns: a loop over each takes three times as long."""

    __slots__ = ("fields", "indexes", "is_usual", "messages", "sizes")

    def __init__(
        self,
        indexes: Sequence[int],
        messages: list[Message],
        fields: list[bytes],
        sizes: list[int],
        *,
        is_usual: bool,
    ) -> None:
        #: Their places in what the caller gave.
        self.indexes = indexes
        self.messages = messages
        #: The encoded properties of each but its id, and the bytes of each in a batch.
        self.fields = fields
        self.sizes = sizes
        #: Whether all of them may be in one batch.
        self.is_usual = is_usual

    def picked(self, places: Sequence[int]) -> Messages:
        """Some of them."""
        return Messages(
            _picked(self.indexes, places),
            _picked(self.messages, places),
            _picked(self.fields, places),
            _picked(self.sizes, places),
            is_usual=self.is_usual,
        )

    def followed_by(self, more: Messages) -> Messages:
        """These and others behind them."""
        return Messages(
            _joined(self.indexes, more.indexes),
            self.messages + more.messages,
            self.fields + more.fields,
            self.sizes + more.sizes,
            is_usual=self.is_usual and more.is_usual,
        )


class Part:
    """Messages that travel in one request, with their places in what the caller gave."""

    __slots__ = ("content", "fields", "indexes", "messages")

    def __init__(
        self, indexes: Sequence[int], messages: list[Message], fields: list[bytes]
    ) -> None:
        self.indexes = indexes
        #: Not kept once they are encoded.
        self.messages = messages
        self.fields = fields
        self.content: Collected | None = None

    def encode(self, encoder: Encoder) -> Collected:
        """What travels; it is made by the first call."""
        if self.content is None:
            self.content = encoder.collected(self.messages, self.fields)
            self.messages, self.fields = [], []
        return self.content

    @property
    def sharding_keys(self) -> Iterable[str]:
        """Those of its messages."""
        if self.content is not None:
            return self.content.sharding_keys
        return [m.sharding_key for m in self.messages if m.sharding_key is not None]


class Cutter:
    """Cuts messages of one topic, as they come, into parts that each fit into a request."""

    __slots__ = ("_limit", "_rest", "parts")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest: Messages | None = None
        self.parts: list[Part] = []

    def add(self, more: Messages) -> list[Part]:
        """Take messages in; the parts that are full. The last ones go on with the next messages."""
        given = more if self._rest is None else self._rest.followed_by(more)
        return self._cut(given, is_last=False)

    def end(self) -> list[Part]:
        """All parts."""
        if self._rest is not None:
            self._cut(self._rest, is_last=True)
        return self.parts

    def _cut(self, given: Messages, *, is_last: bool) -> list[Part]:
        messages, sizes = given.messages, given.sizes
        start, count, known = 0, len(messages), len(self.parts)
        while start < count:
            most = sizes[start : start + _BATCH_MESSAGES]
            end = start + max(1, bisect_right(list(accumulate(most)), self._limit))
            if not given.is_usual:
                end = _end_of_kind(messages, start, end)
            if end == count and not is_last:
                break
            indexes, fields = given.indexes[start:end], given.fields[start:end]
            self.parts.append(Part(indexes, messages[start:end], fields))
            start = end
        self._rest = given.picked(range(start, count)) if start < count else None
        return self.parts[known:]


class Stream:
    """Parts that go one after another; on one queue if their messages are ordered."""

    __slots__ = ("parts", "queue")

    def __init__(self, queue: MessageQueue | None = None) -> None:
        self.queue = queue
        self.parts: list[Part] = []


def as_messages(given: Any) -> Iterable[Message]:
    """What was given where any number of messages belongs.

    Raises:
        InvalidMessageError: it is none.
    """
    # Annotations are not enforced.
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise InvalidMessageError(f"messages is a {type(given).__name__}: give a list")
    return given


class ManySender:
    """One call of ``send_many``.

    Whatever goes through all messages does so in pieces, so that a list of a million does not keep
    an event loop. As much as possible is done with a message as soon as it is checked: by the time
    at which the last one is, a long list has left the caches of the CPU. Messages without a sharding
    key are encoded at once, if that takes no more than ``_AHEAD`` bytes, and then let go of.

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
        self._pieces = _pieces(as_messages(messages))
        #: Those whose bodies are compressed if they travel alone; known when all are checked.
        self.large: list[Message] = []
        #: One for each message that is checked.
        self.results: Results = []
        #: The messages of each topic: those without a key, and the others.
        self._free: dict[str, Cutter] = {}
        self._keyed: dict[str, list[Messages]] = {}
        #: Bytes that are encoded before all is checked.
        self._ahead = 0
        self._stored = 0
        #: Messages for which a selector found no queue.
        self._refused = 0
        #: Messages that were encoded since other tasks last ran, and how often they have run.
        self._encoded = 0
        self._turn = 0

    def check(self) -> bool:
        """Check and encode the next messages; False when all are checked. Nothing is sent before.

        Raises:
            InvalidMessageError: one of them is wrong.
        """
        some = next(self._pieces, None)
        if some is None:
            return False
        start = len(self.results)
        encoder, overhead = self._sender.encoder, self._overhead
        fields = encoder.ordinary_fields(some)
        is_ordinary = is_usual = fields is not None
        if fields is None:
            fields = []
            for message in some:
                try:
                    fields.append(encoder.checked_fields(message))
                except InvalidMessageError as error:
                    raise InvalidMessageError(f"message {start + len(fields)}: {error}") from None
            is_usual = all(m.handling is USUAL and not needs_own_request(m) for m in some)
        bodies = [len(m.body) for m in some]
        sizes = list(map(add, map(add, bodies, map(len, fields)), repeat(overhead)))
        if some and encoder.is_compressed(some[bodies.index(max(bodies))]):
            self.large += encoder.compressed_among(some)
        self.results += [None] * len(some)
        places = range(start, start + len(some))
        checked = Messages(places, some, fields, sizes, is_usual=is_usual)
        self._sort_in(checked, is_one_topic=is_ordinary)
        return len(some) == CHECKED_AT_ONCE

    def _sort_in(self, some: Messages, *, is_one_topic: bool) -> None:
        """Note the topics of the next messages, and encode what can be."""
        messages = some.messages
        is_one_topic = is_one_topic or len(set(map(_topic_of, messages))) == 1
        if is_one_topic and set(map(_key_of, messages)) == _NO_KEYS:  # as most pieces have it
            self._add_free(messages[0].topic, some)
            return
        free: dict[str, list[int]] = {}
        keyed: dict[str, list[int]] = {}
        for place, message in enumerate(messages):
            found = free if message.sharding_key is None else keyed
            found.setdefault(message.topic, []).append(place)
        for topic, places in free.items():
            self._add_free(topic, some.picked(places))
        for topic, places in keyed.items():
            self._keyed.setdefault(topic, []).append(some.picked(places))

    def _add_free(self, topic: str, some: Messages) -> None:
        if topic not in self._free:
            self._free[topic] = Cutter(self._limit)
        most = min(self._ahead + _AHEAD_AT_ONCE, _AHEAD)
        for part in self._free[topic].add(some):
            if self._ahead >= most:
                break
            self._ahead += len(part.encode(self._sender.encoder).body)

    def streams(self) -> Op[list[Stream]]:
        """Ask for the routes of all topics and split."""
        while self.check():
            pass
        found: list[Stream] = []
        for topic in dict.fromkeys([*self._free, *self._keyed]):
            try:
                found += yield from self._streams_of_topic(topic)
            except RouteError as error:
                failed = SendFailedError(f"not sent: {error}", outcome=Outcome.NOT_SENT)
                failed.__cause__ = error
                self._give_up(topic, failed)
        return found

    def _give_up(self, topic: str, error: SendFailedError) -> None:
        parts = self._free[topic].end() if topic in self._free else []
        for lost in (*parts, *self._keyed.get(topic, ())):
            for index in lost.indexes:
                self.results[index] = error

    def _streams_of_topic(self, topic: str) -> Op[list[Stream]]:
        sender = self._sender
        deadline = sender.instance.clock() + self._timeout
        name = sender.wire_topic(topic)
        route = yield from locate_topic(sender.instance, name, deadline, *sender.defaults)
        streams = self._deal(self._free[topic].end()) if topic in self._free else []
        if topic in self._keyed:
            streams += yield from self._by_queue(self._keyed[topic], route)
        return streams

    def _by_queue(self, keyed: list[Messages], route: TopicEntry) -> Op[list[Stream]]:
        """Parts with keys, one stream for each queue."""
        sender = self._sender
        queues, now = sender.queues_of(route), sender.instance.clock()
        by_queue: dict[MessageQueue, Cutter] = {}
        for some in keyed:
            found: dict[MessageQueue, list[int]] = {}
            for place, message in enumerate(some.messages):
                queue = queues.select(hash_queue, message, None, sender.positions, now)
                found.setdefault(queue, []).append(place)
            for queue, places in found.items():
                if queue not in by_queue:
                    by_queue[queue] = Cutter(self._limit)
                by_queue[queue].add(some.picked(places))
            if some is not keyed[-1]:  # a short list keeps no other task waiting
                yield from self._take_turns()
        streams: list[Stream] = []
        for queue, cutter in by_queue.items():
            stream = Stream(queue)
            stream.parts = cutter.end()
            streams.append(stream)
        return streams

    @staticmethod
    def _deal(parts: list[Part]) -> list[Stream]:
        """Parts without keys, dealt out to a few streams."""
        streams = [Stream() for _ in range(min(_STREAMS, len(parts)))]
        for number, part in enumerate(parts):
            streams[number % len(streams)].parts.append(part)
        return streams

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
            if in_turns and part.content is None:
                yield from self._take_share(len(part.indexes))
            attempt = None
            try:
                content = part.encode(sender.encoder)
                sender.announce(content.messages)
                attempt = sender.start_joined(content, self._timeout, stream.queue)
                result = yield from sender.operation(attempt)
            except RocketMQError as error:  # a selector's fault, too: others may be stored by now
                self._fail(part, error)
                broken.update(dict.fromkeys(part.sharding_keys, error))
            except BaseException:  # an interrupt may come at any moment
                if attempt is not None:
                    interrupted(attempt)
                raise
            else:
                self._spread(part.indexes, result)
            part.content = None  # not kept until the last one is sent

    def _fail(self, part: Part, error: RocketMQError) -> None:
        if not isinstance(error, SendFailedError):
            self._refused += len(part.indexes)
        for index in part.indexes:
            self.results[index] = error

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


def _picked(values: Sequence[_V], places: Sequence[int]) -> Any:
    """The values at some places."""
    if isinstance(places, range):
        return values[places.start : places.stop]
    return [values[place] for place in places]


def _pieces(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Some messages at a time; none is kept here once it was given out.

    Those of an iterator are made as they are wanted. All others are copied now: the caller may
    change what holds them.
    """
    if isinstance(messages, Iterator):
        source = messages
        return iter(lambda: list(islice(source, CHECKED_AT_ONCE)), [])
    left = list(messages)
    left.reverse()  # so that the next ones can be taken off the end
    return iter(lambda: _taken(left), [])


def _taken(left: list[Message]) -> list[Message]:
    some = left[-CHECKED_AT_ONCE:]
    del left[-CHECKED_AT_ONCE:]
    some.reverse()
    return some


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
