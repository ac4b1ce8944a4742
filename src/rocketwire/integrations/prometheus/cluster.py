"""A collector of a whole cluster, asked through ``Admin``: brokers, topics, groups, dead letters.

A scrape is bounded: in its time, in how many topics and groups it looks at, and in how often the
cluster is asked. What did not fit is told by metrics of the exporter itself.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from prometheus_client.core import Metric

from rocketwire import Admin, Broker, Group, RocketMQError
from rocketwire.integrations.prometheus.families import Definition, Families

_BROKER: Final = ("cluster", "broker")
_GROUP_TOPIC: Final = ("group", "topic")
_DEAD: Final = "%DLQ%"

CLUSTER: Final[tuple[Definition, ...]] = (
    ("rocketwire_cluster_up", "gauge", "Whether the name server answered", ()),
    ("rocketwire_cluster_broker_up", "gauge", "Whether the master answered", _BROKER),
    ("rocketwire_cluster_broker_info", "gauge", "Its release", ("cluster", "broker", "version")),
    ("rocketwire_cluster_broker_put_rate", "gauge", "Messages stored per second, as it says", _BROKER),
    ("rocketwire_cluster_broker_get_rate", "gauge", "Messages read per second, as it says", _BROKER),
    ("rocketwire_cluster_broker_disk_used_ratio", "gauge", "Of the disk of its log, 0 to 1", _BROKER),
    ("rocketwire_cluster_topic_messages", "gauge", "Messages that a topic holds", ("topic",)),
    ("rocketwire_cluster_topic_stored_total", "counter", "Messages ever stored", ("topic",)),
    ("rocketwire_cluster_topic_unreachable_queues", "gauge", "Queues that can't be asked", ("topic",)),
    ("rocketwire_cluster_group_lag", "gauge", "Messages not handled yet", _GROUP_TOPIC),
    ("rocketwire_cluster_group_consumed_total", "counter", "Messages handled", _GROUP_TOPIC),
    ("rocketwire_cluster_group_delay_seconds", "gauge", "Age of the last handled message, while there is lag", _GROUP_TOPIC),
    ("rocketwire_cluster_group_members", "gauge", "Consumers that are connected", ("group",)),
    ("rocketwire_cluster_dead_letters", "gauge", "Messages given up and still there", ("group",)),
    ("rocketwire_exporter_complete", "gauge", "Whether everything was asked in time", ()),
    ("rocketwire_exporter_left_out", "gauge", "Topics and groups that were not looked at", ("what",)),
    ("rocketwire_exporter_errors", "gauge", "Questions that failed in this scrape", ()),
    ("rocketwire_exporter_seconds", "gauge", "How long the cluster was asked", ()),
)  # fmt: skip


class ClusterCollector:
    """The numbers of a cluster: ``REGISTRY.register(ClusterCollector(admin))``.

    Args:
        admin: a running ``Admin``.
        timeout: seconds for one scrape; what is not asked by then is left out.
        most: topics, and groups, that are looked at; the first by name.
        keep: seconds for which an answer serves further scrapes.
    """

    def __init__(
        self, admin: Admin, *, timeout: float = 8.0, most: int = 500, keep: float = 5.0
    ) -> None:
        self._admin = admin
        self._timeout = timeout
        self._most = most
        self._keep = keep
        self._lock = threading.Lock()
        self._found: list[Metric] = []
        self._found_at = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked when it is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Ask the cluster, unless another scrape just did."""
        with self._lock:
            if time.monotonic() - self._found_at > self._keep:
                scrape = _Scrape(self._admin, time.monotonic() + self._timeout, self._most)
                self._found = scrape.run()
                self._found_at = time.monotonic()
            return iter(self._found)


