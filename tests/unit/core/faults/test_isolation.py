"""Rules 2, 3, 6, 7 and 10: for how long, by which answers, the least bad, at most half, in words."""

import logging

import pytest
from tests.fault_lab import FaultLab

from rocketwire.fault_policy import FaultPolicy

MS = 1 / 1024


def lab_of(count=3, **options):
    lab = FaultLab(brokers=[f"b{number}" for number in range(count)], **options)
    lab.warm_up()
    return lab


def return_by_trial(lab, broker):
    """From isolation through a good probe and two good messages to usable."""
    lab.probe(broker)
    lab.answer(broker)
    lab.answer(broker)
    assert lab.state(broker) == "usable"


# ---------------------------------------------------------------------------- rule 2


def test_isolation_for_slowness_is_four_times_the_latency():
    lab = lab_of()
    lab.answer("b0", 0.25)
    assert lab.isolation("b0") == pytest.approx(1.0)


def test_isolation_for_a_failure_is_half_a_second():
    lab = lab_of()
    lab.fail("b0")
    assert lab.isolation("b0") == 0.5


def test_a_verdict_before_the_record_is_clear_doubles_the_last_isolation():
    lab = lab_of()
    lengths = []
    for _ in range(8):
        lab.fail("b0")
        lengths.append(lab.isolation("b0"))
        return_by_trial(lab, "b0")
    assert lengths == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30])
    assert lab.health("b0").record == 8


def test_a_verdict_on_a_trial_message_doubles_the_last_isolation():
    lab = lab_of()
    lab.fail("b0")
    lab.probe("b0")
    assert lab.state("b0") == "trial"
    lab.fail("b0")
    assert lab.isolation("b0") == pytest.approx(1.0)


def test_the_longer_counts_when_a_second_verdict_is_graver_than_twice_the_first():
    lab = lab_of()
    lab.answer("b0", 0.03)
    assert lab.isolation("b0") == pytest.approx(0.12)
    return_by_trial(lab, "b0")
    lab.fail("b0")
    assert lab.isolation("b0") == pytest.approx(0.5)


def test_busy_brokers_stay_out_ten_seconds_at_most():
    lab = lab_of()
    lengths = []
    for _ in range(6):
        lab.fail("b0", busy=True)
        lengths.append(lab.isolation("b0"))
        return_by_trial(lab, "b0")
    assert lengths == pytest.approx([0.5, 1, 2, 4, 8, 10])


@pytest.mark.parametrize(("code", "limit"), [(2, 10), (215, 10), (14, 30), (1500, 30)])
def test_only_codes_of_too_much_work_count_as_busy(code, limit):
    lab = lab_of()
    for _ in range(8):
        lab.table.replied(lab.start("b0"), lab.now, code)
        length = lab.isolation("b0")
        return_by_trial(lab, "b0")
    assert length == pytest.approx(limit)


def test_a_single_very_slow_answer_isolates_no_longer_than_the_limit():
    lab = lab_of()
    lab.answer("b0", 9.0)
    assert lab.isolation("b0") == pytest.approx(30.0)


def clears(sends, quiet, isolation=0.5, policy=None):
    """Whether a record is clear after good sends and a time since the verdict."""
    lab = FaultLab(policy, brokers=("b0", "b1"), probing=False)
    lab.warm_up(MS)
    lab.fail("b0")
    verdict_at = lab.now
    lab.wait(isolation)
    for _ in range(sends - 1):
        lab.answer("b0", MS)
    attempt = lab.start("b0")
    lab.clock.run_until(verdict_at + quiet - MS)
    lab.table.cancelled(attempt)
    lab.answer("b0", MS)
    return lab.health("b0").record == 0


def test_the_record_clears_after_twenty_good_sends_and_ten_seconds():
    assert clears(sends=20, quiet=10.0)
    assert not clears(sends=19, quiet=10.0)
    assert not clears(sends=20, quiet=10.0 - MS)
    assert not clears(sends=19, quiet=1000.0)


