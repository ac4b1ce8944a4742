"""The README's table of speed is made of the recorded figures."""

from __future__ import annotations

import json

import pytest
from bench.readme import BEGIN, END, LINES, RECORD, ROOT, merged, put, table
from bench.shapes import KEY, title


def test_the_readme_shows_the_recorded_figures():
    text = (ROOT / "README.md").read_text()
    assert put(text, table(json.loads(RECORD.read_text()))) == text


def test_the_readme_says_which_messages_it_shows():
    made = table(json.loads(RECORD.read_text()))
    assert made.startswith("| on one broker, 200-byte bodies, tag + key |")
    assert made.count("\n| ") == len(LINES)


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="lacks"):
        put(f"{BEGIN} only", "x")


def row(path, *, contest="broker: auto-batch", rate=1000.0, ratio=None, cost=2e-6):
    ratios = {} if ratio is None else {"java": {"median": ratio, "low": ratio, "high": ratio}}
    return {
        "contest": title(contest, KEY, 200),
        "path": path,
        "messages_per_second": rate,
        "p50": None,
        "cost": 2 * cost,
        "sending_cost": cost,
        "server_share": 0.75,
        "ratios": ratios,
    }


def shown(*paths):
    machine = {"at": "2026-01-02T", "cores": 2, "processor": "p", "python": "3.11", "load": [0.5]}
    return table({"machine": machine, "command": "python -m bench", "paths": list(paths)})


@pytest.mark.parametrize(("ratio", "word"), [(0.6, "held"), (0.59, "**missed**")])
def test_a_missed_goal_is_shown_as_missed(ratio, word):
    made = shown(row("submit, auto_batch", ratio=ratio), row("java"))
    assert f"; goal 0.6, dream 0.8: {word} | 2.0 / 4.0; goal 5: held | 75% |" in made
    assert made.count("\n| ") == 1
    assert END not in made


def test_what_costs_more_than_its_goal_is_shown_as_missed():
    assert "5.1; goal 5: **missed**" in shown(row("submit, auto_batch", cost=5.1e-6))


def test_a_rate_that_the_broker_limits_is_said_to_be():
    lists = [row("send_many", contest="broker: lists of 500", ratio=0.7)]
    lists.append(row("floor", contest="broker: lists of 500", rate=1100.0))
    assert "goal 0.8, dream 1.0: the broker is the limit" in shown(*lists)


def test_making_is_told_beside_the_table():
    made = shown(row("Message(...)", contest="making", cost=0.7e-6))
    assert "Making a message takes 1.4 µs with tag + key (goal 1.5: held)." in made


def test_a_record_may_be_taken_in_parts():
    def part(command, *paths):
        return {"machine": {"load": [1.0]}, "command": command, "paths": list(paths)}

    first, second = row("java", rate=1.0), row("java", rate=2.0) | {"rounds": []}
    found = merged([part("a", first, row("submit, auto_batch")), part("b", second)])
    assert [path["messages_per_second"] for path in found["paths"]] == [2.0, 1000.0]
    assert found["command"] == "a`, `b"
    assert "rounds" not in found["paths"][0]
    assert len(found["goals"]) == 1
