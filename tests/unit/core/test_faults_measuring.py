"""Rules 0, 1 and 4: what is measured, what is slow, who is suspect. All times are dyadic
fractions where a boundary is tested, so that arithmetic is exact."""

import logging

import pytest

from rocketwire.errors import (
    ConnectFailedError,
    ConnectionLostError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from rocketwire.fault_policy import FaultPolicy
from rocketwire.testing.fault_lab import FaultLab

MS = 1 / 1024
EXACT = FaultPolicy(floor=16 * MS, suspect_floor=128 * MS, pause_floor=16 * MS)


def exact_lab(typical=2 * MS, **options):
    lab = FaultLab(EXACT, **options)
    lab.warm_up(typical)
    return lab


# ---------------------------------------------------------------------------- rule 0


def test_connecting_is_not_part_of_the_latency():
    lab = FaultLab()
    lab.warm_up()
    flight = lab.table.begin("broker-a", lab.now)
    lab.wait(5.0)
    flight.written(lab.now, 100)
    lab.wait(0.002)
    lab.table.answered(flight, lab.now)
    assert lab.state("broker-a") == "usable"
    assert lab.health("broker-a").last_latency == pytest.approx(0.002)


def test_an_attempt_that_the_driver_never_called_written_is_measured_from_its_begin():
    lab = FaultLab()
    flight = lab.table.begin("broker-a", lab.now)
    lab.wait(0.25)
    lab.table.answered(flight, lab.now)
    assert lab.health("broker-a").last_latency == 0.25


@pytest.mark.parametrize(("size", "state"), [(3_000_000, "usable"), (100, "isolated")])
def test_a_big_request_is_forgiven_its_time(size, state):
    lab = FaultLab()
    lab.warm_up()
    lab.answer("broker-a", 0.3, size=size)
    assert lab.state("broker-a") == state


def test_the_allowance_is_bytes_by_pace():
    policy = FaultPolicy(floor=16 * MS, bytes_per_second=1024.0)
    for extra, state in ((0, "usable"), (MS, "isolated")):
        lab = FaultLab(policy)
        lab.warm_up(2 * MS)
        # 512 bytes take half a second; 18 ms on top of that are just not slow.
        lab.answer("broker-a", 0.5 + 18 * MS + extra, size=512)
        assert lab.state("broker-a") == state


def test_ten_megabytes_a_second_is_the_default_pace():
    assert FaultPolicy().bytes_per_second == 10_000_000


def test_expected_latency_is_no_slowness():
    lab = FaultLab(FaultPolicy(expected={"broker-a": 0.25}))
    lab.warm_up()
    lab.answer("broker-a", 0.25 + 0.02)
    assert lab.state("broker-a") == "usable"
    lab.answer("broker-a", 0.25 + 0.03)
    assert lab.state("broker-a") == "isolated"
    assert lab.health("broker-a").why.startswith("30 ms, 15 times")


def test_the_expected_part_does_not_enter_what_is_typical_for_others():
    lab = FaultLab(FaultPolicy(expected={"broker-a": 0.25}), brokers=("broker-a", "broker-b"))
    for _ in range(5):
        lab.answer("broker-a", 0.252)
        lab.answer("broker-b", 0.002)
    assert lab.health("broker-a").smoothed == pytest.approx(0.002)
    lab.answer("broker-b", 0.1)
    assert lab.state("broker-b") == "isolated"


def test_an_answer_sooner_than_its_allowance_counts_as_instant():
    lab = FaultLab()
    lab.answer("broker-a", 0.01, size=10_000_000)
    assert lab.health("broker-a").smoothed == 0.0


@pytest.mark.parametrize("code", [2, 14, 215, 1500])
def test_codes_that_speak_of_the_broker_are_failures(code):
    lab = FaultLab()
    lab.warm_up()
    lab.table.replied(lab.start("broker-a"), lab.now, code)
    assert lab.state("broker-a") == "isolated"
    assert lab.health("broker-a").failures == 1
    assert f"({code})" in lab.health("broker-a").why


@pytest.mark.parametrize("code", [1, 13, 16, 17, 29, 3, 204, 205])
def test_codes_that_speak_of_the_message_are_neither_sample_nor_verdict(code):
    lab = FaultLab()
    lab.warm_up()
    before = lab.health("broker-a")
    flight = lab.start("broker-a")
    lab.wait(1.5)
    lab.table.replied(flight, lab.now, code)
    after = lab.health("broker-a")
    assert (after.state, after.record, after.smoothed) == ("usable", 0, before.smoothed)
    assert after.in_flight == 0


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_codes_of_a_stored_message_are_good_answers(code):
    lab = FaultLab()
    flight = lab.start("broker-a")
    lab.wait(0.003)
    lab.table.replied(flight, lab.now, code)
    assert lab.health("broker-a").smoothed == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectFailedError("refused"), "refused the connection"),
        (ConnectionLostError("", written=True), "closed the connection without an answer"),
        (RequestTimeoutError("", written=True), "gave no answer in 1.0 s"),
        (RemoteProtocolError("junk"), "answered with something else than the protocol (junk)"),
    ],
)
def test_transport_errors_are_failures_and_say_so(error, words):
    lab = FaultLab()
    lab.warm_up()
    flight = lab.start("broker-a")
    lab.wait(1.0)
    lab.table.broke(flight, lab.now, error)
    assert lab.isolated == [(lab.now, "broker-a", words, lab.now + 0.5)]


