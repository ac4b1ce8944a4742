"""What ``Admin`` and ``AsyncAdmin`` answer: topics, groups, brokers, as they are at one moment.

All of them are frozen values. Times are aware datetimes in UTC, None where a server does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from rocketwire.errors import RocketMQError
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage

#: ``normal`` is what applications made; retry and dead-letter topics belong to a consumer group.
TopicKind: TypeAlias = Literal["normal", "retry", "dead letter", "system"]
#: What became of a copy of a message.
CopyStatus: TypeAlias = Literal["sent", "already there", "in doubt", "failed"]


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


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A consumer group in a list, and the brokers that know it."""

    name: str
    brokers: tuple[str, ...] = ()
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class Connection:
    """A client that is connected with a group, and the brokers that see it."""

    client_id: str
    address: str
    language: str
    version: int
    role: Literal["consumer", "producer"] = "consumer"
    brokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """How far a group is in one queue; ``member`` is the client that has it, if it told."""

    queue: MessageQueue
    consumed: int
    end: int
    member: str | None = None
    consumed_at: datetime | None = None

    @property
    def lag(self) -> int:
        """Messages that are not handled yet."""
        return max(0, self.end - self.consumed)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: who is in it, what it wants, how far it is.

    ``errors`` has, by broker, why it could not be asked: its queues are missing here then.
    """

    name: str
    brokers: tuple[str, ...] = ()
    members: tuple[Connection, ...] = ()
    subscriptions: Mapping[str, str] = field(default_factory=dict)
    queues: tuple[GroupQueue, ...] = field(default=(), repr=False)
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Messages that are not handled yet, queue by queue."""
        return {item.queue: item.lag for item in self.queues}

    @property
    def assignment(self) -> dict[MessageQueue, str]:
        """The client ids of the members that have a queue now, as far as they told."""
        return {item.queue: item.member for item in self.queues if item.member is not None}


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """Where a group stood in a queue, and where it stands after a change (or would stand)."""

    queue: MessageQueue
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker: its cluster, the addresses of its master (0) and slaves, and its release.

    ``runtime`` has what the master says about itself, by Java's names; it is empty, and ``error``
    says why, where the master gave no answer.
    """

    name: str
    cluster: str
    addresses: Mapping[int, str]
    version: str | None = None
    started_at: datetime | None = None
    runtime: Mapping[str, str] = field(default_factory=dict, repr=False)
    error: str | None = None

    @property
    def master(self) -> str | None:
        """The address of the master, if there is one now."""
        return self.addresses.get(0)


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One thing that happened to a message, as a client told it.

    ``success`` is None while a consumer has not finished with it. ``duration`` is in seconds,
    ``attempt`` counts from 1 for what a consumer got, and ``outcome`` is Java's word for how it
    ended, where there is one.
    """

    kind: Literal["sent", "consumed", "transaction", "recalled"]
    at: datetime
    group: str | None
    client: str
    broker: str | None = None
    success: bool | None = None
    duration: float | None = None
    attempt: int = 1
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a consumer group has given up.

    ``message`` is the dead letter as it lies in its topic; ``original_topic`` and ``original_id``
    are those of the message that was sent, ``original_queue`` is its place as long as brokers keep
    it. ``attempts`` counts the calls of handlers. ``last_error`` is None where another client, or
    one that may not send, gave it up.
    """

    group: str
    message: StoredMessage
    original_topic: str
    original_id: str
    attempts: int
    last_error: str | None = None
    original_queue: MessageQueue | None = None
    original_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Redriven:
    """A dead letter that was sent again: where the copy is.

    ``is_new`` is False where an earlier call had sent it already, and this one sent nothing.
    """

    dead_letter: DeadLetter
    is_new: bool
    queue: MessageQueue
    offset: int


@dataclass(frozen=True, slots=True)
class Purged:
    """Dead letters of one queue that are shown no more: from one offset up to another."""

    queue: MessageQueue
    first: int
    end: int

    @property
    def messages(self) -> int:
        """How many they are."""
        return max(0, self.end - self.first)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A message that was put into another topic, or why it was not.

    ``status`` is ``sent``; ``already there`` where an earlier run had sent it; ``in doubt`` where
    its send got no answer and it was not found since; or ``failed``.
    """

    message: StoredMessage
    status: CopyStatus
    queue: MessageQueue | None = None
    offset: int | None = None
    error: RocketMQError | None = None
