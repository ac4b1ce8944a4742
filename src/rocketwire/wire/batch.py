"""The body of a batch: several messages of one topic, one after the other.

Each item is ``int32 size, int32 0, int32 0, int32 flag, int32 body length, body, int16 properties
length, properties``; the topic is in the request's header. What may be batched together is
decided by ``core/sending/validate.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import add
from struct import Struct
from typing import Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.message_id import IdBlock
from rocketwire.wire.send_properties import ID_END, ID_NAME

#: Bytes of an item beyond its body and its properties.
ITEM_OVERHEAD: Final = 22

#: The fixed fields of an item, and how ``struct`` writes each. Brokers fill in ``magic`` and ``crc``.
_FIELDS: Final = (("size", "i"), ("magic", "i"), ("crc", "i"), ("flag", "i"), ("body", "i"))
_HEAD: Final = Struct(">" + "".join(code for _, code in _FIELDS))
#: Bytes of the fixed fields.
HEAD_SIZE: Final = _HEAD.size
_SHORT: Final = Struct(">h")
#: Bytes before the properties that tell how long those are.
LENGTH_SIZE: Final = _SHORT.size
_pack_short = _SHORT.pack
_unpack_head = _HEAD.unpack_from
_unpack_short = _SHORT.unpack_from


def item_array_fields() -> list[tuple[str, str]]:
    """The fixed fields of an item as numpy wants them told."""
    return [(name, f">{code}4") for name, code in _FIELDS]


def first_properties(body: bytes | memoryview, most: int) -> bytes:
    """How the properties of the first message of a batch begin, at most so many bytes; empty without one."""
    if len(body) < HEAD_SIZE:
        return b""
    at = HEAD_SIZE + int(_unpack_head(body)[-1]) + LENGTH_SIZE
    return bytes(body[at : at + most])


class BatchItem(NamedTuple):
    """One message of a batch."""

    body: bytes
    properties_raw: bytes
    flag: int


#: The last two digits of an id and what follows it.
_ID_ENDS: Final = [b"%02X" % number + ID_END for number in range(256)]
#: The same head as ``_HEAD``, without the two numbers that brokers fill in.
_pack_sent_head = Struct(">i8xii").pack
_PIECES: Final = 6


def encode_items(
    bodies: Sequence[bytes], fields: Sequence[bytes], flags: Iterable[int], ids: IdBlock
) -> bytes:
    """The batch of these messages, each with its id.

    One pass of the interpreter's own loops over each column (sizes, heads, ids), each column put
    into its places of one list, and one join: a Python loop over the messages takes twice as long,
    and weaving the columns together message by message makes objects that the garbage collector
    counts.

    Args:
        bodies: at least one.
        fields: the encoded properties of each but its id, short enough for the format.
        flags: of each.
        ids: as many.
    """
    before = ID_NAME + ids.head.encode()
    id_size = len(before) + 4 + len(ID_END)
    count = len(bodies)
    body_sizes = list(map(len, bodies))
    property_sizes = list(map(add, map(len, fields), repeat(id_size)))
    sizes = map(add, map(add, body_sizes, property_sizes), repeat(ITEM_OVERHEAD))
    starts: list[bytes] = []
    number, last = ids.first, ids.first + count
    while number < last:  # once for as many as share all but the last two digits
        end = min(last, (number | 0xFF) + 1)
        starts += [b"%b%02X" % (before, number >> 8 & 0xFF)] * (end - number)
        number = end
    low = ids.first & 0xFF
    ends = _ID_ENDS * ((low + count + 0xFF) // 0x100)
    pieces = [b""] * (_PIECES * count)
    pieces[0::_PIECES] = map(_pack_sent_head, sizes, flags, body_sizes)
    pieces[1::_PIECES] = bodies
    pieces[2::_PIECES] = map(_pack_short, property_sizes)
    pieces[3::_PIECES] = starts
    pieces[4::_PIECES] = ends[low : low + count]
    pieces[5::_PIECES] = fields
    return b"".join(pieces)


def decode_batch(buffer: bytes | bytearray | memoryview) -> Iterator[BatchItem]:
    """The items of a batch body, checked one by one as they are asked for.

    Raises:
        RemoteProtocolError: a length does not agree with the others, or the last item is cut.
    """
    data = bytes(buffer)
    position, end = 0, len(data)
    while position < end:
        if end - position < ITEM_OVERHEAD:
            raise _broken(position, f"only {end - position} bytes are left of an item")
        size, _, _, flag, body_length = _unpack_head(data, position)
        if not ITEM_OVERHEAD <= size <= end - position:
            raise _broken(position, f"its size is {size}, {end - position} bytes are left")
        if not 0 <= body_length <= size - ITEM_OVERHEAD:
            raise _broken(position, f"its body length is {body_length} in an item of {size} bytes")
        body_at = position + HEAD_SIZE
        body_end = body_at + body_length
        (length,) = _unpack_short(data, body_end)
        position += size
        if body_end + 2 + length != position or length < 0:
            raise _broken(position - size, f"its properties length {length} leaves a gap")
        yield BatchItem(data[body_at:body_end], data[body_end + 2 : position], flag)


def _broken(position: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"batch item at byte {position} is broken: {why}")
