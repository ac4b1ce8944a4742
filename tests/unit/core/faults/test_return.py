"""Rule 5, and what happens when brokers move or vanish."""

from collections import deque

import pytest
from tests.fault_lab import FaultLab

from rocketwire.core.faults.entries import FOREVER, NEVER, Entry
from rocketwire.fault_policy import FaultPolicy


def lab_of(count=3, policy=None, **options):
    lab = FaultLab(policy, brokers=[f"b{number}" for number in range(count)], **options)
    lab.warm_up()
    return lab


def failing_probes(lab, broker, count):
    """Waits between the end of one failing probe and the next one."""
    waits = []
    for _ in range(count):
        lab.probe(broker, None)
        waits.append(lab.table.next_probe_at() - lab.now)
    return waits


def test_nobody_is_probed_while_all_is_well():
    lab = lab_of()
    assert lab.table.next_probe_at() is None
    assert lab.table.probe_due(lab.now + 1000) == []


def test_a_probe_is_due_when_the_isolation_is_over_and_not_before():
    lab = lab_of()
    lab.fail("b0")
    assert lab.table.next_probe_at() == lab.now + 0.5
    lab.wait(0.499)
    assert lab.table.probe_due(lab.now) == []
    lab.wait(0.001)
    assert lab.table.probe_due(lab.now) == ["b0"]


def test_the_clock_alone_returns_nobody():
    lab = lab_of()
    lab.fail("b0")
    lab.wait(25.0)
    assert lab.state("b0") == "isolated"
    assert "b0" not in lab.chosen()


def test_one_probe_at_a_time():
    lab = lab_of()
    lab.fail("b0")
    lab.wait(0.5)
    assert lab.table.probe_due(lab.now) == ["b0"]
    lab.table.probe_started("b0")
    lab.wait(100.0)
    assert lab.table.probe_due(lab.now) == []
    assert lab.table.next_probe_at() is None


def test_a_broker_named_as_due_is_not_named_again_at_once_even_if_nobody_probes_it():
    lab = lab_of()
    lab.fail("b0")
    lab.wait(0.5)
    assert lab.table.probe_due(lab.now) == ["b0"]
    assert lab.table.probe_due(lab.now) == []
    assert lab.table.next_probe_at() == lab.now + 1.0


def test_a_good_probe_opens_a_trial_of_two_good_messages_in_a_row():
    lab = lab_of()
    lab.fail("b0")
    lab.probe("b0")
    assert lab.state("b0") == "trial"
    lab.answer("b0")
    assert lab.state("b0") == "trial"
    lab.answer("b0")
    assert lab.state("b0") == "usable"
    assert lab.table.next_probe_at() is None


def test_a_trial_takes_one_message_at_a_time():
    lab = lab_of()
    lab.fail("b0")
    lab.probe("b0")
    assert "b0" in lab.chosen()
    trial = lab.start("b0")
    assert "b0" not in lab.chosen()
    second = lab.start("b0")  # a pinned message goes there all the same, without the place
    lab.table.cancelled(second)
    assert "b0" not in lab.chosen()
    lab.table.answered(trial, lab.now)
    assert "b0" in lab.chosen()


@pytest.mark.parametrize("end", ["cancelled", "settled"])
def test_a_trial_message_without_a_verdict_frees_the_place_and_proves_nothing(end):
    lab = lab_of()
    lab.fail("b0")
    lab.probe("b0")
    attempt = lab.start("b0")
    if end == "cancelled":
        lab.table.cancelled(attempt)
    else:
        lab.table.replied(attempt, lab.now, 17)
    assert lab.state("b0") == "trial"
    assert "b0" in lab.chosen()
    lab.answer("b0")
    assert lab.state("b0") == "trial"


def test_a_slow_trial_message_isolates_again():
    lab = lab_of()
    lab.fail("b0")
    lab.probe("b0")
    lab.answer("b0")
    lab.answer("b0", 0.2)
    assert lab.state("b0") == "isolated"
    assert lab.isolation("b0") == pytest.approx(1.0)  # twice 0.5 s, more than 4 x 0.2 s
    lab.probe("b0")
    lab.answer("b0")
    assert lab.state("b0") == "trial"  # the good one before counts no more