def test_a_oneway_request_that_left_is_no_sample():
    lab = FaultLab()
    lab.warm_up()
    flight = lab.start("broker-a")
    lab.wait(3.0)
    lab.table.settled(flight, lab.now)
    assert lab.state("broker-a") == "usable"
    assert lab.health("broker-a").smoothed == pytest.approx(0.002)


@pytest.mark.parametrize(("waited", "state"), [(8 * MS, "usable"), (9 * MS, "isolated")])
def test_a_time_out_sooner_than_an_ordinary_answer_is_our_haste(waited, state):
    lab = exact_lab(2 * MS)
    flight = lab.start("broker-a")
    lab.wait(waited)
    lab.table.broke(flight, lab.now, RequestTimeoutError("", written=True))
    assert lab.state("broker-a") == state


@pytest.mark.parametrize(("waited", "state"), [(16 * MS, "usable"), (17 * MS, "isolated")])
def test_without_a_typical_latency_a_time_out_counts_above_the_floor(waited, state):
    lab = FaultLab(EXACT)
    flight = lab.table.begin("broker-a", lab.now)
    lab.wait(waited)
    lab.table.broke(flight, lab.now, RequestTimeoutError("", written=False))
    assert lab.state("broker-a") == state


def test_only_time_outs_can_be_hasty():
    lab = exact_lab()
    flight = lab.start("broker-a")
    lab.table.broke(flight, lab.now, ConnectionLostError("", written=True))
    assert lab.state("broker-a") == "isolated"


def test_a_cancelled_attempt_says_nothing():
    lab = FaultLab()
    lab.warm_up()
    flight = lab.start("broker-a")
    assert lab.health("broker-a").in_flight == 1
    lab.wait(3.0)
    lab.table.cancelled(flight)
    health = lab.health("broker-a")
    assert (health.state, health.in_flight, health.record) == ("usable", 0, 0)


def test_a_request_written_again_is_timed_from_the_second_time():
    lab = FaultLab()
    lab.warm_up()
    flight = lab.start("broker-a")
    lab.wait(0.5)
    flight.written(lab.now, 100)
    lab.wait(0.002)
    lab.table.answered(flight, lab.now)
    assert lab.state("broker-a") == "usable"
    assert lab.health("broker-a").in_flight == 0


# ---------------------------------------------------------------------------- rule 1


@pytest.mark.parametrize(
    ("typical", "latency", "state"),
    [
        (2 * MS, 18 * MS, "usable"),  # the floor above typical decides
        (2 * MS, 19 * MS, "isolated"),
        (8 * MS, 32 * MS, "usable"),  # four times typical decides
        (8 * MS, 33 * MS, "isolated"),
    ],
)
def test_slow_is_above_four_times_typical_and_the_floor(typical, latency, state):
    lab = exact_lab(typical)
    lab.answer("broker-a", latency)
    assert lab.state("broker-a") == state


def test_four_times_and_twenty_milliseconds_are_the_defaults():
    policy = FaultPolicy()
    assert (policy.relative, policy.floor, policy.min_samples) == (4.0, 0.02, 5)


def test_a_lone_broker_is_never_slow():
    lab = FaultLab(brokers=("broker-a",))
    lab.warm_up(answers=30)
    lab.answer("broker-a", 2.5)
    assert lab.state("broker-a") == "usable"


@pytest.mark.parametrize(("answers", "state"), [(4, "usable"), (5, "isolated")])
def test_nothing_is_slow_until_another_broker_has_five_samples(answers, state):
    lab = FaultLab(brokers=("broker-a", "broker-b"))
    for _ in range(answers):
        lab.answer("broker-b")
    lab.answer("broker-a", 0.5)
    assert lab.state("broker-a") == state


