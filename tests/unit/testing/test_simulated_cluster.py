"""Clusters of a model: queues, faults, and what policies do to them."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

import pytest

from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.testing.cluster_faults import parse_fault
from rocketwire.testing.event_driver import NEVER_ANSWERED, REFUSED
from rocketwire.testing.simulated_cluster import (
    ClusterFigures,
    ClusterSimulation,
    QueueingBroker,
    Setting,
)

SECONDS = 18.0


@cache
def run(policy: str, fault: str | None, producers: int = 30, brokers: int = 4) -> ClusterFigures:
    faults = () if fault is None else (parse_fault(fault, brokers=brokers, seconds=SECONDS),)
    setting = Setting(producers=producers, brokers=brokers, seconds=SECONDS, faults=faults)
    return ClusterSimulation(FaultPolicy.named(policy), setting, seed=1).run()


# -- faults in words ----------------------------------------------------------------------------


def test_a_fault_is_what_where_and_when() -> None:
    fault = parse_fault("slow:0.3@broker-7/10-40", brokers=10, seconds=60.0)
    assert (fault.kind, fault.value, fault.begin, fault.end) == ("slow", 0.3, 10.0, 40.0)
    assert fault.brokers([f"broker-{n}" for n in range(10)]) == ["broker-7"]
    fault = parse_fault("refuse@25%", brokers=10, seconds=60.0)
    assert fault.brokers([f"broker-{n}" for n in range(10)]) == ["broker-0", "broker-1", "broker-2"]
    assert (fault.begin, fault.end) == (10.0, 40.0)
    assert len(parse_fault("weak:0.5@all", brokers=3, seconds=6.0).brokers(["a", "b", "c"])) == 3


def test_a_flapping_broker_refuses_every_other_time() -> None:
    fault = parse_fault("flap:2@broker-0/10-20", brokers=1, seconds=30.0)
    assert [fault.kind_at(at) for at in (10.0, 11.9, 12.1, 14.1)] == [
        "refuse",
        "refuse",
        "",
        "refuse",
    ]


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("slow", "write KIND"),
        ("melt@all", "kinds are slow"),
        ("slow@all", "seconds more"),
        ("weak:2@all", "from 0 to 1"),
        ("hang:3@all", "takes no number"),
        ("slow:0.1@broker-9", "from broker-0 to broker-2"),
        ("slow:0.1@all/9-3", "ends before it begins"),
        ("slow:1.2.3@all", "seconds more"),
    ],
)
def test_a_wrong_fault_is_refused_with_the_remedy(text: str, blamed: str) -> None:
    with pytest.raises(ConfigError, match=blamed):
        parse_fault(text, brokers=3, seconds=60.0)


# -- brokers --------------------------------------------------------------------------------------


def test_requests_wait_in_line_and_too_long_a_line_is_busy() -> None:
    broker = QueueingBroker(capacity=100.0, latency=0.002)
    delays = [broker.receive(1.0, is_probe=False) for _ in range(25)]
    assert delays[0] == (pytest.approx(0.012), 0)
    assert delays[10] == (pytest.approx(0.112), 0)
    assert [code for _, code in delays[22:]] == [2, 2, 2]  # beyond 200 ms of line
    assert broker.busy == 25 - sum(code == 0 for _, code in delays)
    assert broker.receive(1.0, is_probe=True) == (0.002, 0)  # heartbeats do not wait
    assert broker.receive(9.0, is_probe=False) == (pytest.approx(0.012), 0)


def test_faults_decide_what_comes_of_a_request() -> None:
    fates = {
        "refuse@all": (0.0005, REFUSED),
        "hang@all": (NEVER_ANSWERED, 0),
        "busy@all": (0.002, 2),
        "slow:0.3@all": (pytest.approx(0.312), 0),
        "weak:0.5@all": (pytest.approx(0.022), 0),
    }
    for text, fate in fates.items():
        broker = QueueingBroker(capacity=100.0, latency=0.002)
        broker.fault = parse_fault(text, brokers=1, seconds=60.0)
        assert broker.receive(20.0, is_probe=False) == fate


# -- whole clusters -------------------------------------------------------------------------------


def test_while_nothing_is_wrong_load_is_even_and_nothing_fails() -> None:
    figures = run("default", None)
    assert figures.failed == figures.busy == 0
    assert figures.sends == figures.attempts == pytest.approx(30 * 10 * SECONDS, rel=0.05)
    assert figures.peak < 1.6
    assert figures.back is None


def test_two_runs_with_one_seed_are_alike() -> None:
    first = run("default", "slow:0.3@broker-1")
    run.cache_clear()
    assert asdict(run("default", "slow:0.3@broker-1")) == asdict(first)


def test_many_producers_step_around_a_slow_broker_and_come_back() -> None:
    ours, java = run("default", "slow:0.3@broker-1"), run("java5", "slow:0.3@broker-1")
    assert ours.lost < java.lost / 3
    assert ours.failed == 0
    assert ours.back is not None
    assert ours.back <= 3.0
    assert ours.probes > java.probes == 0


def test_moved_load_overloads_the_others_where_capacity_is_short() -> None:
    fault = parse_fault("refuse@50%", brokers=4, seconds=SECONDS)
    figures = [
        ClusterSimulation(
            FaultPolicy(),
            Setting(producers=30, brokers=4, seconds=SECONDS, load=load, faults=(fault,)),
            seed=1,
        ).run()
        for load in (0.3, 0.8)
    ]
    assert figures[0].busy == 0
    assert figures[1].busy > 100
    assert figures[1].peak > 1.6


def test_a_refusing_broker_makes_producers_ask_for_the_route() -> None:
    assert run("default", "refuse@broker-1").lookups > 0 == run("default", "hang@broker-1").lookups
