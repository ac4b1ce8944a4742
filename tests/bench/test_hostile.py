"""The run of hostile inputs counts all of them, and a decoder that fails ends it."""

from __future__ import annotations

import json

import pytest

from bench import hostile


def test_every_decoder_has_its_share_and_every_input_is_counted(capsys) -> None:
    total = len(hostile.DECODERS) * 20 + 3
    assert hostile.main(["--total", str(total), "--processes", "1", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert set(counts) == set(hostile.DECODERS)
    assert sum(count["inputs"] for count in counts.values()) == total
    assert all(c["taken"] + c["refused"] == c["inputs"] >= 20 for c in counts.values())


def test_an_error_that_is_not_ours_names_decoder_seed_and_input(monkeypatch) -> None:
    def fail(_: bytes) -> None:
        raise IndexError("beyond the end")

    monkeypatch.setitem(hostile.DECODERS, "record", (fail, [b"x"]))
    with pytest.raises(hostile.HostileInputError, match="record, seed 7: IndexError"):
        hostile.run_piece(("record", 5, 7))
