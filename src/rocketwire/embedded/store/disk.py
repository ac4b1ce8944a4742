"""The only place that writes to store files, so that a test can tear any write or fill the disk.

Files are written with ``pwrite`` and read through read-only maps. A writable map of a sparse
file would kill the process with SIGBUS when the disk is full, just when the broker must go on
reading; ``pwrite`` says ENOSPC instead. What was written is in the kernel's cache, so a killed
process loses nothing of it, and the maps see it at once.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.failures import StoreError, StoreFullError

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Not every POSIX system has this one; the full sync is correct, and slower.
_sync_data = getattr(os, "fdatasync", os.fsync)


class Disk:
    """Writes, allocates and syncs.

    Args:
        limit: bytes that may be written before the disk counts as full; None for no limit.

    ``full`` is set by the fault of that name: every write is then refused.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.full = False
        self.written = 0

    def admit(self, size: int) -> None:
        """Raise ``StoreFullError`` when so many more bytes may not be written."""
        if self.full or (self.limit is not None and self.written + size > self.limit):
            raise StoreFullError("the disk is full: free some room or raise the limit")

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of it, or raise with an unknown part of it written."""
        self.admit(len(data))
        try:
            done = os.pwrite(descriptor, data, offset)
            while done < len(data):
                done += os.pwrite(descriptor, memoryview(data)[done:], offset + done)
        except OSError as error:
            raise _explain(error) from error
        self.written += len(data)

    def create(self, path: Path, size: int) -> int:
        """Open a file for writing and make it exactly so long; the new part costs no room yet."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _explain(error) from error
        try:
            if os.fstat(descriptor).st_size != size:
                os.ftruncate(descriptor, size)
        except OSError as error:
            os.close(descriptor)
            raise _explain(error) from error
        return descriptor

    def reserve(self, descriptor: int, size: int) -> None:
        """Take the room of a whole file now, for a file that will be mapped writable."""
        self.admit(size)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size)
            else:
                for offset in range(0, size, 1 << 20):
                    os.pwrite(descriptor, bytes(min(1 << 20, size - offset)), offset)
        except OSError as error:
            raise _explain(error) from error

    def write_again(self, descriptor: int, start: int, end: int) -> None:
        """Write what a span of a file holds over itself.

        After a sync that failed, the kernel counts the pages as written out, and the next sync
        succeeds without them; written again, they are its business again.

        Raises:
            OSError: it can't be read or written.
        """
        for offset in range(start, end, 1 << 20):
            data = os.pread(descriptor, min(1 << 20, end - offset), offset)
            os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Wait until the file's data is on the medium."""
        _sync_data(descriptor)


def _explain(error: OSError) -> StoreError:
    if error.errno in _NO_ROOM:
        return StoreFullError(f"the disk is full: {error.strerror}")
    return StoreError(f"the disk does not work: {error}")


def sync_folder(path: Path) -> None:
    """Make new names in a folder last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a small file whole: a reader sees the old one or the new one.

    The previous content stays beside it as ``.bak``, which Apache falls back to as well. Without
    ``sync`` it survives the process and not a power failure, and the event loop does not wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".tmp")
    try:
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if path.exists():
            path.replace(path.with_name(path.name + ".bak"))
        scratch.replace(path)
    except OSError as error:
        raise _explain(error) from error


class OpenFiles:
    """Keeps the most recently used files open: a store may have more queues than descriptors."""

    def __init__(self, disk: Disk, limit: int = 64) -> None:
        self._disk = disk
        self._limit = limit
        # By text: a Path takes longer to hash than a file to read.
        self._open: OrderedDict[str, int] = OrderedDict()

    def descriptor(self, path: str, size: int) -> int:
        """The file, made when it is missing."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        descriptor = self._disk.create(Path(path), size)
        self._open[path] = descriptor
        if len(self._open) > self._limit:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def forget(self, path: Path) -> None:
        """Close a file that is about to be deleted."""
        descriptor = self._open.pop(str(path), None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close them all."""
        while self._open:
            os.close(self._open.popitem()[1])
