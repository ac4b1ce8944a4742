"""Whole pages, and the rule that all of them are made of one kit."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rocketwire.pages.document import (
    definitions,
    document,
    facts,
    header,
    made,
    section,
    summary,
    warnings,
    write_page,
)
from rocketwire.pages.drawing import ticks
from rocketwire.version import __version__

ROOT = Path(__file__).parents[3]
#: Whole documents, drawings, tables and style sheets; a diagram of the documentation is no page.
PIECES = re.compile(r"<!doctype|<svg|<table|<style|<details|prefers-color-scheme|<polyline")


def test_a_page_needs_no_network_and_fits_light_dark_and_narrow():
    page = document("a <title>", ["<p>one</p>", "", "<p>two</p>"], style=".x { }", footer="<end>")
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>a &lt;title&gt;</title>" in page
    assert "<p>one</p>\n<p>two</p>\n<footer>&lt;end&gt;</footer>" in page
    for word in ("prefers-color-scheme: dark", "max-width: 760px", 'name="viewport"', ".x { }"):
        assert word in page
    assert re.search(r"http|url\(|@import|src=", page) is None


@pytest.mark.parametrize(
    "part",
    [
        header("<k>", "<k>"),
        summary(["<k>"]),
        warnings([("<k>", "<k>")]),
        facts([("<k>", "<k>", "<k>")]),
        section("<k>", "<k>"),
        definitions("<k>", [("<k>", "<k>")]),
    ],
)
def test_words_are_escaped_in_every_part(part):
    assert "<k>" not in part
    assert "&lt;k&gt;" in part


def test_a_page_says_by_what_and_when_it_was_made():
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert made(at) == f"Rocketwire {__version__}, 2026-01-02 03:04."
    assert made(at, "More.") == f"Rocketwire {__version__}, 2026-01-02 03:04. More."


def test_a_tick_at_the_right_end_does_not_widen_a_narrow_page():
    drawn = ticks([(0.0, "a"), (0.5, "b"), (1.0, "c")])
    assert re.findall(r'<span class="([^"]*)"', drawn) == ["tick", "tick spare", "tick edge"]
    assert ".tick.edge" in document("", [])


def test_a_page_is_put_in_place_whole(tmp_path):
    page = tmp_path / "deep" / "page.html"
    write_page(page, "one")
    write_page(page, "two")
    assert page.read_text() == "two"
    assert list(page.parent.iterdir()) == [page]


def test_no_other_room_makes_documents_drawings_or_tables_of_its_own():
    kit = ROOT / "src" / "rocketwire" / "pages"
    modules = [*(ROOT / "src").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    found = [
        str(module.relative_to(ROOT))
        for module in modules
        if kit not in module.parents and PIECES.search(module.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_page_has_no_character_that_steers_what_shows_it(tmp_path):
    page = tmp_path / "page.html"
    write_page(page, "broker \x1b[31m\u202e\x9b\udc80\n\tcafé")
    assert page.read_text(encoding="utf-8") == "broker \ufffd[31m\ufffd\ufffd?\n\tcafé"
