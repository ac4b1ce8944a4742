"""The bytes of RocketMQ's store: records, queue units, and how large each file is.

The broker writes records with the code here and never with ``rocketwire.wire.stored_message``,
which the client reads them with: an error in one of them then shows in every test.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketwire.embedded.store.failures import MessageRefusedError, StoreError
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.java_hash import java_string_hash

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

#: A file is closed by a blank record; there is always room for its size and magic.
BLANK_HEAD: Final = struct.Struct(">iI")
_HOST: Final = "host"
#: Everything before the body: each field, and how ``struct`` writes it.
_FIELDS: Final = (
    ("size", "i"),
    ("magic", "I"),
    ("crc", "i"),
    ("queue", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("physical", "q"),
    ("system_flag", "i"),
    ("born", "q"),
    ("born_host", _HOST),
    ("stored", "q"),
    ("store_host", _HOST),
    ("reconsumed", "i"),
    ("prepared", "q"),
    ("body_size", "i"),
)


def _head(born: int, store: int, fields: int = len(_FIELDS)) -> struct.Struct:
    """The first fields of a record, with so many bytes for the two addresses (ip and port)."""
    hosts = {"born_host": f"{born}s", "store_host": f"{store}s"}
    return struct.Struct(">" + "".join(hosts.get(name, code) for name, code in _FIELDS[:fields]))


#: By the number of bytes of the two addresses.
HEADS: Final = {(born, store): _head(born, store) for born in (8, 20) for store in (8, 20)}
#: Up to the place in the log, and up to the flags that tell how long the rest is.
PLACE_HEAD: Final = _head(8, 8, 7)
_FLAGS_HEAD: Final = _head(8, 8, 8)
HEAD_V4: Final = HEADS[8, 8]
HEAD_V4_SIZE: Final = HEAD_V4.size
PROPERTIES_LIMIT: Final = 32767

UNIT: Final = struct.Struct(">qiq")
UNIT_SIZE: Final = UNIT.size
#: What fills a queue file before its first real unit, as Apache does it.
BLANK_UNIT: Final = UNIT.pack(0, 0x7FFFFFFF, 0)

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"


def head_fields() -> list[tuple[str, str]]:
    """The fields of a head with IPv4 addresses as numpy wants them told."""
    kinds = {"i": ">i4", "I": ">u4", "q": ">i8", _HOST: "V8"}
    return [(name, kinds[code]) for name, code in _FIELDS]


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
        return 40 + 4 * self.index_slots + 20 * self.index_entries


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
    flags = system_flag & ~(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
    if len(born_host) == 20:
        flags |= SystemFlag.BORN_HOST_V6
    if len(store_host) == 20:
        flags |= SystemFlag.STORE_HOST_V6
    return flags


def encode_record(
    draft: Draft, queue_offset: int, physical_offset: int, store_ms: int, store_host: bytes
) -> bytes:
    """The record of one message, whose size ``record_size`` told before."""
    topic, body, properties = draft.topic.encode(), draft.body, draft.properties
    flags = host_flags(draft.system_flag, draft.born_host, store_host)
    short = len(topic) <= 127
    head = HEADS[len(draft.born_host), len(store_host)]
    return b"".join(
        (
            head.pack(
                head.size + len(body) + (3 if short else 4) + len(topic) + len(properties),
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
            len(topic).to_bytes(1 if short else 2, "big"),
            topic,
            len(properties).to_bytes(2, "big"),
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
    fixed = HEAD_V4_SIZE - 16 + len(draft.born_host) + len(store_host)
    return fixed + len(draft.body) + (3 if topic <= 127 else 4) + topic + len(draft.properties)


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


def properties_of(record: memoryview) -> bytes:
    """The encoded properties of a whole record."""
    flags = record[39]
    at = HEAD_V4_SIZE - 4
    if flags & SystemFlag.BORN_HOST_V6:
        at += 12
    if flags & SystemFlag.STORE_HOST_V6:
        at += 12
    at += 4 + int.from_bytes(record[at : at + 4], "big")
    short = record[7] == MAGIC_V1 & 0xFF
    start = at + (1 if short else 2)
    return bytes(record[start + int.from_bytes(record[at:start], "big") + 2 :])


def check_record(data: memoryview, position: int, physical_offset: int) -> RecordHead | None:
    """Read the record at a position, or say that there is none that is whole.

    Length, magic, checksum of the body and the record's own offset must all be right: the last
    one tells a record from an old one that happens to lie in the rubbish of a torn tail.
    """
    if len(data) - position < HEAD_V4_SIZE + 3:
        return None
    size, magic, crc, queue_id, _, queue_offset, physical, flags = _FLAGS_HEAD.unpack_from(
        data, position
    )
    if magic not in (MAGIC_V1, MAGIC_V2) or physical != physical_offset:
        return None
    end = position + size
    at = position + 48 + (20 if flags & SystemFlag.BORN_HOST_V6 else 8)
    if size < HEAD_V4_SIZE + 3 or end > len(data):
        return None
    store_ms = int.from_bytes(data[at : at + 8], "big")
    at += 8 + (20 if flags & SystemFlag.STORE_HOST_V6 else 8) + 12
    body_end = at + 4 + int.from_bytes(data[at : at + 4], "big")
    topic_at = body_end + (1 if magic == MAGIC_V1 else 2)
    if topic_at > end or zlib.crc32(data[at + 4 : body_end]) & 0x7FFFFFFF != crc:
        return None
    topic_end = topic_at + int.from_bytes(data[body_end:topic_at], "big")
    if topic_end + 2 > end:
        return None
    length = int.from_bytes(data[topic_end : topic_end + 2], "big")
    if topic_end + 2 + length != end:
        return None
    return RecordHead(
        size,
        str(data[topic_at:topic_end], "utf-8", "replace"),
        queue_id,
        queue_offset,
        flags,
        store_ms,
        bytes(data[topic_end + 2 : end]),
    )
