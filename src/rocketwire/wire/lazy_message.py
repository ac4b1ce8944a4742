"""Stored messages over the bytes that a broker gave: each field is read when it is first asked for.

A consumer that is far behind gets tens of thousands of messages a second, and reading a record with
all its properties, times and hosts costs several times as much as everything else that happens to
it. So an answer is only cut into records; what is in them waits.

Nothing here raises for what a sender wrote, however malformed: a message that stopped its
reader would stop the queue for ever. What can't be decoded is handed over as it is stored, and
``undecodable`` says why.
"""

# ruff: noqa: SLF001 - a message and what reads it are one thing in two rooms

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

from rocketwire.errors import ProtocolError
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.batch import ITEM_OVERHEAD
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.message_fields import Source, all_properties, hosts_of
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES
from rocketwire.wire.record_layout import (
    HEADS,
    INNER_BATCH,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    NOT_PLAIN,
    parts_of,
    picked,
)
from rocketwire.wire.stored_message import (
    MAX_BODY,
    Buffer,
    decode_record,
    encode_record,
    unwrap_inner_batch,
)

_unpack_head = picked("size", "magic").unpack_from
_unpack_start = picked("size", "magic", "queue_offset", "system_flag", "body_length").unpack_from
_unpack_body = picked("system_flag", "body_length").unpack_from
_MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2))
_FAR: Final = 2**63 - 1
#: What the compressed batches of one answer may become together. RocketMQ's clients compress no batch.
_INFLATED: Final = 8 * 1024 * 1024
#: How many times its size a packed body may become: with zlib or lz4, and with zstd.
_GROWTH: Final = 1032
_ZSTD_GROWTH: Final = 1 << 16
_ZSTD: Final = 0x200

# The slots' own setters: a frozen class refuses everything else, and they cost half of setattr.
_new = StoredMessage.__new__
_set_record = cast("Any", StoredMessage).__dict__["_record"].__set__
_set_offset = cast("Any", StoredMessage).__dict__["offset"].__set__


class Cut(NamedTuple):
    """What an answer holds: its messages, and the offset to go on at if it is not its own."""

    messages: list[StoredMessage]
    go_on_at: int | None


def cut(source: Source, next_offset: int = _FAR) -> Cut:
    """The messages of an answer, unread.

    Args:
        source: the answer's body.
        next_offset: where the answer says that the next one begins.

    Raises:
        RemoteProtocolError: something there is not a record.
    """
    data, delta = source.data, source.delta
    position, end = 0, len(data)
    last = end - MIN_RECORD
    messages: list[StoredMessage] = []
    flags = 0
    while position <= last:
        size, magic, place, flag, body = _unpack_start(data, position)
        if size < MIN_RECORD:
            break
        if magic != MAGIC_V1 or flag & NOT_PLAIN or body > size - MIN_RECORD:
            if magic not in _MAGICS:
                break
            flags |= flag
            body = -1
        message = _new(StoredMessage)
        _set_offset(message, place + delta)
        _set_record(message, (source, position, size, body))
        messages.append(message)
        position += size
    go_on_at = None
    if position != end:
        if position > end:
            messages.pop()
        else:
            _check_tail(data, position)
        if not messages:
            return Cut([], None)
        if len(messages) > 1 and _is_batch(messages[-1]):
            # How many offsets it takes is told by what follows, which is not there.
            go_on_at = next_offset = messages.pop().offset
        else:
            go_on_at = next_offset = messages[-1].offset + 1
    if flags & INNER_BATCH == INNER_BATCH:  # some have these flags, if not one has both
        messages, stopped = _unwrap_all(messages, next_offset)
        go_on_at = go_on_at if stopped is None else stopped
    return Cut(messages, go_on_at)


def whole_records(data: Buffer) -> tuple[int, int]:
    """How many whole records some bytes hold, and how many bytes those take.

    Raises:
        RemoteProtocolError: something there is not a record.
    """
    position, count, last = 0, 0, len(data) - MIN_RECORD
    while position <= last:
        size, magic = _unpack_head(data, position)
        if size < MIN_RECORD or magic not in _MAGICS or position + size > len(data):
            break
        position += size
        count += 1
    if position != len(data):
        _check_tail(data, position)
    return count, position


def _check_tail(data: Buffer, position: int) -> None:
    """Refuse what is no record; one that is cut off, or a file's blank end, is none of that."""
    if len(data) - position < 8:
        return
    size, magic = _unpack_head(data, position)
    if magic == MAGIC_BLANK and size >= 8:
        return
    if magic not in _MAGICS or size < MIN_RECORD:
        decode_record(data, position)


