"""Java's tables and rules, exactly; and each of its known defects, absent."""

from random import Random

import pytest
from tests.fault_lab import FaultLab, FixedRandom

from rocketwire.config import ClientConfig
from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.faults.presets import walk_java4
from rocketwire.core.instance import Instance, Surroundings
from rocketwire.core.upkeep import heartbeat
from rocketwire.errors import ConnectionLostError, RequestTimeoutError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.testing.simulation import SimulatedDriver, SimulatedNetwork
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute

JAVA4 = FaultPolicy.java4()
JAVA5 = FaultPolicy.java5()
DETECTOR = FaultPolicy.java5(detector=True)

TABLE4 = [
    (0.0, 0), (0.049, 0), (0.05, 0), (0.099, 0), (0.1, 0), (0.549, 0),
    (0.55, 30), (0.999, 30), (1.0, 60), (1.999, 60), (2.0, 120), (2.999, 120),
    (3.0, 180), (14.999, 180), (15.0, 600), (100.0, 600),
]  # fmt: skip
TABLE5 = [
    (0.0, 0), (0.049, 0), (0.05, 0), (0.1, 0), (0.549, 0),
    (0.55, 2), (1.799, 2), (1.8, 5), (2.999, 5), (3.0, 6), (4.999, 6),
    (5.0, 10), (14.999, 10), (15.0, 30), (100.0, 30),
]  # fmt: skip


def isolation_after(policy, latency):
    lab = FaultLab(policy)
    lab.answer("broker-a", latency)
    if lab.state("broker-a") == "usable":
        return 0
    return lab.health("broker-a").until - lab.now


@pytest.mark.parametrize(("latency", "isolation"), TABLE4)
def test_java4_isolates_by_its_table(latency, isolation):
    assert isolation_after(JAVA4, latency) == pytest.approx(isolation)


@pytest.mark.parametrize(("latency", "isolation"), TABLE5)
def test_java5_isolates_by_its_table(latency, isolation):
    assert isolation_after(JAVA5, latency) == pytest.approx(isolation)


@pytest.mark.parametrize(("policy", "isolation"), [(JAVA4, 600), (JAVA5, 10), (DETECTOR, 10)])
def test_a_failure_counts_as_a_long_latency(policy, isolation):
    lab = FaultLab(policy)
    lab.fail("broker-a", "refused the connection", after=0.25)
    assert lab.health("broker-a").until == lab.now + isolation
    assert lab.health("broker-a").why.startswith("refused the connection, since 0.0 s")


@pytest.mark.parametrize(("policy", "isolation"), [(JAVA4, 600), (JAVA5, 10)])
def test_to_java_any_error_code_is_a_failure(policy, isolation):
    lab = FaultLab(policy)
    lab.table.replied(lab.start("broker-a"), lab.now, 17)
    assert lab.health("broker-a").until == lab.now + isolation
    assert lab.health("broker-a").why.startswith("answered code 17")


@pytest.mark.parametrize("policy", [JAVA4, JAVA5])
def test_to_java_even_a_hasty_time_out_is_a_failure(policy):
    lab = FaultLab(policy)
    lab.warm_up()
    lab.table.broke(lab.start("broker-a"), lab.now, RequestTimeoutError("", written=True))
    assert lab.state("broker-a") == "isolated"


def test_java_counts_connecting_as_latency_and_allows_nothing_for_size():
    lab = FaultLab(JAVA4)
    attempt = lab.table.begin("broker-a", lab.now)
    lab.wait(0.5)
    attempt.written(lab.now, 100_000_000)
    lab.wait(0.125)
    lab.table.answered(attempt, lab.now)
    assert lab.state("broker-a") == "isolated"
    assert lab.isolated[0][2] == "625 ms"


def test_a_oneway_send_counts_with_its_time_in_java():
    lab = FaultLab(JAVA4)
    attempt = lab.start("broker-a")
    lab.wait(0.75)
    lab.table.settled(attempt, lab.now)
    assert lab.health("broker-a").until == lab.now + 30


