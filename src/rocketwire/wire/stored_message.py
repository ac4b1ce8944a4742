"""The record in which a broker keeps a message, and in which it hands it out.

Pull, query and view replies are such records one after the other; the embedded broker's commit log
is, too. Decoding is the reader's hot path: fixed fields come out of one precompiled struct, hosts
out of a small cache, and properties are only parsed when someone asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception under struct's own odd name
from typing import Final
from zlib import crc32

from rocketwire.errors import LocalProtocolError, RemoteProtocolError
from rocketwire.message import MessageQueue, StoredMessage, utc_from_ms
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.compression import decompress
from rocketwire.wire.message_id import host_bytes, host_text
from rocketwire.wire.properties import (
    MAX_PROPERTIES_BYTES,
    SYSTEM,
    TRANSIENT_PREFIX,
    Property,
    decode_properties_bytes,
)

Buffer = bytes | bytearray | memoryview

MAGIC_V1: Final = 0xDAA320A7
#: Like V1 with two bytes for the topic's length: topics over 127 bytes, since 5.1.
MAGIC_V2: Final = 0xDAA320AB
#: The rest of a commit-log file that was too short for the next record.
MAGIC_BLANK: Final = 0xCBD43194

#: The shortest record: IPv4 hosts, no body, no topic, no properties.
MIN_RECORD: Final = 91
#: Bodies are made whole up to this size; brokers refuse messages a fraction of it.
MAX_BODY: Final = 64 * 1024 * 1024

_BOTH_V6: Final = SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6
_INNER: Final = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH
_LONGEST_V1_TOPIC: Final = 127

_START: Final = Struct(">iI")
_SHORT: Final = Struct(">h")
# The fixed part for each combination of host families, by (system_flag >> 4) & 3.
_FIXED: Final = tuple(
    Struct(f">iIIiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20)
)
_SIZES: Final = tuple(fixed.size for fixed in _FIXED)
_HOST_V4: Final = Struct(">4si")
_HOST_V6: Final = Struct(">16si")
_unpack_start = _START.unpack_from
_unpack_short = _SHORT.unpack_from
_unpack_v4 = _FIXED[0].unpack_from
_V4_SIZE: Final = _SIZES[0]


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

    @property
    def offset_message_id(self) -> str:
        """The offset id: where the record lies."""
        place = self.physical_offset.to_bytes(8, "big", signed=True)
        return (pack_host(self.store_host) + place).hex().upper()


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

    Hosts may be given as text or as :func:`pack_host` makes them; ``body_crc`` only by who knows it.

    Raises:
        LocalProtocolError: something does not fit into its field.
    """
    born = pack_host(born_host) if isinstance(born_host, str) else born_host
    store = pack_host(store_host) if isinstance(store_host, str) else store_host
    name = topic.encode() if isinstance(topic, str) else topic
    hosts = (len(born) == 20) + 2 * (len(store) == 20)
    system_flag = system_flag & ~_BOTH_V6 | hosts << 4
    short = len(name) <= _LONGEST_V1_TOPIC
    size = _SIZES[hosts] + len(body) + (1 if short else 2) + len(name) + 2 + len(properties)
    crc = crc32(body) & 0x7FFFFFFF if body_crc is None else body_crc
    try:
        head = _FIXED[hosts].pack(
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


def decode_record(
    buffer: Buffer, position: int = 0, *, check_crc: bool = False
) -> tuple[Record, int]:
    """The record at a position, and the position after it.

    Raises:
        RemoteProtocolError: there is no whole, sound record there.
    """
    found = _decode(buffer, position, len(buffer))
    if found is None:
        raise _broken(position, f"only {len(buffer) - position} bytes are left of it")
    if check_crc and crc32(found.body) & 0x7FFFFFFF != found.body_crc & 0x7FFFFFFF:
        raise _broken(position, "its body does not match its checksum")
    return found, position + found.size


def iter_records(buffer: Buffer) -> Iterator[Record]:
    """All whole records of a pull reply, in order.

    A broker may cut the last one, so an incomplete tail ends the iteration silently, as does the
    blank end of a commit-log file.

    Raises:
        RemoteProtocolError: something there is not a record.
    """
    data = bytes(buffer)  # no copy when it is bytes; slices of bytes are bytes, of views are not
    position, end = 0, len(data)
    while position < end:
        record = _decode(data, position, end)
        if record is None or record.magic == MAGIC_BLANK:
            return
        yield record
        position += record.size


def _decode(buffer: Buffer, position: int, end: int) -> Record | None:
    """The record there, or None when the buffer ends within it.

    A blank is returned as a record without content, so that its size is known.
    """
    left = end - position
    if left < 8:
        return None
    size, magic = _unpack_start(buffer, position)
    if magic == MAGIC_BLANK:
        return _blank(size, left, position)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        raise _broken(position, f"its magic number is {magic:#010x}")
    if size < MIN_RECORD:
        raise _broken(position, f"its size is {size}")
    if size > left:
        return None
    fields = _unpack_v4(buffer, position)
    body_at = position + _V4_SIZE
    if hosts := fields[7] >> 4 & 3:
        if size < MIN_RECORD - _V4_SIZE + _SIZES[hosts]:
            raise _broken(position, f"its size {size} is too small for IPv6 hosts")
        fields = _FIXED[hosts].unpack_from(buffer, position)
        body_at = position + _SIZES[hosts]
    # From here on every length is checked against the end of the record, before it is used.
    stop = position + size
    width = 1 if magic == MAGIC_V1 else 2
    topic_at = body_at + fields[14] + width
    if fields[14] < 0 or topic_at + 2 > stop:
        raise _broken(position, f"its body length is {fields[14]} in a record of {size} bytes")
    topic_end = topic_at + _topic_length(buffer, topic_at, width)
    if not topic_at <= topic_end <= stop - 2:
        raise _broken(position, f"its topic length is {topic_end - topic_at}")
    (length,) = _unpack_short(buffer, topic_end)
    if topic_end + 2 + length != stop or length < 0:
        raise _broken(position, f"its properties length {length} does not reach its end")
    return Record(
        size, magic, fields[2], fields[3], fields[4], fields[5], fields[6], fields[7], fields[8],
        unpack_host(fields[9]), fields[10], unpack_host(fields[11]), fields[12], fields[13],
        bytes(buffer[body_at : topic_at - width]),
        str(buffer[topic_at:topic_end], "utf-8", "replace"),
        bytes(buffer[topic_end + 2 : stop]),
    )  # fmt: skip


def _topic_length(buffer: Buffer, topic_at: int, width: int) -> int:
    if width == 1:
        return buffer[topic_at - 1]
    length: int = _unpack_short(buffer, topic_at - 2)[0]
    return length


def _blank(size: int, left: int, position: int) -> Record | None:
    if size < 8:
        raise _broken(position, f"it is a blank of {size} bytes")
    if size > left:
        return None
    return Record(size, MAGIC_BLANK, 0, 0, 0, 0, 0, 0, 0, "", 0, "", 0, 0, b"", "", b"")


def _broken(position: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"stored record at byte {position} is broken: {why}")


def unwrap_inner_batch(record: Record, *, limit: int = MAX_BODY) -> list[Record]:
    """The messages in a record that holds a whole batch; the record itself when it does not.

    Offsets count from the property INNER_BASE, or from the record's own. How many there are is told
    by the body, not by INNER_NUM, which could only agree or be wrong.
    """
    if record.system_flag & _INNER != _INNER:
        return [record]
    base = _number(record.properties.get(Property.INNER_BASE), record.queue_offset)
    body = decompress(record.body, record.system_flag, limit)
    system_flag = record.system_flag & ~(_INNER | SystemFlag.COMPRESSED)
    return [
        Record(
            record.size, record.magic, crc32(item.body) & 0x7FFFFFFF, record.queue_id, item.flag,
            base + index, record.physical_offset, system_flag, record.born_ms, record.born_host,
            record.store_ms, record.store_host, record.reconsume_times, record.prepared_offset,
            item.body, record.topic, item.properties_raw,
        )
        for index, item in enumerate(decode_batch(body))
    ]  # fmt: skip


def to_stored_message(
    record: Record, *, broker: str, offset_delta: int = 0, limit: int = MAX_BODY
) -> StoredMessage:
    """What a user gets for a record: own properties only, the body whole again.

    System properties that make no sense are taken as absent: a message must be readable whoever
    wrote it.

    Args:
        record: what was stored.
        broker: the name of the broker that gave it.
        offset_delta: added to the offset, as a pull's reply may ask.
        limit: the largest body to make whole again.

    Raises:
        RemoteProtocolError: the body can't be made whole, or a time is beyond any calendar.
    """
    properties = record.properties
    offset_id = record.offset_message_id
    unique_id = properties.get(Property.UNIQ_KEY)
    try:
        born_at, stored_at = utc_from_ms(record.born_ms), utc_from_ms(record.store_ms)
    except (OverflowError, ValueError, OSError):
        raise RemoteProtocolError(
            f"a message of {record.topic!r} has impossible times: born {record.born_ms} ms, "
            f"stored {record.store_ms} ms"
        ) from None
    return StoredMessage(
        topic=record.topic,
        body=decompress(record.body, record.system_flag, limit),
        tags=properties.get(Property.TAGS),
        keys=properties.get(Property.KEYS),
        properties={
            name: value
            for name, value in properties.items()
            if name not in SYSTEM and not name.startswith(TRANSIENT_PREFIX)
        },
        sharding_key=properties.get(Property.SHARDING_KEY),
        delay_level=_number(properties.get(Property.DELAY), 0),
        deliver_at=_deliver_at(properties),
        flag=record.flag,
        wait_store_ok=properties.get(Property.WAIT) != "false",
        queue=MessageQueue(record.topic, broker, record.queue_id),
        offset=record.queue_offset + offset_delta,
        message_id=unique_id or offset_id,
        offset_message_id=offset_id,
        born_at=born_at,
        stored_at=stored_at,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        commit_log_offset=record.physical_offset,
        transaction_id=_transaction_id(properties, unique_id),
    )


def _deliver_at(properties: Mapping[str, str]) -> float | None:
    """When a timer was to deliver it: as asked, or as the broker worked it out."""
    for name in (Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS):
        if (moment := _number(properties.get(name), -1)) >= 0:
            return moment / 1000
    return None


def _transaction_id(properties: Mapping[str, str], unique_id: str | None) -> str | None:
    if properties.get(Property.TRAN_MSG) == "true" and unique_id:
        return unique_id
    return properties.get(Property.TRANSACTION_ID)


def _number(text: str | None, default: int) -> int:
    """A number in a property; at most as many digits as an int64 has."""
    if text is None or len(text) > 20:
        return default
    try:
        return int(text)
    except ValueError:
        return default
