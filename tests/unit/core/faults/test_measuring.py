"""Rule 0: what is measured. Times are dyadic fractions where a boundary is tested,
so that arithmetic is exact."""

import pytest
from tests.fault_lab import FaultLab

from rocketwire.core.faults.entries import note_written
from rocketwire.errors import (
    ConnectFailedError,
    ConnectionLostError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from rocketwire.fault_policy import FaultPolicy

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
    attempt = lab.table.begin("broker-a", lab.now)
    lab.wait(5.0)
    attempt.written(lab.now, 100)
    lab.wait(0.002)
    lab.table.answered(attempt, lab.now)
    assert lab.state("broker-a") == "usable"
    assert lab.health("broker-a").last_latency == pytest.approx(0.002)


def test_an_attempt_that_the_driver_never_called_written_is_measured_from_its_begin():
    lab = FaultLab()
    attempt = lab.table.begin("broker-a", lab.now)
    lab.wait(0.25)
    lab.table.answered(attempt, lab.now)
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
    names = {2: "SYSTEM_BUSY", 14: "SERVICE_NOT_AVAILABLE", 215: "FLOW_CONTROL", 1500: "GO_AWAY"}
    assert lab.isolated[0][2] == f"answered {names[code]} ({code})"


@pytest.mark.parametrize("code", [1, 13, 16, 17, 29, 3, 204, 205])
def test_codes_that_speak_of_the_message_are_neither_sample_nor_verdict(code):
    lab = FaultLab()
    lab.warm_up()
    before = lab.health("broker-a")
    attempt = lab.start("broker-a")
    lab.wait(1.5)
    lab.table.replied(attempt, lab.now, code)
    after = lab.health("broker-a")
    assert (after.state, after.record, after.smoothed) == ("usable", 0, before.smoothed)
    assert after.in_flight == 0


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_codes_of_a_stored_message_are_good_answers(code):
    lab = FaultLab()
    attempt = lab.start("broker-a")
    lab.wait(0.003)
    lab.table.replied(attempt, lab.now, code)
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
    attempt = lab.start("broker-a")
    lab.wait(1.0)
    lab.table.broke(attempt, lab.now, error)
    assert lab.isolated == [(lab.now, "broker-a", words, lab.now + 0.5)]


def test_a_oneway_request_that_left_is_no_sample():
    lab = FaultLab()
    lab.warm_up()
    attempt = lab.start("broker-a")
    lab.wait(3.0)
    lab.table.settled(attempt, lab.now)
    assert lab.state("broker-a") == "usable"
    assert lab.health("broker-a").smoothed == pytest.approx(0.002)


@pytest.mark.parametrize(("waited", "state"), [(8 * MS, "usable"), (9 * MS, "isolated")])
def test_a_time_out_sooner_than_an_ordinary_answer_is_our_haste(waited, state):
    lab = exact_lab(2 * MS)
    attempt = lab.start("broker-a")
    lab.wait(waited)
    lab.table.broke(attempt, lab.now, RequestTimeoutError("", written=True))
    assert lab.state("broker-a") == state


@pytest.mark.parametrize(("waited", "state"), [(16 * MS, "usable"), (17 * MS, "isolated")])
def test_without_a_typical_latency_a_time_out_counts_above_the_floor(waited, state):
    lab = FaultLab(EXACT)
    attempt = lab.table.begin("broker-a", lab.now)
    lab.wait(waited)
    lab.table.broke(attempt, lab.now, RequestTimeoutError("", written=False))
    assert lab.state("broker-a") == state


def test_only_time_outs_can_be_hasty():
    lab = exact_lab()
    attempt = lab.start("broker-a")
    lab.table.broke(attempt, lab.now, ConnectionLostError("", written=True))
    assert lab.state("broker-a") == "isolated"


def test_a_cancelled_attempt_says_nothing():
    lab = FaultLab()
    lab.warm_up()
    attempt = lab.start("broker-a")
    assert lab.health("broker-a").in_flight == 1
    lab.wait(3.0)
    lab.table.cancelled(attempt)
    health = lab.health("broker-a")
    assert (health.state, health.in_flight, health.record) == ("usable", 0, 0)


def test_a_request_written_again_is_timed_from_the_second_time():
    lab = FaultLab()
    lab.warm_up()
    attempt = lab.start("broker-a")
    lab.wait(0.5)
    attempt.written(lab.now, 100)
    lab.wait(0.002)
    lab.table.answered(attempt, lab.now)
    assert lab.state("broker-a") == "usable"
    assert lab.health("broker-a").in_flight == 0


def test_the_first_answer_sets_the_smoothed_latency_whatever_came_before_it():
    lab = FaultLab()
    lab.table.cancelled(lab.start("broker-a"))
    lab.answer("broker-a", 0.008)
    assert lab.health("broker-a").smoothed == pytest.approx(0.008)


# ---------------------------------------------------------------------------- several at once


def at_once(lab, *brokers, size=0, latency=2 * MS):
    attempts = [lab.start(broker, size) for broker in brokers]
    lab.wait(latency)
    lab.table.answered_all(attempts, lab.now)


def test_answers_told_at_once_are_samples_each():
    lab = exact_lab()
    entry = lab.table.entry_of("broker-a")
    before = entry.samples
    at_once(lab, "broker-a", "broker-b", "broker-a", "broker-a")
    assert entry.samples == before + 3
    assert lab.table.entry_of("broker-b").samples == before + 1
    assert lab.health("broker-a").in_flight == 0


def test_an_answer_at_once_that_is_sooner_than_its_allowance_counts_as_instant():
    lab = exact_lab(8 * MS)
    at_once(lab, "broker-a", size=10_000_000)
    assert lab.health("broker-a").smoothed == pytest.approx(0.9 * 8 * MS)
    assert lab.health("broker-a").last_latency == 2 * MS


def test_an_answer_at_once_from_before_an_isolation_is_no_sample():
    lab = exact_lab()
    old = lab.start("broker-a")
    lab.fail("broker-a")
    lab.probe("broker-a", 2 * MS)
    lab.answer("broker-a", 2 * MS)
    lab.answer("broker-a", 2 * MS)
    entry = lab.table.entry_of("broker-a")
    for _ in range(30):  # until the record is clear, and the broker is calm again
        lab.wait(1.0)
        lab.answer("broker-a", 2 * MS)
    assert entry.calm
    before = entry.samples, entry.smoothed
    old.written_at = lab.now
    lab.table.answered_all([old], lab.now)
    assert (entry.samples, entry.smoothed) == before


def test_a_slow_answer_among_others_is_judged():
    lab = exact_lab()
    slow = lab.start("broker-a")
    lab.wait(64 * MS)
    others = [lab.start("broker-b"), lab.start("broker-c")]
    lab.table.answered_all([*others, slow], lab.now)
    assert lab.state("broker-a") == "isolated"


def test_quick_answers_told_at_once_need_no_judgement_up_to_the_floor():
    lab = exact_lab()
    asked = []
    judge = lab.table._judge
    ordinary = judge.answered
    judge.answered = lambda *args: asked.append(args) or ordinary(*args)
    at_once(lab, "broker-a", latency=16 * MS)
    assert asked == []
    at_once(lab, "broker-a", latency=17 * MS)
    assert len(asked) == 1


def test_what_is_written_together_is_counted_for_each_broker_and_allowed_for_all_before_it():
    lab = exact_lab()
    names = ["broker-a", "broker-a", "broker-b", "broker-a", "broker-b"]
    attempts = [lab.table.begin(name, lab.now) for name in names]
    alone = [lab.table.begin(name, lab.now) for name in names]
    lab.wait(MS)
    sizes = [1000, 2000, 3000, 4000, 5000]
    note_written(attempts, sizes, lab.now, 500)
    assert [attempt.written_at for attempt in attempts] == [lab.now] * 5
    for name in ("broker-a", "broker-b"):
        own = [attempt for attempt in attempts if attempt.broker == name]
        assert list(own[0].entry.under_way) == own
    # As if each had been written by itself, behind the bytes of all that were before it.
    behind = [500 + sum(sizes[: place + 1]) for place in range(5)]
    for attempt, unanswered in zip(alone, behind, strict=True):
        attempt.written(lab.now, unanswered)
    assert [attempt.allowance for attempt in attempts] == [attempt.allowance for attempt in alone]
    assert len({attempt.allowance for attempt in attempts}) == 5


def test_nothing_written_together_is_nothing():
    lab = exact_lab()
    before = lab.table.watch.at
    note_written([], [], lab.now, 0)
    assert lab.table.watch.at == before


def test_a_broker_is_unreached_from_the_first_connection_that_fails_until_it_answers():
    lab = FaultLab()
    began = lab.now
    attempt = lab.table.begin("broker-a", began)
    lab.wait(2)
    assert lab.table.unreached_for("broker-a", lab.now) is None
    lab.table.broke(attempt, lab.now, ConnectFailedError("refused"))
    assert lab.table.unreached_for("broker-a", lab.now) == 2
    lab.wait(3)
    lab.table.broke(
        lab.table.begin("broker-a", lab.now), lab.now, ConnectFailedError("refused again")
    )
    assert lab.table.unreached_for("broker-a", lab.now) == 5
    lab.wait(1)
    lab.answer("broker-a", 0.25)
    assert lab.table.unreached_for("broker-a", lab.now) is None
    assert lab.table.unreached_for("nobody", lab.now) is None
