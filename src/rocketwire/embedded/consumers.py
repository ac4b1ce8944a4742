"""Who produces and who consumes: the tables that heartbeats fill, and locks on queues.

Nothing here is kept on disk: a client that is alive says so again within half a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from rocketwire.embedded.connection import Connection
from rocketwire.embedded.sql_filter import ExpressionError, SqlFilter
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.java_hash import java_string_hash

#: Seconds for which a lock holds without renewal.
LOCK_SECONDS: Final = 60.0
#: Seconds of silence after which a client is forgotten.
CLIENT_SECONDS: Final = 120.0


@dataclass(slots=True)
class Member:
    """One client of a group, on its connection."""

    client_id: str
    connection: Connection
    language: int
    version: int
    heard: float


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """What a group wants of one topic."""

    topic: str
    expression: str
    expression_type: str
    version: int
    codes: frozenset[int] | None
    #: None when it is by tag, and when the expression can't be read.
    sql: SqlFilter | None = field(compare=False, default=None)
    #: As it came, for operators who ask.
    raw: dict[str, Any] = field(compare=False, default_factory=dict)

    @property
    def by_tag(self) -> bool:
        """Whether the expression is a list of tags."""
        return self.expression_type in {"", "TAG"}


def sql_filter(expression: str | None, expression_type: str) -> SqlFilter:
    """What an expression that is no list of tags means.

    Raises:
        ExpressionError: it can't be read, or is of a type that no broker has.
    """
    if expression_type != "SQL92":
        kinds = "TAG and SQL92 are known"
        raise ExpressionError(f"the type {expression_type[:40]!r} is unknown: {kinds}", 1, "")
    return SqlFilter(expression or "")


def tag_codes(expression: str | None) -> frozenset[int] | None:
    """Hashes of the tags that an expression names; None when it wants everything.

    Raises:
        RemoteProtocolError: it names no tag.
    """
    if not expression or expression.strip() == "*":
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    found = frozenset(java_string_hash(tag) for tag in tags if tag)
    if not found:
        raise RemoteProtocolError(f"subscription {expression[:80]!r} names no tag: give 'a || b'")
    return found


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a group and what they have subscribed to."""

    name: str
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionEntry] = field(default_factory=dict)
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"

    @property
    def client_ids(self) -> list[str]:
        """Of all members."""
        return [member.client_id for member in self.members.values()]


class ClientTable:
    """Live producers and consumers.

    Args:
        notify: called with a group whose members have changed.
    """

    def __init__(self, notify: Callable[[ConsumerGroup], None]) -> None:
        self._notify = notify
        self.producers: dict[str, dict[Connection, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._by_id: dict[str, Connection] = {}

    def connection_of(self, client_id: str) -> Connection | None:
        """Where a client can be reached."""
        connection = self._by_id.get(client_id)
        return connection if connection is not None and connection.open else None

    def add_producer(self, group: str, member: Member) -> None:
        """A producer is alive."""
        self.producers.setdefault(group, {})[member.connection] = member
        self._by_id[member.client_id] = member.connection

    def add_consumer(
        self,
        group: ConsumerGroup,
        member: Member,
        subscriptions: Iterable[SubscriptionEntry],
    ) -> bool:
        """A consumer is alive. Tells whether the group has changed; members are told, too."""
        known = group.members.get(member.connection)
        changed = known is None or known.client_id != member.client_id
        group.members[member.connection] = member
        self._by_id[member.client_id] = member.connection
        wanted = {entry.topic: entry for entry in subscriptions}
        for topic, entry in wanted.items():
            old = group.subscriptions.get(topic)
            if old is None or old.version < entry.version:
                changed = changed or old is None or old.expression != entry.expression
                group.subscriptions[topic] = entry
        for topic in [t for t in group.subscriptions if t not in wanted]:
            del group.subscriptions[topic]
            changed = True
        if changed:
            self._changed(group)
        return changed

    def _changed(self, group: ConsumerGroup) -> None:
        if group.message_model != "BROADCASTING":
            self._notify(group)

    def group(self, name: str) -> ConsumerGroup:
        """A group, made when it is new."""
        return self.consumers.setdefault(name, ConsumerGroup(name))

    def remove_producer(self, group: str, client_id: str) -> None:
        """A producer says goodbye."""
        members = self.producers.get(group, {})
        for connection in [c for c, m in members.items() if m.client_id == client_id]:
            del members[connection]
        if not members:
            self.producers.pop(group, None)

    def remove_consumer(self, group: str, client_id: str) -> None:
        """A consumer says goodbye."""
        found = self.consumers.get(group)
        if found is None:
            return
        gone = [c for c, m in found.members.items() if m.client_id == client_id]
        for connection in gone:
            del found.members[connection]
        self._after_leaving(found, changed=bool(gone))

    def lost(self, connection: Connection) -> None:
        """A connection is closed: all clients on it are gone."""
        for group in list(self.producers):
            members = self.producers[group]
            members.pop(connection, None)
            if not members:
                del self.producers[group]
        for found in list(self.consumers.values()):
            self._after_leaving(found, changed=found.members.pop(connection, None) is not None)
        for client_id in [i for i, c in self._by_id.items() if c is connection]:
            del self._by_id[client_id]

    def expire(self, now: float) -> None:
        """Forget the silent ones."""
        for members in [*self.producers.values(), *(g.members for g in self.consumers.values())]:
            for connection, member in list(members.items()):
                if now - member.heard > CLIENT_SECONDS:
                    connection.abort()

    def _after_leaving(self, group: ConsumerGroup, *, changed: bool) -> None:
        if not group.members:
            self.consumers.pop(group.name, None)
        if changed:
            self._changed(group)


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed: float


class QueueLocks:
    """Locks that ordered consumers hold on queues, by group."""

    def __init__(self) -> None:
        self._locks: dict[str, dict[tuple[str, int], _Lock]] = {}

    def lock(self, group: str, client_id: str, queue: tuple[str, int], now: float) -> bool:
        """Take or renew a lock; False when another member has it."""
        locks = self._locks.setdefault(group, {})
        held = locks.get(queue)
        if held is None or held.client_id == client_id or now - held.renewed > LOCK_SECONDS:
            locks[queue] = _Lock(client_id, now)
            return True
        return False

    def unlock(self, group: str, client_id: str, queue: tuple[str, int]) -> None:
        """Give a lock back; one of another client stays."""
        held = self._locks.get(group, {}).get(queue)
        if held is not None and held.client_id == client_id:
            del self._locks[group][queue]

    def any_held(self, group: str, now: float) -> bool:
        """Whether a group holds any lock: then its messages are ordered."""
        locks = self._locks.get(group, {})
        return any(now - lock.renewed <= LOCK_SECONDS for lock in locks.values())