def test_after_a_long_isolation_the_record_clears_after_twice_that_time():
    policy = FaultPolicy(failure_isolation=8.0)
    assert clears(sends=20, quiet=16.0, isolation=8.0, policy=policy)
    assert not clears(sends=20, quiet=16.0 - MS, isolation=8.0, policy=policy)


def test_after_the_record_is_clear_a_verdict_starts_from_the_beginning():
    lab = lab_of()
    lab.fail("b0")
    return_by_trial(lab, "b0")
    lab.fail("b0")
    assert lab.isolation("b0") == pytest.approx(1.0)
    return_by_trial(lab, "b0")
    lab.wait(10.0)
    for _ in range(20):
        lab.answer("b0")
    assert lab.health("b0").record == 0
    lab.fail("b0")
    assert lab.isolation("b0") == pytest.approx(0.5)


def test_good_sends_before_a_verdict_do_not_count_towards_a_clear_record():
    lab = lab_of()
    lab.fail("b0")
    return_by_trial(lab, "b0")
    for _ in range(17):
        lab.answer("b0")
    lab.fail("b0")
    return_by_trial(lab, "b0")
    lab.wait(10.0)
    lab.answer("b0")
    assert lab.health("b0").record == 2


# ---------------------------------------------------------------------------- rule 3


def test_late_answers_neither_extend_nor_end_an_isolation():
    lab = lab_of()
    attempts = [lab.start("b0") for _ in range(64)]
    lab.fail("b0")
    until = lab.health("b0").until
    lab.wait(0.3)
    for number, attempt in enumerate(attempts):
        if number % 3 == 0:
            lab.table.failed(attempt, lab.now, "closed the connection")
        else:
            lab.table.answered(attempt, lab.now)
    health = lab.health("b0")
    assert (health.until, health.record, health.state) == (until, 1, "isolated")
    assert len(lab.isolated) == 1
    assert health.in_flight == 0


def test_an_answer_from_before_an_isolation_has_no_say_after_the_return_either():
    lab = lab_of()
    late = lab.start("b0")
    lab.fail("b0")
    return_by_trial(lab, "b0")
    lab.table.failed(late, lab.now, "gave no answer in 3.0 s")
    assert lab.state("b0") == "usable"


def test_an_attempt_from_before_a_trial_does_not_decide_the_trial():
    lab = lab_of()
    lab.fail("b0")
    pinned = lab.start("b0")
    lab.probe("b0")
    lab.table.failed(pinned, lab.now, "gave no answer in 3.0 s")
    assert lab.state("b0") == "trial"


def test_a_failure_begun_during_the_isolation_prolongs_it_without_doubling():
    lab = lab_of()
    lab.fail("b0")
    first = lab.health("b0").until
    lab.wait(0.25)
    lab.fail("b0")
    lab.fail("b0")
    health = lab.health("b0")
    assert health.until == pytest.approx(first + 0.25)
    assert health.record == 3
    assert len(lab.isolated) == 1
    assert lab.table.next_probe_at() == health.until


def test_a_milder_verdict_during_the_isolation_does_not_shorten_it():
    lab = lab_of()
    lab.answer("b0", 1.0)
    until = lab.health("b0").until
    lab.fail("b0")
    assert lab.health("b0").until == until == pytest.approx(lab.now + 4.0)


def test_a_good_answer_begun_during_the_isolation_is_better_proof_than_a_probe():
    lab = lab_of()
    lab.fail("b0")
    lab.answer("b0")
    assert lab.state("b0") == "trial"
    lab.answer("b0")
    assert lab.state("b0") == "usable"
    assert [event[1] for event in lab.returned] == ["b0"]


# ---------------------------------------------------------------------------- rule 7


