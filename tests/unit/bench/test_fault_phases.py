"""How runs through a fault are judged."""

import sys
from pathlib import Path

import pytest

_ROOT = str(Path(__file__).parents[3])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from bench.fault_phases import Send, judge  # noqa: E402  (needs the path above)


def steady(start: float, end: float, step: float = 0.01) -> list[Send]:
    count = round((end - start) / step)
    return [Send(start + number * step, step, good=True) for number in range(count)]


def test_a_fault_nobody_noticed_keeps_the_whole_rate():
    verdict = judge(steady(0, 20), warm=2, begun=5, ended=15)
    assert verdict.rate_before == pytest.approx(100, rel=0.01)
    assert verdict.kept == pytest.approx(1.0, rel=0.01)
    assert verdict.longest_gap == pytest.approx(0.01, abs=0.005)
    assert verdict.failures == 0


def test_a_stall_is_a_gap_and_costs_its_share():
    verdict = judge([*steady(0, 6), *steady(9, 20)], warm=2, begun=5, ended=15)
    assert verdict.longest_gap == pytest.approx(3.0, abs=0.02)
    assert verdict.kept == pytest.approx(0.7, rel=0.02)


def test_a_dead_phase_is_one_gap_as_long_as_the_fault():
    verdict = judge(steady(0, 5), warm=2, begun=5, ended=15)
    assert (verdict.rate_during, verdict.longest_gap) == (0.0, 10.0)


def test_failures_count_from_the_beginning_of_the_fault():
    failed = [Send(moment, 3.0, good=False) for moment in (4.0, 6.0, 16.0)]
    assert judge([*steady(0, 20), *failed], warm=2, begun=5, ended=15).failures == 2


def test_nothing_before_the_fault_keeps_nothing():
    assert judge(steady(5, 15), warm=2, begun=5, ended=15).kept == 0.0


def test_phases_out_of_order_are_refused():
    with pytest.raises(ValueError, match="not in this order"):
        judge([], warm=5, begun=2, ended=15)
