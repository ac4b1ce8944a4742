"""Which requests a fault meets, and for how long."""

from __future__ import annotations

from rocketwire.embedded.faults import Fault, FaultKind, FaultPlan


def test_a_fault_meets_only_what_it_is_for() -> None:
    plan = FaultPlan()
    fault = plan.add(Fault(FaultKind.BUSY, code=310, topic="t"))
    assert plan.strike(310, "t") == [fault]
    assert plan.strike(310, "other") == []
    assert plan.strike(11, "t") == []
    plan.remove(fault)
    assert not plan.active
    sends = plan.add(Fault(FaultKind.BUSY, sends_only=True))
    assert plan.strike(10, None) == [sends]
    assert plan.strike(34, None) == []


def test_a_fault_for_the_next_n_ends_by_itself() -> None:
    plan = FaultPlan()
    plan.add(Fault(FaultKind.BUSY, remaining=2, topic="t"))
    met = [bool(plan.strike(310, topic)) for topic in ("t", "x", "t", "t")]
    assert met == [True, False, True, False]
    assert not plan.active


def test_chance_does_not_use_up_a_count() -> None:
    plan = FaultPlan(seed=1)
    plan.add(Fault(FaultKind.BUSY, remaining=5, probability=0.2))
    struck = sum(bool(plan.strike(1, None)) for _ in range(500))
    assert struck == 5


def test_delays_of_several_faults_add_up_and_jitter_stays_in_bounds() -> None:
    plan = FaultPlan(seed=3)
    plain = Fault(FaultKind.SLOW, seconds=0.5)
    shaky = Fault(FaultKind.SLOW, seconds=0.25, jitter=0.5)
    delays = [plan.delay([plain, shaky]) for _ in range(100)]
    assert all(0.75 <= delay <= 1.25 for delay in delays)
    assert max(delays) - min(delays) > 0.3
    assert plan.delay([]) == 0
