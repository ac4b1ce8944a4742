"""The commit log: every message of every topic, one after the other, in files of one size.

It knows offsets and bytes. What the bytes mean is for ``layout``; which of them are whole after
a crash is decided by ``recovery``.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from rocketwire.embedded.store.disk import Disk
from rocketwire.embedded.store.failures import MessageRefusedError, StoreError
from rocketwire.embedded.store.layout import BLANK_HEAD, MAGIC_BLANK, file_name


class LogFile:
    """One file of the log. ``start`` is the log offset of its first byte."""

    __slots__ = ("_map", "_view", "descriptor", "path", "size", "start")

    def __init__(self, path: Path, start: int, size: int, disk: Disk) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.descriptor = disk.create(path, size)
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """The whole file, as it is now and as it will be: a map sees later writes."""
        if self._view is None:
            self._map = mmap.mmap(self.descriptor, self.size, access=mmap.ACCESS_READ)
            self._view = memoryview(self._map)
        return self._view

    def cut(self, position: int) -> None:
        """Make everything from a position on zero, whatever a torn write left there.

        A map made before would see the file shrink for a moment, so it is dropped first.
        """
        self._view = self._map = None
        os.ftruncate(self.descriptor, position)
        os.ftruncate(self.descriptor, self.size)

    def close(self) -> None:
        """Close the file. Views that are still being sent keep their map alive by themselves."""
        self._view = self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class CommitLog:
    """An append-only sequence of bytes from ``start`` to ``end``.

    ``end`` is unknown until ``recovery`` sets it by ``truncate``.
    """

    def __init__(self, folder: Path, file_size: int, disk: Disk) -> None:
        self.folder = folder
        self.file_size = file_size
        self._disk = disk
        self.files: list[LogFile] = []
        self.end = 0
        self.synced = 0
        self._load()

    def _load(self) -> None:
        names = sorted(p for p in self.folder.glob("[0-9]*") if len(p.name) == 20)
        for path in names:
            start = int(path.name)
            if start % self.file_size or (self.files and start != self.limit):
                raise StoreError(
                    f"{path} does not follow on the file before it: "
                    f"files of {self.file_size} bytes are expected without a gap"
                )
            if path.stat().st_size != self.file_size and path is not names[-1]:
                raise StoreError(
                    f"{path} has {path.stat().st_size} bytes and not {self.file_size}: "
                    "open the store with the sizes it was made with"
                )
            self.files.append(LogFile(path, start, self.file_size, self._disk))
        self.end = self.limit

    @property
    def start(self) -> int:
        """The lowest offset that can be read."""
        return self.files[0].start if self.files else self.end

    @property
    def limit(self) -> int:
        """Where the last file ends."""
        return self.files[-1].start + self.file_size if self.files else 0

    @property
    def used(self) -> int:
        """Bytes between start and end."""
        return self.end - self.start

    def reserve(self, size: int) -> int:
        """The offset at which so many bytes will be written next.

        They never cross a file's end: if they don't fit, a blank record closes the file.

        Raises:
            MessageRefusedError: they would not fit into any file.
        """
        if size + BLANK_HEAD.size > self.file_size:
            raise MessageRefusedError(
                f"{size} bytes do not fit into a log file of {self.file_size}: "
                "send less at once or make the files larger"
            )
        left = self.limit - self.end
        if size + BLANK_HEAD.size > left:
            if left:
                file = self.files[-1]
                self._disk.write(
                    file.descriptor, BLANK_HEAD.pack(left, MAGIC_BLANK), self.end - file.start
                )
            self._roll()
        return self.end

    def _roll(self) -> None:
        start = self.limit if self.files else self.end
        self.files.append(
            LogFile(self.folder / file_name(start), start, self.file_size, self._disk)
        )
        self.end = start

    def append(self, data: bytes | memoryview) -> None:
        """Write at the offset that ``reserve`` gave. After an error nothing was appended."""
        file = self.files[-1]
        position = self.end - file.start
        try:
            self._disk.write(file.descriptor, data, position)
        except StoreError:
            # A part may be there. The next record may be shorter, and recovery must not find
            # the rest of this one behind it.
            file.cut(position)
            raise
        self.end += len(data)

    def view(self, offset: int, size: int) -> memoryview | None:
        """Bytes of the log without a copy; None when they are not there (any more)."""
        if not self.files:
            return None
        number = (offset - self.files[0].start) // self.file_size
        if not 0 <= number < len(self.files) or offset + size > self.end:
            return None
        file = self.files[number]
        position = offset - file.start
        if position + size > self.file_size:
            return None
        return file.view[position : position + size]

    def truncate(self, offset: int) -> None:
        """Say that the log ends here. What lies behind is removed."""
        # The first file stays even when nothing in it is whole: its name keeps the offset.
        while len(self.files) > 1 and self.files[-1].start >= offset:
            self._remove(self.files.pop())
        if self.files and offset < self.limit:
            self.files[-1].cut(offset - self.files[-1].start)
        self.end = offset
        self.synced = min(self.synced, offset)

    def drop_first(self) -> LogFile | None:
        """Delete the oldest file unless it is the only one."""
        if len(self.files) < 2:
            return None
        file = self.files.pop(0)
        self._remove(file)
        return file

    def _remove(self, file: LogFile) -> None:
        file.close()
        file.path.unlink(missing_ok=True)

    def unsynced_files(self) -> list[LogFile]:
        """The files that hold bytes which may not be on the medium yet."""
        return [f for f in self.files if f.start + self.file_size > self.synced]

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.close()
        self.files.clear()
