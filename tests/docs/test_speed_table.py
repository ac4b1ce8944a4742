"""The README's table of speed is made of the recorded figures."""

from __future__ import annotations

import json

import pytest
from bench.readme import BEGIN, END, RECORD, ROOT, put, table


def test_the_readme_shows_the_recorded_figures():
    text = (ROOT / "README.md").read_text()
    assert put(text, table(json.loads(RECORD.read_text()))) == text


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="lacks"):
        put(f"{BEGIN} only", "x")


def row(path, *, rate=1000.0, ratio=None, p50=None):
    ratios = {} if ratio is None else {"java": {"median": ratio, "low": ratio, "high": ratio}}
    return {
        "contest": "broker: auto-batch",
        "path": path,
        "messages_per_second": rate,
        "p50": p50,
        "cpu_seconds_per_message": 2e-6,
        "ratios": ratios,
    }


@pytest.mark.parametrize(("ratio", "word"), [(1.0, "held"), (0.99, "**missed**")])
def test_a_missed_target_is_shown_as_missed(ratio, word):
    machine = {"at": "2026-01-02T", "cores": 2, "processor": "p", "python": "3.11"}
    paths = [row("AsyncProducer.submit, auto_batch", ratio=ratio), row("java")]
    made = table({"machine": machine, "command": "python -m bench", "paths": paths})
    assert f"| 1.0: {word} | 2.0 / 2.0 |" in made
    assert made.count("\n| ") == 1
    assert END not in made
