"""Random lives of a cluster: whatever happens to its brokers, some things always hold.

ROCKETWIRE_HISTORIES raises the number of histories (the suite runs a few hundred).
"""

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.fault_lab import FaultLab

from rocketwire.core.faults.judgement import LOOK_AGAIN
from rocketwire.core.faults.selection import TopicQueues
from rocketwire.errors import Outcome, SendTimeoutError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.testing.policy_model import PolicyModel
from rocketwire.testing.simulated_network import (
    Answer,
    Hang,
    Refuse,
    Reset,
    Slow,
    Unreachable,
    with_pauses,
)

HISTORIES = int(os.environ.get("ROCKETWIRE_HISTORIES", "120"))
relaxed = settings(
    max_examples=HISTORIES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
EPSILON = 1e-9

faults = st.one_of(
    st.builds(Slow, st.sampled_from([0.03, 0.08, 0.3, 0.9]), st.booleans()),
    st.builds(Hang, st.booleans()),
    st.just(Refuse()),
    st.just(Reset()),
    st.just(Unreachable()),
    st.builds(Answer, st.sampled_from([1, 2, 13, 14, 17, 215, 1500]), heartbeats=st.booleans()),
)
troubles = st.lists(
    st.tuples(st.integers(0, 4), st.floats(0.0, 4.0), st.floats(0.01, 3.0), faults), max_size=8
)


class WatchedModel(PolicyModel):
    """Looks over the shoulder of every attempt, by the table's records and not by its verdicts."""

    def __init__(self, policy, **options):
        self.timeout = options["timeout"]
        super().__init__(policy, **options)
        #: Who looks suspect from outside, since which attempt.
        self.suspects = {}

    def send(self, sender):
        began = self.clock()
        try:
            return (yield from super().send(sender))
        finally:
            assert self.clock() <= began + self.timeout + EPSILON, "past the deadline"

    def attempt_begins(self, attempt):
        queue, now = attempt.where.queue, attempt.began
        assert now < attempt.deadline
        entries = [self.table._entries[name] for name in self.brokers]
        chosen = self.table._entries[queue.broker]
        for entry in entries:
            if self.is_suspect(entry, now):
                self.suspects.setdefault(entry.name, now)
            else:
                self.suspects.pop(entry.name, None)
        usable = {e.name for e in entries if e.state == "usable" and e.name not in self.suspects}
        # The attempt has taken the place of a trial already.
        places = (None, attempt)
        on_trial = {e.name for e in entries if e.state == "trial" and e.trial_attempt in places}
        candidates = usable | on_trial
        if candidates:
            # When what is typical changes, suspicion is seen at the next look.
            since = self.suspects.get(queue.broker, now)
            late = chosen.state == "usable" and now - since <= LOOK_AGAIN + EPSILON
            assert late or queue.broker in candidates, "an avoided broker while another is usable"
        elif self.table.policy.mode == "adaptive":
            self.check_least_bad(chosen, entries, now)
        super().attempt_begins(attempt)

    def is_suspect(self, entry, now):
        waiting = [f for f in entry.under_way if f.written_at >= entry.proof]
        others = sorted(
            e.smoothed for e in self.table._entries.values() if e is not entry and e.samples >= 5
        )
        if not waiting or not others:
            return False
        half = len(others) // 2
        typical = others[half] if len(others) % 2 else (others[half - 1] + others[half]) / 2
        age = now - waiting[0].written_at - waiting[0].allowance
        return age > max(10 * typical, 0.1) + EPSILON

    def check_least_bad(self, chosen, entries, now):
        def badness(entry):
            if entry.state == "isolated" and entry.cause != "slow":
                return 1, entry.until if entry.probe_at == float("inf") else entry.probe_at
            waiting = [f for f in entry.under_way if f.written_at >= entry.proof]
            age = now - waiting[0].written_at if waiting and entry.suspect else 0.0
            return 0, age if entry.state == "usable" else max(age, entry.last_wait)

        better = [entry for entry in entries if badness(entry) < badness(chosen)]
        # Better ones are passed over only if they have just failed this very message.
        assert len(better) <= 1, "not the least bad"


@relaxed
@given(
    seed=st.integers(0, 10_000),
    brokers=st.integers(1, 5),
    senders=st.integers(1, 6),
    retries=st.integers(0, 3),
    timeout=st.sampled_from([0.05, 0.5, 1.5, 3.0]),
    capped=st.booleans(),
    background=st.booleans(),
    trouble=troubles,
    pauses=st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.01, 0.6)), max_size=2),
)
def test_the_rules_hold_through_any_history(
    seed, brokers, senders, retries, timeout, capped, background, trouble, pauses
):
    model = WatchedModel(
        FaultPolicy(),
        seed=seed,
        brokers=brokers,
        queues=2,
        senders=senders,
        retries=retries,
        timeout=timeout,
        attempt_timeout=-1.0 if capped else None,
        background=background,
        latency=with_pauses(0.006, share=0.01, shortest=0.02, longest=0.15),
        think=0.01,
    )
    names = list(model.brokers)
    for position, start, length, fault in trouble:
        broker = model.brokers[names[position % brokers]]
        broker.break_between(start, start + length, fault)
    # While the process stands still nobody can keep a deadline.
    model.timeout += sum(length for _, length in pauses)
    for start, length in pauses:
        model.clock.call_at(start, lambda end=start + length: model.clock.pause_until(end))
    check_figures(model, model.run(until=5.0), retries)


