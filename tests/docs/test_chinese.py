"""Both languages have the same code, and the Chinese pages lead where they say."""

import re

import pytest
from tests.docs.markdown_blocks import CHINESE, ROOT, blocks_of, chinese_pages

PAIRS = chinese_pages()


def names(page):
    return str(page.relative_to(ROOT))


def visible(page):
    hidden = re.compile(r"<!-- run\n.*?-->", re.DOTALL)
    shown = hidden.sub("", page.read_text(encoding="utf-8"))
    return [block.code for block in blocks_of(page) if block.code in shown]


@pytest.mark.parametrize("page", PAIRS, ids=names)
def test_both_languages_have_the_same_code(page):
    # The first page is a table of the others.
    if page != CHINESE / "index.md":
        assert visible(page) == visible(PAIRS[page])


@pytest.mark.parametrize("page", PAIRS, ids=names)
def test_a_chinese_page_leads_to_pages_that_exist(page):
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).is_file(), link


def test_the_pages_that_readers_of_chinese_need_are_there():
    wanted = {
        "tutorial/from-zero-to-a-stream.md",
        "howto/from-java.md",
        "howto/selectors.md",
        "howto/ordering.md",
        "howto/spark-source.md",
        "explanation/queue-choice-and-faults.md",
    }
    assert {names(page).removeprefix("docs/zh/") for page in PAIRS} >= wanted