def test_java_lets_a_broker_back_when_its_time_is_over_without_any_proof():
    lab = FaultLab(JAVA5)
    lab.answer("broker-a", 0.75)
    lab.wait(1.999)
    assert "broker-a" not in lab.chosen()
    lab.wait(0.001)
    assert "broker-a" in lab.chosen()
    assert [event[:2] for event in lab.returned] == [(lab.now, "broker-a")]
    assert lab.table.next_probe_at() is None


def test_java_knows_no_suspicion():
    lab = FaultLab(JAVA4)
    lab.warm_up()
    lab.start("broker-a")
    lab.wait(2.0)
    assert "broker-a" in lab.chosen()


def test_java4_shortens_as_well_as_lengthens_an_isolation():
    lab = FaultLab(JAVA4)
    lab.answer("broker-a", 3.0)
    lab.answer("broker-a", 0.75)
    assert lab.health("broker-a").until == lab.now + 30
    assert len(lab.isolated) == 1


def test_java5_moves_the_end_of_an_isolation_only_later():
    lab = FaultLab(JAVA5)
    lab.fail("broker-a")
    until = lab.health("broker-a").until
    lab.answer("broker-a", 0.75)
    assert lab.health("broker-a").until == until
    lab.wait(5.0)
    lab.fail("broker-a")
    assert lab.health("broker-a").until == lab.now + 10


def test_java_isolates_every_slow_broker_however_many():
    lab = FaultLab(JAVA4)
    for broker in lab.brokers:
        lab.answer(broker, 0.75)
    assert {lab.state(broker) for broker in lab.brokers} == {"isolated"}


# ---------------------------------------------------------------------------- Java 4's fallback


def fallback_lab(*latencies, queues=2):
    lab = FaultLab(JAVA4, brokers=[f"b{n}" for n in range(len(latencies))], queues=queues)
    for broker, latency in zip(lab.brokers, latencies, strict=True):
        lab.answer(broker, latency)
    assert {lab.state(broker) for broker in lab.brokers} == {"isolated"}
    return lab


def test_java4_rotates_over_the_better_half():
    lab = fallback_lab(0.9, 0.7, 2.0, 0.6)
    picks = [lab.choose() for _ in range(6)]
    assert set(picks) == {"b3", "b1"}
    assert picks[0] != picks[1]
    assert picks[:2] == picks[2:4] == picks[4:]


def test_java4_takes_the_first_when_there_is_no_half():
    lab = fallback_lab(0.75)
    assert lab.chosen() == {"b0"}


def test_java4_ranks_the_available_before_the_quick():
    lab = FaultLab(JAVA4, brokers=("b0", "b1"))
    lab.answer("b0", 0.5)
    lab.answer("b1", 0.6)
    assert lab.table.least_bad(lab.brokers, lab.now) == ["b0"]
    lab.answer("b0", 2.0)
    assert lab.table.least_bad(lab.brokers, lab.now) == ["b1"]


def test_java4_ranks_an_available_broker_first_even_if_its_last_send_took_longer():
    lab = FaultLab(JAVA4, brokers=("b0", "b1"))
    lab.answer("b0", 0.9)
    lab.wait(31.0)
    lab.answer("b1", 0.6)
    lab.table.refresh(lab.now)
    assert lab.table.least_bad(lab.brokers, lab.now) == ["b0"]


def test_a_failure_is_ranked_by_the_time_that_it_took():
    lab = FaultLab(JAVA4, brokers=("b0", "b1"))
    lab.answer("b0", 0.6)
    began = lab.now
    attempt = lab.table.begin("b1", began)
    lab.wait(0.003)
    lab.table.failed(attempt, lab.now, "refused the connection")
    assert {lab.state("b0"), lab.state("b1")} == {"isolated"}
    assert lab.table.least_bad(lab.brokers, lab.now) == ["b1"]


