"""Pages install what there is: a clone. No package index has a release, and there the name is anybody's."""

import re

import pytest
from tests.docs.markdown_blocks import ROOT, chinese_pages, pages


@pytest.mark.parametrize(
    "page", [*pages(), *chinese_pages()], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_installs_from_the_clone(page):
    lines = re.findall(r"pip install [^`\n]*", page.read_text(encoding="utf-8"))
    by_name = re.compile(r"""[\s"']rocketwire\b(?!\.zip)""")
    assert [line for line in lines if by_name.search(line.split("#")[0].split("&&")[0])] == []
