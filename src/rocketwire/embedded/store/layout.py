"""The bytes of RocketMQ's store: how records are written and read, and how large each file is.

The broker writes records with the code here and never with ``rocketwire.wire.stored_message``,
which the client reads them with: an error in one of them then shows in every test. The fields are
in ``fields``.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketwire.embedded.store.failures import MessageRefusedError, StoreError
from rocketwire.embedded.store.fields import (
    BODY_SIZE,
    CHECK_HEAD,
    HEAD_WITHOUT_HOSTS,
    HEADS,
    HOST_BITS,
    HOST_V6,
    INDEX_ENTRY_SIZE,
    KIND_HEAD,
    LONG_TOPIC_PREFIX,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LIMIT,
    PROPERTIES_PREFIX,
    PROPERTIES_SIZE,
    SHORT_TOPIC,
    SHORTEST_RECORD,
    STORED,
    TOPIC_PREFIX,
    UNIT_SIZE,
    index_entries_at,
)
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.java_hash import java_string_hash

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSizes:
    """How large the files are. They are recorded in the folder, and what is recorded wins.

    The defaults are small, so that a test leaves little behind; ``apache()`` has those of a
    Java broker.
    """

    log_file: int = 64 << 20
    queue_units: int = 300_000
    index_slots: int = 250_000
    index_entries: int = 1_000_000

    def __post_init__(self) -> None:
        for name, least in (("log_file", 4096), ("queue_units", 8), ("index_slots", 8)):
            if getattr(self, name) < least:
                raise StoreError(f"{name} is {getattr(self, name)}: give at least {least}")
        if self.index_entries < 8 or self.index_file > 0x7FFFFFFF:
            raise StoreError(
                f"index_entries is {self.index_entries}: give at least 8, and keep an index "
                "file below 2 GiB"
            )
        if self.log_file > 0x7FFFFFFF:
            raise StoreError(f"log_file is {self.log_file}: Apache's limit is 2 GiB - 1")

    @classmethod
    def apache(cls) -> StoreSizes:
        """A Java broker's defaults: 1 GiB of log and 420 MB of index in each file."""
        return cls(log_file=1 << 30, index_slots=5_000_000, index_entries=20_000_000)

    @property
    def queue_file(self) -> int:
        """Bytes of one queue file."""
        return self.queue_units * UNIT_SIZE

    @property
    def index_file(self) -> int:
        """Bytes of one index file."""
        return index_entries_at(self.index_slots) + INDEX_ENTRY_SIZE * self.index_entries


@dataclass(slots=True)
class Draft:
    """A message about to be stored. Addresses are the packed ip and a four-byte port."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_ms: int
    born_host: bytes
    flag: int = 0
    system_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    #: When not given, it is computed from the ``TAGS`` property.
    tags_code: int | None = None


class Appended(NamedTuple):
    """Where a message went."""

    physical_offset: int
    size: int
    queue_offset: int
    store_ms: int


def file_name(offset: int) -> str:
    """Twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}"


def host_flags(system_flag: int, born_host: bytes, store_host: bytes) -> int:
    """A system flag whose address bits say what the addresses are, not what the client claims."""
    flags = system_flag & ~HOST_BITS
    if len(born_host) == HOST_V6:
        flags |= SystemFlag.BORN_HOST_V6
    if len(store_host) == HOST_V6:
        flags |= SystemFlag.STORE_HOST_V6
    return flags