def test_java4_begins_its_rotation_anywhere():
    firsts = set()
    for seed in range(20):
        lab = FaultLab(JAVA4, brokers=("b0", "b1", "b2", "b3"), chance=Random(seed).random())
        for broker in lab.brokers:
            lab.answer(broker, 0.75)
        firsts.add(lab.choose())
    assert len(firsts) == 2


def test_java4_goes_up_in_its_rotation():
    lab = fallback_lab(0.6, 0.7, 0.8, 2.0, 2.0, 2.0)
    picks = [lab.choose() for _ in range(6)]
    order = ["b0", "b1", "b2"] * 3
    start = order.index(picks[0])
    assert picks == order[start : start + 6]


def test_every_broker_whose_time_is_over_comes_back_whatever_the_others_are():
    lab = FaultLab(JAVA5)
    lab.warm_up()
    lab.answer("broker-b", 0.75)
    lab.answer("broker-c", 0.75)
    lab.wait(2.0)
    assert lab.chosen() == set(lab.brokers)
    assert [event[1] for event in lab.returned] == ["broker-b", "broker-c"]
    assert lab.health("broker-c").since == lab.now


def test_java4_ranks_equal_latencies_by_the_end_of_their_isolation():
    lab = FaultLab(JAVA4, brokers=("b0", "b1"))
    lab.fail("b1")
    lab.wait(1.0)
    lab.fail("b0")
    assert lab.chosen() == {"b1"}


def test_java4_forgets_a_broker_without_writable_queues_and_picks_plainly():
    lab = fallback_lab(0.9, 0.8)
    lab.answer("gone", 0.6)  # in the table, the best of all, but without a queue of the topic
    first = lab.choose()
    assert first in {"b0", "b1"}
    assert "gone" not in [item.broker for item in lab.table.snapshot(lab.now)]
    assert lab.choose() == "b1"


def test_java4_considers_only_brokers_it_has_heard_of():
    lab = FaultLab(JAVA4, brokers=("b0", "b1"))
    assert lab.table.least_bad(lab.brokers, lab.now) == []
    lab.fail("b0")
    assert lab.table.least_bad(lab.brokers, lab.now) == ["b0"]


def test_java4_spreads_the_fallback_over_the_queues_of_the_broker():
    lab = fallback_lab(0.75, queues=4)
    assert {lab.view.best(lab.counters, lab.now).id for _ in range(8)} == {0, 1, 2, 3}


def test_java4_steps_its_counter_once_and_walks_on_from_there():
    lab = FaultLab(JAVA4, brokers=("b0", "b1"), queues=3, chance=0.0)
    lab.fail("b0")
    picks = [lab.view.best(lab.counters, lab.now).id for _ in range(6)]
    # Positions 0 to 5; the first three walk over b0's queues to the first of b1.
    assert picks == [0, 0, 0, 0, 1, 2]


def test_java5_steps_its_counter_over_each_queue_that_it_skips():
    lab = FaultLab(JAVA5, brokers=("b0", "b1"), queues=3, chance=0.0)
    lab.fail("b0")
    picks = [lab.view.best(lab.counters, lab.now).id for _ in range(6)]
    assert picks == [0, 1, 2, 0, 1, 2]


def test_java5_takes_any_other_broker_when_none_is_available_and_any_queue_when_none_is_other():
    lab = FaultLab(JAVA5, brokers=("b0", "b1"))
    lab.fail("b0")
    lab.fail("b1")
    assert lab.chosen(12, "b0") == {"b1"}
    assert lab.chosen(12) == {"b0", "b1"}
    alone = FaultLab(JAVA5, brokers=("b0",))
    alone.fail("b0")
    assert alone.chosen(12, "b0") == {"b0"}


# ---------------------------------------------------------------------------- the detector


def test_without_a_detector_java5_sends_no_probes():
    lab = FaultLab(JAVA5)
    lab.fail("broker-a")
    lab.wait(60.0)
    assert lab.table.next_probe_at() is None
    assert lab.table.probe_due(lab.now) == []


