"""Puts the small files of a closed day together.

Whoever reads the archive must see each row once at any moment, and readers only list folders. So
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

_log = logging.getLogger("rocketwire.spark")

_SMALL: Final = 64 * 1024 * 1024
_TARGET: Final = 256 * 1024 * 1024
_FEW: Final = 2
_HERE: Final = -100  # AT_FDCWD
_EXCHANGE: Final = 2  # RENAME_EXCHANGE


def compact(folder: str | Path, *, today: str | None = None) -> int:
    """Join small files of days that are over; returns how many files that made fewer.

    Args:
        folder: the archive.
        today: the first day that is still open, ``2026-01-31``; the present one (UTC) by default.
    """
    if "://" in str(folder):
        return 0
    root = Path(folder).resolve()
    first_open = today or datetime.now(UTC).strftime("%Y-%m-%d")
    saved = 0
    workshop = root.with_name(f".{root.name}.compacting")
    # What a crash left behind: nothing in there is not elsewhere, too.
    shutil.rmtree(workshop, ignore_errors=True)
    for day in sorted(root.glob("topic=*/date=*")):
        if day.name.removeprefix("date=") < first_open:
            saved += _compact_day(day, workshop)
    return saved


def _compact_day(day: Path, workshop: Path) -> int:
    files = sorted(day.glob("*.parquet"))
    small = [path for path in files if path.stat().st_size < _SMALL]
    if len(small) < _FEW:
        return 0
    making = workshop / day.name
    try:
        making.mkdir(parents=True)
    except OSError as error:
        _log.warning("%s is not compacted: no folder can be made beside it (%s)", day, error)
        return 0
    try:
        made = _join(small, making)
        for path in files:
            if path not in small:
                (making / path.name).hardlink_to(path)
        if not _exchange(making, day):
            return 0
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return len(small) - made


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