def test_failing_probes_come_each_second_for_twenty_seconds_and_then_ever_later():
    lab = lab_of()
    lab.fail("b0")
    first = lab.table.next_probe_at()
    early = []
    while lab.now < first + 18.5:
        early += failing_probes(lab, "b0", 1)
    assert early == pytest.approx([1.0] * len(early))
    lab.probe("b0", None)
    assert lab.now - first == pytest.approx(20.0)
    late = [lab.table.next_probe_at() - lab.now, *failing_probes(lab, "b0", 7)]
    assert late == pytest.approx([1.5, 2.25, 3.375, 5.0625, 7.59375, 10, 10, 10])


def test_until_the_twentieth_second_waits_do_not_grow():
    lab = FaultLab(FaultPolicy(probe_timeout=0.25), brokers=("b0", "b1"))
    lab.fail("b0")
    first = lab.table.next_probe_at()
    while lab.now - first < 20.0 - 1.25:
        lab.probe("b0", None)
        assert lab.table.next_probe_at() - lab.now == 1.0
    lab.probe("b0", None)
    assert lab.now - first >= 20.0
    assert lab.table.next_probe_at() - lab.now == 1.5


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 0.5), (0.25, 0.75), (0.999999, 1.5)])
def test_every_wait_is_jittered_by_half(chance, wait):
    lab = lab_of(chance=chance)
    lab.fail("b0")
    assert failing_probes(lab, "b0", 1) == pytest.approx([wait], abs=1e-5)


def test_a_new_isolation_starts_the_probes_afresh():
    lab = lab_of()
    lab.fail("b0")
    failing_probes(lab, "b0", 20)
    lab.probe("b0")
    lab.fail("b0")
    assert failing_probes(lab, "b0", 3) == pytest.approx([1.0] * 3)


def test_a_slow_probe_keeps_it_out():
    lab = lab_of()
    lab.fail("b0")
    lab.probe("b0", 0.023)
    assert lab.state("b0") == "isolated"
    assert lab.table.next_probe_at() == pytest.approx(lab.now + 1.0)
    lab.probe("b0", 0.021)
    assert lab.state("b0") == "trial"


def test_without_a_typical_latency_no_probe_is_slow():
    lab = FaultLab(brokers=("b0", "b1"))
    lab.fail("b0")
    lab.probe("b0", 0.4)
    assert lab.state("b0") == "trial"


def test_every_change_of_state_is_dated():
    lab = lab_of(probing=False)
    lab.fail("b0")
    lab.wait(0.5)
    assert (lab.state("b0"), lab.health("b0").since) == ("trial", lab.now)
    lab.fail("b0")
    assert lab.health("b0").since == lab.now
    lab.answer("b0")  # during the isolation: straight to a trial
    assert (lab.state("b0"), lab.health("b0").since) == ("trial", lab.now)
    lab.wait(0.1)
    lab.answer("b0")
    assert (lab.state("b0"), lab.health("b0").since) == ("usable", lab.now)


def test_expected_latency_is_subtracted_from_probes_too():
    lab = lab_of(policy=FaultPolicy(expected={"b0": 0.1}))
    lab.fail("b0")
    lab.probe("b0", 0.121)
    assert lab.state("b0") == "trial"


def test_a_broker_whose_probes_are_only_slow_gets_a_trial_message_every_thirty_seconds():
    lab = lab_of()
    lab.answer("b0", 0.05)
    began = lab.now
    while lab.table.next_probe_at() < began + 29.0:
        lab.probe("b0", 0.05)
        assert lab.state("b0") == "isolated"
    lab.clock.run_until(began + 29.99)
    assert "b0" not in lab.chosen()
    lab.clock.run_until(began + 30.0)
    assert "b0" in lab.chosen()
    lab.answer("b0", 0.05)
    assert lab.state("b0") == "isolated"
    again = lab.now
    lab.clock.run_until(again + 29.99)
    assert "b0" not in lab.chosen()
    lab.clock.run_until(again + 30.0)
    assert "b0" in lab.chosen()


