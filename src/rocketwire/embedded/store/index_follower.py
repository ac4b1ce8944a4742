"""Fills the index from the commit log, in small steps, some time after the messages came.

The index is only ever behind the log, never ahead of it, so a crash needs no special care: the
follower goes on from the newest message that the index knows.
"""

from __future__ import annotations

from operator import mul
from typing import Final

from rocketwire.embedded.store.commitlog import CommitLog
from rocketwire.embedded.store.fields import (
    BLANK_HEAD,
    HOST_BITS,
    MAGIC_BLANK,
    PROPERTIES_PREFIX,
    STORED,
    SYSTEM_FLAG,
)
from rocketwire.embedded.store.index import Index, IndexFile
from rocketwire.embedded.store.layout import parts_of
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.java_hash import java_string_hash

_MASK: Final = 0xFFFFFFFF
#: 31**0, 31**1, ... : Java's hash of ASCII text is a sum of products with these, backwards.
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(256))


class IndexFollower:
    """Reads records from ``position`` on and files their keys."""

    def __init__(self, log: CommitLog, index: Index) -> None:
        self._log = log
        self._index = index
        self._topics: dict[bytes, int] = {}
        self.position = log.start
        #: The last index file that became full and is not synced yet.
        self.filled: IndexFile | None = None

    def start(self) -> None:
        """Find out where the index ends; called once the log has recovered."""
        newest = self._index.indexed_to
        self.position = self._log.start
        if newest is not None and self._log.start <= newest < self._log.end:
            self.position = newest
            # That message itself is in the index (maybe with some of its keys only, after a
            # crash: filing it again does no harm, readers drop duplicates).
            self._skip_known()

    def _skip_known(self) -> None:
        head = self._log.view(self.position, BLANK_HEAD.size)
        if head is not None:
            size, magic = BLANK_HEAD.unpack(head)
            if magic != MAGIC_BLANK and size > 0:
                self.position += size

    def forget_filled(self, file: IndexFile) -> None:
        """A full file is on the medium."""
        if self.filled is file:
            self.filled = None

    @property
    def behind(self) -> int:
        """Bytes of the log that are not indexed yet."""
        return max(self._log.end - self.position, 0)

    def step(self, count: int) -> int:
        """Index at most so many messages; returns how many there were."""
        done = 0
        self.position = max(self.position, self._log.start)
        while done < count and self.position < self._log.end:
            run = self._run()
            if run is None:
                break
            done += self._step_in(run, count - done)
        if done:
            self._index.save()
        return done

    def _run(self) -> memoryview | None:
        """What is left of the file that the position is in, up to the log's end."""
        file_end = (self.position // self._log.file_size + 1) * self._log.file_size
        return self._log.view(self.position, min(file_end, self._log.end) - self.position)

    def _step_in(self, view: memoryview, count: int) -> int:
        at, done, base = 0, 0, self.position
        try:
            while done < count and at + BLANK_HEAD.size <= len(view):
                size, magic = BLANK_HEAD.unpack_from(view, at)
                if magic == MAGIC_BLANK or size <= 0:
                    at = len(view)
                    break
                self._file_record(view[at : at + size], magic, base + at)
                at += size
                done += 1
            else:
                if done < count:
                    at = len(view)
        finally:
            # When the disk has no room for another index file, what was filed counts.
            self.position = base + at
        return done

    def _file_record(self, record: memoryview, magic: int, offset: int) -> None:
        flags = int.from_bytes(record[SYSTEM_FLAG], "big")
        if flags & SystemFlag.TRANSACTION_MASK == SystemFlag.TRANSACTION_ROLLBACK:
            return
        _, _, topic, topic_end = parts_of(record, magic, flags)
        properties = bytes(record[topic_end + PROPERTIES_PREFIX :])
        hashes = self._hashes(bytes(record[topic:topic_end]), properties)
        if hashes:
            store_ms = int.from_bytes(record[STORED[flags & HOST_BITS]], "big")
            self.filled = self._index.put(hashes, offset, store_ms) or self.filled

    def _hashes(self, topic: bytes, properties: bytes) -> list[int]:
        found: list[int] = []
        unique = _value(properties, b"UNIQ_KEY\x01")
        if unique:
            found.append(self._hash(topic, unique))
        keys = _value(properties, b"KEYS\x01")
        if keys:
            found += [self._hash(topic, key) for key in keys.split(b" ") if key]
        return found

    def _hash(self, topic: bytes, key: bytes) -> int:
        prefix = self._topics.get(topic)
        if prefix is None:
            if len(self._topics) > 10_000:
                self._topics.clear()
            prefix = java_string_hash(topic.decode(errors="replace") + "#") & _MASK
            self._topics[topic] = prefix
        size = len(key)
        if size < len(_POWERS) and key.isascii():
            value = prefix * _POWERS[size] + sum(map(mul, reversed(key), _POWERS))
        else:
            value = java_string_hash((topic + b"#" + key).decode(errors="replace"))
        value &= _MASK
        if value > 0x7FFFFFFF:
            value = (1 << 32) - value
        return value if value <= 0x7FFFFFFF else 0


def _value(properties: bytes, name: bytes) -> bytes | None:
    """The last value of a property in encoded properties; later ones win, as in Java."""
    start = properties.rfind(name)
    while start > 0 and properties[start - 1] != 2:
        start = properties.rfind(name, 0, start + len(name) - 1)
    if start < 0:
        return None
    end = properties.find(b"\x02", start)
    return properties[start + len(name) : end if end >= 0 else len(properties)]
