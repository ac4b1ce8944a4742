"""The picture on the first page: one run, drawn for wide screens and for telephones."""

import re

import pytest
from tests.docs.markdown_blocks import ROOT

IMAGES = ROOT / "docs" / "images"
PAGES = ["README.md", "README.zh-CN.md", "docs/index.md", "docs/zh/index.md"]
#: Of a telephone's 400 pixels a page leaves so many to a picture.
TELEPHONE = 360
LEAST_WORDS = 9.0


def lines(name):
    """Each line's points, as parts of the drawing's own time and height."""
    text = (IMAGES / name).read_text(encoding="utf-8")
    across = [
        float(x) for x in re.search(r'<line class="grid" x1="(\d+)" x2="(\d+)"', text).groups()
    ]
    levels = [float(y) for y in re.findall(r'<line class="grid" [^>]*y1="([\d.]+)"', text)]
    (left, right), (top, bottom) = across, (min(levels), max(levels))
    return [
        [
            ((float(x) - left) / (right - left), (float(y) - top) / (bottom - top))
            for x, y in (point.split(",") for point in points.split())
        ]
        for points in re.findall(r'<polyline [^>]*points="([^"]*)"', text)
    ]


def test_both_drawings_show_the_same_run():
    wide, narrow = lines("demo-latency.svg"), lines("demo-latency-narrow.svg")
    assert len(wide) == len(narrow) == 2
    for one, other in zip(wide, narrow, strict=True):
        assert len(one) == len(other) > 50
        for (x, y), (other_x, other_y) in zip(one, other, strict=True):
            assert (x, y) == pytest.approx((other_x, other_y), abs=0.002)


def test_words_of_the_narrow_one_are_legible_on_a_telephone():
    text = (IMAGES / "demo-latency-narrow.svg").read_text(encoding="utf-8")
    width = float(re.search(r'viewBox="0 0 (\d+) ', text)[1])
    sizes = [float(size) for size in re.findall(r"(\d+)px", text)]
    assert min(sizes) * TELEPHONE / width >= LEAST_WORDS


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_one_that_fits(page):
    path = ROOT / page
    narrow, wide = re.search(
        r'<source media="\(max-width: 600px\)" srcset="([^"]+)">\s*<img src="([^"]+)"',
        path.read_text(encoding="utf-8"),
    ).groups()
    assert (path.parent / narrow).resolve() == IMAGES / "demo-latency-narrow.svg"
    assert (path.parent / wide).resolve() == IMAGES / "demo-latency.svg"