def test_typical_is_taken_from_the_others_and_of_two_it_is_the_mean():
    lab = FaultLab(EXACT, brokers=("a", "b", "c"))
    for _ in range(5):
        lab.answer("b", 2 * MS)
        lab.answer("c", 8 * MS)
    # Typical is 5 ms; a's own samples have no say in it.
    lab.answer("a", 21 * MS)
    assert lab.state("a") == "usable"
    lab.answer("a", 22 * MS)
    assert lab.state("a") == "isolated"


def test_the_median_of_three_others_is_the_middle_one():
    lab = FaultLab(EXACT, brokers=("a", "b", "c", "d"))
    for _ in range(5):
        lab.answer("b", 1 * MS)
        lab.answer("c", 12 * MS)
        lab.answer("d", 15 * MS)
    lab.answer("a", 48 * MS)
    assert lab.state("a") == "usable"
    lab.answer("a", 49 * MS)
    assert lab.state("a") == "isolated"


def test_latency_is_smoothed_by_a_tenth_and_the_first_sample_sets_it():
    lab = FaultLab()
    lab.answer("broker-a", 0.010)
    assert lab.health("broker-a").smoothed == pytest.approx(0.010)
    lab.answer("broker-a", 0.020)
    assert lab.health("broker-a").smoothed == pytest.approx(0.011)
    lab.answer("broker-a", 0.001)
    assert lab.health("broker-a").smoothed == pytest.approx(0.010)


def test_slow_answers_do_not_feed_the_smoothed_latency():
    lab = FaultLab()
    lab.warm_up()
    lab.answer("broker-a", 0.5)
    assert lab.health("broker-a").smoothed == pytest.approx(0.002)
    assert lab.health("broker-a").last_latency == pytest.approx(0.5)


def test_a_slow_answer_in_our_own_pause_is_neither_sample_nor_verdict():
    lab = FaultLab()
    lab.warm_up()
    ours, others = lab.start("broker-a"), [lab.start("broker-b"), lab.start("broker-c")]
    lab.wait(0.5)  # the process stood still: everybody is overdue
    lab.table.answered(ours, lab.now)
    health = lab.health("broker-a")
    assert (health.state, health.record) == ("usable", 0)
    assert health.smoothed == pytest.approx(0.002)
    for flight in others:
        lab.table.answered(flight, lab.now)
    assert {lab.state(broker) for broker in lab.brokers} == {"usable"}


def test_after_a_pause_the_last_answer_to_be_read_does_not_take_the_blame():
    lab = FaultLab()
    lab.warm_up()
    flights = [lab.start(broker) for broker in lab.brokers]
    lab.wait(0.5)
    for flight in flights:
        lab.table.answered(flight, lab.now)
    assert lab.isolated == []
    # Only requests of that pause are excused, not those written after it.
    lab.answer("broker-b", 0.5)
    assert lab.state("broker-b") == "isolated"


def test_a_request_written_at_the_end_of_a_pause_is_not_excused():
    lab = FaultLab()
    lab.warm_up()
    flights = [lab.start("broker-a"), lab.start("broker-b")]
    lab.wait(0.5)
    lab.table.answered(flights[0], lab.now)
    late = lab.start("broker-c")
    lab.table.answered(flights[1], lab.now)
    lab.wait(0.5)
    lab.table.answered(late, lab.now)
    assert lab.state("broker-c") == "isolated"


def test_it_is_no_pause_of_ours_if_anybody_is_on_time():
    lab = FaultLab()
    lab.warm_up()
    slow = lab.start("broker-a")
    lab.start("broker-b")
    lab.wait(0.5)
    lab.start("broker-c")
    lab.wait(0.001)
    lab.table.answered(slow, lab.now)
    assert lab.state("broker-a") == "isolated"


def test_it_is_no_pause_of_ours_if_nobody_else_owes_an_answer():
    lab = FaultLab()
    lab.warm_up()
    lab.answer("broker-a", 0.5)
    assert lab.state("broker-a") == "isolated"


def test_a_second_request_to_the_slow_broker_itself_is_no_witness_of_a_pause():
    lab = FaultLab()
    lab.warm_up()
    first = lab.start("broker-a")
    lab.start("broker-a")
    lab.wait(0.5)
    lab.table.answered(first, lab.now)
    assert lab.state("broker-a") == "isolated"


