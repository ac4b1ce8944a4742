"""Reading a queue: which records answer a pull, under Apache's limits and its status names."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketwire.embedded.store.commitlog import CommitLog
from rocketwire.embedded.store.consumequeue import ConsumeQueue
from rocketwire.embedded.store.fields import UNIT, UNIT_SIZE
from rocketwire.embedded.store.layout import properties_of
from rocketwire.wire.properties import decode_properties_bytes


class FetchStatus(enum.Enum):
    """What became of a fetch; the names are those that Apache puts into the remark."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class Fetched:
    """Records as they lie in the log, in as few pieces as possible."""

    status: FetchStatus
    next_offset: int
    minimum: int
    maximum: int
    pieces: list[memoryview] = field(default_factory=list)
    count: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one answer may hold. The first message is always given, whatever its size."""

    messages: int = 32
    size: int = 256 * 1024
    #: Bytes of queue units that a filter may look through in one go.
    scan: int = 16_000


DEFAULT_LIMITS: Final = FetchLimits()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages are wanted: those with one of some tags (by hash), or with such properties.

    Both None means all of them.
    """

    tag_codes: Collection[int] | None = None
    matches: Callable[[Mapping[str, str]], bool] | None = None

    @property
    def all(self) -> bool:
        """Whether nothing is left out."""
        return self.tag_codes is None and self.matches is None

    def has(self, log: CommitLog, position: int, size: int, code: int) -> bool:
        """Whether the message at a place is among them; one that is gone is."""
        if self.tag_codes is not None:
            return code in self.tag_codes
        if self.matches is None:
            return True
        record = log.view(position, size)
        return record is None or self.matches(decode_properties_bytes(properties_of(record)))


EVERYTHING: Final = Wanted()


def fetch(
    log: CommitLog,
    queue: ConsumeQueue | None,
    offset: int,
    limits: FetchLimits = DEFAULT_LIMITS,
    wanted: Wanted = EVERYTHING,
) -> Fetched:
    """Read from an offset of a queue.

    Args:
        log: where the records are.
        queue: None when it has never held a message.
        offset: the first message wanted.
        limits: how much to give at most.
        wanted: which messages to give.
    """
    if queue is None:
        return Fetched(FetchStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    minimum, maximum = queue.minimum, queue.maximum
    if maximum == minimum == 0:
        return Fetched(FetchStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    if offset < minimum:
        return Fetched(FetchStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
    if offset == maximum:
        return Fetched(FetchStatus.OFFSET_OVERFLOW_ONE, offset, minimum, maximum)
    if offset > maximum:
        return Fetched(FetchStatus.OFFSET_OVERFLOW_BADLY, maximum, minimum, maximum)
    result = Fetched(FetchStatus.NO_MATCHED_MESSAGE, offset, minimum, maximum)
    units = _units(queue, offset, limits, filtered=not wanted.all)
    _collect(result, log, units, limits, wanted)
    return result


def _units(queue: ConsumeQueue, offset: int, limits: FetchLimits, *, filtered: bool) -> bytes:
    count = limits.messages
    if filtered:
        count = max(limits.scan, UNIT_SIZE * limits.messages) // UNIT_SIZE
    units = queue.read(offset, count)
    missing = count - len(units) // UNIT_SIZE
    if missing and offset + len(units) // UNIT_SIZE < queue.maximum:
        # The rest is in the next file.
        units += queue.read(offset + len(units) // UNIT_SIZE, missing)
    return units


def _collect(
    result: Fetched,
    log: CommitLog,
    units: bytes,
    limits: FetchLimits,
    wanted: Wanted,
) -> None:
    start = end = -1
    count = total = scanned = 0
    everything = wanted.all
    for position, size, code in UNIT.iter_unpack(units):
        if count and (count >= limits.messages or total + size > limits.size):
            break
        scanned += 1
        if not (everything or wanted.has(log, position, size, code)):
            continue
        if position != end or start // log.file_size != position // log.file_size:
            if not _add(result, log, start, end):
                return
            start = position
        end = position + size
        count += 1
        total += size
    result.next_offset += scanned
    if not _add(result, log, start, end):
        return
    result.count, result.size = count, total
    if count:
        result.status = FetchStatus.FOUND


def _add(result: Fetched, log: CommitLog, start: int, end: int) -> bool:
    """Add a run of records; False when the log does not have them any more."""
    if start < 0:
        return True
    view = log.view(start, end - start)
    if view is None:
        result.status = FetchStatus.MESSAGE_WAS_REMOVING
        result.pieces.clear()
        # Go on behind what was deleted: the queue is trimmed at the same time as the log.
        result.next_offset = max(result.next_offset, result.minimum)
        return False
    result.pieces.append(view)
    return True
