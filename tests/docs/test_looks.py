"""The pages of reports: they fit a telephone and are readable, light and dark, in a real browser."""

import sys

import pytest
from tests.docs.markdown_blocks import ROOT

from rocketwire.pages.document import (
    definitions,
    document,
    facts,
    header,
    section,
    summary,
    warnings,
)
from rocketwire.pages.drawing import panel, ticks

sys.path.insert(0, str(ROOT / "tools"))
from browser import Browser, find_browser
from screenshots import look

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(find_browser() is None, reason="there is no browser on this machine"),
]


@pytest.fixture(scope="module")
def browser():
    with Browser(find_browser()) as browser:
        yield browser


def seen(browser, tmp_path, *parts, style=""):
    page = tmp_path / "page.html"
    page.write_text(document("a page", parts, style=style, footer="made by a test"))
    return look(browser, page, tmp_path, "page")


def test_every_part_of_a_page_is_readable(browser, tmp_path):
    marks = [(0.0, "1"), (0.5, "100"), (1.0, "10k")]
    parts = (
        header("of a test", "What it found"),
        summary(["The first is large.", "The second is not."]),
        warnings([("Beware", "of this")]),
        facts([("Sends", "3,926", "165/s")]),
        section("Growth", "How to read it.", panel("broker-a", ["12 sends"], ticks(marks))),
        definitions("The words", [("Size", "How many.")], is_open=True),
    )
    assert seen(browser, tmp_path, *parts) == []


def test_words_that_fade_are_found(browser, tmp_path):
    told = seen(browser, tmp_path, '<p class="pale">half of it</p>', style=".pale { opacity: .4; }")
    assert len(told) == 4
    assert all("contrast P" in words for words in told)


def test_a_page_that_is_too_wide_is_found(browser, tmp_path):
    told = seen(browser, tmp_path, '<div style="width: 700px">wide</div>')
    assert [words for words in told if "scrolls sideways" in words]


def test_the_names_of_policies_that_are_alike_fit_a_telephone(browser, tmp_path):
    pytest.importorskip("pyspark")
    from rocketwire.spark.policy_lab.page import _STYLE
    from rocketwire.spark.policy_lab.plots import _dot_names

    # A mark that lies across the middle, with the names of four policies.
    names = [
        (name, 0.3, 0.6, 0.5)
        for name in ("recorded (floor 0.1, relative 8)", "java4", "java5", "off")
    ]
    names.append(("default", 0.9, 0.95, 0.9))
    plot = f'<div class="plot tall frontier">{_dot_names(names)}</div>'
    assert seen(browser, tmp_path, panel("left out", [], plot), style=_STYLE) == []