@pytest.mark.parametrize(
    ("own", "age", "state"),
    [
        (2 * MS, 16 * MS, "isolated"),  # at the floor: not overdue, so not our pause
        (2 * MS, 17 * MS, "usable"),
        (8 * MS, 32 * MS, "isolated"),  # at four times its own smoothed latency
        (8 * MS, 33 * MS, "usable"),
    ],
)
def test_overdue_is_beyond_four_times_its_own_latency_and_the_floor(own, age, state):
    lab = FaultLab(EXACT, brokers=("broker-a", "broker-b"))
    for _ in range(5):
        lab.answer("broker-b", own)
    slow = lab.start("broker-a")
    lab.wait(512 * MS - age)
    lab.start("broker-b")
    lab.wait(age)
    lab.table.answered(slow, lab.now)
    assert lab.state("broker-a") == state


def test_the_allowance_of_a_witness_counts_before_it_is_overdue():
    lab = FaultLab(FaultPolicy(expected={"broker-b": 1.0}), brokers=("broker-a", "broker-b"))
    for _ in range(5):
        lab.answer("broker-b", 1.002)
    slow = lab.start("broker-a")
    lab.start("broker-b")
    lab.wait(0.5)  # broker-b is far away and well within its time
    lab.table.answered(slow, lab.now)
    assert lab.state("broker-a") == "isolated"


def test_a_pause_of_ours_excuses_no_failure():
    lab = FaultLab()
    lab.warm_up()
    flights = [lab.start(broker) for broker in lab.brokers]
    lab.wait(0.5)
    lab.table.failed(flights[0], lab.now, "closed the connection")
    assert lab.state("broker-a") == "isolated"


def lone_pause(latency, *, later=1, between=0, policy=EXACT):
    """One request that pauses while later ones to the same broker are answered well."""
    lab = FaultLab(policy)
    lab.warm_up(2 * MS)
    paused = lab.start("broker-a")
    lab.wait(MS)
    for _ in range(later):
        lab.answer("broker-a", 2 * MS)
    lab.wait(latency - (lab.now - paused.written_at))
    lab.table.answered(paused, lab.now)
    return lab


def test_a_lone_pause_beside_good_answers_is_neither_sample_nor_verdict():
    lab = lone_pause(100 * MS)
    health = lab.health("broker-a")
    assert (health.state, health.record) == ("usable", 0)
    assert health.smoothed == 2 * MS


def test_a_pause_that_no_later_request_has_outrun_is_a_verdict():
    assert lone_pause(100 * MS, later=0).state("broker-a") == "isolated"


def test_a_request_written_together_with_the_one_that_paused_does_not_excuse_it():
    lab = exact_lab()
    paused, other = lab.start("broker-a"), lab.start("broker-a")
    lab.wait(2 * MS)
    lab.table.answered(other, lab.now)
    lab.wait(98 * MS)
    lab.table.answered(paused, lab.now)
    assert lab.state("broker-a") == "isolated"


def test_the_excuse_ends_where_the_broker_is_slow_on_the_whole():
    exact = FaultPolicy(floor=16 * MS, lone_weight=1 / 64)
    # 2 ms and a 64th of 384 ms are 8 ms, four times typical; a little more is too much.
    assert lone_pause(384 * MS, policy=exact).state("broker-a") == "usable"
    assert lone_pause(385 * MS, policy=exact).state("broker-a") == "isolated"


def test_pauses_add_up_and_fade_with_good_answers():
    def second_pause(between):
        lab = lone_pause(200 * MS)
        for _ in range(between):
            lab.answer("broker-a", 2 * MS)
        paused = lab.start("broker-a")
        lab.wait(MS)
        lab.answer("broker-a", 2 * MS)
        lab.wait(197 * MS)
        lab.table.answered(paused, lab.now)
        return lab.state("broker-a")

    # Each adds 4 ms to 2 ms; the limit is 8 ms.
    assert second_pause(0) == "isolated"
    assert second_pause(35) == "usable"  # half of the first has faded by then
    assert second_pause(30) == "isolated"


# ---------------------------------------------------------------------------- rule 4


@pytest.mark.parametrize(
    ("typical", "age", "suspect"),
    [
        (2 * MS, 128 * MS, False),  # the floor
        (2 * MS, 129 * MS, True),
        (16 * MS, 160 * MS, False),  # ten times typical
        (16 * MS, 161 * MS, True),
    ],
)
def test_suspicion_is_by_the_age_of_the_oldest_request(typical, age, suspect):
    lab = exact_lab(typical)
    lab.start("broker-a")
    lab.wait(age / 2)
    lab.start("broker-a")
    lab.wait(age / 2)
    assert ("broker-a" not in lab.chosen()) == suspect
    assert lab.state("broker-a") == ("suspect" if suspect else "usable")


