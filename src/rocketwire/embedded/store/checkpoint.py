"""The checkpoint: how much of the store is certainly on the medium.

Apache's fields come first: three times (of the newest message synced in the log, in the queues
and in a full index file), then two offsets. Apache recovers from the log file that the times
point to. We note the exact log offset in the free part of the page, with a checksum, so that a
start reads only what came after it; a folder that Apache wrote has no such note and is read whole.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_APACHE: Final = struct.Struct(">qqqqq")
_NOTE: Final = struct.Struct(">8sq")
_NOTE_AT: Final = 1024
_MARK: Final = b"RWSTORE1"
PAGE: Final = 4096


@dataclass(slots=True)
class Checkpoint:
    """Times are in milliseconds, 0 for none; ``offset`` is None when it was never noted."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    offset: int | None = None

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read it; a missing or damaged one is an empty one."""
        try:
            data = path.read_bytes()[:PAGE]
        except OSError:
            return cls()
        if len(data) < _APACHE.size:
            return cls()
        log_ms, queues_ms, index_ms, _, _ = _APACHE.unpack_from(data)
        return cls(log_ms, queues_ms, index_ms, _read_note(data))

    def save(self, path: Path) -> None:
        """Write it over the old one, in place as Apache does, and wait for the medium."""
        offset = self.offset if self.offset is not None else -1
        page = bytearray(PAGE)
        _APACHE.pack_into(page, 0, self.log_ms, self.queues_ms, self.index_ms, 0, max(offset, 0))
        note = _NOTE.pack(_MARK, offset)
        page[_NOTE_AT : _NOTE_AT + 20] = note + zlib.crc32(note).to_bytes(4, "big")
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, page, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_note(data: bytes) -> int | None:
    note = data[_NOTE_AT : _NOTE_AT + 20]
    if len(note) < 20 or zlib.crc32(note[:16]).to_bytes(4, "big") != note[16:]:
        return None
    mark, offset = _NOTE.unpack(note[:16])
    return offset if mark == _MARK and offset >= 0 else None
