"""One writer at a time where a file system has no locks: a file that its holder keeps fresh.

The holder writes it anew every few seconds. One that was not written for a minute is left over from
a crash; another that comes waits until it sees one or the other. Ages are taken from the file
system's own clock, by a file that is written for comparison; whether a process still runs is not
asked, because containers share host names and not processes. A file system that can't refuse to
create a file twice is asked again after a moment: of two that came at once, the one whose words are
there goes on. Where neither's are, because they wrote at the same time, each waits for a time of
chance and writes again, unless the other was faster.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
import uuid
from typing import Any, Final, Self

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.small_files import HadoopFiles, place_beside

_log = logging.getLogger("rocketwire.spark")

_RENEW: Final = 15.0
_LOST_AFTER: Final = 60.0
#: How long another that came at the same time may take to write.
_SETTLE: Final = 0.5
_LOOK: Final = 1.0
#: How often two that came at once may write at the same moment; each time the odds are small.
_TRIES: Final = 5
#: How long writing a lock takes at most.
_AGAIN: Final = 0.1


class Lease:
    """The right to write an archive, held as long as it is entered."""

    def __init__(
        self,
        files: HadoopFiles,
        folder: str,
        note: dict[str, Any],
        *,
        renew: float = _RENEW,
        lost_after: float = _LOST_AFTER,
    ) -> None:
        self._files = files
        self._folder = folder
        self._path = place_beside(folder, "lock")
        self._text = json.dumps(note | {"lease": uuid.uuid4().hex})
        self._renew = renew
        self._lost_after = lost_after
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="rocketwire-lease", daemon=True)

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            ConfigError: another has it.
        """
        if not self._files.create(self._path, self._text):
            if self._is_alive():
                raise self._refused(self._holder())
            self._files.replace(self._path, self._text)
        for _ in range(_TRIES):
            time.sleep(_SETTLE)
            holder = self._files.glance(self._path)
            if holder == self._text:
                self._keeper.start()
                return self
            if _is_whole(holder):
                raise self._refused(holder)
            time.sleep(random.uniform(0, _SETTLE))
            if not _is_whole(self._files.glance(self._path)):
                self._files.replace(self._path, self._text)
        raise self._refused(None)

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._over.set()
        self._keeper.join(self._renew)
        if self._files.glance(self._path) == self._text:
            self._files.remove(self._path)

    def _keep(self) -> None:
        while not self._over.wait(self._renew):
            try:
                holder = self._files.glance(self._path)
                if holder != self._text and _is_whole(holder):
                    _log.error("%s: another process took the lock of this archive", self._path)
                    return
                self._files.replace(self._path, self._text)
            except Exception as error:  # noqa: BLE001 - the JVM may be gone; the next try may do
                _log.warning("%s was not renewed: %s", self._path, error)

    def _is_alive(self) -> bool:
        """Watch a lock until its holder writes it again, or is over."""
        seen = self._files.changed_at(self._path)
        if seen is None:
            return False
        rest = self._lost_after - (self._now() - seen) / 1000
        if rest > 0:
            _log.warning("%s is there: waiting to see whether its holder lives", self._path)
        end = time.monotonic() + rest
        while time.monotonic() < end:
            time.sleep(min(_LOOK, self._renew))
            written = self._files.changed_at(self._path)
            if written is None:
                return False
            if written != seen:
                return True
        return False

    def _holder(self) -> str | None:
        """What the living holder wrote. It may be writing just now, so half of it is read again."""
        text = None
        for _ in range(_TRIES):
            text = self._files.glance(self._path)
            if _is_whole(text):
                break
            time.sleep(_AGAIN)
        return text

    def _now(self) -> int:
        """The time by the file system's clock."""
        compared = f"{self._path}.{uuid.uuid4().hex}"
        self._files.replace(compared, "")
        now = self._files.changed_at(compared)
        self._files.remove(compared)
        assert now is not None  # it was written just now
        return now

    def _refused(self, holder: str | None) -> ConfigError:
        return ConfigError(
            f"folder {self._folder}: {holder_text(holder)} writes it at the moment; one at a time may. "
            "Wait for its end, name all topics in one run, or use another folder"
        )


def _is_whole(text: str | None) -> bool:
    """Whether a lock's file holds the words of one writer, all of them."""
    try:
        return "lease" in json.loads(text or "{}")
    except (ValueError, TypeError):
        return False


def holder_text(text: str | None) -> str:
    """Who holds a lock, by what its file says."""
    try:
        found = json.loads(text or "")
        return f"process {found['process']} on {found['host']} ({found['work']}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
