"""The bar of work that is known in parts, on a terminal and elsewhere."""

import io

from rich.console import Console

from rocketwire.cli.invocation import Invocation
from rocketwire.cli.progress import PartsBar


def shown(is_terminal, *steps):
    text = io.StringIO()
    here = Invocation(errors=Console(file=text, width=90, force_terminal=is_terminal))
    with PartsBar(here, "replaying", "reading the records") as bar:
        for done, parts in steps:
            bar(done, parts)
    return text.getvalue()


def test_until_the_parts_are_known_it_tells_what_is_done_before():
    told = shown(True)
    assert "reading the records" in told
    assert "None" not in told


def test_then_it_counts_them():
    told = shown(True, (3, 13))
    assert "replaying" in told
    assert "3 of 13 parts" in told


def test_elsewhere_a_line_comes_only_now_and_then():
    assert shown(False, (1, 13), (2, 13)) == ""
