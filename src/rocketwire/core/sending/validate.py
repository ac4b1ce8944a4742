"""Which messages may be sent. Nothing is sent when anything is wrong.

Every refusal names the field, its value and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rocketwire.core.naming import FORBIDDEN_TOPICS, RETRY_PREFIX
from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.message import USUAL, Message, MessageQueue
from rocketwire.setting_values import MAX_SECONDS, seconds
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES, RESERVED

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_MAX_TOPIC: Final = 127
_MAX_LEVEL: Final = 18
_SEPARATORS: Final = re.compile("[\x01\x02]")
#: Topics are few and messages many: names that passed are not looked at again.
known_topics: Final[set[str]] = set()


def check_topic(topic: object) -> None:
    """Refuse a topic that no broker takes messages for."""
    if not isinstance(topic, str) or not topic:
        raise InvalidMessageError(f"topic is {topic!r}: give the name of a topic")
    if _NAME.fullmatch(topic) is None:
        raise InvalidMessageError(f"topic is {topic!r}: letters, digits and % | _ - only")
    if len(topic) > _MAX_TOPIC:
        raise InvalidMessageError(f"topic has {len(topic)} characters: at most {_MAX_TOPIC}")
    if topic in FORBIDDEN_TOPICS:
        raise InvalidMessageError(f"topic is {topic!r}, which only brokers may write to")
    if len(known_topics) > 10_000:
        known_topics.clear()
    known_topics.add(topic)


def with_added(properties: bytes, added: bytes, whose: str) -> bytes:
    """Encoded properties, and those that a conversation adds to them.

    Raises:
        InvalidMessageError: they are more than a message can have.
    """
    size = len(properties) + len(added)
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidMessageError(
            f"properties take {size} bytes, {whose} included: at most {MAX_PROPERTIES_BYTES}; "
            "move some of it into the body"
        )
    return properties + added


def check_message(message: Message, max_size: int) -> None:
    """Refuse a message that breaks a rule."""
    if type(message) is not Message and not isinstance(message, Message):
        raise InvalidMessageError(
            f"message is a {type(message).__name__}: give a Message, or a list of them"
        )
    if type(message.topic) is not str or message.topic not in known_topics:
        check_topic(message.topic)
    if not 0 < len(message.body) <= max_size:
        raise InvalidMessageError(_about_size(len(message.body), max_size))
    if message.raw_properties is not None:
        _check_properties(message.raw_properties)
    if message.tags is not None:
        _check_text("tags", message.tags)
    if message.keys is not None:
        _check_text("keys", message.keys)
    if message.sharding_key is not None:
        _check_text("sharding_key", message.sharding_key)
    if message.handling is not USUAL:
        _check_numbers(message)


def _about_size(size: int, max_size: int) -> str:
    if size == 0:
        return "body is empty: brokers refuse empty messages; send at least one byte"
    return (
        f"body has {size} bytes: at most {max_size} (max_message_size); "
        "send less, or raise the limit here and on the brokers"
    )


def _check_properties(properties: dict[Any, Any]) -> None:
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessageError(f"property {name!r} is {value!r}: names and values are text")
        if not name.strip() or not value.strip():
            raise InvalidMessageError(f"property {name!r} is {value!r}: neither may be blank")
        if name in RESERVED:
            raise InvalidMessageError(
                f"property {name!r} is reserved by RocketMQ: use the field of Message for it, "
                "or another name"
            )
        _check_text(f"property {name!r}", name + value)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidMessageError(f"{name} is {value!r}: give text")
    if not value:
        raise InvalidMessageError(f"{name} is empty: leave it out instead")
    if _SEPARATORS.search(value):
        raise InvalidMessageError(
            f"{name} contains the character 1 or 2, by which RocketMQ separates properties: "
            "remove it, or put the text into the body"
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidMessageError(
                f"{name} has a lone surrogate at {error.start}, which UTF-8 can't carry: remove it"
            ) from None


def _check_numbers(message: Message) -> None:
    level = message.delay_level
    if type(level) is not int or not 0 <= level <= _MAX_LEVEL:
        raise InvalidMessageError(f"delay_level is {level!r}: 0 (none) to {_MAX_LEVEL} (2 hours)")
    if level and message.deliver_at is not None:
        raise InvalidMessageError("delay_level and deliver_at exclude one another: give one")
    if type(message.flag) is not int or not -(2**31) <= message.flag < 2**31:
        raise InvalidMessageError(f"flag is {message.flag!r}: an integer of 32 bits")


def as_batch(messages: object) -> Sequence[Message]:
    """What was given where messages belong, as a sequence of them.

    Raises:
        InvalidMessageError: it is none.
    """
    if isinstance(messages, (list, tuple)):
        return messages
    if isinstance(messages, Iterable) and not isinstance(messages, (str, bytes, Mapping)):
        return list(messages)
    raise InvalidMessageError(
        f"message is a {type(messages).__name__}: give a Message, or a list of them"
    )


def at_once(message: Any) -> Any:
    """What a caller gave, which can be gone through twice: measured, and sent when there is room."""
    return list(message) if isinstance(message, Iterator) else message


def needs_own_request(message: Message) -> bool:
    """Whether brokers take a message in no batch: one that is delayed, or goes to a retry topic."""
    if message.handling is not USUAL and _is_delayed(message):
        return True
    return message.topic.startswith(RETRY_PREFIX)


def _is_delayed(message: Message) -> bool:
    """Whether it is delivered later, while brokers deliver batches at once."""
    return bool(message.delay_level) or message.deliver_at is not None


def check_batch(messages: Sequence[Message], max_size: int) -> None:
    """Refuse a batch that can't be one request."""
    if not messages:
        raise InvalidMessageError("the batch is empty: give at least one message")
    first = messages[0]
    for index, message in enumerate(messages):
        try:
            check_message(message, max_size)
        except InvalidMessageError as error:
            raise InvalidMessageError(f"message {index} of the batch: {error}") from None
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"message {index} of the batch is for topic {message.topic!r}, message 0 for "
                f"{first.topic!r}: a batch has one topic; send_many takes several"
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise InvalidMessageError(
                f"message {index} of the batch has wait_store_ok={message.wait_store_ok}, "
                f"message 0 has {first.wait_store_ok}: a batch has one"
            )
        if _is_delayed(message):
            raise InvalidMessageError(
                f"message {index} of the batch is delayed: send delayed messages one by one, "
                "or with send_many"
            )
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError("a batch can't go to a retry topic: send one by one")


def check_queue(queue: object, topic: str) -> MessageQueue:
    """The queue that a caller names, if messages of this topic can go there.

    Raises:
        InvalidMessageError: they can't.
    """
    if not isinstance(queue, MessageQueue):
        raise InvalidMessageError(
            f"queue is {queue!r}: give a MessageQueue, e.g. one of publish_queues()"
        )
    if type(queue.id) is not int:
        raise InvalidMessageError(f"queue has the id {queue.id!r}: give a number")
    if queue.topic != topic:
        raise InvalidMessageError(
            f"queue belongs to topic {queue.topic!r}, the message to {topic!r}"
        )
    return queue


def check_timeout(timeout: object) -> float:
    """Seconds for a send, as a caller gave them.

    Raises:
        ConfigError: there is no time at all.
    """
    given = timeout
    if isinstance(given, str):
        try:
            given = seconds(given)
        except ConfigError as error:
            raise ConfigError(f"timeout: {error}") from None
    if (
        not isinstance(given, (int, float))
        or isinstance(given, bool)
        or not 0 < given <= MAX_SECONDS
    ):
        raise ConfigError(f"timeout is {timeout!r}: seconds, above zero and finite")
    return given
