"""What happens when a store is opened: find the end of the log, and bring the queues up to it.

One way for a clean end and for a crash: from the offset that the checkpoint is sure of, records
are read as long as they are whole, and each is put where it belongs in its queue. After a clean
end there is nothing to read.
"""

from __future__ import annotations

import logging
from typing import Final

from rocketwire.embedded.store.commitlog import CommitLog, LogFile
from rocketwire.embedded.store.layout import (
    BLANK_HEAD,
    MAGIC_BLANK,
    SCHEDULE_TOPIC,
    UNIT,
    RecordHead,
    check_record,
    tags_code,
)
from rocketwire.embedded.store.queues import QueueTable
from rocketwire.wire.codes import SystemFlag

_log: Final = logging.getLogger("rocketwire.embedded")


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
    clean: bool,
) -> int:
    """Set the log's end and make the queues complete.

    Args:
        log: as it was loaded.
        queues: as they were loaded.
        sure_to: the checkpoint's offset, None when there is none.
        delays_ms: how long each delay level lasts.
        clean: whether the store was closed properly.

    Returns:
        How many messages were read again.
    """
    position = log.start if sure_to is None else max(sure_to, log.start)
    if position > log.limit:
        # The checkpoint knows of files that somebody has deleted.
        position = log.start
    for queue in queues:
        queue.cut(position, clean=clean)
    end, count = _replay(log, queues, position, delays_ms)
    log.truncate(end)
    for queue in queues:
        queue.trim(log.start)
    if count or not clean:
        _log.info("recovered %d messages behind offset %d; log ends at %d", count, position, end)
    return count


def _replay(
    log: CommitLog, queues: QueueTable, position: int, delays_ms: tuple[int, ...]
) -> tuple[int, int]:
    count = 0
    for file in list(log.files):
        if file.start + file.size <= position:
            continue
        position, found, closed = _replay_file(file, queues, position, delays_ms)
        count += found
        if not closed:
            break
        position = file.start + file.size
    return position, count


def _replay_file(
    file: LogFile, queues: QueueTable, position: int, delays_ms: tuple[int, ...]
) -> tuple[int, int, bool]:
    """Where the whole records end, how many there were, and whether a blank one closes them."""
    view = file.view
    at, count = position - file.start, 0
    while at + BLANK_HEAD.size <= file.size:
        record = check_record(view, at, file.start + at)
        if record is None:
            size, magic = BLANK_HEAD.unpack_from(view, at)
            closed = magic == MAGIC_BLANK and size == file.size - at
            return file.start + at, count, closed
        _dispatch(record, file.start + at, queues, delays_ms)
        at += record.size
        count += 1
    return file.start + at, count, at == file.size


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
        queue.cut(0, clean=False)
        queue.start_at(record.queue_offset)
    queue.append(UNIT.pack(offset, record.size, delivery_code(record, delays_ms)))
