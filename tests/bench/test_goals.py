"""Each goal is judged by the figure that it is about."""

from __future__ import annotations

from typing import Any

import pytest
from bench.acking import CONTESTS
from bench.broker import AUTO, FLYING, LISTS, ONE, PAUSED, Stage, contests
from bench.goals import LOOKING, MAKING, READING, READS, SENDING, Figures, judge
from bench.readme import LINES, shown
from bench.shapes import BODY, KEY, RICH, SHAPES, title

from bench import consumers


class Client:
    """As much of a foreign client as a contest needs before it is run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, path: str, topic: str, count: int, **how: Any) -> None:
        """Never called."""


def run_on_a_broker(shape: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Every path on a broker by its contest, with what it is compared with."""
    clients: Any = (Client("java"), Client("go"))
    stage = Stage("127.0.0.1:1", "127.0.0.1:1", "b", clients, lambda: None, lambda: 0.0)
    ready = contests(stage, SHAPES[shape], 200, 0.01)
    java: Any = clients[0]
    ready[LOOKING] = consumers.looking_paths("127.0.0.1:1", java, 1)
    ready[READS] = consumers.reading_paths("127.0.0.1:1", java, 1)
    return {(name, path.name): path.against for name, found in ready.items() for path in found}


@pytest.mark.parametrize("shape", ["key", "rich"])
def test_every_goal_is_about_a_path_that_is_run(shape: str) -> None:
    run = run_on_a_broker(shape)
    for goal in (*SENDING, *READING):
        assert (goal.contest, goal.path) in run
        if goal.rate:
            assert "java" in run[goal.contest, goal.path]
    assert {"floor", PAUSED} <= set(run[ONE, "send"])
    assert "Message(...)" in CONTESTS[MAKING]


def test_every_line_of_the_readme_is_about_a_path_that_is_run() -> None:
    run = run_on_a_broker("key")
    told = {(title(name, KEY, 200), path) for name, path in run} | run.keys()
    assert {(line.contest, line.path) for line in LINES} <= told


def test_a_blocking_send_is_shown_beside_sockets_that_pause_as_it_does() -> None:
    ratios = {
        name: {"median": median, "low": median, "high": median}
        for name, median in (("java", 0.8), ("floor", 1.5), (PAUSED, 1.2))
    }
    row = {
        "contest": title(ONE, KEY, 200), "path": "send", "p50": 1e-4, "ratios": ratios,
        "sending_cost": 6e-5, "messages_per_second": 5_000.0,
    }  # fmt: skip
    told = shown(Figures([row]), LINES[0])
    assert told is not None
    assert (
        "1.50 of bare sockets, goal 1.25: **missed** (1.20 of some that pause for 40 µs between)"
        in told
    )


def test_a_path_is_compared_only_with_what_runs_beside_it() -> None:
    for shape in SHAPES:
        run = run_on_a_broker(shape)
        for (contest, _), against in run.items():
            assert all((contest, other) in run for other in against)


def row(contest: str, path: str, **given: Any) -> dict[str, Any]:
    ratios = {name: {"median": given.pop(name)} for name in ("java", "floor") if name in given}
    usual = {"messages_per_second": 1000.0, "cost": 9e-6, "sending_cost": 8e-6, "server_share": 0.5}
    return {"contest": contest, "path": path, "ratios": ratios} | usual | given


@pytest.mark.parametrize(
    ("contest", "path", "given", "held"),
    [
        (title(MAKING, KEY, 200), "Message(...)", {"cost": 1.5e-6}, [True]),
        (title(MAKING, RICH, 200), "Message(...)", {"cost": 2.4e-6}, [False]),
        (title(MAKING, BODY, 200), "Message(...)", {"cost": 9e-6}, []),
        (title(LISTS, KEY, 200), "send_many", {"sending_cost": 4e-6}, [True]),
        (title(LISTS, KEY, 200), "send_many", {"sending_cost": 4e-6, "java": 0.79}, [True, False]),
        (title(LISTS, RICH, 200), "send of 500", {"java": 0.8}, [True]),
        (title(LISTS, KEY, 2000), "send_many", {"sending_cost": 4e-6}, []),
        (title(AUTO, KEY, 200), "submit, auto_batch", {"java": 0.6}, [False, True]),
        (title(FLYING, KEY, 200), "submit", {"java": 0.1}, [True]),
        (title(FLYING, KEY, 200), "await send, 1024 at once", {"java": 0.99}, [True, False]),
        (title(ONE, KEY, 200), "send", {"floor": 1.26}, [False]),
        (LOOKING, "handler", {"cost": 6e-6, "java": 0.5}, [True, True]),
        (READS, "read", {"cost": 5e-6, "java": 0.1}, [False]),
    ],
)
def test_a_goal_is_held_or_missed(
    contest: str, path: str, given: dict[str, float], held: list[bool]
) -> None:
    assert [verdict.held for verdict in judge([row(contest, path, **given)])] == held


def test_properties_are_judged_by_what_they_add() -> None:
    rows = [
        row(title(FLYING, KEY, 200), "submit", sending_cost=7e-6),
        row(title(FLYING, RICH, 200), "submit", sending_cost=8.6e-6),
    ]
    found = judge(rows)[-1]
    assert found.target == "submit: CPU µs more for three properties"
    assert found.found == pytest.approx(1.6)
    assert not found.held


@pytest.mark.parametrize(("cost", "held"), [(3e-6, True), (5e-6, False)])
def test_where_the_broker_is_the_limit_cpu_counts(cost: float, held: bool) -> None:
    contest = title(LISTS, KEY, 200)
    rows = [
        row(contest, "send_many", sending_cost=cost, java=0.5),
        row(contest, "floor", messages_per_second=1100.0),
    ]
    found = judge(rows)[-1]
    assert found.held == held
    assert "the broker is the limit" in found.note
    rows[1]["messages_per_second"] = 5000.0
    assert not judge(rows)[-1].held


def test_a_verdict_tells_everything_in_a_line() -> None:
    rows = [row(title(LISTS, KEY, 200), "send_many", java=0.9)]
    cpu, rate = (verdict.line() for verdict in judge(rows))
    assert cpu.startswith("MISSED send_many, tag + key: CPU µs, making not counted: 8.00, target 4")
    assert "9.00 with it" in cpu
    assert rate.startswith("held")
    assert "dream 1.0; broker at 50% of a core" in rate
