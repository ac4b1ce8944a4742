"""Rule 10 in part: what the table shows and tells."""

import logging

import pytest
from tests.fault_lab import FaultLab, FixedRandom

from rocketwire.core.durations import brief, in_ms
from rocketwire.core.faults.entries import median
from rocketwire.core.faults.table import FaultTable
from rocketwire.fault_policy import FaultPolicy
from rocketwire.testing.simulation import SimulatedLock
from rocketwire.testing.virtual_clock import VirtualClock


def test_health_has_quantiles_of_the_recent_answers():
    lab = FaultLab(FaultPolicy(window=10), brokers=("broker-a",))
    for number in range(1, 21):
        lab.answer("broker-a", number / 64)
    health = lab.health("broker-a")
    assert (health.p50, health.p90, health.p99) == (16 / 64, 20 / 64, 20 / 64)
    assert health.last_latency == 20 / 64


def test_the_quantiles_are_the_half_nine_tenths_and_ninety_nine_hundredths():
    lab = FaultLab(FaultPolicy(window=1000), brokers=("broker-a",))
    for number in range(1000):
        lab.answer("broker-a", number / 1024)
    health = lab.health("broker-a")
    assert (health.p50, health.p90, health.p99) == (500 / 1024, 900 / 1024, 990 / 1024)


def test_health_tells_since_when_and_no_end_unless_isolated():
    lab = FaultLab()
    lab.wait(3.0)
    lab.answer("broker-a", 0.5)
    assert (lab.health("broker-a").since, lab.health("broker-a").until) == (3.0, None)
    lab.warm_up()
    lab.fail("broker-a")
    assert lab.health("broker-a").since == lab.now
    lab.probe("broker-a")
    assert (lab.health("broker-a").since, lab.health("broker-a").until) == (lab.now, None)
    lab.answer("broker-a")
    lab.answer("broker-a")
    assert (lab.health("broker-a").since, lab.health("broker-a").until) == (lab.now, None)


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([], None),
        ([3.0], 3.0),
        ([1.0, 2.0], 1.5),
        ([9.0, 1.0, 5.0], 5.0),
        ([4.0, 1.0, 3.0, 8.0], 3.5),
    ],
)
def test_the_median(values, middle):
    assert median(iter(values)) == middle


@pytest.mark.parametrize(
    ("seconds", "latency", "span"),
    [
        (0.00123, "1.2 ms", "0.0 s"),
        (0.00994, "9.9 ms", "0.0 s"),
        (0.0100, "10 ms", "0.0 s"),
        (0.0104, "10 ms", "0.0 s"),
        (1.94, "1940 ms", "1.9 s"),
        (2.0, "2000 ms", "2 s"),
        (2.4, "2400 ms", "2 s"),
    ],
)
def test_times_in_words(seconds, latency, span):
    assert (in_ms(seconds), brief(seconds)) == (latency, span)


def test_without_listeners_nothing_goes_wrong(caplog):
    clock = VirtualClock()
    table = FaultTable(FaultPolicy(), clock=clock, lock=SimulatedLock(), random=FixedRandom())
    table.failed(table.begin("a", 0.0), 0.0, "closed the connection")
    assert table.next_probe_at() == 0.5  # probing is the default
    for _ in range(2):
        table.answered(table.begin("a", 0.0), 0.0)
    assert table.state_of("a") == "usable"
    assert caplog.records == []


def test_health_of_a_broker_never_answered_has_no_latencies():
    lab = FaultLab()
    lab.start("broker-a")
    health = lab.health("broker-a")
    assert (health.p50, health.p90, health.p99) == (None, None, None)
    assert (health.last_latency, health.smoothed, health.in_flight) == (None, None, 1)


def test_health_of_a_well_broker_explains_nothing():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a")
    lab.wait(0.05)
    assert lab.health("broker-a").why == ""


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
    assert caplog.records[0].getMessage() == "a listener of the fault table failed"
