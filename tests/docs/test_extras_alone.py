"""Pages about an extra, run as a new user would: in an environment with what the page says to install.

Slow, and it needs a package index: ``make test-full`` runs it (``ROCKETWIRE_EXTRAS=1``).
"""

import os
import re
import shlex
import subprocess
import sys
import venv

import pytest
from tests.docs.markdown_blocks import ROOT, blocks_of, commands_of
from tests.docs.test_code_blocks import Page, make_place

from rocketwire.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.skipif("ROCKETWIRE_EXTRAS" not in os.environ, reason="make test-full runs it"),
    pytest.mark.timeout(900),
]
#: Of the page's second half, for which it says to install this instead.
OTHERS = {"outbox": ["django"]}
PAGES = ["opentelemetry", "prometheus", "celery", "outbox"]


def wanted(page):
    """What the page's own lines install, from this clone."""
    found = []
    for block in blocks_of(page):
        for command in commands_of(block.code) if block.language == "console" else ():
            if command.startswith("pip install "):
                words = shlex.split(command, comments=True)[2:]
                found += [re.sub(r"^\./rocketwire\b", str(ROOT), word) for word in words]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs_with_what_it_says_to_install(name, tmp_path):
    page = ROOT / "docs" / "howto" / f"{name}.md"
    assert wanted(page), "the page does not say what to install"
    venv.create(tmp_path / "alone", with_pip=True)
    python = tmp_path / "alone" / "bin" / "python"
    more = OTHERS.get(name, [])
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *constraints, *wanted(page), *more],
        check=True,
        timeout=600,
    )
    packages = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout  # fmt: skip
    assert "pyspark" not in packages
    assert os.path.realpath(python.parent) != os.path.realpath(os.path.dirname(sys.executable))
    with EmbeddedCluster(3) as cluster:
        shown = Page(page, cluster, make_place(tmp_path / "place", python), str(python))
        # What is installed counts, not the sources.
        del shown.environment["PYTHONPATH"]
        shown.run()
