"""The record in which a broker keeps a message, and in which it hands it out.

Pull, query and view replies are such records one after the other; the embedded broker's commit log
is, too. Here a record is read as a whole, and everything in it must be right; ``lazy_message``
makes what users get of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception under struct's own odd name
from typing import Final
from zlib import crc32

from rocketwire.errors import LocalProtocolError, RemoteProtocolError
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.compression import decompress
from rocketwire.wire.message_id import host_bytes, host_text
from rocketwire.wire.properties import (
    MAX_PROPERTIES_BYTES,
    Property,
    decode_properties_bytes,
    number_in,
)
from rocketwire.wire.record_layout import (
    BOTH_V6,
    HEAD_SIZES,
    HEAD_V4_SIZE,
    HEADS,
    INNER_BATCH,
    LONGEST_V1_TOPIC,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    parts_of,
    picked,
)

Buffer = bytes | bytearray | memoryview

#: Bodies are made whole up to this size; brokers refuse messages a fraction of it.
MAX_BODY: Final = 64 * 1024 * 1024
#: More messages than fit into any body.
_FAR_MORE: Final = MAX_BODY

_START: Final = Struct(">iI")
_SHORT: Final = Struct(">h")
_HOST_V4: Final = Struct(">4si")
_HOST_V6: Final = Struct(">16si")
_unpack_start = _START.unpack_from
_unpack_flag = picked("system_flag").unpack_from


@dataclass(slots=True)
class Record:
    """One stored message, field by field. Hosts are ``ip:port`` or ``[ip]:port``."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    system_flag: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties_raw: bytes
    _properties: dict[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, the user's and RocketMQ's; parsed when first asked for."""
        found = self._properties
        if found is None:
            found = self._properties = decode_properties_bytes(self.properties_raw)
        return found

    def encode(self) -> bytes:
        """Its bytes again."""
        return encode_record(
            topic=self.topic,
            body=self.body,
            properties=self.properties_raw,
            queue_id=self.queue_id,
            queue_offset=self.queue_offset,
            physical_offset=self.physical_offset,
            born_ms=self.born_ms,
            born_host=self.born_host,
            store_ms=self.store_ms,
            store_host=self.store_host,
            flag=self.flag,
            system_flag=self.system_flag,
            reconsume_times=self.reconsume_times,
            prepared_offset=self.prepared_offset,
            body_crc=self.body_crc,
        )


@lru_cache(maxsize=1024)
def pack_host(text: str) -> bytes:
    """``ip:port`` or ``[ip]:port`` as a record stores it: 8 bytes, or 20 for IPv6.

    Raises:
        LocalProtocolError: the text is not an address with a port.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > 10 or int(port) > 0xFFFFFFFF:
        raise LocalProtocolError(f"{text!r} is not an address: write ip:port or [ip]:port")
    return host_bytes(host) + int(port).to_bytes(4, "big")


@lru_cache(maxsize=1024)
def unpack_host(data: bytes) -> str:
    """A stored host as text. Ports are 32 bits wide there, and shown as they are."""
    layout, form = (_HOST_V4, "{}:{}") if len(data) == 8 else (_HOST_V6, "[{}]:{}")
    ip, port = layout.unpack(data)
    return form.format(host_text(ip), port & 0xFFFFFFFF)


def encode_record(  # noqa: PLR0913 - a record has that many fields
    *,
    topic: str | bytes,
    body: bytes,
    properties: bytes = b"",
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    born_ms: int = 0,
    born_host: str | bytes = "127.0.0.1:0",
    store_ms: int = 0,
    store_host: str | bytes = "127.0.0.1:0",
    flag: int = 0,
    system_flag: int = 0,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    body_crc: int | None = None,
) -> bytes:
    """One record. The host bits of the system flag are set from the hosts.

    Hosts may be given as text or as :func:`pack_host` makes them; ``body_crc`` only if known.

    Raises:
        LocalProtocolError: something does not fit into its field.
    """
    born = pack_host(born_host) if isinstance(born_host, str) else born_host
    store = pack_host(store_host) if isinstance(store_host, str) else store_host
    name = topic.encode() if isinstance(topic, str) else topic
    hosts = (len(born) == 20) + 2 * (len(store) == 20)
    system_flag = system_flag & ~BOTH_V6 | hosts << 4
    short = len(name) <= LONGEST_V1_TOPIC
    size = HEAD_SIZES[hosts] + len(body) + (1 if short else 2) + len(name) + 2 + len(properties)
    crc = crc32(body) & 0x7FFFFFFF if body_crc is None else body_crc
    try:
        head = HEADS[hosts].pack(
            size, MAGIC_V1 if short else MAGIC_V2, crc, queue_id, flag, queue_offset,
            physical_offset, system_flag, born_ms, born, store_ms, store, reconsume_times,
            prepared_offset, len(body),
        )  # fmt: skip
        length = len(name).to_bytes(1, "big") if short else _SHORT.pack(len(name))
        return b"".join((head, body, length, name, _SHORT.pack(len(properties)), properties))
    except StructError as error:
        raise _does_not_fit(name, properties, error) from None


def _does_not_fit(name: bytes, properties: bytes, error: Exception) -> LocalProtocolError:
    if len(properties) > MAX_PROPERTIES_BYTES:
        return LocalProtocolError(
            f"properties take {len(properties)} bytes, at most {MAX_PROPERTIES_BYTES} fit"
        )
    if len(name) > 32767:
        return LocalProtocolError(f"a topic of {len(name)} bytes does not fit into a record")
    return LocalProtocolError(f"a field does not fit into a record: {error}")


def decode_record(buffer: Buffer, position: int = 0) -> tuple[Record, int]:
    """The record at a position, and the position after it.

    Raises:
        RemoteProtocolError: there is no whole, sound record there.
    """
    left = len(buffer) - position
    if left < _START.size:
        raise _cut_off(position, left)
    size, magic = _unpack_start(buffer, position)
    if magic == MAGIC_BLANK:
        raise _broken(position, f"it is a blank of {size} bytes")
    if magic not in {MAGIC_V1, MAGIC_V2}:
        raise _broken(position, f"its magic number is {magic:#010x}")
    if size < MIN_RECORD:
        raise _broken(position, f"its size is {size}")
    if size > left:
        raise _cut_off(position, left)
    parts = parts_of(buffer, position, size)
    if parts is None:
        raise _broken(position, _disagreement(buffer, position, size))
    fields = HEADS[_unpack_flag(buffer, position)[0] >> 4 & 3].unpack_from(buffer, position)
    found = Record(
        size, magic, fields[2], fields[3], fields[4], fields[5], fields[6], fields[7], fields[8],
        unpack_host(fields[9]), fields[10], unpack_host(fields[11]), fields[12], fields[13],
        bytes(buffer[parts.body : parts.body_end]),
        str(buffer[parts.topic : parts.topic_end], "utf-8", "replace"),
        bytes(buffer[parts.properties : position + size]),
    )  # fmt: skip
    return found, position + size


def _disagreement(buffer: Buffer, position: int, size: int) -> str:
    hosts = _unpack_flag(buffer, position)[0] >> 4 & 3
    if size < MIN_RECORD - HEAD_V4_SIZE + HEAD_SIZES[hosts]:
        return f"its size {size} is too small for IPv6 hosts"
    return f"the lengths of its body, topic and properties do not make up its size {size}"


def _cut_off(position: int, left: int) -> RemoteProtocolError:
    return _broken(position, f"only {left} bytes are left of it")


def _broken(position: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"stored record at byte {position} is broken: {why}")


def unwrap_inner_batch(
    record: Record, *, end: int = 2**63 - 1, limit: int = MAX_BODY
) -> list[Record]:
    """The messages in a record that holds a whole batch; the record itself when it does not.

    Offsets count from the property INNER_BASE, or from the record's own. How many there are is told
    by the body, not by INNER_NUM, which could only agree or be wrong.

    Args:
        record: what was stored. Any client may send a message with the flags of a batch.
        end: where the offsets end that it may take: those behind it belong to others.
        limit: the largest body to make whole again.

    Raises:
        ProtocolError: its body is no batch, or one with more messages than it has offsets.
    """
    if record.system_flag & INNER_BATCH != INNER_BATCH:
        return [record]
    body = decompress(record.body, record.system_flag, limit)
    most = end - record.queue_offset
    # An answer may have the messages of several queues, or be in no order at all.
    items = list(islice(decode_batch(body), min(max(most, 0) + 1, _FAR_MORE)))
    if not 0 < len(items) <= most:
        raise RemoteProtocolError(f"{len(items)} messages are in a batch that has {most} offsets")
    base = number_in(record.properties.get(Property.INNER_BASE), record.queue_offset)
    if not record.queue_offset <= base <= end - len(items):
        base = record.queue_offset
    system_flag = record.system_flag & ~(INNER_BATCH | SystemFlag.COMPRESSED)
    return [
        Record(
            record.size, record.magic, crc32(item.body) & 0x7FFFFFFF, record.queue_id, item.flag,
            base + index, record.physical_offset, system_flag, record.born_ms, record.born_host,
            record.store_ms, record.store_host, record.reconsume_times, record.prepared_offset,
            item.body, record.topic, item.properties_raw,
        )
        for index, item in enumerate(items)
    ]  # fmt: skip
