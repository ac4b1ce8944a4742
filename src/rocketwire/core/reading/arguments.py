"""What a reader may be asked for. Nothing is asked of a broker when anything is wrong.

Every refusal names the argument, its value and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex

from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.message import MessageQueue, epoch_of
from rocketwire.setting_values import seconds

# Annotations are not enforced: what comes here is what a caller wrote.


def _is_whole(number: Any) -> bool:
    """Also what numpy has for it."""
    return isinstance(number, SupportsIndex) and not isinstance(number, bool)


def check_readable_topic(topic: Any) -> None:
    """Refuse what is no name of a topic; system topics may be read."""
    if not isinstance(topic, str) or not topic:
        raise InvalidMessageError(f"topic is {topic!r}: give the name of a topic")


def check_queue(queue: Any) -> None:
    """Refuse what is no queue."""
    if not isinstance(queue, MessageQueue):
        raise InvalidMessageError(f"queue is {queue!r}: give a MessageQueue, e.g. one of queues()")


def check_fetch(queue: Any, offset: Any, max_messages: Any, wait: Any) -> float:
    """Refuse a pull that no broker could answer; how long it may wait, in seconds."""
    check_queue(queue)
    if not _is_whole(offset):
        raise InvalidMessageError(f"offset is {offset!r}: give a whole number")
    check_count(max_messages)
    try:
        span = seconds(wait)
    except ConfigError as error:
        raise InvalidMessageError(f"wait is {wait!r}: {error}") from None
    if span < 0:
        raise InvalidMessageError(f"wait is {wait!r}: seconds, 0 or more")
    return span


def check_count(max_messages: Any) -> None:
    """Refuse a number of messages that is none."""
    if not _is_whole(max_messages) or max_messages < 1:
        raise InvalidMessageError(f"max_messages is {max_messages!r}: a whole number, at least 1")


def check_key(topic: Any, key: Any, max_messages: Any) -> None:
    """Refuse a look-up by nothing."""
    check_readable_topic(topic)
    if not isinstance(key, str) or not key:
        raise InvalidMessageError(f"key is {key!r}: give the text to look for")
    check_count(max_messages)


def check_id(message_id: Any) -> None:
    """Refuse what is no text at all."""
    if not isinstance(message_id, str) or not message_id:
        raise InvalidMessageError(f"message_id is {message_id!r}: give text, e.g. of a result")


def check_position(position: Any, what: str) -> None:
    """Refuse where to start or end, if that means nothing."""
    if isinstance(position, Mapping):
        for queue, offset in position.items():
            if not isinstance(queue, MessageQueue) or not _is_whole(offset):
                raise InvalidMessageError(
                    f"{what} has {queue!r}: {offset!r}: give offsets by MessageQueue"
                )
    elif isinstance(position, str) and position not in {"earliest", "latest"}:
        raise InvalidMessageError(
            f"{what} is {position!r}: 'earliest', 'latest', an aware datetime, epoch seconds, or "
            "offsets by queue"
        )
    elif not isinstance(position, str):
        epoch_of(position, what)


def check_reading(topic: Any, start: Any, end: Any, *, follow: bool) -> None:
    """Refuse a reading that has no beginning, or two ends."""
    if not isinstance(topic, MessageQueue):
        check_readable_topic(topic)
    check_position(start, "start")
    if end is not None:
        check_position(end, "end")
        if follow:
            raise InvalidMessageError("follow and end exclude one another: give one of them")
