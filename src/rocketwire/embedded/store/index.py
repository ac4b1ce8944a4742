"""The index: from a key, or a message's unique id, to places in the commit log.

An index file is a hash table on disk: a header, slots, and entries that are chained from the
newest to the oldest. Files fill up one after the other. They are mapped writable, which is why
their room is taken from the disk beforehand (see ``disk``).
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.disk import Disk
from rocketwire.embedded.store.failures import StoreError, StoreFullError
from rocketwire.embedded.store.fields import (
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEAD,
    INDEX_SLOT,
    INDEX_SLOT_SIZE,
    index_entries_at,
)
from rocketwire.embedded.store.layout import StoreSizes
from rocketwire.wire.java_hash import java_string_hash

_log: Final = logging.getLogger("rocketwire.embedded")
_MAX_INT: Final = 0x7FFFFFFF


def key_hash(topic: str, key: str) -> int:
    """The non-negative hash under which a key of a topic is filed."""
    value = abs(java_string_hash(f"{topic}#{key}"))
    return value if value <= _MAX_INT else 0


class IndexFile:
    """One file. The header's counts begin at 1 for entries: entry 0 means "none"."""

    def __init__(self, path: Path, sizes: StoreSizes, disk: Disk) -> None:
        self.path = path
        self._slots = sizes.index_slots
        self._capacity = sizes.index_entries
        self._entries_at = index_entries_at(sizes.index_slots)
        descriptor = disk.create(path, sizes.index_file)
        try:
            disk.reserve(descriptor, sizes.index_file)
            self._map = mmap.mmap(descriptor, sizes.index_file)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        (
            self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self._used_slots, count,
        ) = INDEX_HEAD.unpack_from(self._map)  # fmt: skip
        self.count = max(count, 1)

    @property
    def full(self) -> bool:
        """Whether the next key needs another file."""
        return bool(self.count >= self._capacity)

    def put(self, hashed: int, offset: int, store_ms: int) -> None:
        """File one key. The header is written by ``save``."""
        data, count = self._map, self.count
        slot_at = INDEX_HEAD.size + INDEX_SLOT_SIZE * (hashed % self._slots)
        (previous,) = INDEX_SLOT.unpack_from(data, slot_at)
        if not 0 < previous < count:
            previous = 0
            self._used_slots += 1
        if count == 1:
            self.begin_offset, self.begin_ms = offset, store_ms
        seconds = min(max((store_ms - self.begin_ms) // 1000, 0), _MAX_INT)
        INDEX_ENTRY.pack_into(
            data, self._entries_at + INDEX_ENTRY_SIZE * count, hashed, offset, seconds, previous
        )
        INDEX_SLOT.pack_into(data, slot_at, count)
        self.count = count + 1
        self.end_offset, self.end_ms = offset, store_ms

    def save(self) -> None:
        """Write the header: entries that it does not count do not exist."""
        INDEX_HEAD.pack_into(
            self._map, 0, self.begin_ms, self.end_ms, self.begin_offset, self.end_offset,
            self._used_slots, self.count,
        )  # fmt: skip

    def find(self, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Log offsets filed under a hash, newest first. Other keys may have the same hash."""
        (number,) = INDEX_SLOT.unpack_from(
            self._map, INDEX_HEAD.size + INDEX_SLOT_SIZE * (hashed % self._slots)
        )
        while 0 < number < self.count:
            found, offset, seconds, previous = INDEX_ENTRY.unpack_from(
                self._map, self._entries_at + INDEX_ENTRY_SIZE * number
            )
            at = self.begin_ms + seconds * 1000
            # Times were rounded down to the second.
            if found == hashed and begin_ms - 1000 < at <= end_ms:
                yield offset
            if at + 1000 <= begin_ms or previous >= number:
                break
            number = previous

    def covers(self, begin_ms: int, end_ms: int) -> bool:
        """Whether any of its messages may lie in a span of time."""
        return bool(self.count > 1 and self.begin_ms <= end_ms and self.end_ms >= begin_ms)

    def sync(self) -> None:
        """Header and all to the medium."""
        self.save()
        self._map.flush()

    def close(self) -> None:
        """Unmap."""
        self._map.close()


class Index:
    """All index files, oldest first."""

    def __init__(self, folder: Path, sizes: StoreSizes, disk: Disk) -> None:
        self.folder = folder
        self._sizes = sizes
        self._disk = disk
        self.files: list[IndexFile] = []

    def load(self, newest_synced_ms: int | None) -> None:
        """Open what is there.

        Args:
            newest_synced_ms: after a crash, the time up to which full files are certainly
                whole. The others are deleted, and filled again from the log. None after a
                clean end.
        """
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.iterdir()):
            if not path.name.isdigit() or path.stat().st_size != self._sizes.index_file:
                continue
            try:
                file = IndexFile(path, self._sizes, self._disk)
            except StoreFullError as error:
                # A full disk must not keep a broker from starting; keys can be indexed later.
                _log.warning("%s is left out: %s", path, error)
                continue
            if newest_synced_ms is not None and file.end_ms > newest_synced_ms:
                file.close()
                path.unlink()
                continue
            self.files.append(file)

    @property
    def indexed_to(self) -> int | None:
        """The log offset of the newest message in the index."""
        return self.files[-1].end_offset if self.files and self.files[-1].count > 1 else None

    @property
    def newest_ms(self) -> int:
        """The time of the newest message in the index, 0 when it is empty."""
        return self.files[-1].end_ms if self.files else 0

    def put(self, hashes: Sequence[int], offset: int, store_ms: int) -> IndexFile | None:
        """File the keys of one message; returns a file that has just become full."""
        filled = None
        for hashed in hashes:
            file = self.files[-1] if self.files else None
            if file is None or file.full:
                filled = file
                file = self._add_file()
            file.put(hashed, offset, store_ms)
        return filled

    def _add_file(self) -> IndexFile:
        name = datetime.now().astimezone().strftime("%Y%m%d%H%M%S%f")[:17]
        if self.files and name <= self.files[-1].path.name:
            name = str(int(self.files[-1].path.name) + 1)
        if self.files:
            self.files[-1].save()
        path = self.folder / name
        try:
            file = IndexFile(path, self._sizes, self._disk)
        except StoreError:
            # A file without its room would be mapped by the next start, and kill it.
            path.unlink(missing_ok=True)
            raise
        self.files.append(file)
        return file

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Log offsets of messages that may have the key, newest first."""
        hashed = key_hash(topic, key)
        for file in reversed(self.files):
            if file.covers(begin_ms, end_ms):
                yield from file.find(hashed, begin_ms, end_ms)

    def save(self) -> None:
        """Write the newest header, so that another process sees what is there."""
        if self.files:
            self.files[-1].save()

    def trim(self, log_start: int) -> None:
        """Delete the files all of whose messages the log has deleted."""
        while len(self.files) > 1 and self.files[0].end_offset < log_start:
            file = self.files.pop(0)
            file.close()
            file.path.unlink(missing_ok=True)

    def close(self, *, sync: bool) -> None:
        """Close all files; without ``sync`` as a killed process would."""
        for file in self.files:
            if sync:
                file.sync()
            file.close()
        self.files.clear()
