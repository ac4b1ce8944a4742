"""What tests need of the wire and the client does not: ids taken apart, replies, traces, items of batches."""

import struct
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import NamedTuple

from rocketwire.errors import ConfigError
from rocketwire.wire import headers
from rocketwire.wire.command import RESPONSE, Reply, encode_command
from rocketwire.wire.compression import compress
from rocketwire.wire.lazy_message import cut
from rocketwire.wire.message_fields import Source
from rocketwire.wire.stored_message import decode_record
from rocketwire.wire.trace_record import encode_trace_record


def utc_month(now_ms):
    """The month in UTC: the same on every machine."""
    start = datetime.fromtimestamp(now_ms // 1000, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    after = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return int(start.timestamp()) * 1000, int(after.timestamp()) * 1000


class UniqueId(NamedTuple):
    """What a unique id tells. ``month_ms`` counts from the start of the month it was made in."""

    host: str
    pid: int
    salt: int
    month_ms: int
    counter: int


def decode_message_id(text):
    """The parts of a unique id: of 16 bytes, or of 28 with an IPv6 address."""
    data = bytes.fromhex(text)
    assert len(data) in {16, 28}
    return UniqueId(str(ip_address(data[:-12])), *struct.unpack(">HiIH", data[-12:]))


def encode_item(body, properties, flag):
    """One message of a batch, field by field, as protocol.md section 12 has it."""
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def encode_batch(items):
    """A batch, each message given as body, encoded properties and flag."""
    return b"".join(encode_item(*item) for item in items)


def encode_trace(records):
    """The body of a trace message."""
    return "".join(map(encode_trace_record, records)).encode("utf-8", "replace")


def is_response(command):
    """Whether it answers a request."""
    return bool(command.flag & RESPONSE)


def reply_from(command):
    """A reply as it would come from the network."""
    return Reply(encode_command(command)[4:])


def with_long_names(ext):
    """The fields of a send with the names that old clients and Go's write."""
    return {name: ext[letter] for name, letter in headers.SEND_NAMES.items() if letter in ext}


def iter_records(data):
    """The records of a pull reply, in order, each taken apart strictly."""
    data, position = bytes(data), 0
    while position < len(data):
        record, position = decode_record(data, position)
        yield record


def to_stored_message(record, **origin):
    """What a user gets for a record."""
    (message,) = cut(Source(record.encode(), **origin)).messages
    return message


def offset_id_of(record):
    """The offset id of a record: where it lies."""
    host, _, port = record.store_host.rpartition(":")
    return offset_message_id(ip_address(host.strip("[]")).packed, int(port), record.physical_offset)


def offset_message_id(ip, port, offset):
    """The offset id for a place in a broker's commit log."""
    return (ip + struct.pack(">iq", port, offset)).hex().upper()


def available():
    """The kinds of compression that work here."""
    found = []
    for kind in ("zlib", "lz4", "zstd"):
        with suppress(ConfigError):
            compress(b"x", kind, 5)
            found.append(kind)
    return tuple(found)
