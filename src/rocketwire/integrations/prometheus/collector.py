"""A collector of clients in this process: it reads ``stats()`` and ``health()`` at each scrape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prometheus_client.core import HistogramMetricFamily, Metric

from rocketwire import BrokerStats, ConfigError, ConsumerStats, ProducerStats, RocketMQError
from rocketwire.integrations.prometheus.families import Definition, Families

if TYPE_CHECKING:
    from rocketwire import AsyncConsumer, AsyncProducer, Consumer, Producer

#: What has ``stats()`` that are collected.
Client: TypeAlias = "Producer | AsyncProducer | Consumer[Any] | AsyncConsumer[Any]"
_GROUP: Final = ("group",)
_BROKER: Final = ("group", "broker")
LATENCY: Final = "rocketwire_producer_latency_seconds"

PRODUCER: Final[tuple[Definition, ...]] = (
    ("rocketwire_producer_sends_total", "counter", "Sends that were stored", _GROUP),
    ("rocketwire_producer_messages_total", "counter", "Messages that were stored", _GROUP),
    ("rocketwire_producer_bytes_total", "counter", "Bytes of their bodies", _GROUP),
    ("rocketwire_producer_failures_total", "counter", "Sends that failed for good", _GROUP),
    ("rocketwire_producer_oneway_total", "counter", "Messages without an answer", _GROUP),
    ("rocketwire_producer_retries_total", "counter", "Further tries, by the error before", ("group", "reason")),
    ("rocketwire_producer_maybe_duplicates_total", "counter", "Sends that may be stored twice", _GROUP),
    ("rocketwire_producer_late_replies_total", "counter", "Answers after their deadline", _GROUP),
    ("rocketwire_producer_in_flight", "gauge", "Messages submitted and not answered yet", _GROUP),
    ("rocketwire_producer_broker_failures_total", "counter", "Attempts that failed", _BROKER),
    ("rocketwire_producer_broker_isolated", "gauge", "Clients that leave the broker out", _BROKER),
)  # fmt: skip

CONSUMER: Final[tuple[Definition, ...]] = (
    ("rocketwire_consumer_pulled_total", "counter", "Messages that came", _GROUP),
    ("rocketwire_consumer_handled_total", "counter", "Messages whose handler succeeded", _GROUP),
    ("rocketwire_consumer_failed_total", "counter", "Messages whose handler failed", _GROUP),
    ("rocketwire_consumer_retried_total", "counter", "Messages that come again", _GROUP),
    ("rocketwire_consumer_dead_lettered_total", "counter", "Messages that were given up", _GROUP),
    ("rocketwire_consumer_overdue_total", "counter", "Messages whose handler hung", _GROUP),
    ("rocketwire_consumer_pull_errors_total", "counter", "Pulls that failed", _GROUP),
    ("rocketwire_consumer_rebalances_total", "counter", "How often queues were shared anew", _GROUP),
    ("rocketwire_consumer_held", "gauge", "Messages pulled and not handled yet", _GROUP),
    ("rocketwire_consumer_in_hand", "gauge", "Messages that handlers are at", _GROUP),
    ("rocketwire_consumer_queues", "gauge", "Queues that are ours", ("group", "topic")),
    ("rocketwire_consumer_lag", "gauge", "Messages not handled yet, of our queues", ("group", "topic")),
)  # fmt: skip


class Collector:
    """The numbers of producers and consumers: ``REGISTRY.register(Collector(producer, consumer))``.

    Clients of one group are added up; Prometheus' own label ``instance`` tells processes apart. The
    labels are groups, topics and brokers, none of a message.

    Args:
        *clients: ``Producer``, ``Consumer`` and their asyncio twins; more by ``add``.
    """

    def __init__(self, *clients: Client) -> None:
        self._clients: list[Client] = []
        for client in clients:
            self.add(client)

    def add(self, client: Client) -> None:
        """Collect of this client, too, until ``remove``.

        Raises:
            ConfigError: it is neither a producer nor a consumer.
        """
        if not callable(getattr(client, "stats", None)):
            raise ConfigError(f"{client!r} has no stats(): give a producer or a consumer")
        if all(client is not known for known in self._clients):  # it would count twice
            self._clients.append(client)

    def remove(self, client: Client) -> None:
        """Collect of this client no more; nothing is done where it never was."""
        self._clients = [known for known in self._clients if known is not client]

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked of the clients when it is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The numbers now; those of a client that never ran are left out."""
        families = Families(PRODUCER + CONSUMER)
        histograms: dict[tuple[str, str], _Histogram] = defaultdict(_Histogram)
        for client in list(self._clients):
            try:
                stats = client.stats()
                health = () if isinstance(stats, ConsumerStats) else client.health()  # type: ignore[union-attr]
            except RocketMQError:
                continue
            if isinstance(stats, ProducerStats):
                _add_producer(families, stats.group, stats, health)
                for broker in stats.brokers:
                    histograms[stats.group, broker.broker].add(broker)
            else:
                _add_consumer(families, stats.group, stats)
        yield from families.metrics()
        if histograms:
            yield _latency(histograms)


