"""What a name server knows: brokers, their topics, and when each was last heard of.

Pure state; ``nameserver`` does the talking. The rules are Apache's: only masters say which
topics there are, a broker that is lost takes its queues along, and a topic without any broker
does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rocketwire.wire.codes import Permission
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute


@dataclass(slots=True)
class Registration:
    """What a broker says of itself."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone: str | None = None
    acting_master: bool = False
    timeout: float = 120.0
    version: dict[str, Any] = field(default_factory=dict)
    #: Topic to read queues, write queues, permission, system flag; None when it sent none.
    topics: dict[str, tuple[int, int, int, int]] | None = None


@dataclass(slots=True)
class LiveBroker:
    """A registered address. ``owner`` is the connection that registered it."""

    registration: Registration
    heard: float
    owner: object


class RouteTable:
    """Brokers by name, topics by name."""

    def __init__(self) -> None:
        self._brokers: dict[str, BrokerData] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._live: dict[tuple[str, str], LiveBroker] = {}

    # Brokers come and go

    def register(self, new: Registration, owner: object, now: float) -> bool:
        """Take a registration in; False when Apache would refuse it.

        Apache refuses the first registration of a broker that has exactly one topic, because
        that is an update for a broker which the name server has just forgotten.
        """
        known = self._brokers.get(new.broker)
        first = known is None or new.broker_id not in known.addresses
        if first and new.topics is not None and len(new.topics) == 1:
            return False
        addresses = dict(known.addresses) if known is not None else {}
        for broker_id in [i for i, a in addresses.items() if a == new.address]:
            del addresses[broker_id]
        addresses[new.broker_id] = new.address
        self._brokers[new.broker] = BrokerData(
            new.cluster, new.broker, addresses, new.zone, new.acting_master
        )
        if new.broker_id == 0 and new.topics is not None:
            self._put_topics(new)
        self._live[new.cluster, new.address] = LiveBroker(new, now, owner)
        return True

    def _put_topics(self, new: Registration) -> None:
        for topic, (read, write, permission, flag) in (new.topics or {}).items():
            self._topics.setdefault(topic, {})[new.broker] = QueueData(
                new.broker, read, write, permission, flag
            )

    def unregister(self, cluster: str, broker: str, broker_id: int, address: str) -> None:
        """Forget one address; the last one takes the broker's queues along."""
        self._live.pop((cluster, address), None)
        known = self._brokers.get(broker)
        if known is None or known.addresses.get(broker_id) != address:
            return
        addresses = {i: a for i, a in known.addresses.items() if i != broker_id}
        if addresses:
            self._brokers[broker] = BrokerData(
                known.cluster, broker, addresses, known.zone, known.acting_master
            )
            return
        del self._brokers[broker]
        for queues in self._topics.values():
            queues.pop(broker, None)
        self._topics = {topic: queues for topic, queues in self._topics.items() if queues}

    def heard(self, cluster: str, address: str, now: float) -> LiveBroker | None:
        """A broker says that it is alive; None when it is not registered."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.heard = now
        return live

    def lost(self, owner: object) -> list[str]:
        """A connection is closed: forget the brokers that registered over it."""
        return self._forget(live for live in self._live.values() if live.owner is owner)

    def expire(self, now: float) -> list[str]:
        """Forget brokers that have been silent for too long."""
        return self._forget(
            live for live in self._live.values() if now - live.heard > live.registration.timeout
        )

    def _forget(self, gone: Iterable[LiveBroker]) -> list[str]:
        names = []
        for live in list(gone):
            old = live.registration
            self.unregister(old.cluster, old.broker, old.broker_id, old.address)
            names.append(old.broker)
        return names

    # Questions

    def route(self, topic: str, order_conf: str | None = None) -> TopicRoute | None:
        """Where a topic lives; None when nobody has it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = tuple(self._brokers[name] for name in queues if name in self._brokers)
        if not brokers:
            return None
        return TopicRoute(tuple(queues.values()), brokers, order_conf)

    @property
    def brokers(self) -> dict[str, BrokerData]:
        """By name."""
        return self._brokers

    @property
    def topics(self) -> list[str]:
        """All names."""
        return list(self._topics)

    def clusters(self) -> dict[str, tuple[str, ...]]:
        """The names of each cluster's brokers."""
        found: dict[str, list[str]] = {}
        for data in self._brokers.values():
            found.setdefault(data.cluster, []).append(data.broker)
        return {cluster: tuple(names) for cluster, names in found.items()}

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics that any broker of a cluster has."""
        names = set(self.clusters().get(cluster, ()))
        return [topic for topic, queues in self._topics.items() if names & set(queues)]

    def master_of(self, broker: str) -> str:
        """The master's address, empty without one."""
        data = self._brokers.get(broker)
        return (data.master or "") if data is not None else ""

    def version_of(self, cluster: str, address: str) -> dict[str, Any] | None:
        """The data version that a broker registered last."""
        live = self._live.get((cluster, address))
        return live.registration.version if live is not None else None

    # Changes by operators

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        if cluster is None:
            self._topics.pop(topic, None)
            return
        queues = self._topics.get(topic, {})
        for name in self.clusters().get(cluster, ()):
            queues.pop(name, None)
        if not queues:
            self._topics.pop(topic, None)

    def put_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Make a topic known without a broker's word for it."""
        known = {data.broker: data for data in queues if data.broker in self._brokers}
        if known:
            self._topics.setdefault(topic, {}).update(known)

    def change_write_permission(self, broker: str, *, writable: bool) -> int:
        """Allow or forbid writing to all queues of a broker; tells how many topics it was."""
        count = 0
        for queues in self._topics.values():
            data = queues.get(broker)
            if data is None:
                continue
            permission = data.permission & ~Permission.WRITE
            if writable:
                permission |= Permission.WRITE
            queues[broker] = QueueData(
                broker, data.read_queues, data.write_queues, permission, data.system_flag
            )
            count += 1
        return count
