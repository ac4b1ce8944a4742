"""What is known about where topics live.

The table holds one entry per topic, decides whether a new answer is a change, and derives what
senders need: the queue list in Java's order and the master address of each broker. Asking for
routes is ``lookup``'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from rocketwire.config import AddressMap
from rocketwire.core.effects import Event
from rocketwire.message import MessageQueue
from rocketwire.wire.route import (
    MASTER_ID,
    QueueData,
    TopicRoute,
    publish_queues,
    static_owners,
    subscribe_queues,
)


@dataclass(slots=True, eq=False)
class TopicEntry:
    """One topic. Replaced as a whole when the route changes, so that senders never see half."""

    topic: str
    route: TopicRoute
    #: The queues whose master is known, and can be sent to.
    queues: tuple[MessageQueue, ...]
    #: All queues as Java lists them. An ordered or a static topic keeps those whose master is
    #: gone, so that a key stays on its queue until the master is back.
    listed: tuple[MessageQueue, ...]
    brokers: tuple[str, ...]
    masters: Mapping[str, str]
    #: The real broker of a logical queue; empty but for static topics.
    owners: Mapping[MessageQueue, str]
    is_fallback: bool
    fetched_at: float
    #: Whatever senders derive from the queues (request templates); dropped with the entry.
    derived: dict[Any, Any] = field(default_factory=dict)

    def owner_of(self, queue: MessageQueue) -> str:
        """The real broker of a queue."""
        return self.owners.get(queue, queue.broker)

    def address_of(self, queue: MessageQueue) -> str | None:
        """Where messages for a queue go; None without a master that is known."""
        return self.masters.get(self.owner_of(queue))


@dataclass(frozen=True, slots=True)
class RouteChange:
    """What an update did."""

    entry: TopicEntry
    before: tuple[MessageQueue, ...] | None
    is_change: bool
    #: Brokers whose master has another address now.
    moved: tuple[str, ...]


class RouteTable:
    """Routes by topic, and the addresses of all brokers that appear in them."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        lock: AbstractContextManager[Any],
        address_map: AddressMap | None = None,
        display: Callable[[str], str] = str,
        thread: Callable[[], int] = lambda: 0,
    ) -> None:
        """An empty table.

        Args:
            clock: when entries were fetched.
            lock: guards changes; reading needs none.
            address_map: see ``ClientConfig``.
            display: the name by which users know a topic, without its namespace.
            thread: which thread this is; 0 where it does not matter.
        """
        self._display = display
        self._thread = thread
        self._clock = clock
        self._lock = lock
        self._map = address_map
        self._entries: dict[str, TopicEntry] = {}
        #: The entry of a topic, however old. Asked for with every message, so it is the
        #: dictionary's own method.
        self.get: Callable[[str], TopicEntry | None] = self._entries.get
        #: Changes with every change of an entry: what was made of one may be kept until then.
        self.version = 0
        self._addresses: dict[str, dict[int, str]] = {}
        #: In how many routes a broker appears.
        self._mentions: dict[str, int] = {}
        self._lookups: dict[str, Event] = {}

    def topics(self) -> tuple[str, ...]:
        """All topics that are known."""
        return tuple(self._entries)

    def brokers(self) -> frozenset[str]:
        """All brokers that appear in any route."""
        return frozenset(self._addresses)

    def masters(self) -> dict[str, str]:
        """The master address of each broker that has one."""
        known = list(self._addresses.items())
        return {broker: by_id[MASTER_ID] for broker, by_id in known if MASTER_ID in by_id}

    def master_of(self, broker: str) -> str | None:
        """The address of a broker's master, if it has one."""
        found = self._addresses.get(broker)
        return None if found is None else found.get(MASTER_ID)

    def addresses_of(self, broker: str) -> dict[int, str]:
        """All addresses of a broker by id; 0 is the master."""
        return dict(self._addresses.get(broker, {}))

    def addresses(self) -> frozenset[str]:
        """All addresses of all brokers."""
        return frozenset(a for by_id in list(self._addresses.values()) for a in by_id.values())

    def is_advertised(self, address: str) -> bool:
        """Whether any route has this address, as brokers advertise it (``address_map`` aside)."""
        return any(
            address in data.addresses.values()
            for entry in list(self._entries.values())
            for data in entry.route.brokers
        )

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that can be read."""
        entry = self._entries.get(topic)
        return subscribe_queues(self._display(topic), entry.route) if entry else ()

    def update(self, topic: str, route: TopicRoute, *, is_fallback: bool = False) -> RouteChange:
        """Take an answer of a name server; order in it does not matter."""
        now = self._clock()
        with self._lock:
            old = self._entries.get(topic)
            if old is not None and old.route == route and old.is_fallback == is_fallback:
                old.fetched_at = now
                return RouteChange(old, old.queues, is_change=False, moved=())
            entry = self._make(topic, route, is_fallback=is_fallback, now=now)
            self._entries[topic] = entry
            self.version += 1
            moved = self._readdress(old, entry)
        before = old.queues if old is not None else None
        return RouteChange(entry, before, is_change=True, moved=moved)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        with self._lock:
            self._readdress(self._entries.pop(topic, None), None)
            self.version += 1

    def _make(self, topic: str, route: TopicRoute, *, is_fallback: bool, now: float) -> TopicEntry:
        listed = publish_queues(self._display(topic), route)
        masters = {
            data.broker: self.translate(data.addresses[MASTER_ID])
            for data in route.brokers
            if MASTER_ID in data.addresses
        }
        owners = static_owners(self._display(topic), route) if route.mappings else {}
        queues = tuple(q for q in listed if owners.get(q, q.broker) in masters)
        brokers = tuple(dict.fromkeys(q.broker for q in queues))
        return TopicEntry(topic, route, queues, listed, brokers, masters, owners, is_fallback, now)

    def translate(self, address: str) -> str:
        """The address to use for an advertised one."""
        if self._map is None:
            return address
        if callable(self._map):
            return self._map(address)
        return self._map.get(address, address)

    def _readdress(self, old: TopicEntry | None, new: TopicEntry | None) -> tuple[str, ...]:
        """Take over the addresses of a route, and leave out brokers that no route has any more.

        The newest answer wins where topics disagree. Only what changed is looked at: going
        through all routes for each of ten thousand topics would take minutes.

        Returns:
            The brokers whose master has another address now.
        """
        fresh, mentions = dict(self._addresses), self._mentions
        moved: list[str] = []
        for data in () if new is None else {d.broker: d for d in new.route.brokers}.values():
            broker, by_id = data.broker, {i: self.translate(a) for i, a in data.addresses.items()}
            before = fresh.get(broker)
            if before is not None and before.get(MASTER_ID) != by_id.get(MASTER_ID):
                moved.append(broker)
            fresh[broker] = by_id
            mentions[broker] = mentions.get(broker, 0) + 1
        for broker in () if old is None else {data.broker for data in old.route.brokers}:
            mentions[broker] -= 1
            if not mentions[broker]:
                del mentions[broker], fresh[broker]
        self._addresses = fresh
        return tuple(moved)

    def begin_lookup(self, topic: str) -> tuple[Event, bool]:
        """Join the lookup that is under way for a topic, or begin one (then True)."""
        with self._lock:
            event = self._lookups.get(topic)
            if event is not None:
                return event, False
            event = self._lookups[topic] = Event()
            event.setter = self._thread() or None
            return event, True

    def end_lookup(self, topic: str) -> None:
        """Let all go on that waited for the lookup."""
        with self._lock:
            event = self._lookups.pop(topic, None)
        if event is not None:
            event.set()


def fallback_route(route: TopicRoute, queues: int) -> TopicRoute:
    """The default topic's route as that of a topic which does not exist yet."""

    def limited(data: QueueData) -> QueueData:
        count = min(queues, data.read_queues)
        return QueueData(data.broker, count, count, data.permission, data.system_flag)

    return TopicRoute(tuple(limited(d) for d in route.queues), route.brokers, None, {})
