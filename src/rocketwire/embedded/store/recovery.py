"""What happens when a store is opened: find the end of the log, and bring the queues up to it.

One way for a clean end and for a crash: from the offset that the checkpoint is sure of, records
are read as long as they are whole, and each is put where it belongs in its queue. After a clean
end there is nothing to read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from rocketwire.embedded.store.commitlog import CommitLog, LogFile
from rocketwire.embedded.store.fields import BLANK_HEAD, MAGIC_BLANK, PLACE_HEAD, UNIT
from rocketwire.embedded.store.layout import SCHEDULE_TOPIC, RecordHead, check_record, tags_code
from rocketwire.embedded.store.queues import QueueTable
from rocketwire.embedded.store.tail_note import TailNote, looks_torn
from rocketwire.wire.codes import SystemFlag

_log: Final = logging.getLogger("rocketwire.embedded")
_MAX_INT: Final = 0x7FFFFFFF


def delivery_code(record: RecordHead, delays_ms: tuple[int, ...]) -> int:
    """The last field of a record's queue unit: a tag's hash, or the time a delay ends."""
    if record.topic == SCHEDULE_TOPIC and 0 <= record.queue_id < len(delays_ms):
        return record.store_ms + delays_ms[record.queue_id]
    return tags_code(record.properties)


def recover(
    log: CommitLog,
    queues: QueueTable,
    sure_to: int | None,
    delays_ms: tuple[int, ...],
    *,
    note: TailNote,
    clean: bool,
) -> int:
    """Set the log's end and make the queues complete.

    Args:
        log: as it was loaded.
        queues: as they were loaded.
        sure_to: the checkpoint's offset, None when there is none.
        delays_ms: how long each delay level lasts.
        note: of a last record that looks torn and is whole.
        clean: whether the store was closed properly.

    Returns:
        How many messages were read again.
    """
    position = log.start if sure_to is None else max(sure_to, log.start)
    if position > log.limit:
        # The checkpoint knows of files that have been deleted.
        position = log.start
    for (_, queue_id), queue in queues.items():
        queue.cut(_soundness(log, queue_id, position), clean=clean)
    end, count = _Replay(log, queues, delays_ms, note).run(position)
    log.truncate(end)
    for queue in queues:
        queue.trim(log.start)
    if count or not clean:
        _log.info("recovered %d messages behind offset %d; log ends at %d", count, position, end)
    return count


def _soundness(log: CommitLog, queue_id: int, sure_to: int) -> Callable[[int, int, int], bool]:
    """Whether a queue's unit speaks the truth: there is a record, and it names this unit."""

    def sound(offset: int, position: int, size: int) -> bool:
        if size <= 0 or not 0 <= position < sure_to:
            return False
        if position < log.start:
            return size == _MAX_INT or position + size <= log.start
        head = log.view(position, PLACE_HEAD.size)
        if head is None:
            return False
        return PLACE_HEAD.unpack(head) == (size, queue_id, offset, position)

    return sound


class _Replay:
    """Reads records from a place in the log on, and puts each into its queue.

    A record is held back until the next one was seen. The checksum covers the body only; if the
    last record's properties were torn, that shows by what such a tail is made of: zeros, or
    bytes that are no text. A message whose properties are like that by nature has a note.
    """

    def __init__(
        self, log: CommitLog, queues: QueueTable, delays_ms: tuple[int, ...], note: TailNote
    ) -> None:
        self._note = note
        self._log = log
        self._queues = queues
        self._delays_ms = delays_ms
        self._held: tuple[RecordHead, int] | None = None
        self._count = 0

    def run(self, position: int) -> tuple[int, int]:
        """Where the whole records end, and how many there were."""
        for file in list(self._log.files):
            if file.start + file.size <= position:
                continue
            position, closed = self._read_file(file, position)
            if not closed:
                break
            file.unmap()
            position = file.start + file.size
        if self._held is not None and self._torn(*self._held):
            position = self._held[1]
            self._held = None
        self._release()
        return position, self._count

    def _read_file(self, file: LogFile, position: int) -> tuple[int, bool]:
        """Where the records of a file end, and whether a blank one closes it."""
        view = file.view
        at = position - file.start
        while at + BLANK_HEAD.size <= file.size:
            record = check_record(view, at, file.start + at)
            if record is None:
                size, magic = BLANK_HEAD.unpack_from(view, at)
                return file.start + at, magic == MAGIC_BLANK and size == file.size - at
            self._release()
            self._held = record, file.start + at
            at += record.size
        return file.start + at, at == file.size

    def _torn(self, record: RecordHead, offset: int) -> bool:
        properties = record.properties
        return looks_torn(properties) and not self._note.vouches(offset + record.size, properties)

    def _release(self) -> None:
        if self._held is not None:
            record, offset = self._held
            _dispatch(record, offset, self._queues, self._delays_ms)
            self._count += 1
            self._held = None


def _dispatch(
    record: RecordHead, offset: int, queues: QueueTable, delays_ms: tuple[int, ...]
) -> None:
    kind = record.system_flag & SystemFlag.TRANSACTION_MASK
    if kind in {SystemFlag.TRANSACTION_PREPARED, SystemFlag.TRANSACTION_ROLLBACK}:
        return
    queue = queues.need(record.topic, record.queue_id)
    if record.queue_offset < queue.maximum:
        return
    if record.queue_offset > queue.maximum:
        # Messages between are gone with the log's older files (or their topic was deleted).
        queue.restart_at(record.queue_offset)
    queue.append(UNIT.pack(offset, record.size, delivery_code(record, delays_ms)))
