"""What is known of each broker, and of each attempt under way.

Only records live here, and the questions that can be answered from one record alone. Verdicts
are the judges' (``judgement``, ``presets``); locking and telling are the table's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias

from rocketwire.core.durations import brief
from rocketwire.fault_policy import BrokerHealth

State: TypeAlias = Literal["usable", "isolated", "trial"]
Cause: TypeAlias = Literal["", "slow", "failed", "busy"]

NEVER: Final = -math.inf
FOREVER: Final = math.inf


class RandomSource(Protocol):
    """What is needed of a random generator."""

    def random(self) -> float:
        """A number from 0 up to 1."""


class Watch:
    """What the hot path looks at instead of the brokers.

    ``version`` changes whenever the set of brokers that may be chosen changes; before ``at`` no
    passing of time can change it. A list made at one version may be used until then.
    """

    __slots__ = ("at", "lock", "patience", "version")

    def __init__(self, lock: AbstractContextManager[Any], patience: float) -> None:
        self.lock = lock
        self.patience = patience
        self.version = 0
        self.at = FOREVER


class Entry:
    """One broker's record. It changes only under the table's lock."""

    __slots__ = (
        "allow_per_byte", "calm", "cause", "epoch", "excess", "excess_at", "expected", "failures",
        "good_since", "in_words", "last_isolation", "last_latency", "last_wait", "name", "probe_at",
        "probe_epoch", "probe_failure", "probe_since", "probe_wait", "proof", "reachable", "recent",
        "record", "samples", "since", "slow_since", "slow_streak", "smoothed", "state",
        "steady_told", "suspect", "trial_at", "trial_attempt", "trial_good", "under_way",
        "unreached_since", "until", "verdict_at", "watch",
    )  # fmt: skip

    def __init__(self, name: str, watch: Watch, *, window: int, since: float) -> None:
        self.name = name
        self.watch = watch
        self.expected = 0.0
        self.allow_per_byte = 0.0
        self.state: State = "usable"
        #: Nothing about this broker needs thought when a quick answer arrives.
        self.calm = False
        #: Attempts carry the epoch in which they began; one of another epoch proves nothing.
        self.epoch = 0
        self.since = since
        self.until = NEVER
        self.cause: Cause = ""
        self.in_words = ""
        self._start_measuring(window)
        self._start_record()

    def _start_measuring(self, window: int) -> None:
        #: Written and unanswered, oldest first: dictionaries keep their order.
        self.under_way: dict[WatchedAttempt, None] = {}
        #: Requests written before this moment are no ground for suspicion any more.
        self.proof = NEVER
        #: Since when it can't be connected to; void once it has answered after that (``proof``).
        self.unreached_since = NEVER
        self.suspect = False
        self.smoothed = 0.0
        self.samples = 0
        #: What slow answers add to the mean latency, as of that many samples.
        self.excess = 0.0
        self.excess_at = 0
        self.last_latency: float | None = None
        self.last_wait = 0.0
        self.recent: deque[float] = deque(maxlen=window)
        self.failures = 0

    def _start_record(self) -> None:
        self.record = 0
        self.good_since = 0
        self.verdict_at = NEVER
        self.last_isolation = 0.0
        self.trial_attempt: WatchedAttempt | None = None
        self.trial_good = 0
        self.trial_at = FOREVER
        self.probe_at = FOREVER
        self.probe_since = FOREVER
        self.probe_wait = 0.0
        self.probe_epoch: int | None = None
        #: What became of the last probe of this isolation, if it failed.
        self.probe_failure = ""
        self.slow_since: float | None = None
        #: Slow answers since the last good one.
        self.slow_streak = 0
        self.steady_told = False
        self.reachable = True

    @property
    def candidate(self) -> bool:
        """Whether a send may choose this broker while there is a choice."""
        if self.state == "usable":
            return not self.suspect
        return self.state == "trial" and self.trial_attempt is None

    def oldest(self) -> WatchedAttempt | None:
        """The oldest request that awaits its answer and that no later answer has excused."""
        proof = self.proof
        while True:
            try:
                for attempt in self.under_way:
                    if attempt.written_at >= proof:
                        return attempt
            except RuntimeError:  # a signal handler has sent something in the midst of it
                continue
            return None

    def note_written(self, attempt: WatchedAttempt, now: float, unanswered: int) -> None:
        """A request was handed to a connected socket (``effects.Observer``)."""
        watch = self.watch
        with watch.lock:
            if attempt.written_at != NEVER:
                # Written again on a fresh connection: it is the youngest now.
                self.under_way.pop(attempt, None)
            attempt.written_at = now
            attempt.allowance = self.expected + unanswered * self.allow_per_byte
            self.under_way[attempt] = None
            at = now + watch.patience
            if at < watch.at:  # noqa: PLR1730  a call of min() on every send costs more
                watch.at = at

    def note_all_written(
        self, attempts: Sequence[WatchedAttempt], sizes: Sequence[int], now: float, unanswered: int
    ) -> int:
        """As ``note_written`` for several that were never written before, in one call.

        Returns:
            The bytes without an answer, with those of these requests.
        """
        watch, expected, per_byte = self.watch, self.expected, self.allow_per_byte
        with watch.lock:
            for attempt, size in zip(attempts, sizes, strict=True):
                unanswered += size
                attempt.written_at = now
                attempt.allowance = expected + unanswered * per_byte
            self.under_way.update(dict.fromkeys(attempts))
            watch.at = min(watch.at, now + watch.patience)
        return unanswered

    def feed(self, latency: float, weight: float) -> None:
        """Let an answer into the smoothed latency."""
        if self.samples:
            self.smoothed += weight * (latency - self.smoothed)
        else:
            self.smoothed = latency
        self.samples += 1


class WatchedAttempt(Protocol):
    """What the table keeps of one attempt. It is ended by exactly one call of the table.

    The attempts of sends have these attributes themselves (``sending/attempt.py``): a second object
    for each message in flight would cost a twentieth of a send.
    """

    entry: Entry
    epoch: int
    began: float
    written_at: float
    allowance: float

    @property
    def is_told_in_java(self) -> bool:
        """Whether Java's producer tells its table of such a request; its presets look at it."""


