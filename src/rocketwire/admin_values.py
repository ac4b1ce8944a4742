"""What ``Admin`` and ``AsyncAdmin`` answer: topics, groups, brokers, as they are at one moment.

All of them are frozen values. Times are aware datetimes in UTC, None where a server does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from rocketwire.message import MessageQueue

#: ``normal`` is what applications made; retry and dead-letter topics belong to a consumer group.
TopicKind: TypeAlias = Literal["normal", "retry", "dead letter", "system"]


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in a list."""

    name: str
    kind: TopicKind = "normal"


@dataclass(frozen=True, slots=True)
class TopicBroker:
    """A topic on one broker.

    ``addresses`` are those of the broker, the master's under 0. ``order``, ``message_type`` and
    ``attributes`` are None where the broker did not tell; brokers before 5.0 have no attributes.
    """

    broker: str
    cluster: str
    addresses: Mapping[int, str]
    read_queues: int
    write_queues: int
    can_read: bool
    can_write: bool
    order: bool | None = None
    message_type: str | None = None
    attributes: Mapping[str, str] | None = None

    @property
    def master(self) -> str | None:
        """The address of the master, if there is one now."""
        return self.addresses.get(0)


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """One queue: its first offset, the offset after its last, and when it was last written.

    ``error`` says why the broker could not be asked; the offsets mean nothing then.
    """

    queue: MessageQueue
    first: int
    end: int
    updated_at: datetime | None = None
    error: str | None = None

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return max(0, self.end - self.first)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: where it lives, and what its queues hold."""

    name: str
    kind: TopicKind = "normal"
    brokers: tuple[TopicBroker, ...] = ()
    queues: tuple[TopicQueue, ...] = field(default=(), repr=False)

    @property
    def messages(self) -> int:
        """How many messages its queues hold, those of unreachable brokers left out."""
        return sum(state.messages for state in self.queues if state.error is None)

    @property
    def message_type(self) -> str | None:
        """NORMAL, FIFO, DELAY, TRANSACTION or MIXED; None where no broker has an opinion."""
        return next((b.message_type for b in self.brokers if b.message_type), None)

    @property
    def order(self) -> bool:
        """Whether it was made as an ordered topic."""
        return any(b.order for b in self.brokers)