def encode_record(
    draft: Draft, queue_offset: int, physical_offset: int, store_ms: int, store_host: bytes
) -> bytes:
    """The record of one message, whose size ``record_size`` told before."""
    topic, body, properties = draft.topic.encode(), draft.body, draft.properties
    flags = host_flags(draft.system_flag, draft.born_host, store_host)
    short = len(topic) <= SHORT_TOPIC
    prefix = TOPIC_PREFIX if short else LONG_TOPIC_PREFIX
    head = HEADS[len(draft.born_host), len(store_host)]
    return b"".join(
        (
            head.pack(
                head.size + len(body) + prefix + len(topic) + PROPERTIES_PREFIX + len(properties),
                MAGIC_V1 if short else MAGIC_V2,
                zlib.crc32(body) & 0x7FFFFFFF,
                draft.queue_id,
                draft.flag,
                queue_offset,
                physical_offset,
                flags,
                draft.born_ms,
                draft.born_host,
                store_ms,
                store_host,
                draft.reconsume_times,
                draft.prepared_offset,
                len(body),
            ),
            body,
            len(topic).to_bytes(prefix, "big"),
            topic,
            PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
    )


def record_size(draft: Draft, store_host: bytes) -> int:
    """How many bytes the record of a message takes.

    Raises:
        MessageRefusedError: the properties or the topic are longer than a record can hold.
    """
    if len(draft.properties) > PROPERTIES_LIMIT:
        raise MessageRefusedError(
            f"the properties take {len(draft.properties)} bytes: at most {PROPERTIES_LIMIT} fit"
        )
    topic = len(draft.topic.encode())
    if topic > PROPERTIES_LIMIT:
        raise MessageRefusedError(f"the topic takes {topic} bytes: shorten it")
    head = HEAD_WITHOUT_HOSTS + len(draft.born_host) + len(store_host)
    prefix = TOPIC_PREFIX if topic <= SHORT_TOPIC else LONG_TOPIC_PREFIX
    rest = prefix + topic + PROPERTIES_PREFIX + len(draft.properties)
    return head + len(draft.body) + rest


_tag_codes: dict[bytes, int] = {}


def tags_code(properties: bytes) -> int:
    """What a queue unit holds in order to filter by tag: Java's hash of the tag, 0 without one."""
    # From the end: of two tags, the later one counts, as everywhere in RocketMQ.
    start = properties.rfind(b"TAGS\x01")
    while start > 0 and properties[start - 1] != 2:
        start = properties.rfind(b"TAGS\x01", 0, start + 4)
    if start < 0:
        return 0
    end = properties.find(b"\x02", start)
    tag = properties[start + 5 : end if end >= 0 else len(properties)]
    code = _tag_codes.get(tag)
    if code is None:
        if len(_tag_codes) >= 4096:
            _tag_codes.clear()
        code = _tag_codes[tag] = java_string_hash(tag.decode(errors="replace"))
    return code


class RecordHead(NamedTuple):
    """What recovery and the index need to know of a record, checked."""

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    system_flag: int
    store_ms: int
    properties: bytes


def parts_of(record: memoryview, magic: int, flags: int) -> tuple[int, int, int, int]:
    """Where body and topic begin and end in a record, as its lengths say, which may be wrong.

    Behind the topic come the prefix of the properties and these, up to the record's end.
    """
    length = BODY_SIZE[flags & HOST_BITS]
    body = length.stop
    body_end = body + int.from_bytes(record[length], "big")
    topic = body_end + (TOPIC_PREFIX if magic == MAGIC_V1 else LONG_TOPIC_PREFIX)
    return body, body_end, topic, topic + int.from_bytes(record[body_end:topic], "big")


def properties_of(record: memoryview) -> bytes:
    """The encoded properties of a whole record."""
    magic, flags = KIND_HEAD.unpack_from(record)
    return bytes(record[parts_of(record, magic, flags)[3] + PROPERTIES_PREFIX :])


def store_ms_of(record: memoryview) -> int:
    """When a record was stored."""
    _, flags = KIND_HEAD.unpack_from(record)
    return int.from_bytes(record[STORED[flags & HOST_BITS]], "big")


def check_record(data: memoryview, position: int, physical_offset: int) -> RecordHead | None:
    """Read the record at a position, or say that there is none that is whole.

    Length, magic, checksum of the body and the record's own offset must all be right: the last
    one tells a record from an old one that happens to lie in the rubbish of a torn tail.
    """
    if len(data) - position < SHORTEST_RECORD:
        return None
    size, magic, crc, queue_id, queue_offset, physical, flags = CHECK_HEAD.unpack_from(
        data, position
    )
    if magic not in (MAGIC_V1, MAGIC_V2) or physical != physical_offset:
        return None
    if size < SHORTEST_RECORD or position + size > len(data):
        return None
    record = data[position : position + size]
    body, body_end, topic, topic_end = parts_of(record, magic, flags)
    properties = topic_end + PROPERTIES_PREFIX
    # No part ends before it begins: if the last one ends where the record does, all lie in it.
    if properties + int.from_bytes(record[topic_end:properties], "big") != size:
        return None
    if zlib.crc32(record[body:body_end]) & 0x7FFFFFFF != crc:
        return None
    return RecordHead(
        size,
        str(record[topic:topic_end], "utf-8", "replace"),
        queue_id,
        queue_offset,
        flags,
        int.from_bytes(record[STORED[flags & HOST_BITS]], "big"),
        bytes(record[properties:]),
    )
