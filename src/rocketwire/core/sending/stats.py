"""Counters and latency histograms, cheap enough to be always on."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: Bucket i holds latencies below 2**i microseconds; the last one all above.
BUCKETS: Final = 28


def bucket_of(latency: float) -> int:
    """The place of a latency among the buckets."""
    place = int(latency * 1_000_000).bit_length()
    return place if place < BUCKETS else BUCKETS - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStats:
    """What a producer has seen of one broker.

    ``histogram`` maps upper bounds in seconds to the number of answers up to that bound and above
    the one before it, so that an exporter can add them up.
    """

    broker: str
    answers: int
    failures: int
    seconds: float
    histogram: Mapping[float, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStats:
    """Counters since the start.

    ``retry_reasons`` says how many of the retries followed which error, by the name of its class;
    ``NotStoredSafely`` where a flush or a replica took too long.
    """

    sent: int
    messages: int
    bytes: int
    failed: int
    retries: int
    oneway: int
    maybe_duplicates: int
    late_replies: int
    in_flight: int
    telemetry_dropped: int
    trace_dropped: int
    brokers: tuple[BrokerStats, ...]
    retry_reasons: Mapping[str, int]
    group: str


class BrokerCounters:
    """What is counted of one broker."""

    __slots__ = ("counts", "failures", "seconds")

    def __init__(self) -> None:
        self.failures = 0
        self.seconds = 0.0
        #: Answers by the bucket of their latency.
        self.counts = [0] * BUCKETS

    @property
    def answers(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def answered(self, latency: float) -> None:
        """It answered an attempt."""
        self.seconds += latency
        self.counts[bucket_of(latency)] += 1

    def answered_all(self, latencies: Sequence[float]) -> None:
        """Its answers to several attempts were read together."""
        self.seconds += sum(latencies)
        ordered, start = sorted(latencies), 0
        while start < len(ordered):  # once for each bucket: they took much the same time
            place = bucket_of(ordered[start])
            bound = math.inf if place == BUCKETS - 1 else 2**place / 1_000_000
            end = max(bisect_left(ordered, bound, start), start + 1)
            self.counts[place] += end - start
            start = end


class Counters:
    """Mutable side of the statistics.

    Plain additions without a lock: two threads that meet may lose a count, never more. A lock
    would cost every send more than the exactness is worth.
    """

    def __init__(self, group: str = "") -> None:
        self._group = group
        self.sent = 0
        self.messages = 0
        self.bytes = 0
        self.failed = 0
        self.retries = 0
        self._reasons: dict[str, int] = {}
        self.oneway = 0
        self.maybe_duplicates = 0
        self._brokers: dict[str, BrokerCounters] = {}

    def of(self, broker: str) -> BrokerCounters:
        """The counters of one broker."""
        return self._brokers.get(broker) or self._brokers.setdefault(broker, BrokerCounters())

    def stored(self, broker: str, latency: float, size: int, messages: int) -> None:
        """A broker has stored what one attempt carried: ``answered`` and ``add`` in one call."""
        self.sent += 1
        self.messages += messages
        self.bytes += size
        seen = self._brokers.get(broker)
        if seen is None:
            seen = self.of(broker)
        seen.seconds += latency
        seen.counts[bucket_of(latency)] += 1

    def add(self, sends: int, size: int, messages: int) -> None:
        """So many sends ended well, with so many bytes and messages in all."""
        self.sent += sends
        self.messages += messages
        self.bytes += size

    def broke(self, broker: str) -> None:
        """An attempt to a broker failed."""
        self._brokers.setdefault(broker, BrokerCounters()).failures += 1

    def retried(self, error: Exception | None) -> None:
        """A send is tried again because of an error, or because it was stored less safely."""
        self.retries += 1
        reason = "NotStoredSafely" if error is None else type(error).__name__
        self._reasons[reason] = self._reasons.get(reason, 0) + 1

    def snapshot(
        self,
        *,
        late_replies: int = 0,
        in_flight: int = 0,
        telemetry_dropped: int = 0,
        trace_dropped: int = 0,
    ) -> ProducerStats:
        """The numbers now."""
        return ProducerStats(
            sent=self.sent,
            messages=self.messages,
            bytes=self.bytes,
            failed=self.failed,
            retries=self.retries,
            oneway=self.oneway,
            maybe_duplicates=self.maybe_duplicates,
            late_replies=late_replies,
            in_flight=in_flight,
            telemetry_dropped=telemetry_dropped,
            trace_dropped=trace_dropped,
            retry_reasons=dict(self._reasons),
            group=self._group,
            brokers=tuple(
                BrokerStats(
                    broker=name,
                    answers=seen.answers,
                    failures=seen.failures,
                    seconds=seen.seconds,
                    histogram={
                        2**i / 1_000_000: count for i, count in enumerate(seen.counts) if count
                    },
                )
                for name, seen in sorted(self._brokers.items())
                if seen.answers or seen.failures
            ),
        )
