"""The commit log: every message of every topic, one after the other, in files of one size.

It knows offsets and bytes. What the bytes mean is for ``layout``; which of them are whole after
a crash is decided by ``recovery``.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.disk import Disk
from rocketwire.embedded.store.failures import MessageRefusedError, StoreError
from rocketwire.embedded.store.fields import BLANK_HEAD, MAGIC_BLANK
from rocketwire.embedded.store.layout import file_name

#: Files that are mapped at one time.
_MAPS: Final = 32


class LogFile:
    """One file of the log. ``start`` is the log offset of its first byte.

    It is open only while it is written to and synced, and mapped only while it is read: a log
    may have more files than a process may open.
    """

    __slots__ = ("_descriptor", "_disk", "_view", "path", "size", "start")

    def __init__(self, path: Path, start: int, size: int, disk: Disk) -> None:
        self.path = path
        self.start = start
        self.size = size
        self._disk = disk
        self._descriptor = -1
        self._view: memoryview | None = None

    @property
    def descriptor(self) -> int:
        """For writing; the file is opened, and made as long as it should be, when needed."""
        if self._descriptor < 0:
            self._descriptor = self._disk.create(self.path, self.size)
        return self._descriptor

    @property
    def mapped(self) -> bool:
        """Whether there is a map."""
        return self._view is not None

    @property
    def view(self) -> memoryview:
        """The whole file, as it is now and as it will be: a map sees later writes."""
        if self._view is None:
            was_open = self._descriptor >= 0
            whole = mmap.mmap(self.descriptor, self.size, access=mmap.ACCESS_READ)
            self._view = memoryview(whole)
            if not was_open:
                self.close()
        return self._view

    def unmap(self) -> None:
        """Forget the map. Views that are still being sent keep it alive by themselves."""
        self._view = None

    def cut(self, position: int) -> None:
        """Make everything from a position on zero, whatever a torn write left there.

        A map made before would see the file shrink for a moment, so it is dropped first.
        """
        self.unmap()
        os.ftruncate(self.descriptor, position)
        os.ftruncate(self.descriptor, self.size)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class CommitLog:
    """An append-only sequence of bytes from ``start`` to ``end``.

    ``end`` is unknown until ``recovery`` sets it by ``truncate``.
    """

    def __init__(self, folder: Path, file_size: int, disk: Disk) -> None:
        self.folder = folder
        self.file_size = file_size
        self._disk = disk
        self.files: list[LogFile] = []
        self._maps: deque[LogFile] = deque()
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
        if self.files:
            # A crash may have come before the newest file got its full length.
            _ = self.files[-1].descriptor
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
        if not file.mapped:
            self._make_room(file)
        return file.view[position : position + size]

    def _make_room(self, file: LogFile) -> None:
        """Keep the number of maps, each of which holds a descriptor, within bounds."""
        self._maps.append(file)
        if len(self._maps) > _MAPS:
            self._maps.popleft().unmap()

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
        file.unmap()
        file.close()
        file.path.unlink(missing_ok=True)

    def unsynced_files(self) -> list[LogFile]:
        """The files that hold bytes which may not be on the medium yet."""
        return [f for f in self.files if f.start + self.file_size > self.synced]

    def mark_synced(self, offset: int) -> None:
        """Everything before an offset is on the medium."""
        self.synced = max(self.synced, offset)
        for file in self.files[:-1]:
            if file.start + file.size <= self.synced:
                file.close()

    def close(self) -> None:
        """Close every file."""
        for file in self.files:
            file.unmap()
            file.close()
        self.files.clear()
        self._maps.clear()
