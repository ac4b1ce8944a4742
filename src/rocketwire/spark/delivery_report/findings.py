"""What a page is made of: plain values, few enough for any driver whatever the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: Bars of a latency histogram for each factor of ten.
BARS_PER_DECADE: Final = 12


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened to some attempts; ``sends`` are those that were the first of a send.

    Latencies are in seconds, None where nobody waited.
    """

    attempts: int = 0
    sends: int = 0
    acknowledged: int = 0
    failures: int = 0
    rejected: int = 0
    maybe_stored: int = 0
    not_sent: int = 0
    retries: int = 0
    messages: int = 0
    bytes: int = 0
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p999: float | None = None
    slowest: float | None = None
    first_at: float = 0.0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Named:
    """Counts of something that has a name: a broker, a topic, a producer."""

    name: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class Avoidance:
    """How a broker was avoided, over all producers.

    ``seconds`` is the time during which at least one of them did; ``reason`` belongs to the
    longest period.
    """

    broker: str
    periods: int
    clients: int
    seconds: float
    longest: float
    reason: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time when at least one producer avoided a broker; what is close together is one."""

    broker: str
    begin: float
    end: float
    periods: int
    clients: int
    reason: str


@dataclass(frozen=True, slots=True)
class Period:
    """A time when one producer avoided a broker."""

    broker: str
    client: str
    begin: float
    end: float
    reason: str
    verdicts: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class Route:
    """Retries from one broker to another; ``origin`` is None where it was not recorded."""

    origin: str | None
    target: str
    retries: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How many sends that did not simply succeed ended in one way."""

    outcome: str
    sends: int
    messages: int
    maybe_duplicates: int
    retried: int


@dataclass(frozen=True, slots=True)
class QueueShare:
    """What one queue got."""

    broker: str
    queue: int
    messages: int
    keyed: int
    failures: int


@dataclass(frozen=True, slots=True)
class TopicSpread:
    """The queues of a topic, and how many there are when not all are listed."""

    topic: str
    queues: tuple[QueueShare, ...]
    total_queues: int


@dataclass(frozen=True, slots=True)
class KeyShare:
    """A sharding key with many messages."""

    topic: str
    key: str
    messages: int
    bytes: int
    failures: int
    moved: bool


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """Pairs of messages of one key, and those out of order; see ``key_order``."""

    keys: int = 0
    pairs: int = 0
    violations: int = 0
    violated_keys: int = 0
    backwards: int = 0
    overlapping: int = 0
    moved: int = 0


@dataclass(frozen=True, slots=True)
class WorstKey:
    """A key whose messages went out of order, or moved."""

    topic: str
    key: str
    client: str
    pairs: int
    backwards: int
    overlapping: int
    moved: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Failures that read alike."""

    broker: str
    outcome: str
    error: str
    example: str
    attempts: int
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class Input:
    """What was read, and what was wrong with it."""

    source: str
    is_trace: bool = False
    records: int = 0
    unreadable: int = 0
    foreign: int = 0
    dropped: int = 0
    bad_files: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a page shows.

    Attributes:
        overall: all attempts together.
        width: of a bucket of time, in seconds; the first begins at ``begin``.
        brokers: those with the most attempts, by name; ``total_brokers`` is how many there are.
        buckets: by broker and number of the bucket.
        bars: the latency histogram of each broker, by number of the bar.
    """

    input: Input
    overall: Counts
    begin: float
    end: float
    width: float
    brokers: tuple[Named, ...] = ()
    total_brokers: int = 0
    buckets: Mapping[str, Mapping[int, Counts]] = field(default_factory=dict)
    bars: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    avoided: tuple[Avoidance, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    periods: tuple[Period, ...] = ()
    total_periods: int = 0
    routes: tuple[Route, ...] = ()
    ended: tuple[Ended, ...] = ()
    spreads: tuple[TopicSpread, ...] = ()
    topics: tuple[Named, ...] = ()
    total_topics: int = 0
    keys: tuple[KeyShare, ...] = ()
    order: KeyOrder = field(default_factory=KeyOrder)
    worst_keys: tuple[WorstKey, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    clients: tuple[Named, ...] = ()
    total_clients: int = 0

    @property
    def sends(self) -> int:
        """Messages or batches that were sent, whatever came of them."""
        # Of a failed send the first record may have been dropped.
        return max(self.overall.sends, self.failed_sends)

    @property
    def failed_sends(self) -> int:
        """Sends of which no attempt was acknowledged."""
        return sum(e.sends for e in self.ended if e.outcome != "stored")

    @property
    def maybe_duplicates(self) -> int:
        """Sends that may have been stored more than once."""
        return sum(e.maybe_duplicates for e in self.ended)


@dataclass(frozen=True, slots=True)
class ReportResult:
    """What ``report`` made, and the figures that a script may want to act on.

    Attributes:
        page: the HTML file.
        tables: where each table is, by name.
        summary: what the page says first, in sentences.
        attempts: records of attempts.
        sends: messages or batches that were sent, whatever came of them.
        failed_sends: those of which no attempt was acknowledged.
        retries: attempts after the first.
        maybe_duplicates: sends that may have been stored more than once.
        isolations: how often producers left brokers.
        order_violations: pairs of messages of one sharding key that are out of order.
        unreadable: lines that are no JSON, or have a field of a wrong type.
        foreign: lines that no producer of ours wrote.
        dropped: records that producers could not write down, by their own count.
        seconds: how long it took.
        missing: queues of the trace topic that could not be read.
    """

    page: Path
    tables: Mapping[str, str]
    summary: tuple[str, ...]
    attempts: int
    sends: int
    failed_sends: int
    retries: int
    maybe_duplicates: int
    isolations: int
    order_violations: int
    unreadable: int
    foreign: int
    dropped: int
    seconds: float
    missing: int = 0