def check_figures(model, figures, retries):
    for error in figures.failures:
        tried = [attempt.broker for attempt in error.attempts]
        assert 1 <= len(tried) <= 1 + retries
        worst = Outcome.worst([attempt.outcome for attempt in error.attempts])
        assert error.outcome is worst
        if isinstance(error, SendTimeoutError):
            assert sum(attempt.latency for attempt in error.attempts) > 0
    states = model.table.snapshot(model.clock())
    assert {health.broker for health in states} <= set(model.brokers)
    slow = [
        entry
        for entry in model.table._entries.values()
        if entry.state == "isolated" and entry.cause == "slow"
    ]
    assert len(slow) <= len(states) // 2
    assert all(entry.last_isolation <= 30.0 for entry in model.table._entries.values())
    # Nothing is left behind: no attempt, no place taken.
    assert all(health.in_flight == 0 for health in states)
    assert all(entry.trial_attempt is None for entry in model.table._entries.values())


@relaxed
@given(
    seed=st.integers(0, 10_000),
    policy=st.sampled_from(
        [FaultPolicy(), FaultPolicy.java4(), FaultPolicy.java5(), FaultPolicy.off()]
    ),
    brokers=st.integers(2, 4),
    trouble=troubles,
)
def test_a_retry_goes_elsewhere_while_anybody_else_is_usable(seed, policy, brokers, trouble):
    model = PolicyModel(policy, seed=seed, brokers=brokers, senders=2, latency=0.006, think=0.01)
    names = list(model.brokers)
    for position, start, length, fault in trouble:
        model.brokers[names[position % brokers]].break_between(start, start + length, fault)
    choose = model.view.best
    wrong = []

    class Watched:
        def __getattr__(self, name):
            return getattr(model_view, name)

        def best(self, counters, now, failed=()):
            queue = choose(counters, now, failed)
            others = [n for n in names if failed and n != failed[-1]]
            if failed and queue.broker == failed[-1]:
                trusted = model_view.choice(now).trusted
                wrong.extend(n for n in others if n in trusted)
            return queue

    model_view = model.view
    model.route.derived["queues"] = Watched()
    model.run(until=3.0)
    assert wrong == []