def test_failing_probes_let_no_trial_message_through():
    lab = lab_of()
    lab.fail("b0")
    while lab.now < 200.0:
        lab.probe("b0", None)
        assert lab.state("b0") == "isolated"
    failed_at = lab.now
    lab.probe("b0", 0.05)
    lab.clock.run_until(failed_at + 29.9)
    assert lab.state("b0") == "isolated"
    lab.clock.run_until(failed_at + 30.0)
    assert lab.state("b0") == "trial"


def test_an_isolation_nobody_probes_ends_in_a_trial_after_thirty_seconds():
    lab = lab_of()
    lab.fail("b0")
    since = lab.now
    lab.clock.run_until(since + 30.0)
    assert "b0" in lab.chosen()


def test_where_the_background_is_off_the_trial_message_is_the_probe():
    lab = lab_of(probing=False)
    lab.fail("b0")
    assert lab.table.next_probe_at() is None
    lab.wait(0.499)
    assert lab.table.probe_due(lab.now) == []
    assert "b0" not in lab.chosen()
    lab.wait(0.001)
    assert lab.state("b0") == "trial"
    assert "b0" in lab.chosen()
    lab.fail("b0")
    assert lab.isolation("b0") == pytest.approx(1.0)


def test_a_probe_that_began_before_a_new_isolation_does_not_end_it():
    lab = lab_of()
    lab.fail("b0")
    lab.wait(0.5)
    assert lab.table.probe_due(lab.now) == ["b0"]
    lab.table.probe_started("b0")
    lab.answer("b0")  # on the way back by a real message ...
    lab.fail("b0")  # ... which then fails: a new isolation
    lab.table.probe_finished("b0", lab.now, 0.002, good=True)
    assert lab.state("b0") == "isolated"
    assert lab.table.next_probe_at() == pytest.approx(lab.now + 1.0)


def test_a_probe_that_nobody_started_or_of_an_unknown_broker_changes_nothing():
    lab = lab_of()
    lab.fail("b0")
    lab.table.probe_finished("b0", lab.now, 0.002, good=True)
    assert lab.state("b0") == "isolated"
    lab.table.probe_started("gone")
    lab.table.probe_finished("gone", lab.now, 0.002, good=True)
    assert [item.broker for item in lab.table.snapshot(lab.now)] == ["b0", "b1", "b2"]


def test_a_new_address_puts_a_broker_on_trial_and_voids_what_was_known():
    lab = lab_of()
    old = lab.start("b0")
    lab.fail("b0")
    lab.table.reset("b0")
    health = lab.health("b0")
    assert (health.state, health.record, health.failures, health.smoothed) == ("trial", 0, 0, None)
    assert health.why == "on trial: new address"
    assert health.in_flight == 0
    told = len(lab.isolated)
    lab.table.failed(old, lab.now, "closed the connection")
    assert lab.state("b0") == "trial"
    assert len(lab.isolated) == told
    lab.answer("b0")
    lab.answer("b0")
    assert lab.state("b0") == "usable"
    assert lab.returned[-1][1:] == ("b0", "has proved its new address")


def test_a_usable_broker_with_a_new_address_is_on_trial_too():
    lab = lab_of()
    assert lab.chosen() == {"b0", "b1", "b2"}
    lab.table.reset("b0")
    lab.start("b0")
    assert lab.chosen() == {"b1", "b2"}


def test_resetting_an_unknown_broker_adds_none():
    lab = lab_of()
    lab.table.reset("other")
    assert [item.broker for item in lab.table.snapshot(lab.now)] == ["b0", "b1", "b2"]


def test_vanished_brokers_are_forgotten():
    lab = lab_of()
    lab.fail("b0")
    attempt = lab.start("b0")
    lab.table.retain(["b1", "b2"])
    assert [item.broker for item in lab.table.snapshot(lab.now)] == ["b1", "b2"]
    assert lab.table.next_probe_at() is None
    lab.table.failed(attempt, lab.now, "closed the connection")
    assert len(lab.isolated) == 1
    lab.table.retain(["b0", "b1", "b2"])
    assert "b0" in lab.chosen()