def test_the_detector_probes_the_unreachable_until_one_answers():
    lab = FaultLab(DETECTOR)
    lab.fail("broker-a")
    assert not lab.table.reachable("broker-a")
    assert lab.table.next_probe_at() == lab.now + 3.0
    lab.probe("broker-a", None)
    assert not lab.table.reachable("broker-a")
    assert lab.table.next_probe_at() == pytest.approx(lab.now + 3.0)
    lab.probe("broker-a")
    assert lab.table.reachable("broker-a")
    assert lab.table.next_probe_at() is None
    assert lab.state("broker-a") == "isolated"  # it never touches the isolation


def test_a_failure_after_a_good_probe_starts_the_detector_afresh():
    lab = FaultLab(DETECTOR)
    lab.fail("broker-a")
    lab.probe("broker-a")
    lab.wait(1.0)
    lab.fail("broker-a")
    assert lab.table.next_probe_at() == lab.now + 3.0


def test_a_further_failure_does_not_put_off_the_detector():
    lab = FaultLab(DETECTOR)
    lab.fail("broker-a")
    due = lab.table.next_probe_at()
    lab.wait(1.0)
    lab.fail("broker-a")
    assert lab.table.next_probe_at() == due


def test_a_good_send_makes_reachable():
    lab = FaultLab(DETECTOR)
    lab.fail("broker-a")
    lab.answer("broker-a")
    assert lab.table.reachable("broker-a")


def test_when_none_is_available_java5_prefers_the_reachable():
    lab = FaultLab(DETECTOR, brokers=("b0", "b1", "b2"))
    lab.fail("b0")
    lab.fail("b1")
    lab.answer("b2", 0.75)
    assert lab.chosen() == {"b2"}
    picks = set()
    for seed in range(30):
        lab.random.value = Random(seed).random()
        picks.add(lab.choose("b2"))
    assert picks == {"b0", "b1", "b2"}  # nobody else is reachable: plain picks
    assert (DETECTOR.probe_timeout, DETECTOR.probe_interval) == (0.2, 3.0)


# ---------------------------------------------------------------------------- off


def test_off_isolates_nobody_and_still_measures():
    lab = FaultLab(FaultPolicy.off())
    lab.warm_up()
    lab.answer("broker-a", 20.0)
    lab.fail("broker-a")
    lab.table.replied(lab.start("broker-a"), lab.now, 2)
    health = lab.health("broker-a")
    assert (health.state, health.failures, health.last_latency) == ("usable", 2, 20.0)
    assert health.smoothed == pytest.approx(0.9 * 0.002 + 0.1 * 20.0)
    assert lab.chosen() == set(lab.brokers)
    assert lab.isolated == []


@pytest.mark.parametrize("policy", [JAVA4, JAVA5, FaultPolicy.off(), FaultPolicy()])
def test_every_walk_steps_the_counter_of_its_own_topic(policy):
    lab = FaultLab(policy)
    lab.fail("broker-a")
    for failed in ((), ("broker-b",), ("broker-b", "broker-c")):
        lab.choose(*failed)
    assert set(lab.counters._positions) == {"t"}


def test_off_a_retry_goes_on_by_one_from_the_last_index():
    names = ["b0", "b1", "b2", "b3"]
    lab = FaultLab(FaultPolicy.off(), queues=1, brokers=names)
    for _ in range(12):
        first = lab.choose()
        second = lab.choose(first)
        third = lab.choose(first, second)
        places = [names.index(broker) for broker in (first, second, third)]
        assert [(place - places[0]) % 4 for place in places] == [0, 1, 2]


def test_off_a_retry_avoids_the_broker_that_failed():
    lab = FaultLab(FaultPolicy.off(), brokers=("b0", "b1"))
    assert lab.chosen(20, "b0") == {"b1"}
    alone = FaultLab(FaultPolicy.off(), brokers=("b0",))
    assert alone.chosen(20, "b0") == {"b0"}


