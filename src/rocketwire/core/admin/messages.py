"""Messages, as operators look for them: by id, by key, wherever they are."""

from __future__ import annotations

from typing import Final

from rocketwire.core.admin.topics import list_topics
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.reading.arguments import check_id, check_key, check_readable_topic
from rocketwire.core.reading.by_key import messages_by_key
from rocketwire.core.reading.pull import is_own_offset_id, message_by_offset_id
from rocketwire.errors import InvalidMessageError, TopicNotFoundError
from rocketwire.stored_message import StoredMessage

FAR_FUTURE: Final = 32_503_680_000.0  # the year 3000


def find_message(
    instance: Instance, message_id: str, topic: str | None, deadline: float
) -> Op[StoredMessage]:
    """A message by its message id or its offset message id.

    An offset message id names its broker. A message id is looked up in the brokers' index, which
    goes by topics: without ``topic``, one normal topic after another is asked for it.

    Raises:
        InvalidMessageError: there is no such message.
        TopicNotFoundError: there is no such topic.
    """
    check_id(message_id)
    if (yield from is_own_offset_id(instance, message_id, deadline)):
        return (yield from message_by_offset_id(instance, message_id, deadline, topic=topic))
    if topic is not None:
        check_readable_topic(topic)
        topics = [topic]
    else:
        known = yield from list_topics(instance, deadline)
        topics = [each.name for each in known if each.kind == "normal"]
    patience = deadline - instance.clock()
    for name in topics:
        try:
            found = yield from find_by_key(
                instance, name, message_id, unique=True, deadline=instance.clock() + patience
            )
        except TopicNotFoundError:
            if topic is not None:
                raise
            continue  # deleted since the list was made
        if found:
            return found[0]
    where = f"topic {topic} has" if topic is not None else f"none of {len(topics)} topics has"
    raise InvalidMessageError(
        f"{where} a message with the id {message_id!r}: check it, and whether the message is "
        "older than the brokers keep them"
    )


def find_by_key(
    instance: Instance,
    topic: str,
    key: str,
    *,
    unique: bool = False,
    max_messages: int = 32,
    begin: float = 0.0,
    end: float = FAR_FUTURE,
    deadline: float,
) -> Op[tuple[StoredMessage, ...]]:
    """The messages of a topic that have a key, from the brokers' indexes, oldest first.

    Raises:
        TopicNotFoundError: there is no such topic.
    """
    check_key(topic, key, max_messages)
    return (
        yield from messages_by_key(
            instance,
            topic,
            key,
            unique=unique,
            max_messages=max_messages,
            begin=begin,
            end=end,
            deadline=deadline,
        )
    )