def test_a_forgotten_broker_is_chosen_again_when_it_comes_back():
    lab = lab_of()
    lab.fail("b0")
    assert "b0" not in lab.chosen()
    lab.table.forget("b0")
    assert "b0" in lab.chosen()
    lab.table.forget("never seen")


def test_trusted_means_neither_isolated_nor_on_trial_nor_suspect():
    lab = lab_of()
    assert lab.view.choice(lab.now).trusted == {"b0", "b1", "b2"}
    lab.fail("b0")
    assert lab.view.choice(lab.now).trusted == {"b1", "b2"}
    lab.probe("b0")
    assert lab.view.choice(lab.now).trusted == {"b1", "b2"}
    lab.start("b1")
    lab.wait(0.2)
    assert lab.view.choice(lab.now).trusted == {"b2"}


def test_a_probe_that_takes_no_time_at_all_is_good():
    lab = FaultLab()
    lab.warm_up()
    lab.fail("broker-a")
    lab.probe("broker-a", 0.0)
    assert lab.state("broker-a") == "trial"


# ---------------------------------------------------------------------------- new brokers


def test_nothing_is_known_of_a_broker_that_is_new():
    entry = FaultLab().table.entry_of("broker-a")
    known = {name: getattr(entry, name) for name in Entry.__slots__ if name != "watch"}
    assert known == {
        "name": "broker-a",
        "state": "usable",
        "since": 0.0,
        "until": NEVER,
        "cause": "",
        "in_words": "",
        "probe_failure": "",
        "calm": False,
        "epoch": 0,
        "expected": 0.0,
        "allow_per_byte": 1e-07,
        "under_way": {},
        "proof": NEVER,
        "suspect": False,
        "smoothed": 0.0,
        "samples": 0,
        "excess": 0.0,
        "excess_at": 0,
        "last_latency": None,
        "last_wait": 0.0,
        "recent": deque(),
        "failures": 0,
        "record": 0,
        "good_since": 0,
        "verdict_at": NEVER,
        "unreached_since": NEVER,
        "last_isolation": 0.0,
        "trial_attempt": None,
        "trial_good": 0,
        "trial_at": FOREVER,
        "probe_at": FOREVER,
        "probe_since": FOREVER,
        "probe_wait": 0.0,
        "probe_epoch": None,
        "slow_since": None,
        "slow_streak": 0,
        "steady_told": False,
        "reachable": True,
    }
    assert (entry.watch.version, entry.watch.at) == (0, FOREVER)


def test_java_allows_nothing_for_size():
    assert FaultLab(FaultPolicy.java4()).table.entry_of("broker-a").allow_per_byte == 0.0


def test_two_threads_that_meet_a_new_broker_share_its_record():
    table = FaultLab().table
    assert table._add("broker-a") is table._add("broker-a") is table.entry_of("broker-a")


def test_a_new_address_needs_as_many_good_messages_as_a_trial():
    lab = FaultLab()
    lab.warm_up()
    lab.table.reset("broker-a")
    assert "broker-a" in lab.chosen()
    lab.answer("broker-a")
    assert lab.state("broker-a") == "trial"
    lab.answer("broker-a")
    assert lab.state("broker-a") == "usable"


def test_an_attempt_that_is_its_own_record_takes_the_place_of_a_trial_too():
    lab = lab_of()
    lab.fail("b0")
    lab.probe("b0")
    assert lab.state("b0") == "trial"
    attempt = lab.table.begin("b1", lab.now)
    version = lab.table.watch.version
    lab.table.enter(attempt, "b0")
    assert attempt.broker == "b0"
    assert attempt.entry.trial_attempt is attempt
    assert lab.table.watch.version > version
    assert "b0" not in lab.chosen()  # one message at a time
    second = lab.table.begin("b1", lab.now)
    lab.table.enter(second, "b0")
    assert attempt.entry.trial_attempt is attempt
