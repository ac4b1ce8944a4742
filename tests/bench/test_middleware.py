"""The program that measures middleware runs. Nothing here looks at how fast."""

from __future__ import annotations

import json

from bench.middleware import main, measure


def test_every_contest_has_its_ways():
    added = measure(count=20, rounds=1)
    assert set(added) == {"send", "await send", "handler", "await handler"}
    for ways in added.values():
        assert "empty" in ways
        assert "none" not in ways


def test_the_figures_are_printed_and_kept(tmp_path, capsys):
    main(["--count", "20", "--rounds", "1", "--json", str(tmp_path / "figures.json")])
    assert "an empty one:" in capsys.readouterr().out
    assert "empty" in json.loads((tmp_path / "figures.json").read_text())["send"]
