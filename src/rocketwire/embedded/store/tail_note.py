"""A note beside the log which says that a last record is whole, although it looks torn.

The checksum of a record covers its body only. So recovery judges the last record of a log by its
properties: bytes that are no text, or zeros at the end, are what a torn write leaves. A client may
send such properties, too. When such a message is stored, its end and the checksum of its
properties are noted here, and the next flush moves the checkpoint behind it: a killed process
finds the note, a power failure the checkpoint.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.disk import Disk

_NOTE: Final = struct.Struct(">8sqI")
_MARK: Final = b"RWTAIL01"
_SIZE: Final = _NOTE.size + 4


def looks_torn(properties: bytes) -> bool:
    """Whether properties are such as a torn write may have left."""
    if properties.endswith(b"\0"):
        return True
    try:
        properties.decode()
    except UnicodeDecodeError:
        return True
    return False


class TailNote:
    """The notes of one store: of the newest such record, and of the one before.

    A note is written before its record. The older one stays meanwhile: should the process be
    killed between the two writes, the record before is the last one.

    Attributes:
        end: where the newest noted record ends in the log, -1 when there is none.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._slot = 0
        self._notes: dict[int, int] = {}
        self.end = -1
        self._load()

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except OSError:
            return
        for slot in (0, 1):
            note = data[slot * _SIZE :][: _NOTE.size]
            checksum = data[slot * _SIZE + _NOTE.size :][:4]
            if len(checksum) == 4 and zlib.crc32(note).to_bytes(4, "big") == checksum:
                mark, end, of_properties = _NOTE.unpack(note)
                if mark == _MARK:
                    self._notes[end] = of_properties
                    if end > self.end:
                        self.end, self._slot = end, 1 - slot

    def vouches(self, end: int, properties: bytes) -> bool:
        """Whether the record that ends at an offset is known to be whole."""
        return self._notes.get(end) == zlib.crc32(properties)

    def look_at(self, end: int, properties: bytes) -> None:
        """Note a record that is about to be written, if it needs that.

        Raises:
            StoreError: there is no room for the note.
        """
        if not looks_torn(properties):
            return
        note = _NOTE.pack(_MARK, end, zlib.crc32(properties))
        descriptor = self._disk.create(self._path, 2 * _SIZE)
        try:
            self._disk.write(
                descriptor, note + zlib.crc32(note).to_bytes(4, "big"), self._slot * _SIZE
            )
        finally:
            os.close(descriptor)
        self._slot = 1 - self._slot
        self.end = end
