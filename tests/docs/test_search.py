"""The built pages: the search works in pages that are opened as files, with the network off.

Words are looked for in a browser, where there is one; ``ROCKETWIRE_BROWSER`` names it.
"""

import json
import os
import subprocess
import sys

import pytest
from tests.docs.markdown_blocks import ROOT
from tests.docs.test_java_words import WORDS as JAVA_WORDS

sys.path.insert(0, str(ROOT / "tools"))
from browser import Browser, find_browser

pytestmark = pytest.mark.timeout(300)
needs_browser = pytest.mark.skipif(
    find_browser() is None, reason="there is no browser on this machine"
)

#: What is looked for, and a page that must be among the first answers.
WORDS = {
    "MQFaultStrategy": "howto/from-java.html",
    "retries": "reference/api/producers.html",
    "send_many": "reference/api/producers.html",
    "顺序消息": "zh/howto/ordering.html",
    "故障规避": "zh/explanation/queue-choice-and-faults.html",
}
_ASK = """
(() => {
  const toggle = document.querySelector("#__search");
  toggle.checked = true;
  toggle.dispatchEvent(new Event("change"));
  const field = document.querySelector("[data-md-component=search-query]");
  field.focus();
  field.value = WORD;
  field.dispatchEvent(new Event("keyup"));
})()
"""
_FOUND = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
_IN_THE_PAGE_FROM_JAVA = """
[...document.querySelectorAll('.md-search-result__link')].some(
  (link) => link.href.includes("howto/from-java.html") && link.textContent.toLowerCase().includes(WORD.toLowerCase()))
"""
_FETCHED = "performance.getEntriesByType('resource').map(entry => entry.name)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation, built."""
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)],
        cwd=ROOT,
        check=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        timeout=200,
    )
    return target


@pytest.fixture(scope="module")
def browser():
    with Browser(find_browser()) as browser:
        yield browser


def test_all_pages_build_and_every_link_leads_somewhere(site):
    assert (site / "reference" / "api" / "producers.html").is_file()
    assert (site / "zh" / "index.html").is_file()


@needs_browser
@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_found_in_pages_opened_as_files(site, browser, word):
    browser.open((site / "index.html").as_uri())
    browser.evaluate(_ASK.replace("WORD", json.dumps(word)))
    browser.wait_for(f"{_FOUND}.length > 0")
    pages = [link.split("#")[0].split("?")[0] for link in browser.evaluate(_FOUND)]
    assert (site / WORDS[word]).as_uri() in pages
    assert all(name.startswith("file:") for name in browser.evaluate(_FETCHED))


@needs_browser
def test_every_word_of_java_is_found_with_its_row(site, browser):
    browser.open((site / "index.html").as_uri())
    missing = []
    for word in JAVA_WORDS:
        browser.evaluate(_ASK.replace("WORD", json.dumps(word)))
        # The answer to the word before may still stand there, so the word itself is looked for.
        try:
            browser.wait_for(_IN_THE_PAGE_FROM_JAVA.replace("WORD", json.dumps(word)))
        except TimeoutError:
            missing.append(word)
    assert missing == []
