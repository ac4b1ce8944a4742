"""What the store's bytes are made of: the fields of records, items of batches, queue units, the index.

Each is told once, in a table; structs, places and the columns of numpy are derived from these when
the module is loaded. The client has tables of its own in ``rocketwire.wire``, and nothing here comes
from those: see ``docs/design/decisions/0010-the-embedded-brokers-own-tables.md``.
"""

from __future__ import annotations

import struct
from typing import Final

from rocketwire.wire.codes import SystemFlag

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

#: A table of fields that follow on one another: their names, and how ``struct`` writes each.
Fields = tuple[tuple[str, str], ...]

_HOST: Final = "host"
#: How wide an address is: an IP and four bytes of port.
HOST_V4: Final = 8
HOST_V6: Final = 20
#: A record before its body. Behind that come the body, the topic and the properties, the latter
#: two with a prefix that tells how long they are.
RECORD_FIELDS: Final = (
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
#: A message of a batch as it is sent, before its body. Its properties follow behind their prefix.
ITEM_FIELDS: Final = (
    ("size", "i"),
    ("magic", "i"),
    ("crc", "i"),
    ("flag", "i"),
    ("body_size", "i"),
)
#: A message in its queue: where it lies in the log, and what to filter by.
UNIT_FIELDS: Final = (("physical", "q"), ("size", "i"), ("code", "q"))


def structure(fields: Fields, born: int = HOST_V4, store: int = HOST_V4) -> struct.Struct:
    """All fields of a table, with so many bytes for the two addresses."""
    hosts = {"born_host": f"{born}s", "store_host": f"{store}s"}
    return struct.Struct(">" + "".join(hosts.get(name, code) for name, code in fields))


def array_fields(fields: Fields) -> list[tuple[str, str]]:
    """All fields of a table as numpy wants them told, addresses being IPv4."""
    kinds = {"i": ">i4", "I": ">u4", "q": ">i8", _HOST: f"V{HOST_V4}"}
    return [(name, kinds[code]) for name, code in fields]


def _up_to(name: str) -> Fields:
    names = [each for each, _ in RECORD_FIELDS]
    return RECORD_FIELDS[: names.index(name) + 1]


def _picked(*names: str) -> struct.Struct:
    """Some fields before the addresses, in the table's order; those between them are skipped."""
    return struct.Struct(
        ">"
        + "".join(
            code if name in names else f"{struct.calcsize('>' + code)}x"
            for name, code in _up_to(names[-1])
        )
    )


def _places(born: int, store: int) -> dict[str, slice]:
    return {
        name: slice(
            structure(_up_to(name)[:-1], born, store).size,
            structure(_up_to(name), born, store).size,
        )
        for name, _ in RECORD_FIELDS
    }


#: By the number of bytes of the two addresses.
HEADS: Final = {
    (born, store): structure(RECORD_FIELDS, born, store)
    for born in (HOST_V4, HOST_V6)
    for store in (HOST_V4, HOST_V6)
}
HEAD_V4: Final = HEADS[HOST_V4, HOST_V4]
HEAD_V4_SIZE: Final = HEAD_V4.size
HEAD_WITHOUT_HOSTS: Final = HEAD_V4_SIZE - 2 * HOST_V4
#: A file is closed by a blank record; there is always room for its size and magic.
BLANK_HEAD: Final = _picked("size", "magic")
#: Where a record lies, in the log and in its queue.
PLACE_HEAD: Final = _picked("size", "queue", "queue_offset", "physical")
#: What tells how the rest is laid out.
KIND_HEAD: Final = _picked("magic", "system_flag")
#: What a record is checked by, and what is kept of it.
CHECK_HEAD: Final = _picked(
    "size", "magic", "crc", "queue", "queue_offset", "physical", "system_flag"
)

#: The bits of a system flag that tell how wide the addresses are.
HOST_BITS: Final = SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6
#: Where in a record each field lies, by the host bits of its system flag.
PLACES: Final = {
    0: _places(HOST_V4, HOST_V4),
    SystemFlag.BORN_HOST_V6: _places(HOST_V6, HOST_V4),
    SystemFlag.STORE_HOST_V6: _places(HOST_V4, HOST_V6),
    HOST_BITS: _places(HOST_V6, HOST_V6),
}
#: The fields before the addresses lie at the same place in every record.
SIZE: Final = PLACES[0]["size"]
QUEUE_OFFSET: Final = PLACES[0]["queue_offset"]
PHYSICAL: Final = PLACES[0]["physical"]
SYSTEM_FLAG: Final = PLACES[0]["system_flag"]
#: Those behind them, by the host bits.
STORED: Final = {bits: places["stored"] for bits, places in PLACES.items()}
BODY_SIZE: Final = {bits: places["body_size"] for bits, places in PLACES.items()}

#: Topics up to so many bytes have a prefix of one byte, longer ones (in version 2) of two.
SHORT_TOPIC: Final = 127
TOPIC_PREFIX: Final = 1
LONG_TOPIC_PREFIX: Final = 2
PROPERTIES_SIZE: Final = struct.Struct(">H")
PROPERTIES_PREFIX: Final = PROPERTIES_SIZE.size
PROPERTIES_LIMIT: Final = 32767
#: What a record with a short topic has beside its head and what is in it.
PREFIXES: Final = TOPIC_PREFIX + PROPERTIES_PREFIX
SHORTEST_RECORD: Final = HEAD_V4_SIZE + PREFIXES

ITEM: Final = structure(ITEM_FIELDS)
ITEM_SIZE: Final = ITEM.size
#: What a message of a batch has beside its body and its properties.
ITEM_OVERHEAD: Final = ITEM_SIZE + PROPERTIES_PREFIX

UNIT: Final = structure(UNIT_FIELDS)
UNIT_SIZE: Final = UNIT.size
#: What fills a queue file before its first real unit, as Apache does it.
BLANK_UNIT: Final = UNIT.pack(0, 0x7FFFFFFF, 0)

#: A file of the index: times and log offsets of its first and last message, used slots, entries.
INDEX_HEAD: Final = struct.Struct(">qqqqii")
#: Then the slots, each with the number of its newest entry.
INDEX_SLOT: Final = struct.Struct(">i")
#: Then the entries: hash, log offset, seconds since the file's first message, and the entry before.
INDEX_ENTRY: Final = struct.Struct(">iqii")
INDEX_SLOT_SIZE: Final = INDEX_SLOT.size
INDEX_ENTRY_SIZE: Final = INDEX_ENTRY.size


def index_entries_at(slots: int) -> int:
    """Where the entries begin in a file of the index with so many slots."""
    return INDEX_HEAD.size + INDEX_SLOT_SIZE * slots
