"""The program that measures the embedded cluster runs, and judges rightly. Nothing looks at speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.embedded_load import BATCH, batch_frames, pipelined, pull_frames, running, single_frames
from bench.embedded_speed import Line, _costs, end_while_busy, main
from bench.rounds import Ratio, Row

from bench import consumers
from rocketwire import Reader
from rocketwire.embedded import EmbeddedCluster


@pytest.mark.parametrize(
    ("value", "at_least", "held"),
    [(2, True, True), (0.5, True, False), (0.5, False, True), (2, False, False)],
)
def test_a_target_is_held_or_missed(value: float, at_least: bool, held: bool) -> None:
    line = Line("x", value, "s", 1.0, at_least=at_least)
    assert line.held == held
    assert line.text().startswith("held" if held else "MISSED")


def test_what_is_sent_is_what_is_stored(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        pipelined(cluster, batch_frames("b", 2), BATCH)
        pipelined(cluster, batch_frames("b", 1, equal=False), BATCH)
        pipelined(cluster, single_frames("s", 8), 1)
        pipelined(cluster, pull_frames("b", 0, 3), 32)
    with EmbeddedCluster(folder=tmp_path / "store") as again, Reader(again.name_server) as reader:
        counts = {t: sum(map(reader.max_offset, reader.queues(t))) for t in ("b", "s")}
        sizes = {len(message.body) for message in reader.read("b")}
    assert counts == {"b": 3 * BATCH, "s": 8}
    assert len(sizes) > 100


def test_growth_is_measured_when_so_many_are_stored(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        pipelined(cluster, batch_frames("b", 4), BATCH)
        found = _costs(cluster, 1000)
    assert all(cost > 0 for cost in found.values())


def test_a_cluster_that_is_told_to_end_in_the_middle_of_sends_keeps_what_it_acknowledged(
    tmp_path: Path,
) -> None:
    _, lost = end_while_busy(tmp_path)
    assert lost.value == 0
    assert not lost.note.startswith("(0 were")


def test_the_targets_of_consumers_are_judged_by_their_medians() -> None:
    def row(name: str, measure: str, ratio: float) -> Row:
        return Row("c", name, measure, 1.0, 1.0, 1.0, 1.0, (Ratio("java", ratio, 0.1, 9.0),), ())  # type: ignore[arg-type]

    rows = [
        row("Consumer", "rate", 0.5),
        row("Consumer, batch 256", "rate", 0.99),
        row("Consumer", "p50", 2.0),
    ]
    found = consumers.verdicts(rows, {"Consumer": 99e6, "AsyncConsumer": 101e6})
    assert [verdict.held for verdict in found] == [True, False, False, True, False]
    assert found[0].line().startswith("held")


def test_the_program_prints_and_writes_each_target(tmp_path: Path, capsys) -> None:
    target = tmp_path / "figures.json"
    main(["--scale", "0.001", "--stored", "0", "--json", str(target)])
    told = json.loads(target.read_text())["targets"]
    assert len(told) == len(capsys.readouterr().out.splitlines()) == 13
    assert {"name", "value", "target", "held"} <= set(told[0])
