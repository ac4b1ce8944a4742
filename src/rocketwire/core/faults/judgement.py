"""The adaptive judge: which answers are slow, which broker is isolated, and when it returns.

The rules are numbered as in ``docs/design/faults.md``. Everything here runs under the table's
lock and takes the moment as an argument; the table calls it, and tells listeners afterwards what
``Judge.notices`` collected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from rocketwire.core.durations import in_ms
from rocketwire.core.faults.entries import FOREVER, Cause, Entry, Watch, WatchedAttempt, median
from rocketwire.fault_policy import FaultPolicy

#: How ``TopicQueues`` walks over queues: evenly over those allowed, or as a Java version does.
Walk: TypeAlias = Literal["even", "java4", "java5", "plain"]

#: While requests are under way, suspicion is looked for this often, in seconds.
LOOK_AGAIN: Final = 0.01


class Notice(NamedTuple):
    """Something to be told once the lock is released."""

    kind: Literal["isolated", "returned", "steady"]
    broker: str
    words: str
    until: float | None = None


class Judge(ABC):
    """What every set of rules must answer. All of it is called under the table's lock."""

    #: A calm broker's answer that took no longer than this needs no judgement.
    quick: float = -FOREVER
    #: Whether anything follows from a oneway request that was written.
    heeds_oneway = False
    walk: Walk

    def __init__(
        self,
        policy: FaultPolicy,
        entries: dict[str, Entry],
        watch: Watch,
        random: Callable[[], float],
    ) -> None:
        self.policy: Final = policy
        self.entries: Final = entries
        self.watch: Final = watch
        self.random: Final = random
        self.notices: list[Notice] = []

    def tell_isolated(self, entry: Entry) -> None:
        """Have listeners told of an isolation that begins."""
        self.notices.append(Notice("isolated", entry.name, entry.in_words, entry.until))

    def tell_returned(self, entry: Entry) -> None:
        """Have listeners told that a broker is usable again, and what it was out for."""
        words = f"was out for: {entry.in_words}" if entry.in_words else "has proved its new address"
        self.notices.append(Notice("returned", entry.name, words))

    @abstractmethod
    def answered(self, entry: Entry, attempt: WatchedAttempt, latency: float, now: float) -> None:
        """A good answer came; ``latency`` is net of the allowance."""

    @abstractmethod
    def settled(self, entry: Entry, attempt: WatchedAttempt, now: float, code: int) -> None:
        """The attempt is over without saying anything of the broker by the adaptive rules."""

    @abstractmethod
    def failed(
        self, entry: Entry, attempt: WatchedAttempt, now: float, reason: str, cause: Cause
    ) -> None:
        """The broker failed an attempt."""

    def too_early(self, entry: Entry, waited: float) -> bool:
        """Whether a time-out came so soon that it tells of our haste, not of the broker."""
        return False

    @abstractmethod
    def released(self, entry: Entry, attempt: WatchedAttempt, now: float) -> None:
        """Called after each end of an attempt, whatever it was."""

    @abstractmethod
    def refresh(self, now: float) -> None:
        """Let time have its effect, and set ``watch.at`` anew."""

    @abstractmethod
    def least_bad(self, entries: Iterable[Entry], now: float) -> list[str]:
        """Of brokers none of which may be chosen, the best; several if they are equal."""

    @abstractmethod
    def wants_probe(self, entry: Entry) -> bool:
        """Whether the background is to ask after this broker when its time has come."""

    @abstractmethod
    def probed(self, entry: Entry, now: float, latency: float, *, good: bool) -> None:
        """A probe came to its end."""

    @abstractmethod
    def start_afresh(self, entry: Entry) -> None:
        """The broker's name has a new address: nothing known of the old one holds."""


