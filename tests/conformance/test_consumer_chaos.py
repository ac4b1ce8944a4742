"""Members come, go and are killed, a broker dies and returns: nothing is missed, order holds.

The long run is ``python -m bench.consumer_storm``; ``ROCKETWIRE_CHAOS`` sets the number of messages.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from bench.consumer_storm import Handled, Outcome, run_storm
from tests.conformance.conftest import REAL
from tests.real import jars

from bench import consumer_storm

COUNT = int(os.environ.get("ROCKETWIRE_CHAOS", "4000"))

_log = logging.getLogger("chaos")

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    "release", ["embedded", *(pytest.param(v, marks=pytest.mark.real) for v in REAL)]
)
@pytest.mark.parametrize("kind", ["concurrent", "ordered"])
def test_nothing_is_missed_while_members_and_brokers_come_and_go(
    kind: str, release: str, tmp_path: Path
) -> None:
    if release in REAL:
        jars.require_tools(release)
    found = run_storm(release, "mixed", kind, count=COUNT, spread=15.0, folder=tmp_path)
    _log.info("%s", found)
    assert found.sent == COUNT
    assert found.missed == 0
    assert found.killed >= 1
    assert found.broker_restarts >= 1
    if kind == "ordered":
        assert found.skipped == 0


class Noted:
    """What a crowd would have noted."""

    joined = left = killed = 0

    def __init__(self, *offsets: int) -> None:
        self._calls = [Handled("a", 0, offset, str(offset)) for offset in offsets]

    def handled(self) -> list[Handled]:
        return self._calls


@pytest.mark.parametrize(
    ("offsets", "missed", "again", "skipped", "back"),
    [
        ((0, 1, 2), 0, 0, 0, 0),
        ((0, 1, 0, 1, 2), 0, 2, 0, 1),
        ((0, 2, 1), 0, 0, 1, 1),
        ((0, 1), 1, 0, 0, 0),
        ((1, 2), 1, 0, 1, 0),
    ],
)
def test_a_storm_is_judged_by_what_was_noted(offsets, missed, again, skipped, back):
    sent = {"0", "1", "2"}
    found: Outcome = consumer_storm._judge(
        ("embedded", "mixed", "ordered"), Noted(*offsets), sent, 1, 1.0
    )
    assert (found.missed, found.again, found.skipped) == (missed, again, skipped)
    assert found.stepped_back == back
    assert found.is_good == (not missed and not skipped)
