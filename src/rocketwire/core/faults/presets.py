"""Java's judges: the fixed tables of its 4.x and 5.x clients, and no judge at all.

They keep Java's arithmetic to the letter and leave out its known defects: a good answer ends an
isolation in both (5.1.4 lost that), an error code marks a broker as unreachable only where a
detector exists that can take the mark away, nothing is reported twice, and no shared queue object
is written over. Sends that Java does not tell its table of are no verdict here either. What Java's own
classes decide is recorded in ``tests/vectors/java/faults-*.jsonl``. The walks at the end are how each Java version goes over the queues of a topic
when not all of its brokers are available; ``selection`` calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from rocketwire.core.durations import in_ms
from rocketwire.core.faults.entries import FOREVER, NEVER, Cause, Entry, Watch, WatchedAttempt
from rocketwire.core.faults.judgement import Judge, Walk
from rocketwire.core.faults.positions import Positions
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import MessageQueue


class JavaJudge(Judge):
    """A broker is left out for a time that a table gives for the latency of its last send."""

    heeds_oneway = True

    def __init__(
        self,
        policy: FaultPolicy,
        entries: dict[str, Entry],
        watch: Watch,
        random: Callable[[], float],
        *,
        walk: Walk,
    ) -> None:
        super().__init__(policy, entries, watch, random)
        self.walk = walk
        self._only_later = walk == "java5"
        self._turn = int(random() * 0x7FFFFFFF)

    def duration(self, latency: float) -> float:
        """How long a broker that took this long is left out."""
        found = 0.0
        for at_least, isolation in self.policy.latency_table:
            if latency < at_least:
                break
            found = isolation
        return found

    def answered(self, entry: Entry, attempt: WatchedAttempt, latency: float, now: float) -> None:
        """Every answer sets the broker's time anew; Java counts connecting, too."""
        if not attempt.is_told_in_java:
            return
        entry.reachable = True
        taken = now - attempt.began
        entry.feed(taken, self.policy.smoothing)
        entry.last_wait = taken
        self._judge(entry, now, taken, in_ms(taken), "slow")

    def settled(self, entry: Entry, attempt: WatchedAttempt, now: float, code: int) -> None:
        """To Java, any error code is a failure; a oneway send that left is a success."""
        if code:
            self.failed(entry, attempt, now, f"answered code {code}", "failed")
        else:
            self.answered(entry, attempt, 0.0, now)

    def failed(
        self, entry: Entry, attempt: WatchedAttempt, now: float, reason: str, cause: Cause
    ) -> None:
        """A failure is left out as a long latency is, and ranked by the time that it took."""
        if not attempt.is_told_in_java:
            return
        if self.policy.detector:
            entry.reachable = False
            entry.probe_at = min(entry.probe_at, now + self.policy.probe_interval)
        entry.last_wait = now - attempt.began
        self._judge(entry, now, self.policy.failure_latency, reason, cause)

    def _judge(self, entry: Entry, now: float, latency: float, words: str, cause: Cause) -> None:
        entry.verdict_at = now
        length = self.duration(latency)
        if length == 0:
            self._allow(entry, now)
            return
        until = now + length
        entry.until = max(entry.until, until) if self._only_later else until
        entry.cause, entry.in_words, entry.last_isolation = cause, words, length
        self.watch.at = min(self.watch.at, entry.until)
        if entry.state != "isolated":
            entry.state, entry.since = "isolated", now
            self.watch.version += 1
            self.tell_isolated(entry)

    def _allow(self, entry: Entry, now: float) -> None:
        entry.until = now
        if entry.state == "isolated":
            entry.state, entry.since = "usable", now
            self.watch.version += 1
            self.tell_returned(entry)

    def released(self, entry: Entry, attempt: WatchedAttempt, now: float) -> None:
        """Java knows neither trial nor suspicion."""

    def refresh(self, now: float) -> None:
        """Let everyone back whose time is over."""
        soonest = FOREVER
        for entry in list(self.entries.values()):
            if entry.state != "isolated":
                continue
            if now >= entry.until:
                self._allow(entry, now)
            else:
                soonest = min(soonest, entry.until)
        self.watch.at = soonest

    def least_bad(self, entries: Iterable[Entry], now: float) -> list[str]:
        """Java 4: of all brokers ever heard of, one of the better half, in turn.

        ``entries`` is not looked at: Java ranks its whole table, and finds out afterwards whether
        the broker has queues of the topic.
        """
        heard_of = [entry for entry in list(self.entries.values()) if entry.verdict_at != NEVER]
        if not heard_of:
            return []
        heard_of.sort(key=lambda entry: (entry.state == "isolated", entry.last_wait, entry.until))
        half = len(heard_of) // 2
        self._turn = (self._turn + 1) & 0x7FFFFFFF
        return [heard_of[self._turn % half if half else 0].name]

    def wants_probe(self, entry: Entry) -> bool:
        """Java probes every broker; only for unreachable ones can the answer change anything."""
        return self.policy.detector and not entry.reachable

    def probed(self, entry: Entry, now: float, latency: float, *, good: bool) -> None:
        """An answer makes reachable; nothing else follows from it."""
        entry.reachable = good
        entry.probe_at = FOREVER if good else now + self.policy.probe_interval

    def start_afresh(self, entry: Entry) -> None:
        """Nothing is held against a new address."""


