"""How what was measured beside Kafka is judged, and what is counted."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.beside_kafka import main, rows_of
from bench.kafka_contest import CASES
from bench.kafka_verdict import (
    ALLOWANCE,
    KAFKA,
    NOTHING,
    OURS,
    Sample,
    SmallSample,
    misses,
    table,
    verdicts,
)
from bench.spark_processes import Cpu, cpu_by_kind, leave_out


def sample(side: str, seconds: float, *, case: str = "noop", jvm: float = 1.0) -> Sample:
    return Sample(CASES[case], 200, side, 1_000_000, seconds, jvm, 0.5, 0.25)


def test_a_ratio_is_that_of_one_round_and_the_median_of_all() -> None:
    # The machine is twice as slow in the second round, for both alike.
    samples = [
        sample(KAFKA, 1.0), sample(OURS, 2.0),
        sample(OURS, 2.0), sample(KAFKA, 2.0),
        sample(KAFKA, 3.0), sample(OURS, 2.0),
    ]  # fmt: skip
    (found,) = verdicts(samples)
    assert (found.ratio, found.low, found.high) == (1.0, 0.5, 1.5)
    assert (found.kafka, found.ours) == (500_000, 500_000)
    assert (found.kafka_cpu, found.our_cpu, found.our_workers) == (1.5, 1.5, 0.5)


def test_cases_and_bodies_are_judged_apart() -> None:
    samples = [sample(side, 1.0, case=case) for case in ("noop", "write") for side in (KAFKA, OURS)]
    assert [one.case for one in verdicts(samples)] == [CASES["noop"], CASES["write"]]


def test_a_round_without_its_other_side_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        verdicts([sample(KAFKA, 1.0)])


def test_slower_than_kafka_is_a_miss_and_as_fast_is_none() -> None:
    found = verdicts([
        sample(KAFKA, 1.0), sample(OURS, 1.1),
        sample(KAFKA, 1.0, case="write"), sample(OURS, 1.0, case="write"),
    ])  # fmt: skip
    (missed,) = misses(found, [])
    assert missed.startswith(f"{CASES['noop']}, 200 B: 0.91 times")


@pytest.mark.parametrize(("over", "count"), [(ALLOWANCE, 0), (ALLOWANCE + 1, 1)])
def test_small_batches_are_judged_by_a_python_source_that_does_nothing(
    over: float, count: int
) -> None:
    small = [
        SmallSample("read", KAFKA, 10.0),
        SmallSample("read", NOTHING, 100.0),
        SmallSample("read", OURS, 100.0 + over),
    ]
    assert len(misses([], small)) == count


def test_the_table_has_a_line_for_each_case_and_each_small_batch() -> None:
    small = [SmallSample("read", side, 7.0) for side in (KAFKA, OURS, NOTHING)]
    text = table(verdicts([sample(KAFKA, 1.0), sample(OURS, 0.5)]), small)
    assert (
        "| 200 B | 1,000,000 | 2,000,000 | 2.00 (2.00 to 2.00) | 1.5 | 1.5 (0.5 in Python) | 0.2 / 0.2 |"
        in text
    )
    assert "| read | 7 | 7 | 7 |" in text


@pytest.mark.parametrize(
    ("body", "scale", "rows"),
    [(20, 1.0, 1_000_000), (200, 1.0, 1_000_000), (2000, 1.0, 200_000), (200, 0.001, 10_000)],
)
def test_large_bodies_come_in_fewer_rows(body: int, scale: float, rows: int) -> None:
    assert rows_of(body, scale) == rows


@pytest.mark.parametrize("words", [["--only", "nonsense"], ["--bodies", "x"], ["--rounds", "0"]])
def test_wrong_words_are_refused_before_anything_starts(words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2


def test_cpu_of_python_processes_counts_and_that_of_servers_does_not() -> None:
    program = (
        "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass\n"
        "print('done', flush=True)\ninput()"
    )
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    before = cpu_by_kind()
    with (
        subprocess.Popen([*command, "0.4"], **pipes) as worker,  # type: ignore[call-overload]
        subprocess.Popen([*command, "0.9"], **pipes) as server,  # type: ignore[call-overload]
    ):
        leave_out(server.pid)
        for process in (worker, server):
            assert process.stdout.readline() == b"done\n"
        taken = cpu_by_kind() - before
        for process in (worker, server):
            process.communicate(b"\n", timeout=20)
    assert taken.jvm == 0
    assert 0.2 <= taken.workers < 0.8  # the system counts in ticks


def test_cpu_is_subtracted_by_kind() -> None:
    assert Cpu(3.0, 2.0) - Cpu(1.0, 0.5) == Cpu(2.0, 1.5)
