"""Who holds an archive's lock is told, also where its file is read while the holder writes it anew."""

from __future__ import annotations

import json

import pytest

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.archive_lease import Lease

HOLDER = {"process": 7, "host": "h", "since": "now", "work": "archive"}
WHOLE = json.dumps(HOLDER | {"lease": "x"})


class LivelyFiles:
    """A folder with a lock that its holder writes all the time; each look finds the next text."""

    def __init__(self, *looks: str | None) -> None:
        self.looks = list(looks)
        self.written = 0

    def create(self, path: str, text: str) -> bool:
        return False

    def changed_at(self, path: str) -> int:
        self.written += 1
        return self.written

    def replace(self, path: str, text: str) -> None:
        assert not path.endswith(".lock"), "a living holder's lock was written over"

    def remove(self, path: str) -> None:
        assert not path.endswith(".lock"), "a living holder's lock was removed"

    def glance(self, path: str) -> str | None:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def refusal(*looks: str | None) -> str:
    files = LivelyFiles(*looks)
    with pytest.raises(ConfigError) as caught:
        Lease(files, "s3a://bucket/lake", {}, renew=0.01).__enter__()  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("half", ["", WHOLE[:20], None])
def test_a_lock_that_is_being_written_is_read_again(half: str | None) -> None:
    assert "process 7 on h (archive, since now) writes it" in refusal(half, half, WHOLE)


def test_a_lock_that_tells_nobody_is_told_as_such() -> None:
    assert "another process writes it" in refusal("")
