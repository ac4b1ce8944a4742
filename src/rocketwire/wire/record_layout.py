"""Apache's record of a stored message: its fields of fixed width, in their order, told once.

Structs for single records and the kinds of arrays for many are derived from one table. After these
fields come the body, the topic with its length before it (one byte, two in version 2), and the
properties with theirs (two bytes).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from rocketwire.wire.codes import SystemFlag

MAGIC_V1: Final = 0xDAA320A7
#: Like V1 with two bytes for the topic's length: topics over 127 bytes, since 5.1.
MAGIC_V2: Final = 0xDAA320AB
#: The rest of a commit-log file that was too short for the next record.
MAGIC_BLANK: Final = 0xCBD43194
LONGEST_V1_TOPIC: Final = 127

#: The system flags that say that a record holds a whole batch: only both of them do.
INNER_BATCH: Final = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH
BOTH_V6: Final = SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6
#: A body with none of these lies in its record as it is, at its usual place.
NOT_PLAIN: Final = SystemFlag.COMPRESSED | BOTH_V6 | INNER_BATCH

#: How wide a host is: an address and four bytes of port.
HOST_V4: Final = 8
HOST_V6: Final = 20

_HOST: Final = "host"
#: Names, and how ``struct`` writes each.
_FIELDS: Final = (
    ("size", "i"),
    ("magic", "I"),
    ("body_crc", "I"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("physical_offset", "q"),
    ("system_flag", "i"),
    ("born_ms", "q"),
    ("born_host", _HOST),
    ("store_ms", "q"),
    ("store_host", _HOST),
    ("reconsume_times", "i"),
    ("prepared_offset", "q"),
    ("body_length", "i"),
)
NAMES: Final = tuple(name for name, _ in _FIELDS)
_WIDTHS: Final = {"i": 4, "I": 4, "q": 8, _HOST: HOST_V4}
_NUMPY: Final = {"i": ">i4", "I": ">u4", "q": ">i8", _HOST: f"V{HOST_V4}"}


def _head(born: int, store: int) -> Struct:
    hosts = {"born_host": f"{born}s", "store_host": f"{store}s"}
    return Struct(">" + "".join(hosts.get(name, code) for name, code in _FIELDS))


#: All fixed fields for each combination of host families, by ``(system_flag >> 4) & 3``.
HEADS: Final = tuple(
    _head(born, store) for store in (HOST_V4, HOST_V6) for born in (HOST_V4, HOST_V6)
)
HEAD_SIZES: Final = tuple(head.size for head in HEADS)
#: Those of a record with IPv4 hosts, as nearly all are.
HEAD_V4: Final = HEADS[0]
HEAD_V4_SIZE: Final = HEAD_V4.size
#: How much further everything behind a host begins when it is IPv6.
V6_EXTRA: Final = HOST_V6 - HOST_V4
#: The shortest record: IPv4 hosts, no body, no topic, no properties.
MIN_RECORD: Final = HEAD_V4_SIZE + 3


def _offsets() -> dict[str, int]:
    found: dict[str, int] = {}
    place = 0
    for name, code in _FIELDS:
        found[name] = place
        place += _WIDTHS[code]
    return found


#: Where each field begins in a record with IPv4 hosts.
OFFSETS: Final = _offsets()


def picked(*names: str) -> Struct:
    """A struct that reads some fields of a record with IPv4 hosts, in the table's order."""
    last = max(NAMES.index(name) for name in names)
    codes = [
        code.replace(_HOST, f"{HOST_V4}s") if name in names else f"{_WIDTHS[code]}x"
        for name, code in _FIELDS[: last + 1]
    ]
    return Struct(">" + "".join(codes))


def array_fields(first: str = "size", last: str = "body_length") -> list[tuple[str, str]]:
    """The fields from one to another as numpy wants them told, hosts being IPv4."""
    return [
        (name, _NUMPY[code]) for name, code in _FIELDS[NAMES.index(first) : NAMES.index(last) + 1]
    ]


_unpack_lengths = picked("magic", "system_flag", "body_length").unpack_from
_unpack_length = Struct(">i").unpack_from
_unpack_short = Struct(">h").unpack_from


class Parts(NamedTuple):
    """Where the parts of a record lie that have no fixed width; properties end with the record."""

    body: int
    body_end: int
    topic: int
    topic_end: int

    @property
    def properties(self) -> int:
        """Where the properties begin."""
        return self.topic_end + 2


def parts_of(data: bytes | bytearray | memoryview, position: int, size: int) -> Parts | None:
    """The parts of a record that is whole in a buffer; None if its lengths do not agree.

    Every length is checked against the end of the record before it is used.
    """
    magic, flags, length = _unpack_lengths(data, position)
    body = position + HEAD_V4_SIZE
    if hosts := flags >> 4 & 3:
        if size < MIN_RECORD - HEAD_V4_SIZE + HEAD_SIZES[hosts]:
            return None
        body = position + HEAD_SIZES[hosts]
        (length,) = _unpack_length(data, body - 4)
    stop = position + size
    body_end = body + length
    topic = body_end + (1 if magic == MAGIC_V1 else 2)
    if length < 0 or topic + 2 > stop:
        return None
    long = data[body_end] if magic == MAGIC_V1 else _unpack_short(data, body_end)[0]
    topic_end = topic + long
    if not topic <= topic_end <= stop - 2:
        return None
    (length,) = _unpack_short(data, topic_end)
    if topic_end + 2 + length != stop:
        return None
    return Parts(body, body_end, topic, topic_end)