def _unwrap_all(
    messages: Sequence[StoredMessage], next_offset: int
) -> tuple[list[StoredMessage], int | None]:
    """Messages in place of the batches among them; what claims to be one and is none stays.

    All batches of an answer together become no more than one body may: from the one that is too
    much on the answer is left, and asked for again. A batch that is compressed is looked into only as far
    as that takes no time: an answer is taken apart while an event loop waits.
    """
    found: list[StoredMessage] = []
    left, inflated = MAX_BODY, _INFLATED
    # An answer to a look-up has the messages of several queues.
    ends = [
        after.offset if after.queue == message.queue else next_offset
        for message, after in pairwise(messages)
    ]
    ends.append(next_offset)
    for message, end in zip(messages, ends, strict=True):
        if not _is_batch(message):
            found.append(message)
            continue
        inner, spent = _unwrap(message, end, inflated)
        inflated -= spent
        if inner is None:
            found.append(message)
            continue
        size = weigh(inner)
        if size > left and found:
            return found, message.offset
        left -= size
        found += inner
    return found, None


def _is_batch(message: StoredMessage) -> bool:
    source, position, _, _ = message._record
    flag: int = _unpack_body(source.data, position)[0]
    return flag & INNER_BATCH == INNER_BATCH


def _unwrap(message: StoredMessage, end: int, limit: int) -> tuple[list[StoredMessage] | None, int]:
    """The messages of a batch, None if the record holds none; and what decompressing it took, in bytes."""
    source, position, size, _ = message._record
    flag: int = _unpack_body(source.data, position)[0]
    is_packed = flag & SystemFlag.COMPRESSED
    try:
        record, _ = decode_record(source.data, position)
        records = unwrap_inner_batch(
            record, end=end - source.delta, limit=limit if is_packed else MAX_BODY
        )
    except ProtocolError:
        # How far it came is not known, but how far it can have come.
        growth = _ZSTD_GROWTH if flag & SystemFlag.COMPRESSION_MASK == _ZSTD else _GROWTH
        return None, min(limit, size * growth) if is_packed else 0
    inner = cut(source.over(b"".join([item.encode() for item in records]))).messages
    took = sum(ITEM_OVERHEAD + len(item.body) + len(item.properties_raw) for item in records)
    return inner, took if is_packed else 0


def messages_in(data: bytes, *, broker: str) -> list[StoredMessage]:
    """The messages of an answer to a look-up: each names its own queue.

    Raises:
        RemoteProtocolError: something there is not a record.
    """
    return cut(Source(data, broker=broker)).messages


def bare_record(message: StoredMessage) -> bytes:
    """The record of a message that a broker gave, without its body, sound, and with UTF-8 only."""
    source, position, size, _ = message._record
    data = source.data
    parts = parts_of(data, position, size)
    hosts = hosts_of(data, position, size)
    (_, _, _, queue_id, flag, offset, physical, system_flag, born_ms, born_host, store_ms, store_host,
     reconsume_times, prepared_offset, _) = HEADS[hosts].unpack_from(data, position)  # fmt: skip
    properties = b"" if parts is None else data[parts.properties : position + size]
    if not properties.isascii():
        # Replacements are longer than what they replace: what then has no room is left out.
        mended = properties.decode(errors="replace").encode()[:MAX_PROPERTIES_BYTES]
        properties = mended.decode(errors="ignore").encode()
    return encode_record(
        topic=b"" if parts is None else data[parts.topic : parts.topic_end],
        body=b"",
        properties=properties,
        queue_id=queue_id,
        queue_offset=offset,
        physical_offset=physical,
        born_ms=born_ms,
        born_host=born_host,
        store_ms=store_ms,
        store_host=store_host,
        flag=flag,
        system_flag=system_flag & ~(SystemFlag.COMPRESSED | INNER_BATCH),
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        body_crc=0,
    )


# -- what consumers ask ------------------------------------------------------------------------


def weigh(messages: Sequence[StoredMessage]) -> int:
    """Bytes that messages take as they are stored, about: without looking into them."""
    try:
        return sum([m._record[2] for m in messages])
    except AttributeError:  # some were not read from a broker
        return sum([m._record[2] if hasattr(m, "_record") else len(m.body) for m in messages])


def grown_by(messages: Iterable[StoredMessage]) -> int:
    """Bytes that messages take beyond those, because their bodies were decompressed."""
    grown = 0
    for message in messages:
        body = message.__dict__.get("body")
        if body is not None and hasattr(message, "_record"):
            grown += max(0, len(body) - message._record[2])
    return grown


def forget_bodies(messages: Iterable[StoredMessage]) -> None:
    """Keep of messages that were read what is stored: a body is decompressed again if it is asked for."""
    for message in messages:
        if hasattr(message, "_record"):
            message.__dict__.pop("body", None)


def tried_again(message: StoredMessage) -> StoredMessage:
    """The same message, counted as tried once more, and its body forgotten."""
    times = message.reconsume_times + 1
    if not hasattr(message, "_record"):
        return message.replace(reconsume_times=times)
    again = _new(type(message))
    _set_offset(again, message.offset)
    _set_record(again, message._record)
    again.__dict__["reconsume_times"] = times
    return again


def broker_property(message: StoredMessage, name: str) -> str | None:
    """What a broker noted in a stored message; None where that is not known any more."""
    if not hasattr(message, "_record"):
        return None
    source, position, size, _ = message._record
    return all_properties(source, message, position, size).get(name)
