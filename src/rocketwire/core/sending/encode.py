"""Messages as they travel: checked, numbered, compressed, once for all attempts of a send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from rocketwire.config import ProducerConfig
from rocketwire.core.faults.entries import NEVER
from rocketwire.core.naming import RETRY_PREFIX
from rocketwire.core.sending.attempt import Batch, MessageIds, SendAttempt, as_texts
from rocketwire.core.sending.validate import check_batch, check_message, known_topics
from rocketwire.errors import InvalidMessageError
from rocketwire.message import USUAL, Message
from rocketwire.wire.batch import ITEM_OVERHEAD, encode_items
from rocketwire.wire.compression import compress
from rocketwire.wire.message_id import MOST_AT_ONCE, MessageIdMaker
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES
from rocketwire.wire.send_properties import (
    ID_END,
    ID_NAME,
    NO_WAIT,
    encode_alike,
    encode_fields,
    encode_ordinary,
    namespace_field,
)
from rocketwire.wire.send_request import born_field

#: Fields of this size fit whatever the id adds to them.
_SURELY_FITS: Final = MAX_PROPERTIES_BYTES - 64
_MESSAGES: Final = {Message}
_NO_BODY_IS_SO_LARGE: Final = 1 << 62
# The digits of an id from tables: a format that makes them takes twice as long.
_HIGH_DIGITS: Final = [b"%02X" % number for number in range(256)]
_LOW_DIGITS: Final = [b"%02X" % number + ID_END for number in range(256)]


class CompressFirst(Exception):  # noqa: N818 - no error: for a caller that can do it elsewhere
    """A body is to be compressed elsewhere (``Encoder.prepared``) before its send begins."""


class Collected:
    """Checked messages as the content of one request; where that goes is not known yet.

    Several are an encoded batch; one is encoded when it goes.
    """

    __slots__ = ("batch", "body", "first", "properties")

    def __init__(
        self, first: Message, batch: Batch | None = None, body: bytes = b"", properties: bytes = b""
    ) -> None:
        self.first = first
        self.batch = batch
        self.body = body
        self.properties = properties

    @property
    def messages(self) -> Sequence[Message]:
        """What travels; the first stands for all of them where no hook looks at each."""
        return (self.first,) if self.batch is None else self.batch.messages

    @property
    def sharding_keys(self) -> tuple[str, ...]:
        """The keys whose order is kept."""
        if self.batch is not None:
            return self.batch.sharding_keys
        key = self.first.sharding_key
        return () if key is None else (key,)


class Encoder:
    """Gives attempts their content, by a producer's settings.

    Args:
        config: limits, compression and namespace.
        ids: makes the messages' ids.
        clock: the monotonic clock of the client.
        wall: the time of day.
        keeps_messages: whether a hook looks at each message of a batch once it is encoded.
    """

    __slots__ = (
        "_clock", "_compress_over", "_compression", "_ids", "_keeps", "_level", "_max_size",
        "_moment", "_namespace", "_next_number", "_wall", "item_overhead", "may_compress", "prepared",
    )  # fmt: skip

    def __init__(
        self,
        config: ProducerConfig,
        ids: MessageIdMaker,
        clock: Callable[[], float],
        wall: Callable[[], float],
        *,
        keeps_messages: bool,
    ) -> None:
        self._ids = ids
        self._next_number = ids.numbers.__next__
        self._clock = clock
        self._wall = wall
        self._keeps = keeps_messages
        self._max_size = config.max_message_size
        self._compress_over = config.compress_over or _NO_BODY_IS_SO_LARGE
        self._compression = config.compression
        self._level = config.compress_level
        self._namespace = namespace_field(config.namespace)
        #: Whether so many bytes may be compressed here and now; None: always.
        self.may_compress: Callable[[int], bool] | None = None
        #: Bodies that were compressed beforehand, by the ``id()`` of the body.
        self.prepared: dict[int, tuple[bytes, bytes, int]] = {}
        #: Bytes of a message in a batch beyond its body and its fields.
        self.item_overhead = ITEM_OVERHEAD + len(ID_NAME) + len(ids.prefix) + 12 + len(ID_END)
        #: The millisecond of birth, how ids made in it begin, and until when it surely lasts.
        self._moment = (b"", b"", NEVER)

    # -- one message ------------------------------------------------------------------------

    def single(self, attempt: SendAttempt, message: Message, now: float) -> None:
        """Give an attempt one message.

        Raises:
            InvalidMessageError: it breaks a rule.
        """
        fields = self.checked_fields(message)
        born, id_start, until = self._moment
        if now >= until:
            born, id_start = self._look_at_clock(now)
        number = self._next_number()
        attempt.message = message
        attempt.batch = None
        handling = message.handling
        attempt.flag = 0 if handling is USUAL else handling.flag
        attempt.born = born
        # The id and all other properties by one join: a format of the number takes twice as long, and
        # joining the id first copies it once more.
        attempt.properties = b"".join(
            (id_start, _HIGH_DIGITS[number >> 8 & 0xFF], _LOW_DIGITS[number & 0xFF], fields)
        )
        if len(message.body) < self._compress_over:
            attempt.body = message.body
            attempt.system_flag = 0
        else:
            attempt.body, attempt.system_flag = self._compressed(message.body)

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        found = self.prepared.pop(id(body), None) if self.prepared else None
        if found is not None:
            return found[1:]
        if self.may_compress is not None and not self.may_compress(len(body)):
            raise CompressFirst
        return self.compress(body)

    def compress(self, body: bytes) -> tuple[bytes, int]:
        """A body as it travels, and its system flags. From any thread."""
        return compress(body, self._compression, self._level)

    def is_compressed(self, message: Message) -> bool:
        """Whether a message travels compressed, if it travels alone."""
        return len(message.body) >= self._compress_over

    def compressed_among(self, messages: Iterable[Message]) -> list[Message]:
        """Those of some messages that travel compressed, if they travel alone."""
        least = self._compress_over
        return [message for message in messages if len(message.body) >= least]

    def _look_at_clock(self, now: float) -> tuple[bytes, bytes]:
        """The present moment, kept for as long as the time of day has the same millisecond.

        Looking for every message would cost 0.2 µs. The last µs of a moment is not trusted,
        because the two clocks are not read at once.
        """
        wall = self._wall()
        born_ms = int(wall * 1000)
        id_start = ID_NAME + self._ids.head_at(born_ms).encode()
        born = born_field(born_ms)
        self._moment = (born, id_start, now + (born_ms + 1) / 1000 - wall - 1e-6)
        return born, id_start

    def checked_fields(self, message: Message) -> bytes:
        """The encoded properties of a message but its id.

        Raises:
            InvalidMessageError: it breaks a rule.
        """
        fields = None
        given: object = message  # callers may pass anything
        topic = given.topic if isinstance(given, Message) else None
        if type(topic) is str and topic in known_topics and 0 < len(message.body) <= self._max_size:
            fields = encode_ordinary(message)
        if fields is None:
            check_message(message, self._max_size)
            fields = encode_fields(message)
        if self._namespace or len(fields) > _SURELY_FITS:
            fields = self._namespace + fields
            self._check_size(len(fields))
        return fields

    def _check_size(self, fields: int) -> None:
        size = fields + self.item_overhead - ITEM_OVERHEAD
        if size > MAX_PROPERTIES_BYTES:
            raise InvalidMessageError(
                f"properties take {size} bytes, tags and keys included: at most "
                f"{MAX_PROPERTIES_BYTES}; move some of it into the body"
            )

    # -- batches ----------------------------------------------------------------------------

    def batch(self, attempt: SendAttempt, messages: Sequence[Message]) -> None:
        """Give an attempt several messages of the caller.

        Raises:
            InvalidMessageError: they can't be one request.
        """
        fields = self.ordinary_fields(messages)
        if fields is None:
            check_batch(messages, self._max_size)
            fields = list(map(self.checked_fields, messages))
        self.carry(attempt, self.joined(messages, fields))
        if len(attempt.body) > self._max_size:
            raise InvalidMessageError(
                f"the batch has {len(attempt.body)} bytes encoded: at most {self._max_size} "
                "(max_message_size); send fewer at once, or use send_many, which splits"
            )

    def ordinary_fields(self, messages: Sequence[Message]) -> list[bytes] | None:
        """The encoded properties of messages of one topic; None if any needs a closer look."""
        if self._namespace or set(map(type, messages)) != _MESSAGES:
            return None
        topic = messages[0].topic
        if type(topic) is not str or topic not in known_topics or topic.startswith(RETRY_PREFIX):
            return None
        sizes = [len(m.body) if m.topic == topic else 0 for m in messages]
        if min(sizes) == 0 or max(sizes) > self._max_size:
            return None
        fields = None if messages[0].raw_properties is None else encode_alike(messages)
        if fields is None:
            fields = cast("list[bytes]", list(map(encode_ordinary, messages)))
        try:
            largest = max(map(len, fields))
        except TypeError:  # one of them is None; looking for it takes twice as long
            return None
        return fields if largest <= _SURELY_FITS else None

    def joined(self, messages: Sequence[Message], fields: Sequence[bytes]) -> Collected:
        """Messages that were checked, with their encoded ``fields``, as one batch."""
        flags = [0] * len(messages)
        if [m for m in messages if m.handling is not USUAL]:  # faster than any()
            flags = [m.flag for m in messages]
        ids, body = self._items([m.body for m in messages], fields, flags)
        first = messages[0]
        keys = dict.fromkeys([m.sharding_key for m in messages])
        keys.pop(None, None)
        # Messages that live until the answer comes cost the garbage collector 0.1 µs each.
        kept = tuple(messages) if self._keeps or keys else (first,) * len(messages)
        batch = Batch(kept, ids, tuple(key for key in keys if key is not None))
        properties = self._namespace + (b"" if first.wait_store_ok else NO_WAIT)
        return Collected(first, batch, body, properties)

    def packed(
        self, first: Message, bodies: Sequence[bytes], fields: Sequence[bytes], flags: Sequence[int]
    ) -> Collected:
        """As ``joined``, of messages without a key that no hook looks at; ``first`` is of their kind."""
        ids, body = self._items(bodies, fields, flags)
        properties = self._namespace + (b"" if first.wait_store_ok else NO_WAIT)
        return Collected(first, Batch((first,) * len(bodies), ids), body, properties)

    def collected(self, messages: Sequence[Message], fields: Sequence[bytes]) -> Collected:
        """As ``joined``, but one message alone travels as it is."""
        return Collected(messages[0]) if len(messages) == 1 else self.joined(messages, fields)

    def carry(self, attempt: SendAttempt, content: Collected) -> None:
        """Give an attempt messages that were collected."""
        if content.batch is None:
            asked, self.may_compress = self.may_compress, None
            try:
                self.single(attempt, content.first, attempt.began)
            finally:
                self.may_compress = asked
            return
        attempt.message = content.first
        attempt.batch = content.batch
        attempt.body = content.body
        attempt.system_flag = attempt.flag = 0
        attempt.born = born_field(int(self._wall() * 1000))
        attempt.properties = content.properties

    def _items(
        self, bodies: Sequence[bytes], fields: Sequence[bytes], flags: Sequence[int]
    ) -> tuple[MessageIds, bytes]:
        if len(bodies) <= MOST_AT_ONCE:
            ids = self._ids.block(len(bodies))
            return ids, encode_items(bodies, fields, flags, ids)
        # One block of ids is unique up to this number of messages: use several blocks.
        texts: list[str] = []
        parts: list[bytes] = []
        for start in range(0, len(bodies), MOST_AT_ONCE):
            end = start + MOST_AT_ONCE
            block, part = self._items(bodies[start:end], fields[start:end], flags[start:end])
            texts += as_texts(block)
            parts.append(part)
        return tuple(texts), b"".join(parts)