@pytest.mark.parametrize("policy", [JAVA4, JAVA5, FaultPolicy.off()])
def test_a_new_address_is_not_put_on_trial(policy):
    lab = FaultLab(policy)
    lab.fail("broker-a")
    lab.table.reset("broker-a")
    assert lab.state("broker-a") == "usable"


# ---------------------------------------------------------------------------- upstream bugs


@pytest.mark.parametrize("policy", [JAVA4, JAVA5])
def test_upstream_bug_a_retry_does_not_stick_to_the_broker_that_failed(policy):
    """4.2 to 4.7 compared with == and so kept to the failed broker while it was available."""
    lab = FaultLab(policy)
    lab.warm_up()
    assert "broker-a" not in lab.chosen(60, "broker-a")


@pytest.mark.parametrize("policy", [JAVA4, JAVA5])
def test_upstream_bug_the_failed_broker_is_not_ignored_in_fault_mode(policy):
    """4.8 to 5.1.0 forgot the comparison; a retry could hit the same broker."""
    lab = FaultLab(policy)
    lab.warm_up()
    lab.fail("broker-c")
    for failed, expected in (("broker-a", {"broker-b"}), ("broker-b", {"broker-a"})):
        assert lab.chosen(60, failed) == expected


def test_upstream_bug_the_fallback_leaves_the_queue_list_alone():
    """Up to 4.9.7 the fallback wrote broker and id into the shared queue object."""
    lab = fallback_lab(0.9, 0.7, 2.0, 0.6)
    before = list(lab.view.queues)
    picks = [lab.view.best(lab.counters, lab.now) for _ in range(50)]
    assert list(lab.view.queues) == before == lab.queues
    assert set(picks) <= set(before)


@pytest.mark.parametrize("policy", [JAVA4, JAVA5, FaultPolicy.off(), FaultPolicy()])
def test_upstream_bug_the_counter_never_turns_negative(policy):
    """abs(MIN_VALUE) stayed negative up to 4.9.3, and reached the wire as a queue id."""
    lab = FaultLab(policy, queues=3)
    counters = RoundRobinCounter(FixedRandom(0.0))
    counters._positions["t"] = 2**31 - 3
    picks = [lab.view.best(counters, lab.now) for _ in range(12)]
    assert all(pick in lab.queues for pick in picks)
    assert 0 <= counters._positions["t"] < 12


def test_upstream_bug_a_walk_that_passes_the_largest_position_does_not_overflow():
    """5.1.0 to 5.1.3 counted on locally, overflowed, and fell back to a plain pick."""
    lab = FaultLab(JAVA4, brokers=("b0", "b1"), queues=4)
    lab.fail("b0")
    counters = RoundRobinCounter(FixedRandom(0.0))
    for position in range(2**31 - 10, 2**31 - 1):
        counters._positions["t"] = position
        pick = walk_java4(lab.view, {"b1"}, counters, None, lambda: ())
        assert pick.broker == "b1"


@pytest.mark.parametrize("policy", [JAVA4, JAVA5])
def test_upstream_bug_a_good_answer_ends_an_isolation(policy):
    """Since 5.1.4 a duration of 0 no longer shortened an isolation: a well broker stayed out."""
    lab = FaultLab(policy)
    lab.fail("broker-a")
    assert "broker-a" not in lab.chosen()
    lab.answer("broker-a")
    assert lab.state("broker-a") == "usable"
    assert "broker-a" in lab.chosen()
    assert [event[1] for event in lab.returned] == ["broker-a"]


def test_java5_a_retry_starts_anywhere_with_the_switch_on():
    """Since 5.1.4 the index is reset for a retry, with the switch on only."""
    lab = FaultLab(JAVA5, queues=1, brokers=("b0", "b1", "b2", "b3"))
    lab.counters.next("t")
    firsts = set()
    for seed in range(30):
        lab.random.value = Random(seed).random()
        firsts.add(lab.choose("b0"))
    assert firsts == {"b1", "b2", "b3"}


