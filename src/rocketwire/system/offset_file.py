"""Where a broadcasting consumer keeps how far it has come: a small file of its own.

Each member has one. Several members of a group on one machine take the first file that no other
process holds, so that after a restart each finds one of those that were there before.

A file is replaced as a whole, after the new one is safe on the disk: whatever happens, there is
either the old one or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue

_MOST: Final = 1024


class OffsetFile:
    """The offsets of one broadcasting member. Held by one process at a time."""

    def __init__(self, folder: str | None, group: str) -> None:
        """Take the first free file of a group and read it.

        Args:
            folder: where it lies; ``~/.rocketwire/offsets`` by default.
            group: the consumer group.

        Raises:
            ConfigError: the folder or the file can't be used.
        """
        where = Path(folder) if folder else Path("~/.rocketwire/offsets").expanduser()
        try:
            where.mkdir(parents=True, exist_ok=True)
            self._lock, self.path = _take_slot(where, quote(group, safe=""))
        except OSError as error:
            raise ConfigError(
                f"offsets_folder {str(where)!r} can't be used: {error}; give one that can be "
                "written to"
            ) from None
        try:
            self._offsets = _read(self.path)
        except BaseException:
            self.close()
            raise

    def get(self, queue: MessageQueue) -> int | None:
        """The offset to go on at, if any was kept."""
        return self._offsets.get(queue)

    def knows(self, topic: str) -> bool:
        """Whether an offset of any queue of a topic was kept."""
        return any(queue.topic == topic for queue in self._offsets)

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep these, and those that were kept before of other queues.

        Raises:
            OSError: it could not be written; the old file stays.
        """
        self._offsets |= offsets
        rows = [
            {"topic": q.topic, "broker": q.broker, "queue": q.id, "offset": offset}
            for q, offset in sorted(self._offsets.items())
        ]
        fresh = self.path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({"offsets": rows}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        _sync_folder(self.path.parent)

    def close(self) -> None:
        """Leave the file to the next one."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    @property
    def descriptor(self) -> int:
        """The number of the file that is held; -1 when none is."""
        return self._lock


def _take_slot(folder: Path, name: str) -> tuple[int, Path]:
    for number in range(_MOST):
        descriptor = os.open(folder / f"{name}.{number}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        if _lock(descriptor):
            return descriptor, folder / f"{name}.{number}.json"
        os.close(descriptor)
    raise OSError(f"all {_MOST} files of this group are in use")


def _lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows: nobody forks there, and one member per folder is the rule
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> dict[MessageQueue, int]:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            MessageQueue(row["topic"], row["broker"], int(row["queue"])): int(row["offset"])
            for row in content["offsets"]
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the offsets in {str(path)!r} can't be read ({error}): mend the file, or delete it "
            "to begin where start says"
        ) from None


def _sync_folder(folder: Path) -> None:
    """Make the new name itself safe, where folders can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
