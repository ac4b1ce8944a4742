"""The table of a simulation fits the usual terminal, however large its figures are."""

import io

import pytest
from rich.console import Console

pytest.importorskip("pyspark")

from rocketwire.cli.simulate import tables
from rocketwire.spark.policy_lab.simulation import Experiment
from rocketwire.testing.simulated_cluster import ClusterFigures

LARGE = ClusterFigures(
    sends=6_000_000, failed=599_999, p50=0.1234, p99=2.9991, p999=12.3456, lost=1_234_567.0,
    peak=12.3, peak_back=10.5, back=123.0, probes=12_345, lookups=12_345,
)  # fmt: skip


def shown(experiments, width=80):
    text = io.StringIO()
    Console(file=text, width=width).print(*tables(experiments))
    return text.getvalue()


def test_nothing_is_cut_off_at_80_columns():
    told = shown([Experiment("default", "slow:0.3@broker-7", 0, 10_000, 100, LARGE)])
    assert "slow:0.3@broker-7: 10,000 producers, 100 brokers" in told
    for figure in (
        "10.00 %",
        "123.4",
        "2,999",
        "12,346",
        "1,234,567",
        "x12.3",
        "123 s",
        "x10.5",
    ):
        assert figure in told
    assert "…" not in told


def test_each_fault_and_size_has_a_table_and_each_seed_a_row():
    figures = ClusterFigures(sends=10)
    told = shown(
        [
            Experiment(policy, fault, seed, 10, 3, figures)
            for policy in ("default", "off")
            for fault in ("hang@all", "busy@all")
            for seed in (0, 1)
        ]
    )
    assert told.count("10 producers, 3 brokers") == 2
    rows = [line.split("0.00 %")[0].strip() for line in told.splitlines() if "0.00 %" in line]
    assert rows == ["default, 0", "default, 1", "off, 0", "off, 1"] * 2
