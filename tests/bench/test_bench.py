"""The benchmark programs run, and their arithmetic is right. Nothing here looks at how fast."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys

import pytest
from bench.__main__ import main
from bench.acker import acker
from bench.growth import _memory_each
from bench.plots import write_page
from bench.report import command, figure_lines, series_lines, table
from bench.rounds import Path, contest
from bench.samples import Sample, Stopwatch
from bench.shapes import RICH, maker

from bench import acker as acker_module
from bench import broker, floor, ours


def sample(rate: float = 100.0, p50: float | None = None) -> Sample:
    return Sample(1000, 1000 / rate, 0.002, p50, p50)


def test_ratios_are_made_within_a_round() -> None:
    floors, mine = iter([100.0, 10.0, 50.0]), iter([50.0, 10.0, 100.0])
    rows = contest(
        "c",
        [
            Path("floor", lambda: sample(next(floors))),
            Path("ours", lambda: sample(next(mine)), "rate", ("floor", "absent")),
        ],
        rounds=3,
        quiet=True,
    )
    (ratio,) = rows[1].ratios
    assert (ratio.against, ratio.low, ratio.median, ratio.high) == pytest.approx(
        ("floor", 0.5, 1.0, 2.0)
    )
    assert rows[0].ratios == ()
    assert rows[1].rate == 50.0
    assert rows[1].cpu_each == pytest.approx(2e-6)


def test_latencies_are_compared_by_their_median() -> None:
    rows = contest(
        "c",
        [
            Path("floor", lambda: sample(p50=0.001), "p50"),
            Path("ours", lambda: sample(p50=0.002), "p50", ("floor",)),
        ],
        rounds=2,
        quiet=True,
    )
    assert rows[1].ratios[0].median == 2.0
    text = table(rows)
    assert "2.00x floor (2.00 to 2.00)" in text
    assert "2,000.0" in text
    assert json.loads(json.dumps(rows[1].as_json()))["ratios"]["floor"]["high"] == 2.0


def test_a_path_that_fails_is_left_out_and_the_others_go_on(capsys) -> None:
    def broken() -> Sample:
        raise RuntimeError("no broker here")

    paths = [Path("broken", broken), Path("good", sample, "rate", ("broken",))]
    rows = contest("c", paths, rounds=2, quiet=True)
    assert [row.name for row in rows] == ["good"]
    assert rows[0].ratios == ()
    assert "no broker here" in capsys.readouterr().err


def test_cpu_is_told_at_the_usual_pace_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.reference.pace", lambda: 2.0)
    used = iter([1.0, 1.5])
    run = Sample(1000, 0.1, 0.006, making=0.002)
    (row,) = contest("c", [Path("ours", lambda: run)], 1, quiet=True, server=lambda: next(used))
    assert row.cpu_each == pytest.approx(6e-6)
    assert row.cost == pytest.approx(3e-6)
    assert row.sending_cost == pytest.approx(2e-6)
    assert row.server_share is not None
    assert row.as_json()["server_share"] > 0
    assert "2.0" in table([row])


def test_every_path_begins_when_the_one_before_has_settled() -> None:
    told: list[str] = []

    def run() -> Sample:
        told.append("run")
        return sample()

    paths = [Path("one", run), Path("two", run)]
    contest("c", paths, rounds=2, quiet=True, settle=lambda: told.append("settle"))
    assert told == ["settle", "run"] * 4


def test_a_broker_has_settled_when_its_queues_stand_still() -> None:
    ends = iter([{0: 5}, {0: 7}, {0: 8}, {0: 8}, {0: 9}])
    broker.settle(lambda: next(ends), pause=0.0)
    assert next(ends) == {0: 9}
    numbers = itertools.count()
    broker.settle(lambda: next(numbers), limit=0.0, pause=0.0)
    assert next(numbers) == 1


def test_quantiles_of_a_run() -> None:
    with Stopwatch() as watch:
        pass
    found = watch.sample(100, [n / 1000 for n in range(100)])
    assert (found.p50, found.p99) == (0.05, 0.099)


@pytest.mark.parametrize("header", ["json", "binary"])
@pytest.mark.parametrize("native", [True, False])
def test_both_acking_servers_take_every_kind_of_send(
    native: bool, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(
            acker_module, "_program", lambda: [sys.executable, "-m", "bench.python_acker"]
        )
    elif len(acker_module._program()) > 1:
        pytest.skip("there is no C compiler")
    make = maker(RICH, "t", 200)
    with acker(2, 3, header) as server:
        name_server, address = server.name_server, server.addresses[1]
        assert ours.blocking(name_server, make, 20).messages == 20
        assert ours.submitted(name_server, make, 300, auto_batch=True).messages == 300
        assert ours.batches(name_server, make, 100, 50).messages == 100
        assert ours.oneway(name_server, make, 20).messages == 20
        frame = floor.frame("broker-001", make)
        assert floor.ping_pong(address, frame, 10).messages == 10
        paused = floor.ping_pong(address, frame, 10, pause=0.002)
        assert paused.seconds >= 10 * 0.002
        assert paused.p50 is not None
        assert paused.p50 < paused.seconds / 10 - 0.001  # a pause is no part of a latency
        many = floor.frame("broker-001", make, batch=50)
        assert floor.pipelined(address, many, 20, window=4, each=50).messages == 1000


def test_the_command_writes_a_table_and_a_file(tmp_path, capsys) -> None:
    file = tmp_path / "results.json"
    page = tmp_path / "speed.html"
    words = ["--only", "making,blocking", "--shapes", "key,rich", "--bodies", "20,200"]
    words += ["--rounds", "2", "--scale", "0.01"]
    assert main([*words, "--json", str(file), "--html", str(page)]) == 0
    assert "<span class='bar'><i class='ours'" in page.read_text()
    assert "One send at a time, to an acking server, tag + key, 20 B" in page.read_text()
    said = capsys.readouterr().out
    assert "-- blocking, tag + key + 3 properties, 20 B" in said
    assert "Message(...), tag + key: CPU µs: " in said
    content = json.loads(file.read_text())
    assert {path["path"] for path in content["paths"]} == {"floor", "send", "Message(...)"}
    assert len(content["paths"]) == 2 * 2 * 3
    assert content["machine"]["cores"] >= 1
    assert len(content["goals"]) == 2


def test_a_page_shows_contests_and_series_and_loads_nothing(tmp_path) -> None:
    rows = contest("<c>", [Path("ours", sample, "rate", ("ours",))], rounds=2, quiet=True)
    points = [
        {"x": 1, "y": 2.0, "low": 1.0, "high": 3.0},
        {"x": 64, "y": 4.0, "low": 4.0, "high": 4.0},
    ]
    alone = {"title": "a single point", "points": points[:1]}
    write_page(tmp_path / "p.html", rows, {"a": {"title": "by <n>", "points": points}, "b": alone})
    text = (tmp_path / "p.html").read_text()
    assert "&lt;c&gt;" in text
    assert "by &lt;n&gt;" in text
    assert "a single point" not in text
    assert "http" not in text
    assert "src=" not in text


def test_the_command_is_told_without_where_its_results_went() -> None:
    words = ["--only", "broker", "--json", "/somewhere/x.json", "--html=y", "--rounds", "3"]
    assert command(words) == "python -m bench --only broker --rounds 3"


def test_series_have_a_line_each() -> None:
    found = {"a": {"title": "by n", "points": [{"x": 1000, "y": 2.0}]}}
    assert series_lines(found) == ["by n: 1,000 2.0"]
    assert figure_lines({"sends/s": 1234.5}) == ["embedded: sends/s 1,234.5"]


def test_memory_per_message_does_not_grow_with_their_number() -> None:
    few, many = (asyncio.run(_memory_each(count)) for count in (200, 2000))
    assert many < 1.2 * few
    assert many < 2048


@pytest.mark.parametrize(
    "words",
    [
        ["--only", "nothing"],
        ["--rounds", "0"],
        ["--scale", "0"],
        ["--shapes", "odd"],
        ["--bodies", "0"],
    ],
)
def test_wrong_arguments_are_told(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "--" in capsys.readouterr().err