@settings(max_examples=max(20, HISTORIES // 4), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    brokers=st.integers(1, 4),
    queues=st.integers(1, 5),
    senders=st.integers(1, 5),
    trouble=troubles,
)
def test_the_spread_is_even_whenever_all_are_usable_again(seed, brokers, queues, senders, trouble):
    model = PolicyModel(
        FaultPolicy(),
        seed=seed,
        brokers=brokers,
        queues=queues,
        senders=senders,
        latency=0.01,
        think=0.02,
    )
    names = list(model.brokers)
    for position, start, length, fault in trouble:
        begin, end = start / 4, start / 4 + min(length, 0.3)
        model.brokers[names[position % brokers]].break_between(begin, end, fault)
    model.run(until=2.0)
    # Healed at 1.3 s at the latest. However long that takes, wait for everybody to be back.
    for _ in range(40):
        model.run(until=model.clock() + 2.0)
        states = [health.state for health in model.table.snapshot(model.clock())]
        if states == ["usable"] * len(states):
            break
    model.figures.by_queue.clear()
    isolations = model.figures.isolations
    model.run(until=model.clock() + 4.0)
    if model.figures.isolations == isolations:
        counts = [model.figures.by_queue[queue] for queue in model.queues]
        assert max(counts) - min(counts) <= senders + 1


class TableLife(RuleBasedStateMachine):
    """A table under any sequence of events, compared with what a fresh look at it finds."""

    attempts = Bundle("attempts")

    @initialize(
        mode=st.sampled_from(["adaptive", "java4", "java5", "off"]),
        probing=st.booleans(),
        chance=st.floats(0.0, 0.999),
    )
    def start(self, mode, probing, chance):
        policy = {
            "adaptive": FaultPolicy(),
            "java4": FaultPolicy.java4(),
            "java5": FaultPolicy.java5(detector=True),
            "off": FaultPolicy.off(),
        }[mode]
        self.lab = FaultLab(policy, brokers=("a", "b", "c", "d"), probing=probing, chance=chance)
        self.probing = set()

    @rule(target=attempts, broker=st.sampled_from("abcd"), size=st.sampled_from([0, 100, 500_000]))
    def begin(self, broker, size):
        attempt = self.lab.table.begin(broker, self.lab.now)
        attempt.written(self.lab.now, size)
        return attempt

    @rule(target=attempts, broker=st.sampled_from("abcd"))
    def begin_and_connect(self, broker):
        return self.lab.table.begin(broker, self.lab.now)

    @rule(seconds=st.sampled_from([0.0005, 0.002, 0.03, 0.12, 0.6, 3.0, 31.0]))
    def pass_time(self, seconds):
        self.lab.wait(seconds)

    @rule(broker=st.sampled_from("abcd"), times=st.integers(1, 6))
    def answer_quickly(self, broker, times):
        for _ in range(times):
            self.lab.answer(broker)

    @rule(attempt=consumes(attempts), code=st.sampled_from([0, 0, 0, 10, 2, 17, 215, 1500]))
    def reply(self, attempt, code):
        self.lab.table.replied(attempt, self.lab.now, code)

    @rule(attempt=consumes(attempts))
    def fail(self, attempt):
        self.lab.table.failed(attempt, self.lab.now, "closed the connection")

    @rule(attempt=consumes(attempts))
    def cancel(self, attempt):
        self.lab.table.cancelled(attempt)

    @rule()
    def start_probes(self):
        for broker in self.lab.table.probe_due(self.lab.now):
            assert broker not in self.probing
            self.lab.table.probe_started(broker)
            self.probing.add(broker)

    @precondition(lambda self: getattr(self, "probing", None))
    @rule(latency=st.sampled_from([0.001, 0.1, None]))
    def finish_probe(self, latency):
        broker = self.probing.pop()
        self.lab.table.probe_finished(broker, self.lab.now, latency, good=latency is not None)

    @rule(broker=st.sampled_from("abcd"))
    def move(self, broker):
        self.lab.table.reset(broker)
        self.probing.discard(broker)

    @rule(kept=st.sets(st.sampled_from("abcd"), min_size=1))
    def vanish(self, kept):
        self.lab.table.retain(kept)
        assert {health.broker for health in self.lab.table.snapshot(self.lab.now)} <= kept
        self.probing &= kept

    @invariant()
    def a_remembered_choice_is_what_a_fresh_look_finds(self):
        if not hasattr(self, "lab"):
            return
        lab = self.lab
        remembered = lab.view.choice(lab.now)
        fresh = TopicQueues("t", lab.queues, lab.table).choice(lab.now)
        assert remembered.candidates == fresh.candidates
        assert remembered.trusted == fresh.trusted
        queue = lab.view.best(lab.counters, lab.now)
        assert queue in lab.queues
        if fresh.candidates:
            assert queue.broker in fresh.candidates

    @invariant()
    def no_effect_of_time_is_missed(self):
        if not hasattr(self, "lab"):
            return
        lab, watch = self.lab, self.lab.table.watch
        lab.view.choice(lab.now)
        states = {name: entry.state for name, entry in lab.table._entries.items()}
        version, next_look = watch.version, watch.at
        lab.table.refresh(lab.now)
        assert {name: entry.state for name, entry in lab.table._entries.items()} == states
        if watch.version != version:
            # What is typical has changed, and with it suspicion: seen at the next look.
            assert next_look <= lab.now + LOOK_AGAIN

    @invariant()
    def health_is_consistent(self):
        if not hasattr(self, "lab"):
            return
        for health in self.lab.table.snapshot(self.lab.now):
            assert (health.until is not None) == (health.state == "isolated")
            assert bool(health.why) == (health.state != "usable")
            assert health.since <= self.lab.now
        assert not self.lab.lock.held


TableLife.TestCase.settings = settings(
    max_examples=max(40, HISTORIES // 2), stateful_step_count=40, deadline=None
)
TestTableLife = TableLife.TestCase