@pytest.mark.parametrize(("count", "places"), [(2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_slowness_isolates_at_most_half_of_the_brokers(count, places):
    lab = lab_of(count)
    for broker in lab.brokers:
        lab.answer(broker, 0.2)
    assert len(lab.isolated) == places
    states = [lab.state(broker) for broker in lab.brokers]
    assert states.count("isolated") == places


def test_an_answer_that_finds_no_place_feeds_what_is_typical():
    lab = lab_of(3)
    lab.answer("b0", 0.2)
    lab.answer("b1", 0.2)
    assert lab.health("b1").smoothed == pytest.approx(0.9 * 0.002 + 0.1 * 0.2)


def test_a_cluster_that_turns_slow_as_a_whole_is_soon_used_as_a_whole():
    lab = lab_of(3)
    for _ in range(250):
        lab.answer(lab.choose(), 0.05)
        for broker in lab.table.probe_due(lab.now):
            lab.table.probe_started(broker)
            lab.table.probe_finished(broker, lab.now, 0.05, good=True)
    assert lab.chosen() == {"b0", "b1", "b2"}


def test_a_much_slower_newcomer_takes_the_place_of_the_mildest():
    lab = lab_of(4)
    lab.answer("b0", 0.05)
    lab.answer("b1", 0.04)
    lab.answer("b2", 0.17)
    assert [lab.state(broker) for broker in lab.brokers] == [
        "isolated",
        "usable",
        "isolated",
        "usable",
    ]
    assert [event[1] for event in lab.returned] == ["b1"]


@pytest.mark.parametrize(("latency", "taken"), [(32 * 4 * MS, False), (129 * MS, True)])
def test_much_slower_is_four_times(latency, taken):
    lab = FaultLab(FaultPolicy(floor=16 * MS), brokers=("b0", "b1"))
    lab.warm_up(MS)
    lab.answer("b0", 32 * MS)
    lab.answer("b1", latency)
    assert (lab.state("b1") == "isolated") == taken


def test_slow_again_and_again_outweighs_a_lone_pause():
    lab = lab_of(3)
    lab.answer("b0", 0.1)  # a lone pause
    assert lab.state("b0") == "isolated"
    lab.answer("b1", 0.08)
    assert lab.state("b1") == "usable"
    lab.answer("b1", 0.08)
    assert lab.state("b1") == "isolated"
    assert lab.state("b0") == "usable"


@pytest.mark.parametrize(("out", "taken"), [(128 * MS, True), (129 * MS, False)])
def test_slow_again_and_again_does_not_bring_back_a_broker_that_is_far_slower(out, taken):
    lab = FaultLab(FaultPolicy(floor=16 * MS), brokers=("b0", "b1", "b2"))
    lab.warm_up(MS)
    lab.answer("b0", out)
    for _ in range(9):
        lab.answer("b1", 32 * MS)
    assert (lab.state("b1") == "isolated") == taken
    assert (lab.state("b0") == "isolated") != taken


def test_a_good_answer_in_between_makes_it_a_lone_pause_again():
    lab = lab_of(3)
    lab.answer("b0", 0.1)
    for _ in range(5):
        lab.answer("b1", 0.08)
        lab.answer("b1", 0.002)
    assert lab.state("b0") == "isolated"
    assert lab.state("b1") == "usable"


def test_the_streak_is_counted_answer_by_answer():
    lab = lab_of(3)
    lab.answer("b0", 0.1)
    lab.answer("b0", 0.1)  # slow twice, the second time while isolated
    for _ in range(2):
        lab.answer("b1", 0.08)
    assert lab.state("b1") == "usable"
    lab.answer("b1", 0.08)
    assert lab.state("b1") == "isolated"
    assert lab.returned == [(lab.now, "b0", "was out for: 100 ms, 50 times the others")]


def test_slowness_may_be_forbidden_to_isolate_anybody():
    lab = FaultLab(FaultPolicy(max_slow_share=0), brokers=("b0", "b1"))
    lab.warm_up()
    for _ in range(3):
        lab.answer("b0", 0.5)
    assert lab.state("b0") == "usable"


def test_what_is_much_slower_includes_the_way_to_a_far_broker():
    policy = FaultPolicy(expected={"b0": 0.1, "b1": 0.1})
    lab = FaultLab(policy, brokers=("b0", "b1"))
    for _ in range(5):
        lab.answer("b0", 0.102)
        lab.answer("b1", 0.102)
    lab.answer("b0", 0.15)
    lab.answer("b1", 0.61)  # four times the whole 0.15 s, not only four times the 0.05 s
    assert lab.state("b1") == "isolated"
    other = FaultLab(policy, brokers=("b0", "b1"))
    for _ in range(5):
        other.answer("b0", 0.102)
        other.answer("b1", 0.102)
    other.answer("b0", 0.15)
    other.answer("b1", 0.59)
    assert other.state("b1") == "usable"


def test_a_milder_limit_does_not_shorten_an_isolation_under_way():
    lab = lab_of()
    lab.answer("b0", 9.0)
    until = lab.health("b0").until
    lab.fail("b0", busy=True)
    assert lab.health("b0").until == until


def test_a_failure_is_not_called_busy_unless_it_was():
    lab = lab_of()
    for _ in range(8):
        lab.table.failed(lab.start("b0"), lab.now, "closed the connection")
        length = lab.isolation("b0")
        return_by_trial(lab, "b0")
    assert length == pytest.approx(30.0)


def test_failures_may_isolate_all():
    lab = lab_of(3)
    for broker in lab.brokers:
        lab.fail(broker)
    assert len(lab.isolated) == 3


def test_a_broker_isolated_for_failure_takes_no_place_of_the_slow():
    lab = lab_of(3)
    lab.fail("b0")
    lab.answer("b1", 0.2)
    assert lab.state("b1") == "isolated"


# ---------------------------------------------------------------------------- rule 6


def test_without_a_candidate_the_shortest_expected_wait_is_chosen():
    lab = lab_of(4)
    lab.answer("b0", 0.3)
    lab.answer("b1", 0.2)
    lab.fail("b2")
    lab.fail("b3")
    assert lab.chosen() == {"b1"}
    assert lab.chosen(12, "b1") == {"b0"}


def test_failed_brokers_come_after_slow_ones_by_their_return():
    lab = lab_of(3)
    lab.answer("b2", 0.9)
    lab.fail("b1")
    lab.wait(0.1)
    lab.fail("b0")
    assert lab.chosen() == {"b2"}
    assert lab.table.least_bad(["b0", "b1"], lab.now) == ["b1"]


def test_a_failed_broker_counts_by_its_next_probe_once_its_time_is_over():
    lab = lab_of(2)
    lab.fail("b0")
    lab.probe("b0", None)
    lab.fail("b1")
    assert lab.table.next_probe_at() == pytest.approx(lab.now + 0.5)
    assert lab.chosen() == {"b1"}


def test_without_a_background_a_failed_broker_counts_by_the_end_of_its_isolation():
    lab = lab_of(2, probing=False)
    lab.fail("b0")
    lab.fail("b0")
    lab.wait(0.1)
    lab.fail("b1")
    assert lab.chosen() == {"b0"}


def test_a_suspect_counts_by_the_age_of_its_oldest_request():
    lab = lab_of(4)
    lab.answer("b0", 0.5)
    lab.answer("b1", 0.4)
    lab.start("b2")
    lab.wait(0.2)
    lab.start("b3")
    lab.wait(0.15)
    assert lab.state("b2") == lab.state("b3") == "suspect"
    assert lab.chosen() == {"b3"}  # 0.15 s
    assert lab.chosen(12, "b3") == {"b2"}  # 0.35 s, before 0.4 and 0.5
    lab.wait(0.1)
    assert lab.table.least_bad(["b1", "b2"], lab.now) == ["b1"]


def test_a_busy_trial_counts_by_its_last_latency():
    lab = lab_of(2)
    lab.answer("b0", 0.2)
    lab.probe("b0")
    trial = lab.start("b0")
    lab.fail("b1")
    assert lab.state("b0") == "trial"
    assert lab.chosen() == {"b0"}
    lab.table.cancelled(trial)


def test_a_suspects_last_latency_does_not_count():
    lab = lab_of(2)
    lab.answer("b0", 0.2)
    lab.answer("b1", 0.3)  # finds no place: usable, but its last answer took 0.3 s
    assert lab.state("b1") == "usable"
    lab.start("b1")
    lab.wait(0.15)
    assert lab.state("b1") == "suspect"
    assert lab.chosen() == {"b1"}


def test_the_age_of_what_a_busy_trial_waits_for_counts_if_it_is_suspect():
    lab = lab_of(3)
    lab.answer("b0", 0.2)
    lab.probe("b0")
    lab.answer("b1", 0.3)
    lab.fail("b2")
    lab.start("b0")
    assert lab.chosen() == {"b0"}  # 0.2 s, against 0.3 s
    lab.wait(0.45)
    assert [lab.state(broker) for broker in lab.brokers] == ["trial", "isolated", "isolated"]
    assert lab.chosen() == {"b1"}  # 0.3 s, against the 0.45 s that b0 has made us wait


def test_equals_go_round_robin():
    lab = FaultLab(brokers=("b0", "b1", "b2"), queues=1)
    lab.warm_up()
    for broker in lab.brokers:
        lab.fail(broker)
    picks = [lab.choose() for _ in range(6)]
    assert picks[:3] == picks[3:]
    assert set(picks) == set(lab.brokers)


def test_the_least_bad_is_not_the_one_that_just_failed_unless_it_is_the_only_one():
    lab = lab_of(2)
    lab.fail("b0")
    lab.fail("b1")
    assert lab.chosen(8, "b0") == {"b1"}
    alone = lab_of(1)
    alone.fail("b0")
    assert alone.chosen(8, "b0") == {"b0"}


# ---------------------------------------------------------------------------- rule 10


def test_health_explains_an_isolation_in_words():
    lab = lab_of()
    lab.answer("b0", 0.302)
    lab.wait(0.8)
    health = lab.health("b0")
    assert health.why == "302 ms, 151 times the others, since 0.8 s, next probe in 0.4 s"
    assert health.until == pytest.approx(health.since + 1.208)
    lab.wait(3.2)
    assert lab.health("b0").why == ("302 ms, 151 times the others, since 4 s, next probe in 0.0 s")


def test_health_tells_of_a_probe_under_way_and_of_a_trial():
    lab = lab_of()
    lab.fail("b0", "closed the connection")
    lab.wait(0.5)
    assert lab.table.probe_due(lab.now) == ["b0"]
    lab.table.probe_started("b0")
    assert lab.health("b0").why == "closed the connection, since 0.5 s, being probed now"
    lab.table.probe_finished("b0", lab.now, 0.002, good=True)
    assert lab.health("b0").why == "on trial after: closed the connection"


def test_health_tells_how_the_last_probe_failed_until_another_verdict():
    lab = lab_of()
    lab.fail("b0", "closed the connection")
    lab.wait(0.5)
    lab.table.probe_started("b0")
    lab.table.probe_finished("b0", lab.now, None, False, "refused the connection")
    told = "closed the connection, since 0.5 s, probed last it refused the connection, next probe"
    assert lab.health("b0").why.startswith(told)
    lab.fail("b0", "gave no answer in 1.0 s")
    assert "refused" not in lab.health("b0").why


def test_without_a_background_health_tells_when_the_isolation_ends():
    lab = lab_of(probing=False)
    lab.fail("b0", "closed the connection")
    lab.wait(0.1)
    assert lab.health("b0").why == "closed the connection, since 0.1 s, back in 0.4 s"


def test_the_listener_of_returns_hears_what_it_was_out_for():
    lab = lab_of()
    lab.fail("b0", "closed the connection")
    return_by_trial(lab, "b0")
    assert lab.returned == [(lab.now, "b0", "was out for: closed the connection")]


def run_slow(lab, seconds, latency=0.04):
    end = lab.now + seconds
    while lab.now < end:
        if lab.state("b0") == "isolated":
            lab.clock.run_until(min(end, lab.table.next_probe_at()))
            if lab.table.probe_due(lab.now):
                lab.table.probe_started("b0")
                lab.wait(latency)
                lab.table.probe_finished("b0", lab.now, latency, good=True)
        else:
            lab.answer("b0", latency)


def test_a_broker_steadily_slow_for_a_minute_is_logged_once(caplog):
    lab = lab_of()
    with caplog.at_level(logging.WARNING, "rocketwire.faults"):
        run_slow(lab, 55.0)
        assert caplog.records == []
        run_slow(lab, 10.0)
        run_slow(lab, 200.0)
    assert [record.getMessage() for record in caplog.records] == [
        "b0: steadily 40 ms; if it is far rather than sick, set `expected`"
    ]


def test_a_broker_that_fails_in_between_is_not_called_steadily_slow(caplog):
    lab = lab_of()
    with caplog.at_level(logging.WARNING, "rocketwire.faults"):
        for _ in range(5):
            run_slow(lab, 50.0)
            lab.fail("b0")
    assert caplog.records == []


def test_a_broker_that_was_well_in_between_is_not_called_steadily_slow(caplog):
    lab = lab_of()
    with caplog.at_level(logging.WARNING, "rocketwire.faults"):
        for _ in range(4):
            run_slow(lab, 40.0)
            if lab.state("b0") == "isolated":
                lab.probe("b0")
            lab.answer("b0")
            lab.answer("b0")
            assert lab.state("b0") == "usable"
    assert caplog.records == []


@pytest.mark.parametrize("busy", [False, True])
def test_the_cause_of_an_isolation_is_kept(busy):
    lab = lab_of()
    lab.fail("b0", busy=busy)
    lab.answer("b1", 0.5)
    causes = [lab.table.entry_of(broker).cause for broker in lab.brokers]
    assert causes == ["busy" if busy else "failed", "slow", ""]


def test_whoever_gives_up_his_place_is_usable_from_then_on():
    lab = lab_of(2)
    lab.answer("b0", 0.05)
    lab.answer("b1", 0.3)
    assert lab.state("b0") == "usable"
    assert lab.health("b0").since == lab.now


def test_slow_answers_that_find_no_place_clear_the_record_like_good_ones():
    lab = FaultLab(FaultPolicy(max_slow_share=0.0), brokers=("b0", "b1"))
    lab.warm_up()
    lab.fail("b1")
    return_by_trial(lab, "b1")
    assert lab.health("b1").record == 1
    for _ in range(25):
        lab.wait(0.5)
        lab.answer("b1", 0.3)
    assert lab.state("b1") == "usable"
    assert lab.health("b1").record == 0


def test_a_busy_trial_that_nobody_suspects_counts_by_its_last_latency_however_old():
    lab = lab_of(2)
    lab.answer("b0", 0.2)
    lab.probe("b0")
    lab.start("b0")
    lab.table.entry_of("b1").last_wait = 1.0
    lab.table.entry_of("b1").state = "isolated"
    lab.table.entry_of("b1").cause = "slow"
    assert lab.table.least_bad(lab.brokers, lab.now + 5.0) == ["b0"]


def test_without_a_background_a_second_isolation_counts_by_its_end_as_the_first_did():
    lab = lab_of(2, probing=False)
    for _ in range(2):
        lab.fail("b0")
        lab.fail("b1")
        assert lab.table.least_bad(lab.brokers, lab.now) == ["b0", "b1"]
        lab.wait(60.0)
        for broker in lab.brokers * 2:
            lab.choose()
            lab.answer(broker)
        assert [lab.state(broker) for broker in lab.brokers] == ["usable", "usable"]


@pytest.mark.parametrize(("seconds", "told"), [(59.5, 0), (60.0, 1)])
def test_steadily_means_a_minute(caplog, seconds, told):
    lab = lab_of()
    lab.answer("b0", 0.5)
    began = lab.now
    with caplog.at_level(logging.WARNING, "rocketwire.faults"):
        lab.table.probe_started("b0")
        lab.clock.run_until(began + seconds)
        lab.table.probe_finished("b0", lab.now, 0.5, good=True)
    assert len(caplog.records) == told
