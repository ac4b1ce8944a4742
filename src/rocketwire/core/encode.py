"""Messages as they travel: checked, numbered, compressed, once for all attempts of a send."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rocketwire.config import ProducerConfig
from rocketwire.core.naming import with_namespace
from rocketwire.core.validate import check_batch, check_message, plain_bodies
from rocketwire.errors import InvalidMessageError
from rocketwire.message import PLAIN, Message
from rocketwire.wire.batch import PlainItems, encode_item
from rocketwire.wire.compression import compress
from rocketwire.wire.message_id import MOST_AT_ONCE, IdBlock, MessageIdMaker

_MAX_PROPERTIES = 32767

#: Of most messages nobody ever asks for the id, so those of a batch may stay numbers until then.
MessageIds: TypeAlias = tuple[str, ...] | IdBlock


def as_texts(ids: MessageIds) -> tuple[str, ...]:
    """The ids themselves."""
    return tuple(ids.texts()) if isinstance(ids, IdBlock) else ids


@dataclass(slots=True, eq=False)
class Outgoing:
    """One request's worth: a message or a batch."""

    #: The first stands for all of them where nobody looks at each.
    messages: tuple[Message, ...]
    topic: str
    body: bytes
    properties: bytes
    system_flag: int
    flag: int
    ids: MessageIds
    is_batch: bool
    sharding_keys: tuple[str, ...]

    @property
    def message(self) -> Message:
        """The message, or the first of the batch."""
        return self.messages[0]

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The ids of all messages."""
        return as_texts(self.ids)

    @property
    def message_id(self) -> str:
        """The id; those of a batch joined by commas, as in Java."""
        return ",".join(self.message_ids)


class Encoder:
    """Turns messages into requests' content, by a producer's settings."""

    __slots__ = (
        "_compression",
        "_ids",
        "_instance_id",
        "_keeps",
        "_level",
        "_max_size",
        "_namespace",
        "_over",
        "plain_items",
    )

    def __init__(
        self, config: ProducerConfig, ids: MessageIdMaker, *, keeps_messages: bool = True
    ) -> None:
        """Of the producer's settings.

        Args:
            config: limits, compression and namespace.
            ids: makes the messages' ids.
            keeps_messages: whether somebody looks at each message of a batch once it is encoded.
        """
        self._ids = ids
        self._keeps = keeps_messages
        self._max_size = config.max_message_size
        self._over = config.compress_over
        self._compression = config.compression
        self._level = config.compress_level
        self._namespace = config.namespace
        self._instance_id = f"INSTANCE_ID\x01{config.namespace}\x02" if config.namespace else ""
        after = f"\x02{self._instance_id}".encode()
        self.plain_items = PlainItems(b"UNIQ_KEY\x01", after, len(ids.prefix) + 12)

    def single(self, message: Message) -> Outgoing:
        """One message.

        Raises:
            InvalidMessageError: it breaks a rule.
        """
        check_message(message, self._max_size)
        message_id = self._ids.next()
        properties = self.properties(message, message_id)
        body, system_flag = message.body, 0
        if self._over and len(body) >= self._over:
            body, system_flag = compress(body, self._compression, self._level)
        extras = message.extras
        return Outgoing(
            (message,),
            with_namespace(message.topic, self._namespace) if self._namespace else message.topic,
            body,
            properties,
            system_flag,
            extras.flag,
            (message_id,),
            False,  # noqa: FBT003 - keywords cost a microsecond on this path
            () if extras.sharding_key is None else (extras.sharding_key,),
        )

    def batch(self, messages: Sequence[Message]) -> Outgoing:
        """Several messages as one request.

        Raises:
            InvalidMessageError: they can't be one.
        """
        found = plain_bodies(messages, self._max_size)
        if found is not None:
            outgoing = self.plain(messages, *found)
        else:
            check_batch(messages, self._max_size)
            outgoing = self._each(messages)
        if len(outgoing.body) > self._max_size:
            raise InvalidMessageError(
                f"the batch has {len(outgoing.body)} bytes encoded: at most {self._max_size} "
                "(max_message_size); send fewer at once, or use send_many, which splits"
            )
        return outgoing

    def plain(
        self, messages: Sequence[Message], bodies: Sequence[bytes], sizes: Collection[int]
    ) -> Outgoing:
        """Messages that were checked, and have nothing but these bodies, as one request.

        ``sizes`` are the lengths of the bodies, each once.
        """
        if len(messages) > MOST_AT_ONCE:
            return self._each(messages)
        ids = self._ids.block(len(messages))
        return Outgoing(
            # Messages that live until the answer comes cost the garbage collector 0.1 µs each.
            tuple(messages) if self._keeps else (messages[0],) * len(messages),
            with_namespace(messages[0].topic, self._namespace),
            self.plain_items.encode(bodies, ids, sizes),
            self._instance_id.encode(),
            0,
            0,
            ids,
            is_batch=True,
            sharding_keys=(),
        )

    def _each(self, messages: Sequence[Message]) -> Outgoing:
        """Messages that were checked, encoded one by one, as one request."""
        ids = self._ids.next_many(len(messages))
        items = [
            encode_item(message.body, self.properties(message, message_id), message.flag)
            for message, message_id in zip(messages, ids, strict=True)
        ]
        return self.joined(messages, ids, items)

    def item(self, message: Message) -> tuple[str, bytes]:
        """The id of a message that was checked, and the message as it travels in a batch.

        Raises:
            InvalidMessageError: its properties are too large.
        """
        message_id = self._ids.next()
        properties = self.properties(message, message_id)
        return message_id, encode_item(message.body, properties, message.flag)

    def joined(
        self, messages: Sequence[Message], ids: Sequence[str], items: Sequence[bytes]
    ) -> Outgoing:
        """Messages that go together, already encoded, as one request."""
        keys = dict.fromkeys(m.sharding_key for m in messages if m.sharding_key is not None)
        first = messages[0]
        outer = self._instance_id + ("" if first.wait_store_ok else "WAIT\x01false\x02")
        return Outgoing(
            tuple(messages),
            with_namespace(first.topic, self._namespace),
            b"".join(items),
            outer.encode(),
            0,
            0,
            tuple(ids),
            is_batch=True,
            sharding_keys=tuple(keys),
        )

    def properties(self, message: Message, message_id: str) -> bytes:
        """The properties of a message as brokers store them."""
        text = f"UNIQ_KEY\x01{message_id}\x02{self._instance_id}"
        extras = message.extras
        if extras is PLAIN:
            return text.encode()
        if extras.tags is not None:
            text += f"TAGS\x01{extras.tags}\x02"
        if extras.keys is not None:
            text += f"KEYS\x01{extras.keys}\x02"
        if extras.sharding_key is not None:
            text += f"__SHARDINGKEY\x01{extras.sharding_key}\x02"
        if not extras.wait_store_ok:
            text += "WAIT\x01false\x02"
        if extras.delay_level:
            text += f"DELAY\x01{extras.delay_level}\x02"
        if extras.deliver_at is not None:
            text += f"TIMER_DELIVER_MS\x01{round(extras.deliver_at * 1000)}\x02"
        if extras.properties:
            text += "".join([f"{k}\x01{v}\x02" for k, v in extras.properties.items()])
        data = text.encode()
        if len(data) > _MAX_PROPERTIES:
            raise InvalidMessageError(
                f"properties take {len(data)} bytes, tags and keys included: at most "
                f"{_MAX_PROPERTIES}; move some of it into the body"
            )
        return data
