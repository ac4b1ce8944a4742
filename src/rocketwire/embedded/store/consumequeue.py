"""Consume queues: for each topic and queue, where its messages lie in the commit log.

A queue is an index that the commit log can rebuild. So its newest units stay in memory until
there are enough of them for one write, or until the store flushes; a crash loses them, and
``recovery`` puts them back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.disk import Disk, OpenFiles
from rocketwire.embedded.store.failures import StoreError
from rocketwire.embedded.store.fields import BLANK_UNIT, UNIT, UNIT_SIZE
from rocketwire.embedded.store.layout import file_name

#: Units held back in memory before they are written, in bytes.
_TAIL_LIMIT: Final = 1024 * UNIT_SIZE


class ConsumeQueue:
    """The units of one queue, from ``minimum`` to ``maximum``."""

    __slots__ = (
        "_dirty",
        "_disk",
        "_files",
        "_names",
        "_place",
        "_tail",
        "_written",
        "file_size",
        "folder",
        "maximum",
        "minimum",
    )

    def __init__(self, folder: Path, file_size: int, disk: Disk, files: OpenFiles) -> None:
        self.folder = folder
        self._place = str(folder)
        self.file_size = file_size
        self._disk = disk
        self._files = files
        #: Start offsets in bytes of the files that exist, in order.
        self._names = sorted(
            int(p.name) for p in folder.glob("[0-9]*") if len(p.name) == 20 and p.name.isdigit()
        )
        self._tail = bytearray()
        #: Files that may not be on the medium, and how often each was written to.
        self._dirty: dict[int, int] = {}
        self.minimum = (self._names[0] // UNIT_SIZE) if self._names else 0
        #: Bytes that are in files; the tail follows on them.
        self._written = self._names[-1] + file_size if self._names else 0
        self.maximum = self._written // UNIT_SIZE

    def append(self, units: bytes) -> None:
        """Add units at the end. They can be read at once."""
        self._tail += units
        self.maximum += len(units) // UNIT_SIZE
        if len(self._tail) >= _TAIL_LIMIT:
            # The message is in the log already. If the disk has no room for its unit now, the
            # tail keeps it until there is some.
            with contextlib.suppress(StoreError):
                self.write_out()

    def write_out(self) -> None:
        """Put the tail into files. Not yet on the medium: see ``hand_over``."""
        while self._tail:
            start = self._written // self.file_size * self.file_size
            room = start + self.file_size - self._written
            part = bytes(self._tail[:room])
            descriptor = self._descriptor(start)
            self._disk.write(descriptor, part, self._written - start)
            self._soil(start)
            self._written += len(part)
            del self._tail[:room]

    def _descriptor(self, start: int) -> int:
        if not self._names or self._names[-1] < start:
            self._names.append(start)
        return self._files.descriptor(f"{self._place}/{start:020d}", self.file_size)

    def _soil(self, start: int) -> None:
        self._dirty[start] = self._dirty.get(start, 0) + 1

    def hand_over(self, take: Callable[[int, int], None]) -> Callable[[], None]:
        """Give the descriptor of each file that was written, and its length, to be synced.

        Returns:
            What to call when that has succeeded. Until then the files count as written: of a
            sync that failed, the next one has to do everything again.
        """
        given = dict(self._dirty)
        for start in given:
            take(self._descriptor(start), min(self._written - start, self.file_size))

        def settle() -> None:
            for start, writes in given.items():
                if self._dirty.get(start) == writes:
                    del self._dirty[start]

        return settle

    @property
    def dirty(self) -> bool:
        """Whether ``write_out`` or ``sync`` has something to do."""
        return bool(self._tail or self._dirty)

    def read(self, offset: int, count: int) -> bytes:
        """Units from an offset on, at most so many; fewer at the end of a file or of the queue."""
        first = offset * UNIT_SIZE
        last = min(first + count * UNIT_SIZE, self.maximum * UNIT_SIZE)
        if first >= self._written:
            return bytes(self._tail[first - self._written : last - self._written])
        start = first // self.file_size * self.file_size
        size = min(last, self._written, start + self.file_size) - first
        if size <= 0:
            return b""
        units = os.pread(self._descriptor(start), size, first - start)
        if first + size < last and first + size == self._written:
            units += bytes(self._tail[: last - self._written])
        return units

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Log offset, size and tags code of one message."""
        if not self.minimum <= offset < self.maximum:
            return None
        found: tuple[int, int, int] = UNIT.unpack(self.read(offset, 1))
        return found

    def units(self, offset: int, count: int) -> Iterator[tuple[int, int, int]]:
        """The same for several; an iterator over what ``read`` gives."""
        data = self.read(offset, count)
        return UNIT.iter_unpack(data)

    def first_at_or_after(self, log_offset: int) -> int:
        """The first queue offset whose message lies at or behind a place in the log."""
        low, high = self.minimum, self.maximum
        while low < high:
            middle = (low + high) // 2
            unit = UNIT.unpack(self.read(middle, 1))
            if unit[1] and unit[1] != 0x7FFFFFFF and unit[0] >= log_offset:
                high = middle
            else:
                low = middle + 1
        return low

    def cut(self, sound: Callable[[int, int, int], bool], *, clean: bool) -> None:
        """Forget everything from the first unsound unit on.

        Args:
            sound: tells of an offset, a place in the log and a size whether the log agrees.
                It must be so of every unit that was synced, and not of one that never was:
                then a binary search is right even after a power failure.
            clean: whether the store was closed properly. Then the rest of the file is known to
                be zero and is left alone, which keeps a start fast.
        """
        low, high = self.minimum, self.maximum
        while low < high:
            middle = (low + high) // 2
            position, size, _ = UNIT.unpack(self.read(middle, 1))
            if sound(middle, position, size):
                low = middle + 1
            else:
                high = middle
        wipe = not clean or (low < self.maximum and any(self.read(low, 1)))
        self._truncate(low, wipe=wipe)

    def restart_at(self, offset: int) -> None:
        """Forget everything, and begin at an offset: older messages are gone."""
        self._truncate(self.minimum, wipe=True)
        first = offset * UNIT_SIZE // self.file_size * self.file_size
        self._written = first
        self._tail[:] = BLANK_UNIT * (offset - first // UNIT_SIZE)
        self.minimum = self.maximum = offset

    def _truncate(self, offset: int, *, wipe: bool) -> None:
        end = offset * UNIT_SIZE
        self._tail.clear()
        while self._names and self._names[-1] >= end:
            path = self.folder / file_name(self._names.pop())
            self._files.forget(path)
            path.unlink(missing_ok=True)
        if wipe and self._names and end < self._names[-1] + self.file_size:
            start = self._names[-1]
            descriptor = self._descriptor(start)
            os.ftruncate(descriptor, end - start)
            os.ftruncate(descriptor, self.file_size)
            self._soil(start)
        self._written = end
        self.maximum = offset
        self.minimum = min(self.minimum, offset)
        for start in set(self._dirty).difference(self._names):
            del self._dirty[start]

    def trim(self, log_start: int) -> None:
        """Forget the messages that the log has deleted, and the files that only held those."""
        self.minimum = self.first_at_or_after(log_start)
        while len(self._names) > 1 and self._names[1] <= self.minimum * UNIT_SIZE:
            start = self._names.pop(0)
            self._dirty.pop(start, None)
            path = self.folder / file_name(start)
            self._files.forget(path)
            path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Remove the queue and its files."""
        for start in self._names:
            self._files.forget(self.folder / file_name(start))
        self._names.clear()
        self._tail.clear()
        self._dirty.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