class _Scrape:
    """One round of questions."""

    def __init__(self, admin: Admin, deadline: float, most: int) -> None:
        self._admin = admin
        self._deadline = deadline
        self._most = most
        self._families = Families(CLUSTER, limit=most * 20)
        self._errors = 0
        self._left_out = {"topics": 0, "groups": 0}

    def run(self) -> list[Metric]:
        """Everything that could be asked in time."""
        began = time.monotonic()
        add = self._families.add
        try:
            self._brokers()
            self._topics()
            self._groups()
            add("rocketwire_cluster_up", 1)
        except RocketMQError:  # no name server answers: there is nothing to ask
            self._errors += 1
            add("rocketwire_cluster_up", 0)
        is_complete = not self._errors and not any(self._left_out.values())
        is_complete = is_complete and not self._families.left_out
        for what, count in self._left_out.items():
            add("rocketwire_exporter_left_out", count, what)
        add("rocketwire_exporter_left_out", self._families.left_out, "series")
        add("rocketwire_exporter_complete", is_complete)
        add("rocketwire_exporter_errors", self._errors)
        add("rocketwire_exporter_seconds", time.monotonic() - began)
        return list(self._families.metrics())

    def _each(self, what: str, names: list[str], look: Callable[[str], None]) -> None:
        """Look at what there is time and room for."""
        for place, name in enumerate(names):
            if place >= self._most or time.monotonic() >= self._deadline:
                self._left_out[what] += len(names) - place
                return
            try:
                look(name)
            except RocketMQError:  # it is gone meanwhile, or its broker is
                self._errors += 1

    def _brokers(self) -> None:
        add = self._families.add
        for broker in self._admin.brokers():
            labels = (broker.cluster, broker.name)
            add("rocketwire_cluster_broker_up", broker.error is None, *labels)
            if broker.version:
                add("rocketwire_cluster_broker_info", 1, *labels, broker.version)
            for name, keys in _RUNTIME.items():
                found = [value for key in keys if (value := _number(broker, key)) is not None]
                if found:
                    add(f"rocketwire_cluster_broker_{name}", found[0], *labels)

    def _topics(self) -> None:
        topics = self._admin.topics()
        # Dead letters first: they are few, and an operator should know.
        self._each(
            "topics", [t.name for t in topics if t.kind == "dead letter"], self._dead_letters
        )
        self._each("topics", [t.name for t in topics if t.kind == "normal"], self._topic)

    def _dead_letters(self, name: str) -> None:
        messages = self._admin.topic(name).messages
        self._families.add("rocketwire_cluster_dead_letters", messages, name.removeprefix(_DEAD))

    def _topic(self, name: str) -> None:
        topic, add = self._admin.topic(name), self._families.add
        reachable = [state for state in topic.queues if state.error is None]
        add("rocketwire_cluster_topic_messages", topic.messages, name)
        add("rocketwire_cluster_topic_stored_total", sum(s.end for s in reachable), name)
        missing = len(topic.queues) - len(reachable)
        add("rocketwire_cluster_topic_unreachable_queues", missing, name)

    def _groups(self) -> None:
        names = [group.name for group in self._admin.groups() if not group.is_system]
        self._each("groups", names, lambda name: self._group(self._admin.group(name)))

    def _group(self, group: Group) -> None:
        add, now = self._families.add, datetime.now(UTC)
        add("rocketwire_cluster_group_members", len(group.members), group.name)
        self._errors += len(group.errors)
        oldest: dict[str, datetime] = {}
        for item in group.queues:
            labels = (group.name, item.queue.topic)
            add("rocketwire_cluster_group_lag", item.lag, *labels)
            add("rocketwire_cluster_group_consumed_total", item.consumed, *labels)
            if item.lag and item.consumed_at is not None:
                known = oldest.get(item.queue.topic, now)
                oldest[item.queue.topic] = min(known, item.consumed_at)
        for topic, moment in oldest.items():
            age = max(0.0, (now - moment).total_seconds())
            add("rocketwire_cluster_group_delay_seconds", age, group.name, topic)


#: Our names for what brokers say of themselves, by Java's names, of which one was misspelt.
_RUNTIME: Final = {
    "put_rate": ("putTps",),
    "get_rate": ("getTransferredTps", "getTransferedTps"),
    "disk_used_ratio": ("commitLogDiskRatio",),
}


def _number(broker: Broker, key: str) -> float | None:
    """The first number of a broker's word; rates have one each for 10, 60 and 600 seconds."""
    found = re.match(r"\s*(\d+(?:\.\d+)?(?:[eE]-?\d+)?)", broker.runtime.get(key, ""))
    return None if found is None else float(found[1])
