"""Rule 1: what is slow, and the two excuses. Times are dyadic fractions where a boundary is tested,
so that arithmetic is exact."""

import pytest
from tests.fault_lab import FaultLab

from rocketwire.errors import (
    RequestTimeoutError,
)
from rocketwire.fault_policy import FaultPolicy

MS = 1 / 1024
EXACT = FaultPolicy(floor=16 * MS, suspect_floor=128 * MS, pause_floor=16 * MS)


def exact_lab(typical=2 * MS, **options):
    lab = FaultLab(EXACT, **options)
    lab.warm_up(typical)
    return lab


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
    for attempt in others:
        lab.table.answered(attempt, lab.now)
    assert {lab.state(broker) for broker in lab.brokers} == {"usable"}


def test_after_a_pause_the_last_answer_to_be_read_does_not_take_the_blame():
    lab = FaultLab()
    lab.warm_up()
    attempts = [lab.start(broker) for broker in lab.brokers]
    lab.wait(0.5)
    for attempt in attempts:
        lab.table.answered(attempt, lab.now)
    assert lab.isolated == []
    # Only requests of that pause are excused, not those written after it.
    lab.answer("broker-b", 0.5)
    assert lab.state("broker-b") == "isolated"


def test_a_request_written_at_the_end_of_a_pause_is_not_excused():
    lab = FaultLab()
    lab.warm_up()
    attempts = [lab.start("broker-a"), lab.start("broker-b")]
    lab.wait(0.5)
    lab.table.answered(attempts[0], lab.now)
    late = lab.start("broker-c")
    lab.table.answered(attempts[1], lab.now)
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
    attempts = [lab.start(broker) for broker in lab.brokers]
    lab.wait(0.5)
    lab.table.failed(attempts[0], lab.now, "closed the connection")
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


def test_a_brokers_own_latency_has_no_say_in_what_is_typical_for_it():
    def uneven():
        """broker-a takes 64 ms, broker-b 2 ms, both with more than enough samples."""
        lab = FaultLab(EXACT, brokers=("broker-a", "broker-b"))
        for _ in range(6):
            lab.answer("broker-a", 64 * MS)
        for _ in range(6):
            lab.answer("broker-b", 2 * MS)
        return lab

    # For broker-a typical is 2 ms, not the 33 ms of both: 64 ms are slow.
    lab = uneven()
    lab.answer("broker-a", 64 * MS)
    assert lab.state("broker-a") == "isolated"
    # For broker-b it is 64 ms: a time-out after 200 ms is hasty ...
    lab = uneven()
    attempt = lab.start("broker-b")
    lab.wait(200 * MS)
    lab.table.broke(attempt, lab.now, RequestTimeoutError("", written=True))
    assert lab.state("broker-b") == "usable"
    # ... a request of 600 ms is no ground for suspicion ...
    lab.start("broker-b")
    lab.wait(600 * MS)
    assert lab.state("broker-b") == "usable"
    lab.wait(41 * MS)
    assert lab.state("broker-b") == "suspect"
    # ... and a probe of 200 ms is not slow.
    lab = uneven()
    lab.fail("broker-b")
    lab.probe("broker-b", 200 * MS)
    assert lab.state("broker-b") == "trial"


def test_a_time_out_is_counted_from_writing_and_less_its_allowance():
    slow_link = FaultPolicy(floor=16 * MS, bytes_per_second=1024.0)
    for waited, state in ((512 * MS + 8 * MS, "usable"), (512 * MS + 9 * MS, "isolated")):
        lab = FaultLab(slow_link)
        lab.warm_up(2 * MS)
        attempt = lab.table.begin("broker-a", lab.now)
        lab.wait(1.0)  # connecting
        attempt.written(lab.now, 512)
        lab.wait(waited)
        lab.table.broke(attempt, lab.now, RequestTimeoutError("", written=True))
        assert lab.state("broker-a") == state


@pytest.mark.parametrize(
    ("written", "words"),
    [(True, "gave no answer in 2.0 s"), (False, "could not be reached in 3.0 s")],
)
def test_the_words_of_a_time_out_tell_how_long_was_waited(written, words):
    lab = FaultLab()
    attempt = lab.table.begin("broker-a", lab.now)
    lab.wait(1.0)
    if written:
        attempt.written(lab.now, 100)
    lab.wait(2.0)
    lab.table.broke(attempt, lab.now, RequestTimeoutError("", written=written))
    assert lab.isolated[0][2] == words
