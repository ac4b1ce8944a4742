"""A send that is about to happen: what goes where, and what is known of it on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketwire.core.attempts import AttemptLog
from rocketwire.core.encode import Outgoing
from rocketwire.core.faults import Flight
from rocketwire.core.ordering import Ticket
from rocketwire.core.retry import SendMode
from rocketwire.core.routes import TopicEntry
from rocketwire.core.selection import Selector
from rocketwire.core.targets import SendTarget
from rocketwire.errors import InvalidMessageError, SendFailedError
from rocketwire.message import Message, MessageQueue
from rocketwire.wire.command import Reply, Request


@dataclass(slots=True, eq=False)
class Plan:
    """A send whose input is checked: nothing in it can be refused any more."""

    outgoing: Outgoing
    queue: MessageQueue | None
    selector: Selector | None
    argument: Any
    mode: SendMode
    timeout: float
    is_pinned: bool
    tickets: tuple[Ticket, ...] = ()
    #: The address of the last attempt, and its answer.
    address: str | None = None
    reply: Reply | None = None
    #: What is known of a send that its caller gave up.
    given_up: SendFailedError | None = None
    #: Made when there is something to tell.
    log: AttemptLog | None = None


@dataclass(slots=True, eq=False)
class Begun:
    """An attempt: where it goes, by which route, and until when it may take."""

    entry: TopicEntry
    target: SendTarget
    flight: Flight
    request: Request
    limit: float


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


def check_queue(queue: object, selector: object, outgoing: Outgoing) -> None:
    """Refuse a queue that these messages can't go to."""
    if selector is not None:
        raise InvalidMessageError("queue and selector exclude one another: give one of them")
    if not isinstance(queue, MessageQueue):
        raise InvalidMessageError(
            f"queue is {queue!r}: give a MessageQueue, e.g. one of publish_queues()"
        )
    if type(queue.id) is not int:
        raise InvalidMessageError(f"queue has the id {queue.id!r}: give a number")
    if queue.topic != outgoing.message.topic:
        raise InvalidMessageError(
            f"queue belongs to topic {queue.topic!r}, the message to {outgoing.message.topic!r}"
        )