def note_written(
    attempts: Sequence[WatchedAttempt], sizes: Sequence[int], now: float, unanswered: int
) -> None:
    """Requests were handed to one connected socket together, none of them for the second time.

    Args:
        attempts: the attempts, in the order of their bytes.
        sizes: the bytes of each.
        now: the moment.
        unanswered: bytes on that connection that had no answer before.
    """
    start, count = 0, len(attempts)
    while start < count:
        entry, end = attempts[start].entry, start + 1
        while end < count and attempts[end].entry is entry:
            end += 1
        unanswered = entry.note_all_written(attempts[start:end], sizes[start:end], now, unanswered)
        start = end


class Attempted:
    """An attempt of which nothing but its times is kept."""

    __slots__ = ("allowance", "began", "entry", "epoch", "written_at")

    def __init__(self, entry: Entry, began: float) -> None:
        self.entry = entry
        self.epoch = entry.epoch
        self.began = began
        self.written_at = NEVER
        self.allowance = 0.0

    @property
    def broker(self) -> str:
        """The broker that it goes to."""
        return self.entry.name

    @property
    def is_told_in_java(self) -> bool:
        """It is."""
        return True

    def written(self, now: float, unanswered: int) -> None:
        """The request was handed to a connected socket (``effects.Observer``)."""
        self.entry.note_written(self, now, unanswered)


def health_of(entry: Entry, now: float) -> BrokerHealth:
    """A broker's record as users see it."""
    state = "suspect" if entry.state == "usable" and entry.suspect else entry.state
    recent = sorted(entry.recent)
    return BrokerHealth(
        broker=entry.name,
        state=state,
        since=entry.since,
        until=entry.until if entry.state == "isolated" else None,
        why=_why(entry, now),
        last_latency=entry.last_latency,
        smoothed=entry.smoothed if entry.samples else None,
        p50=_quantile(recent, 0.5),
        p90=_quantile(recent, 0.9),
        p99=_quantile(recent, 0.99),
        in_flight=len(entry.under_way),
        failures=entry.failures,
        record=entry.record,
    )


def _why(entry: Entry, now: float) -> str:
    if entry.state == "isolated":
        parts = [entry.in_words, f"since {brief(now - entry.since)}"]
        if entry.probe_failure:
            parts.append(f"probed last it {entry.probe_failure}")
        if entry.probe_epoch is not None:
            parts.append("being probed now")
        elif entry.probe_at < FOREVER:
            parts.append(f"next probe in {brief(max(0.0, entry.probe_at - now))}")
        elif entry.until > now:
            parts.append(f"back in {brief(entry.until - now)}")
        return ", ".join(parts)
    if entry.state == "trial":
        return f"on trial after: {entry.in_words}" if entry.in_words else "on trial: new address"
    oldest = entry.oldest()
    if entry.suspect and oldest is not None:
        return f"no answer for {brief(now - oldest.written_at)}"
    return ""


def _quantile(ordered: list[float], part: float) -> float | None:
    if not ordered:
        return None
    return ordered[int(part * len(ordered))]


def median(values: Iterable[float]) -> float | None:
    """The middle of some numbers; None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2