def test_ten_times_and_a_tenth_of_a_second_are_the_defaults():
    policy = FaultPolicy()
    assert (policy.suspect_relative, policy.suspect_floor) == (10.0, 0.1)


def test_the_allowance_delays_suspicion():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a", size=5_000_000)
    lab.wait(0.59)
    assert "broker-a" in lab.chosen()
    lab.wait(0.02)
    assert "broker-a" not in lab.chosen()


def test_without_a_typical_latency_there_is_no_suspicion():
    lab = FaultLab()
    lab.start("broker-a")
    lab.wait(60.0)
    assert "broker-a" in lab.chosen()


@pytest.mark.parametrize("end", ["answered", "settled", "cancelled"])
def test_suspicion_ends_with_the_request(end):
    lab = FaultLab(brokers=("broker-a", "broker-b"))
    lab.warm_up()
    flight = lab.start("broker-a")
    lab.wait(0.2)
    assert lab.chosen() == {"broker-b"}
    if end == "cancelled":
        lab.table.cancelled(flight)
    elif end == "settled":
        lab.table.settled(flight, lab.now)
    else:
        lab.table.replied(flight, lab.now, 17)
    assert lab.chosen() == {"broker-a", "broker-b"}
    assert lab.health("broker-a").why == ""


def test_suspicion_passes_to_the_next_oldest_request():
    lab = FaultLab()
    lab.warm_up()
    first, second = lab.start("broker-a"), lab.start("broker-a")
    lab.wait(0.2)
    assert "broker-a" not in lab.chosen()
    lab.table.cancelled(first)
    assert "broker-a" not in lab.chosen()
    lab.table.cancelled(second)
    assert "broker-a" in lab.chosen()


def test_a_good_answer_to_a_later_attempt_ends_suspicion():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a")
    lab.wait(0.2)
    assert "broker-a" not in lab.chosen()
    lab.answer("broker-a")
    assert "broker-a" in lab.chosen()
    assert lab.health("broker-a").in_flight == 1
    lab.wait(10.0)
    assert "broker-a" in lab.chosen()


def test_a_good_answer_to_an_earlier_attempt_does_not_end_suspicion():
    lab = FaultLab(EXACT)
    lab.warm_up(16 * MS)
    early = lab.start("broker-a")
    lab.wait(MS)
    lab.start("broker-a", size=100)
    lab.wait(62 * MS)
    lab.table.answered(early, lab.now)  # 63 ms are good: under four times 16
    lab.wait(200 * MS)
    assert "broker-a" not in lab.chosen()


def test_suspicion_says_how_long_it_has_waited():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a")
    lab.wait(0.7)
    assert lab.health("broker-a").why == "no answer for 0.7 s"


def test_suspicion_is_noticed_while_others_keep_the_table_busy():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a")
    hits = []
    for _ in range(200):
        broker = lab.choose()
        if broker == "broker-a":
            hits.append(lab.now)
            lab.start(broker)
        else:
            lab.answer(broker)
    assert hits
    assert max(hits) - min(hits) < 0.11


# ---------------------------------------------------------------------------- health


def test_health_has_quantiles_of_the_recent_answers():
    lab = FaultLab(FaultPolicy(window=10), brokers=("broker-a",))
    for number in range(1, 21):
        lab.answer("broker-a", number / 64)
    health = lab.health("broker-a")
    assert (health.p50, health.p90, health.p99) == (16 / 64, 20 / 64, 20 / 64)
    assert health.last_latency == 20 / 64


def test_health_of_a_broker_never_answered_has_no_latencies():
    lab = FaultLab()
    lab.start("broker-a")
    health = lab.health("broker-a")
    assert (health.p50, health.p90, health.p99) == (None, None, None)
    assert (health.last_latency, health.smoothed, health.in_flight) == (None, None, 1)


def test_health_is_sorted_by_broker():
    lab = FaultLab(brokers=("c", "a", "b"))
    lab.warm_up()
    assert [item.broker for item in lab.table.snapshot(lab.now)] == ["a", "b", "c"]


def test_listeners_are_called_without_the_lock_and_their_errors_harm_nobody(caplog):
    lab = FaultLab()
    seen = []

    def listener(broker, why, until):
        seen.append(lab.lock.held)
        lab.table.snapshot(lab.now)
        raise RuntimeError("a bad hook")

    lab.table._on_isolated = listener
    lab.warm_up()
    with caplog.at_level(logging.ERROR, "rocketwire.faults"):
        lab.fail("broker-a")
    assert seen == [False]
    assert lab.state("broker-a") == "isolated"
    assert "a bad hook" in caplog.text
