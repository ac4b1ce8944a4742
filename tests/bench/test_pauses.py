"""Pauses of an event loop are found, whole and without what happened between two beats."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from bench.pauses import Metronome, judge, lines, main

from bench import pauses


def test_every_moment_of_a_pause_counts() -> None:
    moments = iter([0.0])
    metronome = Metronome(lambda: next(moments))
    metronome._due = 0.001
    metronome.count(0.0005)
    assert metronome.late == []
    metronome.count(0.0042)
    assert metronome.late == pytest.approx([0.0032, 0.0022, 0.0012, 0.0002])


def test_a_rare_pause_is_the_longest_but_not_what_most_moments_see() -> None:
    found = judge([0.5] + [0.001] * 1999, 2.0)
    assert (found.longest, found.p999) == (0.5, 0.001)
    assert judge([], 0.0).longest == 0.0


def test_a_call_that_blocks_is_heard_in_full() -> None:
    async def block() -> None:
        time.sleep(0.05)

    found = asyncio.run(pauses._watched(block, least=0.0))
    assert found.longest >= 0.048


def test_a_call_that_waits_is_run_until_it_was_heard_often_enough() -> None:
    times = 0

    async def wait() -> None:
        nonlocal times
        times += 1
        await asyncio.sleep(0.002)

    found = asyncio.run(pauses._watched(wait, least=0.02))
    assert times > 1
    assert found.seconds >= 0.002


def test_the_command_runs_every_kind_of_call(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pauses, "_LEAST", 0.0)
    file = tmp_path / "pauses.json"
    some = "nothing,start,at once,3 MB,list,Reader"
    assert main(["--rounds", "1", "--only", some, "--json", str(file)]) == 0
    found = json.loads(file.read_text())["pauses"]
    assert {"nothing", "send of 3 MB of text", "AsyncReader.read of 10,000"} <= found.keys()
    said = capsys.readouterr().out
    assert all(name in said for name in found)
    assert "longest ms" in lines({})[0]


@pytest.mark.parametrize("words", [["--rounds", "0"], ["--only", "odd"]])
def test_wrong_arguments_are_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "--" in capsys.readouterr().err
