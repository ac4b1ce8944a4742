"""Puts the small files of a closed day together.

Readers of the archive must see each row once at any moment, and they only list folders. So
the new files are made in a hidden folder beside the archive (within it, DuckDB would find them:
its patterns match hidden names, too), and the folders change places in one step. Only Linux has that
step, and only for local folders of one file system; elsewhere files stay as they are.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import logging
import os
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from rocketwire.spark.pipelines.archive_files import bring_to_disk, escape
from rocketwire.spark.pipelines.small_files import local_path

_log = logging.getLogger("rocketwire.spark")

_SMALL: Final = 64 * 1024 * 1024
_TARGET: Final = 256 * 1024 * 1024
_FEW: Final = 2
#: In a day's folder while it is exchanged: the names of the files that the new ones replace.
_LISTED: Final = ".compacted"
_HERE: Final = -100  # AT_FDCWD
_EXCHANGE: Final = 2  # RENAME_EXCHANGE


def compact(
    folder: str | Path, *, topics: Iterable[str] | None = None, today: str | None = None
) -> int:
    """Join small files of days that are over; returns how many files that made fewer.

    The caller holds the archive's lock.

    Args:
        folder: the archive.
        topics: whose days; of all topics that the folder has by default.
        today: the first day that is still open, ``2026-01-31``; the present one (UTC) by default.
    """
    place = local_path(folder)
    if place is None:
        return 0
    root = place.resolve()
    first_open = today or datetime.now(UTC).strftime("%Y-%m-%d")
    own = None if topics is None else {f"topic={escape(topic)}" for topic in topics}
    saved = 0
    workshop = root.with_name(f".{root.name}.compacting")
    _tidy_up(root, workshop)
    for day in sorted(root.glob("topic=*/date=*")):
        is_mine = own is None or day.parent.name in own
        if is_mine and day.name.removeprefix("date=") < first_open:
            saved += _compact_day(day, workshop)
    return saved


def _tidy_up(root: Path, workshop: Path) -> None:
    """Remove what a crash left behind, once what came late is back in its place."""
    for place in sorted(workshop.glob("topic=*/date=*")):
        before = place / _LISTED
        if before.exists():
            listed = set(before.read_text(encoding="utf-8").splitlines())
            _bring_back(place, root / place.parent.name / place.name, listed)
    shutil.rmtree(workshop, ignore_errors=True)


def _compact_day(day: Path, workshop: Path) -> int:
    files = sorted(day.glob("*.parquet"))
    small = [path for path in files if path.stat().st_size < _SMALL]
    if len(small) < _FEW:
        return 0
    making = workshop / day.parent.name / day.name
    try:
        making.mkdir(parents=True)
    except OSError as error:
        _log.warning("%s is not compacted: no folder can be made beside it (%s)", day, error)
        return 0
    may_hold_others = False
    try:
        made = _join(small, making)
        for path in files:
            if path not in small:
                (making / path.name).hardlink_to(path)
        # The originals go after this, so what replaces them must outlive a loss of power.
        for path in making.glob("*.parquet"):
            bring_to_disk(path)
        # Where the old folder will be, for the look after the exchange, or after a crash.
        listed = {path.name for path in files}
        bring_to_disk(making)
        (day / _LISTED).write_text("\n".join(sorted(listed)), encoding="utf-8")
        bring_to_disk(day / _LISTED)
        may_hold_others = True
        if not _exchange(making, day):
            may_hold_others = False
            (day / _LISTED).unlink()
            return 0
        bring_to_disk(day.parent)
        _bring_back(making, day, listed)
        may_hold_others = False
    finally:
        if not may_hold_others:  # else the next run looks first
            shutil.rmtree(workshop, ignore_errors=True)
    return len(small) - made


def _bring_back(left: Path, day: Path, listed: set[str]) -> None:
    """A look after the exchange: what came into the old folder meanwhile goes into the new one."""
    for path in sorted(left.iterdir()):
        if path.name not in listed and path.name != _LISTED:
            _log.warning("%s came while its day was compacted, and is kept", path.name)
            path.rename(day / path.name)
    bring_to_disk(day)


def _join(files: Iterable[Path], target: Path) -> int:
    """Write the rows of some files into few; those with different columns stay apart."""
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(str(pq.read_schema(path).remove_metadata()), []).append(path)
    made = 0
    for members in groups.values():
        current: list[Path] = []
        size = 0
        for path in members:
            if current and size + path.stat().st_size > _TARGET:
                _write(current, target)
                made, current, size = made + 1, [], 0
            current.append(path)
            size += path.stat().st_size
        _write(current, target)
        made += 1
    return made


def _write(files: list[Path], target: Path) -> None:
    mark = hashlib.blake2s("".join(p.name for p in files).encode(), digest_size=8).hexdigest()
    schema = pq.read_schema(files[0])
    with pq.ParquetWriter(target / f"c-{mark}.parquet", schema, compression="zstd") as writer:
        for path in files:
            with pq.ParquetFile(path) as source:
                for batch in source.iter_batches():
                    writer.write_batch(batch)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; False where the system can't."""
    library = ctypes.CDLL(ctypes.util.find_library("c") or None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        _log.warning("%s is not compacted: this system can't exchange folders", other)
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) != 0:
        reason = os.strerror(ctypes.get_errno())
        _log.warning("%s is not compacted: folders can't be exchanged here (%s)", other, reason)
        return False
    return True