class NoJudge(JavaJudge):
    """Measures, never isolates."""

    quick = FOREVER
    heeds_oneway = False

    def __init__(
        self,
        policy: FaultPolicy,
        entries: dict[str, Entry],
        watch: Watch,
        random: Callable[[], float],
    ) -> None:
        super().__init__(policy, entries, watch, random, walk="plain")

    def answered(self, entry: Entry, attempt: WatchedAttempt, latency: float, now: float) -> None:
        """Only the first answer comes here; it sets the smoothed latency."""
        entry.feed(latency, self.policy.smoothing)
        entry.calm = True

    def settled(self, entry: Entry, attempt: WatchedAttempt, now: float, code: int) -> None:
        """Nothing follows."""

    def failed(
        self, entry: Entry, attempt: WatchedAttempt, now: float, reason: str, cause: Cause
    ) -> None:
        """Nothing follows."""


class Queues(Protocol):
    """The queues of a topic, as ``selection.TopicQueues``."""

    @property
    def topic(self) -> str:
        """Their topic."""

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """All of them, in Java's order."""


def _plain(view: Queues, positions: Positions) -> MessageQueue:
    return view.queues[positions.next(view.topic) % len(view.queues)]


def walk_plain(view: Queues, positions: Positions, last: str | None) -> MessageQueue:
    """Fault tolerance off: the next queue of another broker than the one that failed.

    A retry goes on by one from where the try before it stood, as Java's does with its switch off.
    """
    for _ in view.queues:
        queue = _plain(view, positions)
        if queue.broker != last:
            return queue
    return _plain(view, positions)


def walk_java4(
    view: Queues,
    available: Collection[str],
    positions: Positions,
    last: str | None,
    queues_of_least_bad: Callable[[], tuple[MessageQueue, ...]],
) -> MessageQueue:
    """One step of the counter, then on to the next queue that will do; else the least bad.

    Java 4 compares with the last broker the wrong way round or not at all; this avoids it.
    """
    count = len(view.queues)
    start = positions.next(view.topic)
    for step in range(count):
        queue = view.queues[(start + step) % count]
        if queue.broker in available and queue.broker != last:
            return queue
    pool = queues_of_least_bad() or view.queues
    # Java steps the counter again for each of these, and so leaves out every second or third
    # queue; one step a message reaches them all.
    return pool[start % len(pool)]


def walk_java5(
    view: Queues,
    available: Collection[str],
    positions: Positions,
    last: str | None,
    reachable: Callable[[str], bool],
) -> MessageQueue:
    """Available ones first, then reachable ones, each time stepping the counter; else any."""
    if last is not None:
        positions.reset(view.topic)
    for _ in view.queues:
        queue = _plain(view, positions)
        if queue.broker in available and queue.broker != last:
            return queue
    for _ in view.queues:
        queue = _plain(view, positions)
        if reachable(queue.broker) and queue.broker != last:
            return queue
    return _plain(view, positions)