def test_upstream_bug_an_error_code_marks_unreachable_only_with_a_detector():
    """Without one nothing but a good send to that very broker took the mark away."""
    for policy, reachable in ((JAVA5, True), (DETECTOR, False)):
        lab = FaultLab(policy)
        lab.table.replied(lab.start("broker-a"), lab.now, 17)
        assert lab.table.reachable("broker-a") == reachable
        lab.table.broke(lab.start("broker-b"), lab.now, ConnectionLostError("", written=True))
        assert lab.table.reachable("broker-b") == reachable


@pytest.mark.parametrize("policy", [JAVA4, JAVA5, FaultPolicy()])
def test_upstream_bug_handing_over_a_request_is_not_reported_as_its_completion(policy):
    """Asynchronous sends reported twice; the first report, of about 0 ms, ended an isolation."""
    lab = FaultLab(policy)
    lab.warm_up()
    lab.fail("broker-a")
    attempt = lab.start("broker-a")
    assert lab.state("broker-a") == "isolated"
    lab.table.cancelled(attempt)
    assert lab.state("broker-a") == "isolated"


def test_upstream_bug_a_heartbeat_with_nothing_to_send_does_not_stop_the_later_ones():
    """5.x returns with the heartbeat lock held when there is nothing to send."""
    network = SimulatedNetwork()
    driver = SimulatedDriver(network)
    broker = network.add_broker("10.0.0.1:10911")
    surroundings = Surroundings(
        clock=network.clock,
        wall=network.clock,
        random=network.random,
        make_lock=driver.make_lock,
        address=bytes(4),
        pid=1,
    )
    instance = Instance(ClientConfig(name_servers=("ns:9876",)), "client", surroundings)
    instance.producer_groups.add("group")
    assert driver.run(heartbeat(instance)) == 0  # no route is known yet
    data = BrokerData("cluster", "broker-a", {0: "10.0.0.1:10911"})
    queues = QueueData("broker-a", 4, 4, 6, 0)
    instance.routes.update("t", TopicRoute((queues,), (data,)))
    assert driver.run(heartbeat(instance)) == 1
    assert broker.arrivals == {34: 1}


@pytest.mark.parametrize("policy", [JAVA4, JAVA5])
def test_java_keeps_why_it_left_a_broker(policy):
    lab = FaultLab(policy)
    lab.answer("broker-a", 20.0)
    lab.fail("broker-b")
    attempt = lab.start("broker-c")
    lab.table.settled(attempt, lab.now, code=16)
    causes = [lab.table.entry_of(broker).cause for broker in lab.brokers]
    assert causes == ["slow", "failed", "failed"]


@pytest.mark.parametrize("policy", [JAVA4, JAVA5])
def test_where_java_leaves_all_brokers_out_all_queues_are_allowed(policy):
    lab = FaultLab(policy)
    for broker in lab.brokers:
        lab.answer(broker, 0.6)
    assert {lab.state(broker) for broker in lab.brokers} == {"isolated"}
    assert list(lab.view.allowed(lab.now)) == lab.queues


@pytest.mark.parametrize("policy", [JAVA4, JAVA5])
def test_java_smooths_the_latency_that_it_shows_with_connecting_included(policy):
    lab = FaultLab(policy)
    attempt = lab.table.begin("broker-a", lab.now)
    lab.wait(0.25)
    attempt.written(lab.now, 0)
    lab.wait(0.25)
    lab.table.answered(attempt, lab.now)
    assert attempt.entry.smoothed == 0.5
    assert attempt.entry.samples == 1
    lab.answer("broker-a", 0.25)
    assert 0.25 < attempt.entry.smoothed < 0.5
    assert attempt.entry.samples == 2


def test_only_java_and_never_off_heeds_sends_without_an_answer():
    policies = (JAVA4, JAVA5, DETECTOR, FaultPolicy(), FaultPolicy.off())
    assert [FaultLab(policy).table.heeds_oneway for policy in policies] == [
        True, True, True, False, False,
    ]  # fmt: skip