class AdaptiveJudge(Judge):
    """The default rules."""

    walk: Walk = "even"

    def __init__(
        self,
        policy: FaultPolicy,
        entries: dict[str, Entry],
        watch: Watch,
        random: Callable[[], float],
        *,
        probing: bool,
    ) -> None:
        super().__init__(policy, entries, watch, random)
        self.quick = policy.floor  # below the floor nothing is slow, whatever is typical
        self._probing = probing
        #: Requests written before this moment waited for us, not for their broker.
        self._paused_until = -FOREVER

    # ------------------------------------------------------------------ measuring (rules 0, 1)

    def typical(self, entry: Entry) -> float | None:
        """The median of the other brokers' smoothed latencies; None if too little is known."""
        enough = self.policy.min_samples
        return median(
            other.smoothed
            for other in list(self.entries.values())
            if other is not entry and other.samples >= enough
        )

    def is_slow(self, latency: float, typical: float | None) -> bool:
        """Slow is what is far above the others, as a multiple and in absolute time."""
        if typical is None:
            return False
        policy = self.policy
        return latency > policy.relative * typical and latency - typical > policy.floor

    def _we_paused(self, entry: Entry, attempt: WatchedAttempt, now: float) -> bool:
        if attempt.written_at < self._paused_until:
            # Those that were in flight during a pause are excused together; else the last one to
            # be read would find nobody overdue beside it, and take the blame.
            return True
        owing = False
        for other in list(self.entries.values()):
            oldest = None if other is entry else other.oldest()
            if oldest is not None:
                owing = True
                if not self._overdue(other, oldest, now):
                    return False
        if owing:
            self._paused_until = now
        return owing

    def _overdue(self, entry: Entry, oldest: WatchedAttempt, now: float) -> bool:
        limit = max(self.policy.pause_relative * entry.smoothed, self.policy.pause_floor)
        return now - oldest.written_at - oldest.allowance > limit

    def _is_lone_pause(
        self, entry: Entry, attempt: WatchedAttempt, latency: float, typical: float
    ) -> bool:
        """Whether the broker answered later requests well, and is not slow on the whole.

        Without this, brokers that pause in some 0.3 % of sends keep one another isolated for a
        third of the time, because under load hardly a second passes without a pause.
        """
        weight = self.policy.lone_weight
        faded = entry.excess * (1 - weight) ** (entry.samples - entry.excess_at)
        entry.excess = faded + weight * latency
        entry.excess_at = entry.samples
        on_the_whole = entry.smoothed + entry.excess
        return attempt.written_at < entry.proof and on_the_whole <= self.policy.relative * typical

    # ------------------------------------------------------------------ verdicts (rules 2, 3, 7)

    def answered(self, entry: Entry, attempt: WatchedAttempt, latency: float, now: float) -> None:
        """Judge an answer: slow, excused, or good."""
        if attempt.epoch != entry.epoch:
            return  # rule 3: it began before the present isolation or trial
        entry.last_wait = latency + entry.expected
        typical = self.typical(entry)
        if typical is not None and self.is_slow(latency, typical):
            lone = self._is_lone_pause(entry, attempt, latency, typical)
            if not self._we_paused(entry, attempt, now) and not lone:
                self._slow(entry, latency, typical, now)
            return
        entry.feed(latency, self.policy.smoothing)
        entry.slow_streak = 0
        entry.proof = max(entry.proof, attempt.written_at)
        self._good(entry, now)

    def settled(self, entry: Entry, attempt: WatchedAttempt, now: float, code: int) -> None:
        """Neither sample nor verdict."""

    def failed(
        self, entry: Entry, attempt: WatchedAttempt, now: float, reason: str, cause: Cause
    ) -> None:
        """Isolate for a failure, unless the attempt is older than the present isolation."""
        if attempt.epoch != entry.epoch:
            return
        entry.slow_since = None
        self._isolate(entry, now, self.policy.failure_isolation, cause, reason)

    def too_early(self, entry: Entry, waited: float) -> bool:
        """A last attempt may have been left with less time than any answer takes."""
        typical = self.typical(entry)
        if typical is None:
            return waited <= self.policy.floor
        return waited <= self.policy.relative * typical

    def _slow(self, entry: Entry, latency: float, typical: float, now: float) -> None:
        entry.slow_streak += 1
        if not self._place_for_slow(entry, latency, now):
            # Rule 7: the cluster is slow, not the broker. The answer then counts as an ordinary
            # one, so that the others' idea of what is typical follows the cluster.
            entry.feed(latency, self.policy.smoothing)
            self._good(entry, now)
            return
        if entry.slow_since is None:
            entry.slow_since = now
        times = latency / max(typical, 1e-6)
        words = f"{in_ms(latency)}, {times:.0f} times the others"
        self._isolate(entry, now, self.policy.slow_factor * latency, "slow", words)
        self._tell_if_steady(entry, now)

    def _place_for_slow(self, entry: Entry, latency: float, now: float) -> bool:
        slow = [
            other
            for other in list(self.entries.values())
            if other is not entry and other.state == "isolated" and other.cause == "slow"
        ]
        places = int(len(self.entries) * self.policy.max_slow_share)
        if len(slow) < places:
            return True
        if not slow:
            return False
        mildest = min(slow, key=lambda other: (other.slow_streak, other.last_wait))
        wait = latency + entry.expected
        if not self.is_slow(wait, mildest.last_wait):
            # Steady slowness outweighs a lone pause, or one pause elsewhere would shield it for
            # as long as that isolation lasts; but not the steady slowness of a broker that is far
            # slower, and has no streak because nobody asks it.
            outweighs = entry.slow_streak > mildest.slow_streak
            if not outweighs or self.is_slow(mildest.last_wait, wait):
                return False
        self._return(mildest, now)
        return True

    def _isolate(self, entry: Entry, now: float, base: float, cause: Cause, words: str) -> None:
        policy = self.policy
        limit = policy.max_busy_isolation if cause == "busy" else policy.max_isolation
        renewed = entry.state == "isolated"
        length = base
        if renewed:
            # An attempt that began during the isolation (a pinned queue, or the least bad) proves
            # that the fault lasts, but it is still the same fault: it lasts as long again, and
            # does not double, or steady traffic to a pinned queue would reach the limit at once.
            length = max(base, entry.last_isolation)
        elif entry.record:  # which a broker on trial has, unless it only has a new address
            length = max(base, policy.backoff * entry.last_isolation)
        length = min(length, limit)
        entry.last_isolation = length
        entry.until = max(entry.until, now + length)
        entry.cause, entry.in_words = cause, words
        entry.probe_failure = ""
        entry.record += 1
        entry.good_since = 0
        entry.verdict_at = now
        if not renewed:
            self._enter(entry, "isolated", now)
            self.tell_isolated(entry)
        self._plan_return(entry)

    def _enter(
        self, entry: Entry, state: Literal["usable", "isolated", "trial"], at: float
    ) -> None:
        entry.state = state
        entry.since = at
        entry.epoch += 1
        entry.trial_attempt = None
        entry.trial_good = 0
        self.watch.version += 1

    def _good(self, entry: Entry, now: float) -> None:
        if entry.state == "isolated":
            # A real message sent meanwhile is better proof than a probe.
            self._try(entry, now)
        if entry.state == "trial":
            entry.trial_good += 1
            if entry.trial_good >= self.policy.trial_sends:
                self._return(entry, now)
        if entry.record:
            self._clear_record(entry, now)

    def _clear_record(self, entry: Entry, now: float) -> None:
        policy = self.policy
        entry.good_since += 1
        quiet = max(policy.clear_after, policy.clear_factor * entry.last_isolation)
        if entry.good_since >= policy.clear_after_sends and now - entry.verdict_at >= quiet:
            entry.record = 0

    # ------------------------------------------------------------------ suspicion (rule 4)

    def patience(self, typical: float) -> float:
        """How old a request may become before its broker is suspect."""
        return max(self.policy.suspect_relative * typical, self.policy.suspect_floor)

    def _suspicion_at(self, entry: Entry) -> float:
        oldest = entry.oldest()
        typical = None if oldest is None else self.typical(entry)
        if oldest is None or typical is None:
            return FOREVER
        return oldest.written_at + oldest.allowance + self.patience(typical)

    def _suspect(self, entry: Entry, now: float) -> float:
        at = self._suspicion_at(entry)
        suspect = now > at
        if suspect != entry.suspect:
            entry.suspect = suspect
            self.watch.version += 1
        return FOREVER if suspect else at

    def released(self, entry: Entry, attempt: WatchedAttempt, now: float) -> None:
        """Free the trial's place, and look whether the suspicion is over."""
        if entry.trial_attempt is attempt:
            entry.trial_attempt = None
            self.watch.version += 1
        if entry.suspect:
            at = self._suspect(entry, now)
            # The next oldest request may be overdue long before the next look at a suspect.
            self.watch.at = min(self.watch.at, at)
        entry.calm = (
            entry.state == "usable"
            and not entry.suspect
            and not entry.record
            and not entry.slow_streak
            and entry.samples > 0
        )

    def refresh(self, now: float) -> None:
        """See which brokers became suspect, let through the trial message whose time has come."""
        soonest = FOREVER
        for entry in list(self.entries.values()):
            if entry.state == "isolated":
                if now >= entry.trial_at:
                    self._try(entry, now)
                else:
                    soonest = min(soonest, entry.trial_at)
            if entry.under_way:
                # Soon again: the typical latency may shrink, and after the oldest request the next
                # one may have a smaller allowance.
                at = self._suspect(entry, now)
                again = now + (self.watch.patience if entry.suspect else LOOK_AGAIN)
                soonest = min(soonest, at, again)
                entry.calm = entry.calm and not entry.suspect
        self.watch.at = soonest

    # ------------------------------------------------------------------ return (rule 5)

    def _plan_return(self, entry: Entry) -> None:
        if self._probing:
            entry.probe_at = entry.probe_since = entry.until
            entry.trial_at = max(entry.until, entry.since + self.policy.trial_interval)
        else:
            entry.trial_at = entry.until
        entry.probe_wait = self.policy.probe_interval
        self.watch.at = min(self.watch.at, entry.trial_at)

    def wants_probe(self, entry: Entry) -> bool:
        """Only isolated brokers, and only where a background exists."""
        return self._probing and entry.state == "isolated"

    def probed(self, entry: Entry, now: float, latency: float, *, good: bool) -> None:
        """Open the trial after a good probe, else plan the next one."""
        latency = max(0.0, latency - entry.expected)
        typical = self.typical(entry)
        slow = good and self.is_slow(latency, typical)
        if good and not slow:
            self._try(entry, now)
            return
        if not good:
            # A trial message is let through only where probes are merely slow, or missing.
            entry.trial_at = max(entry.trial_at, now + self.policy.trial_interval)
        self._plan_probe(entry, now)
        if slow:
            self._tell_if_steady(entry, now)

    def _plan_probe(self, entry: Entry, now: float) -> None:
        policy = self.policy
        if now - entry.probe_since >= policy.probe_steady:
            entry.probe_wait = min(
                entry.probe_wait * policy.probe_growth, policy.probe_max_interval
            )
        jitter = policy.probe_jitter * (2 * self.random() - 1)
        entry.probe_at = now + entry.probe_wait * (1 + jitter)

    def _try(self, entry: Entry, now: float) -> None:
        entry.probe_at = FOREVER
        self._enter(entry, "trial", now)

    def _return(self, entry: Entry, now: float) -> None:
        entry.slow_since = None
        entry.probe_at = FOREVER
        self._enter(entry, "usable", now)
        self.tell_returned(entry)

    def start_afresh(self, entry: Entry) -> None:
        """A new address proves itself like one that was isolated."""
        entry.state = "trial"

    # ------------------------------------------------------------------ the rest (rules 6, 10)

    def least_bad(self, entries: Iterable[Entry], now: float) -> list[str]:
        """By expected wait, and behind those the failed ones by their return."""
        ranked = [(self._badness(entry, now), entry.name) for entry in entries]
        best = min(rank for rank, _ in ranked)
        return [name for rank, name in ranked if rank == best]

    def _badness(self, entry: Entry, now: float) -> tuple[int, float]:
        if entry.state == "isolated" and entry.cause != "slow":
            return 1, entry.until if entry.probe_at == FOREVER else entry.probe_at
        oldest = entry.oldest() if entry.suspect else None
        age = 0.0 if oldest is None else now - oldest.written_at
        if entry.state == "usable":
            return 0, age
        return 0, max(age, entry.last_wait)

    def _tell_if_steady(self, entry: Entry, now: float) -> None:
        if entry.steady_told or entry.slow_since is None:
            return
        if now - entry.slow_since >= self.policy.steady_after:
            entry.steady_told = True
            self.notices.append(Notice("steady", entry.name, in_ms(entry.last_wait)))
