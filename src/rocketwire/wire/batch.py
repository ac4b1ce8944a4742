"""The body of a batch: several messages of one topic, one after the other.

Each item is ``int32 size, int32 0, int32 0, int32 flag, int32 body length, body, int16 properties
length, properties``; the topic is in the request's header. What may be batched together is
decided by ``core/validate.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception under struct's own odd name
from typing import Final, NamedTuple

from rocketwire.errors import LocalProtocolError, RemoteProtocolError
from rocketwire.wire.message_id import IdBlock
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES

#: Bytes of an item beyond its body and its properties.
ITEM_OVERHEAD: Final = 22

_HEAD: Final = Struct(">iiiii")
_SHORT: Final = Struct(">h")
_pack_head = _HEAD.pack
_pack_short = _SHORT.pack
_unpack_head = _HEAD.unpack_from
_unpack_short = _SHORT.unpack_from


class BatchItem(NamedTuple):
    """One message of a batch."""

    body: bytes
    properties_raw: bytes
    flag: int


def encode_item(body: bytes, properties: bytes, flag: int) -> bytes:
    """One item. ``properties`` is already encoded."""
    try:
        return b"%b%b%b%b" % (
            _pack_head(ITEM_OVERHEAD + len(body) + len(properties), 0, 0, flag, len(body)),
            body,
            _pack_short(len(properties)),
            properties,
        )
    except StructError:
        raise _too_large(body, properties, flag) from None


def _too_large(body: bytes, properties: bytes, flag: int) -> LocalProtocolError:
    if len(properties) > MAX_PROPERTIES_BYTES:
        return LocalProtocolError(
            f"properties of a batch item take {len(properties)} bytes, "
            f"at most {MAX_PROPERTIES_BYTES} fit: shorten them"
        )
    if not -(2**31) <= flag < 2**31:
        return LocalProtocolError(f"flag {flag} of a batch item does not fit into 32 bits")
    return LocalProtocolError(f"a body of {len(body)} bytes does not fit into a batch: send less")


#: As many bodies of a new length as it takes to make up for what is prepared for it, 15 µs.
_MANY: Final = 200


class PlainItems:
    """Encodes messages that have a body, an id and nothing else, all at once.

    What is the same for all is repeated by the interpreter's own loops: 0.1 µs a message, against
    0.3 for ``encode_item``, which needs the properties of each encoded before.

    Args:
        before: the encoded properties up to the id.
        after: those behind it.
        id_size: characters of an id.
    """

    __slots__ = ("_before", "_ends", "_heads", "_joints", "overhead")

    def __init__(self, before: bytes, after: bytes, id_size: int) -> None:
        properties = len(before) + id_size + len(after)
        self.overhead = ITEM_OVERHEAD + properties
        self._before = _pack_short(properties) + before
        #: What follows the last but two digits of an id.
        self._ends = [b"%02X%b" % (number, after) for number in range(256)]
        self._heads = _Heads(self.overhead)
        #: The ends again, each with the beginning of a next item whose body has this length.
        self._joints: tuple[int, list[bytes]] = (-1, [])

    def encode(self, bodies: Sequence[bytes], ids: IdBlock, sizes: Collection[int]) -> bytes:
        """The batch of these bodies, each with its id.

        Args:
            bodies: at least one.
            ids: as many.
            sizes: the lengths that there are among the bodies, each once.
        """
        if len(sizes) == 1 and (len(bodies) >= _MANY or self._joints[0] in sizes):
            return self._encode_alike(bodies, ids, *sizes)
        pieces: list[bytes] = []
        number, place, before = ids.first, 0, self._before + ids.head.encode()
        while place < len(bodies):  # once for as many as share the first digits of their number
            low = number & 0xFF
            some = bodies[place : place + 256 - low]
            heads = map(self._heads.__getitem__, map(len, some))
            middle = repeat(b"%b%02X" % (before, number >> 8 & 0xFF))
            pieces += chain.from_iterable(zip(heads, some, middle, self._ends[low:]))  # noqa: B905 - two are longer
            number += len(some)
            place += len(some)
        return b"".join(pieces)

    def _encode_alike(self, bodies: Sequence[bytes], ids: IdBlock, size: int) -> bytes:
        """As ``encode``, for bodies of one length: all items begin alike, which saves a third."""
        known, ends = self._joints
        head = self._heads[size]
        if known != size:
            ends = [end + head for end in self._ends]
            self._joints = (size, ends)
        pieces = [head]
        number, place, before = ids.first, 0, self._before + ids.head.encode()
        while place < len(bodies):
            low = number & 0xFF
            some = bodies[place : place + 256 - low]
            middle = repeat(b"%b%02X" % (before, number >> 8 & 0xFF))
            pieces += chain.from_iterable(zip(some, middle, ends[low:]))  # noqa: B905 - two are longer
            number += len(some)
            place += len(some)
        pieces[-1] = self._ends[number - 1 & 0xFF]
        return b"".join(pieces)


class _Heads(dict[int, bytes]):
    """How items begin, by the length of their body."""

    def __init__(self, overhead: int) -> None:
        super().__init__()
        self._overhead = overhead

    def __missing__(self, length: int) -> bytes:
        head = _pack_head(self._overhead + length, 0, 0, 0, length)
        if len(self) < 4096:
            self[length] = head
        return head


def encode_batch(items: Iterable[tuple[bytes, bytes, int]]) -> bytes:
    """All items of a batch, each given as body, encoded properties and flag."""
    return b"".join([encode_item(body, properties, flag) for body, properties, flag in items])


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
        body_at = position + 20
        body_end = body_at + body_length
        (length,) = _unpack_short(data, body_end)
        position += size
        if body_end + 2 + length != position or length < 0:
            raise _broken(position - size, f"its properties length {length} leaves a gap")
        yield BatchItem(data[body_at:body_end], data[body_end + 2 : position], flag)


def _broken(position: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"batch item at byte {position} is broken: {why}")
