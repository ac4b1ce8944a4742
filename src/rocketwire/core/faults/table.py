"""The fault table: what every send teaches about brokers, and which of them may be chosen.

One table belongs to one client instance and is keyed by broker name. It keeps the attempts under
way, hands their ends to the judge of its policy (``fault_judgement``, ``fault_presets``), and
tells listeners what came of it, never while holding the lock. Choosing a queue is ``selection``'s
part, retrying is ``retry``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from rocketwire.core.failure_text import what_happened
from rocketwire.core.faults.entries import (
    FOREVER,
    NEVER,
    Attempted,
    Entry,
    RandomSource,
    Watch,
    WatchedAttempt,
    health_of,
)
from rocketwire.core.faults.judgement import AdaptiveJudge, Judge, Notice, Walk
from rocketwire.core.faults.presets import JavaJudge, NoJudge
from rocketwire.core.tell_each import tell_each
from rocketwire.errors import ConnectFailedError, RequestTimeoutError
from rocketwire.fault_policy import BrokerHealth, FaultPolicy
from rocketwire.log_fields import about
from rocketwire.wire.codes import BROKER_UNWELL, RESPONSE_NAMES, STORED, ResponseCode

__all__ = ["FaultTable", "WatchedAttempt"]

_log: Final = logging.getLogger("rocketwire.faults")
_BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})


class FaultTable:
    """What a client instance knows of its brokers.

    Every attempt is ``begin`` and then exactly one of ``answered``, ``settled``, ``failed`` and
    ``cancelled``; ``replied`` and ``broke`` pick the right one from a code or an error.

    Args:
        policy: the rules and their numbers.
        clock: the monotonic clock that all moments given to the table come from.
        lock: guards the table. A real lock costs less than ``nullcontext`` does, and ``health()``
            may be called from any thread, so give one in asyncio, too.
        random: where chance comes from.
        on_isolated: told of each isolation that begins (not of one that is prolonged): the
            broker, the reason in words, and until when.
        on_returned: told when a broker is fully usable again: the broker, and what it was out
            for in words.
        probing: whether a background asks ``probe_due`` and probes; without one, a message is
            let through when an isolation is over.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        *,
        clock: Callable[[], float],
        lock: AbstractContextManager[Any],
        random: RandomSource,
        on_isolated: Callable[[str, str, float | None], None] | None = None,
        on_returned: Callable[[str, str], None] | None = None,
        probing: bool = True,
    ) -> None:
        adaptive = policy.mode == "adaptive"
        self.policy: Final = policy
        #: For ``selection``, which compares its numbers on every send.
        self.watch: Final = Watch(lock, policy.suspect_floor if adaptive else FOREVER)
        self._clock = clock
        self._lock = lock
        self._entries: dict[str, Entry] = {}
        self._judge = _judge_for(policy, self._entries, self.watch, random.random, probing=probing)
        self._quick = self._judge.quick
        #: Whether ``settled`` matters for a oneway request of which the table has not heard.
        self.heeds_oneway: Final = self._judge.heeds_oneway
        self._smoothing = policy.smoothing
        self._on_isolated = on_isolated
        self._on_returned = on_returned

    @property
    def walk(self) -> Walk:
        """How queues are walked over under this policy."""
        return self._judge.walk

    # ------------------------------------------------------------------ attempts

    def begin(self, broker: str, now: float) -> Attempted:
        """An attempt starts. On a trial it takes the place, if that is free."""
        entry = self._entries.get(broker)
        if entry is None:
            entry = self._add(broker)
        attempt = Attempted(entry, now)
        if entry.state == "trial":
            self._take_place(entry, attempt)
        return attempt

    def enter(self, attempt: WatchedAttempt, broker: str) -> None:
        """As ``begin``, for an attempt that is its own record; sets its ``entry`` and ``epoch``."""
        entry = attempt.entry = self._known(broker)
        attempt.epoch = entry.epoch
        if entry.state == "trial":
            self._take_place(entry, attempt)

    def _take_place(self, entry: Entry, attempt: WatchedAttempt) -> None:
        with self._lock:
            # Looked at again under the lock; a trial that ended meanwhile has no place to take.
            if attempt.epoch == entry.epoch and entry.candidate:
                entry.trial_attempt = attempt
                self.watch.version += 1

    def answered(self, attempt: WatchedAttempt, now: float) -> None:
        """A good reply was read at ``now``."""
        entry, written_at = attempt.entry, attempt.written_at
        latency = now - (attempt.began if written_at == NEVER else written_at)
        net = latency - attempt.allowance
        if net < 0.0:  # noqa: PLR1730  a call of max() on every send costs more
            net = 0.0
        with self._lock:
            entry.under_way.pop(attempt, None)
            entry.last_latency = latency
            entry.recent.append(latency)
            if entry.calm and net <= self._quick and attempt.epoch == entry.epoch:
                entry.smoothed += self._smoothing * (net - entry.smoothed)
                entry.samples += 1
                if written_at > entry.proof:  # noqa: PLR1730
                    entry.proof = written_at
                return
            entry.unreached_since = NEVER
            self._judge.answered(entry, attempt, net, now)
            notices = self._release(attempt, now)
        self._tell(notices)

    def answered_all(self, attempts: Sequence[WatchedAttempt], now: float) -> None:
        """Good replies to several attempts were read at ``now``, as if ``answered`` one by one.

        Under one lock and in one call for all those of the first one's broker that need no
        judgement, which saves two thirds of what an answer costs here.
        """
        entry, count = attempts[0].entry, 0
        with self._lock:
            if entry.calm:
                count = self._pass(entry, attempts, now)
        # The later ones may depend on a verdict, of which hooks hear.
        tell_each(attempts[count:], lambda attempt: self.answered(attempt, now))

    def _pass(self, entry: Entry, attempts: Sequence[WatchedAttempt], now: float) -> int:
        """Take in answers of a calm broker up to one that must be judged; returns how many."""
        quick, smoothing, epoch = self._quick, self._smoothing, entry.epoch
        smoothed, proof = entry.smoothed, entry.proof
        forget, note = entry.under_way.pop, entry.recent.append
        count, latency = 0, entry.last_latency
        for attempt in attempts:
            written_at = attempt.written_at
            net = now - written_at - attempt.allowance
            if net > quick or attempt.epoch != epoch or attempt.entry is not entry:
                break
            count += 1
            forget(attempt, None)
            latency = now - written_at
            note(latency)
            if net < 0.0:  # noqa: PLR1730  a call of max() costs more
                net = 0.0
            smoothed += smoothing * (net - smoothed)
            if written_at > proof:  # noqa: PLR1730
                proof = written_at
        entry.smoothed, entry.proof, entry.last_latency = smoothed, proof, latency
        entry.samples += count
        return count

    def settled(self, attempt: WatchedAttempt, now: float, *, code: int = 0) -> None:
        """The attempt is over and says nothing of the broker.

        Args:
            attempt: the attempt.
            now: when it was over.
            code: what the broker answered, 0 for a oneway request that was written. Only Java's
                rules look at it.
        """
        with self._lock:
            self._judge.settled(attempt.entry, attempt, now, code)
            notices = self._release(attempt, now)
        self._tell(notices)

    def failed(
        self,
        attempt: WatchedAttempt,
        now: float,
        reason: str,
        *,
        busy: bool = False,
        timed_out: bool = False,
    ) -> None:
        """The broker failed the attempt.

        Args:
            attempt: the attempt.
            now: when it failed.
            reason: what happened, to follow a broker's name: "refused the connection".
            busy: whether the broker said that it has too much to do.
            timed_out: whether we gave up waiting. A time-out sooner than an ordinary answer
                comes is no verdict.
        """
        entry = attempt.entry
        with self._lock:
            since = attempt.began if attempt.written_at == NEVER else attempt.written_at
            waited = now - since - attempt.allowance
            if not (timed_out and self._judge.too_early(entry, waited)):
                entry.failures += 1
                self._judge.failed(entry, attempt, now, reason, "busy" if busy else "failed")
            notices = self._release(attempt, now)
        self._tell(notices)

    def cancelled(self, attempt: WatchedAttempt) -> None:
        """The attempt was given up, written or not; it says nothing."""
        with self._lock:
            notices = self._release(attempt, self._clock())
        self._tell(notices)

    def replied(self, attempt: WatchedAttempt, now: float, code: int) -> None:
        """End an attempt by the code of its reply."""
        if code in STORED:
            self.answered(attempt, now)
        elif code in BROKER_UNWELL:
            reason = f"answered {RESPONSE_NAMES[code]} ({code})"
            self.failed(attempt, now, reason, busy=code in _BUSY)
        else:
            self.settled(attempt, now, code=code)

    def broke(self, attempt: WatchedAttempt, now: float, error: Exception) -> None:
        """End an attempt by the transport's or the protocol's error."""
        waited = now - (attempt.began if attempt.written_at == NEVER else attempt.written_at)
        late = isinstance(error, RequestTimeoutError)
        entry = attempt.entry
        if isinstance(error, ConnectFailedError) and entry.unreached_since <= entry.proof:
            entry.unreached_since = attempt.began
        self.failed(attempt, now, what_happened(error, waited), timed_out=late)

    # ------------------------------------------------------------------ choosing

    def refresh(self, now: float) -> None:
        """Let time have its effect; needed when ``watch.at`` has come, harmless otherwise."""
        with self._lock:
            self._judge.refresh(now)
            notices = self._take_notices()
        self._tell(notices)

    def allowed(self, brokers: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Which brokers a send may choose, as of the last ``refresh``.

        Returns:
            The candidates (usable and not suspect, or on trial with a free place), and those
            among them that are not on trial.
        """
        entries = [self._known(name) for name in brokers]
        with self._lock:
            candidates = [entry for entry in entries if entry.candidate]
            trusted = [entry for entry in candidates if entry.state == "usable"]
        return frozenset(e.name for e in candidates), frozenset(e.name for e in trusted)

    def least_bad(self, brokers: Collection[str], now: float) -> list[str]:
        """The best of brokers that are no candidates, several if equal.

        Under Java 4's rules the best of all brokers in the table, which may have no queue here;
        empty if there is none.
        """
        known = [self._known(name) for name in brokers]
        with self._lock:
            return self._judge.least_bad(known, now)

    def unreached_for(self, broker: str, now: float) -> float | None:
        """For how many seconds a broker can't be connected to; None if it can."""
        entry = self._entries.get(broker)
        if entry is None or entry.unreached_since <= entry.proof:
            return None
        return now - entry.unreached_since

    def state_of(self, broker: str) -> str:
        """In one word what the table thinks of a broker, for telemetry."""
        entry = self._entries.get(broker)
        if entry is None:
            return "usable"
        return "suspect" if entry.state == "usable" and entry.suspect else entry.state

    def entry_of(self, broker: str) -> Entry:
        """What is kept of a broker; another one when ``watch.version`` has changed.

        For attempts begun without ``begin``, which is right only while the broker is usable.
        """
        return self._known(broker)

    def reachable(self, broker: str) -> bool:
        """What Java 5's detector says; always True without one."""
        return self._known(broker).reachable

    # ------------------------------------------------------------------ probing

    def next_probe_at(self) -> float | None:
        """The moment at which the next probe is due; None when nobody is to be probed."""
        with self._lock:
            waiting = [e.probe_at for e in list(self._entries.values()) if self._may_probe(e)]
        return min(waiting, default=None)

    def probe_due(self, now: float) -> list[str]:
        """The brokers to be probed now, each by one request within ``policy.probe_timeout``.

        A broker that was named is due again only after a ``probe_interval``, even if nobody says
        ``probe_started``, so that a background which can't probe it does not spin.
        """
        with self._lock:
            due = [
                e for e in list(self._entries.values()) if self._may_probe(e) and now >= e.probe_at
            ]
            for entry in due:
                entry.probe_at = now + self.policy.probe_interval
        return [entry.name for entry in due]

    def probe_started(self, broker: str) -> None:
        """A probe is under way; until it is finished the broker is not due again."""
        with self._lock:
            entry = self._entries.get(broker)
            if entry is not None:
                entry.probe_epoch = entry.epoch

    def probe_given_up(self, broker: str) -> None:
        """A probe ended and says nothing: the broker is due again when its time comes."""
        with self._lock:
            entry = self._entries.get(broker)
            if entry is not None:
                entry.probe_epoch = None

    def probe_finished(
        self,
        broker: str,
        now: float,
        latency: float | None,
        good: bool,  # noqa: FBT001  one probe, one verdict
        reason: str = "",
    ) -> None:
        """A probe came to its end.

        Args:
            broker: the one that it asked.
            now: when it was over.
            latency: seconds from writing it to reading the answer; None if there was none.
            good: whether any answer came in time, other than the codes of ``BROKER_UNWELL``.
            reason: what happened instead, to follow a broker's name.
        """
        with self._lock:
            entry = self._entries.get(broker)
            if entry is None or entry.probe_epoch is None:
                return
            current = entry.probe_epoch == entry.epoch and self._judge.wants_probe(entry)
            entry.probe_epoch = None
            if current:
                entry.probe_failure = reason
                self._judge.probed(entry, now, latency or 0.0, good=good)
            notices = self._take_notices()
        self._tell(notices)

    def _may_probe(self, entry: Entry) -> bool:
        return entry.probe_epoch is None and self._judge.wants_probe(entry)

    # ------------------------------------------------------------------ brokers

    def reset(self, broker: str) -> None:
        """A broker's name has a new master address: what was known is void, it is on trial.

        Attempts still under way to the old address end without effect.
        """
        with self._lock:
            if broker in self._entries:
                fresh = self._make(broker)
                self._judge.start_afresh(fresh)
                self._entries[broker] = fresh
                self.watch.version += 1

    def retain(self, brokers: Collection[str]) -> None:
        """Forget every broker that is not among these."""
        keep = frozenset(brokers)
        with self._lock:
            for name in [name for name in list(self._entries) if name not in keep]:
                del self._entries[name]
                self.watch.version += 1

    def forget(self, broker: str) -> None:
        """Forget one broker; Java 4's rules do it to one without queues."""
        with self._lock:
            if self._entries.pop(broker, None) is not None:
                self.watch.version += 1

    def snapshot(self, now: float) -> tuple[BrokerHealth, ...]:
        """The whole table as users see it, by broker name."""
        self.refresh(now)
        with self._lock:
            entries = sorted(self._entries.values(), key=lambda entry: entry.name)
            return tuple(health_of(entry, now) for entry in entries)

    # ------------------------------------------------------------------ inside

    def _known(self, broker: str) -> Entry:
        entry = self._entries.get(broker)
        return entry if entry is not None else self._add(broker)

    def _add(self, broker: str) -> Entry:
        with self._lock:
            entry = self._entries.get(broker)
            if entry is None:
                entry = self._entries[broker] = self._make(broker)
            return entry

    def _make(self, broker: str) -> Entry:
        entry = Entry(broker, self.watch, window=self.policy.window, since=self._clock())
        if self.policy.mode == "adaptive":
            entry.expected = self.policy.expected.get(broker, 0.0)
            entry.allow_per_byte = 1 / self.policy.bytes_per_second
        return entry

    def _release(self, attempt: WatchedAttempt, now: float) -> list[Notice]:
        entry = attempt.entry
        entry.under_way.pop(attempt, None)
        self._judge.released(entry, attempt, now)
        notices = self._take_notices()
        if notices and self._entries.get(entry.name) is not entry:
            return []  # the broker has vanished, or has a new address, since the attempt began
        return notices

    def _take_notices(self) -> list[Notice]:
        notices = self._judge.notices
        if notices:
            self._judge.notices = []
        return notices

    def _tell(self, notices: list[Notice]) -> None:
        if notices:
            tell_each(notices, self._tell_one)

    def _tell_one(self, notice: Notice) -> None:
        try:
            self._tell_listener(notice)
        except Exception:  # noqa: BLE001  a listener's fault is not the send's
            _log.exception("a listener of the fault table failed")

    def _tell_listener(self, notice: Notice) -> None:
        if notice.kind == "steady":
            _log.warning(
                "%s: steadily %s; if it is far rather than sick, set `expected`",
                notice.broker,
                notice.words,
                extra=about(broker=notice.broker),
            )
        elif notice.kind == "isolated" and self._on_isolated is not None:
            self._on_isolated(notice.broker, notice.words, notice.until)
        elif notice.kind == "returned" and self._on_returned is not None:
            self._on_returned(notice.broker, notice.words)


def _judge_for(
    policy: FaultPolicy,
    entries: dict[str, Entry],
    watch: Watch,
    random: Callable[[], float],
    *,
    probing: bool,
) -> Judge:
    if policy.mode == "adaptive":
        return AdaptiveJudge(policy, entries, watch, random, probing=probing)
    if policy.mode == "off":
        return NoJudge(policy, entries, watch, random)
    return JavaJudge(policy, entries, watch, random, walk=policy.mode)