def _add_producer(families: Families, group: str, stats: ProducerStats, health: Any) -> None:
    counts = {
        "sends_total": stats.sent,
        "messages_total": stats.messages,
        "bytes_total": stats.bytes,
        "failures_total": stats.failed,
        "oneway_total": stats.oneway,
        "maybe_duplicates_total": stats.maybe_duplicates,
        "late_replies_total": stats.late_replies,
        "in_flight": stats.in_flight,
    }
    for name, value in counts.items():
        families.add(f"rocketwire_producer_{name}", value, group)
    for reason, count in stats.retry_reasons.items():
        families.add("rocketwire_producer_retries_total", count, group, reason)
    for broker in stats.brokers:
        name = "rocketwire_producer_broker_failures_total"
        families.add(name, broker.failures, group, broker.broker)
    for seen in health:
        is_left_out = seen.state in {"isolated", "trial"}
        families.add("rocketwire_producer_broker_isolated", is_left_out, group, seen.broker)


def _add_consumer(families: Families, group: str, stats: ConsumerStats) -> None:
    counts = {
        "pulled_total": stats.pulled,
        "handled_total": stats.handled,
        "failed_total": stats.failed,
        "retried_total": stats.retried + stats.retried_here,
        "dead_lettered_total": stats.dead_lettered,
        "overdue_total": stats.overdue,
        "pull_errors_total": stats.pull_errors,
        "rebalances_total": stats.rebalances,
        "held": stats.held,
        "in_hand": stats.in_hand,
    }
    for name, value in counts.items():
        families.add(f"rocketwire_consumer_{name}", value, group)
    for state in stats.queues:
        lag = max(0, state.end - state.handled)
        families.add("rocketwire_consumer_queues", 1, group, state.queue.topic)
        families.add("rocketwire_consumer_lag", lag, group, state.queue.topic)


class _Histogram:
    """Latencies of one broker, of all clients of a group."""

    def __init__(self) -> None:
        self.counts: dict[float, int] = defaultdict(int)
        self.seconds = 0.0

    def add(self, broker: BrokerStats) -> None:
        self.seconds += broker.seconds
        for bound, count in broker.histogram.items():
            self.counts[bound] += count

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds with all that is below; the same ones at every scrape."""
        total, found = 0, []
        for bound in BOUNDS:
            total += sum(self.counts[b] for b in list(self.counts) if _lower(bound) < b <= bound)
            found.append((str(bound), float(total)))
        return [*found, ("+Inf", float(sum(self.counts.values())))]


#: Powers of two, as clients count: from 128 µs to 16.8 s.
BOUNDS: Final = tuple(2**power / 1_000_000 for power in range(7, 25))


def _lower(bound: float) -> float:
    """The bound before; the first bucket has all that is quicker."""
    return -1.0 if bound == BOUNDS[0] else bound / 2


def _latency(histograms: dict[tuple[str, str], _Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(LATENCY, "Answers of brokers to attempts", labels=_BROKER)
    for labels, histogram in histograms.items():
        family.add_metric(labels, histogram.buckets(), histogram.seconds)
    return family
