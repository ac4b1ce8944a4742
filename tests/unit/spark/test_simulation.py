from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from rocketwire.errors import ConfigError
from rocketwire.spark.policy_lab.simulation import (
    Experiment,
    Worker,
    _extent,
    harm_of,
    tasks_of,
)
from rocketwire.testing.simulated_cluster import ClusterFigures, Setting

BASE = Setting(producers=20, brokers=3, seconds=6.0)


def figures(**changes: Any) -> ClusterFigures:
    return replace(ClusterFigures(sends=10_000, attempts=10_000), **changes)


def experiments(default: ClusterFigures, off: ClusterFigures, size: int = 100) -> list[Experiment]:
    return [
        Experiment(name, "slow:0.3@broker-1", 0, size, 10, one)
        for name, one in (("default", default), ("off", off))
    ]


def test_tasks_are_policies_times_faults_times_seeds_times_sizes() -> None:
    tasks = tasks_of(BASE, ["hang@all", "refuse@all"], ["default", "off"], 3, [(40, 4)])
    assert len(tasks) == 2 * 2 * 3 * 2
    assert {(task["producers"], task["brokers"]) for task in tasks} == {(20, 3), (40, 4)}
    extent = _extent(BASE, tasks)
    assert extent.sends == 12 * (20 + 40) * 60
    assert "24 experiments" in str(extent)


@pytest.mark.parametrize(
    ("changes", "blamed"),
    [
        ({"policies": ["fast"]}, "'fast' is no fault policy"),
        ({"faults": ["melt@all"]}, "kinds are"),
        ({"faults": []}, "at least one fault"),
        ({"sizes": [(100_000, 1000)]}, "more than 4 GB"),
        ({"sizes": [(10, 1)]}, "too few"),
    ],
)
def test_wrong_experiments_are_refused_before_anything_begins(changes: Any, blamed: str) -> None:
    given: dict[str, Any] = {"faults": ["hang@all"], "policies": ["off"], "seeds": 1, "sizes": []}
    given |= changes
    with pytest.raises(ConfigError, match=blamed):
        tasks_of(BASE, given["faults"], given["policies"], given["seeds"], given["sizes"])


def test_a_worker_runs_an_experiment_and_says_what_it_took() -> None:
    task = {"policy": "off", "fault": "hang@all", "seed": 1, "producers": 5, "brokers": 2}
    made = Worker(asdict(BASE)).run(task)
    assert made["figures"]["failed"] > 0
    assert made["cpu_seconds"] > 0 < made["memory_mb"]
    assert made["policy"] == "off"


def test_harm_is_named_with_its_size() -> None:
    good, bad = figures(failed=5, lost=10.0), figures(failed=500, lost=10.0)
    small, large = experiments(good, good), experiments(bad, good, 1000)
    assert "no harm" in harm_of(small)
    told = harm_of([*small, *large])
    assert "from 1,000 producers and 10 brokers on" in told
    assert "500 sends fail" in told
    slow = experiments(figures(lost=900.0), figures(lost=100.0))
    assert "900 s are lost" in harm_of(slow)
    tail = experiments(figures(p999=0.0715), figures(p999=0.0141))
    assert "72 ms and more, and 14 ms without" in harm_of(tail)
    assert "no harm" in harm_of(experiments(figures(p999=0.018), figures(p999=0.013)))
    assert "was not asked" in harm_of(small[:1])
