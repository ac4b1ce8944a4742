"""The body of REGISTER_BROKER: a broker's topics, in plain and in compressed form.

A hostile one can neither unpack to more than a frame's worth nor raise anything but
``RemoteProtocolError``.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.framing import MAX_FRAME
from rocketwire.wire.lenient_json import dumps, loads

#: Read queues, write queues, permission, system flag.
TopicNumbers = tuple[int, int, int, int]

_QUEUE_LIMIT: Final = 65536


def encode_register_body(
    version: Mapping[str, int], topics: Mapping[str, Mapping[str, Any]]
) -> bytes:
    """The plain form, which every name server since 3.0 reads."""
    return dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": dict(version),
                "topicConfigTable": {name: dict(config) for name, config in topics.items()},
            },
        }
    )


def body_checksum(body: bytes) -> int:
    """What the header says of the body."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_register_body(
    body: bytes, *, compressed: bool, request_version: int
) -> tuple[dict[str, Any], dict[str, TopicNumbers] | None]:
    """Data version and topics; no topics at all when there is no body.

    Raises:
        RemoteProtocolError: it is malformed.
    """
    if not body:
        return {}, None
    if compressed:
        return _decode_compressed(body)
    data = loads(body)
    # Brokers before 3.0.11 sent the inner part only.
    inner = data.get("topicConfigSerializeWrapper") if isinstance(data, dict) else None
    wrapper = inner if request_version >= 37 else data
    if not isinstance(wrapper, dict):
        raise RemoteProtocolError("field 'topicConfigSerializeWrapper' is missing: send it")
    version = wrapper.get("dataVersion")
    table = wrapper.get("topicConfigTable")
    if not isinstance(table, dict):
        return version if isinstance(version, dict) else {}, None
    topics = {str(name): _numbers(name, config) for name, config in table.items()}
    return version if isinstance(version, dict) else {}, topics


def _numbers(name: str, config: Any) -> TopicNumbers:
    if not isinstance(config, dict):
        raise RemoteProtocolError(f"the configuration of topic {name[:80]!r} is not an object")
    values = [config.get(key, 0) for key in ("readQueueNums", "writeQueueNums", "perm")]
    flag = config.get("topicSysFlag", 0)
    return _checked(name, values, flag)


def _checked(name: str, values: list[Any], flag: Any) -> TopicNumbers:
    if not all(type(v) is int and 0 <= v <= _QUEUE_LIMIT for v in (*values, flag)):
        raise RemoteProtocolError(f"topic {name[:80]!r} has impossible numbers: {values} {flag!r}")
    read, write, permission = values
    return read, write, permission, flag


def _decode_compressed(body: bytes) -> tuple[dict[str, Any], dict[str, TopicNumbers]]:
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(body, MAX_FRAME)
    except zlib.error as error:
        raise RemoteProtocolError(f"the compressed body is damaged: {error}") from None
    if unpacker.unconsumed_tail:
        raise RemoteProtocolError(f"the body unpacks to more than {MAX_FRAME} bytes")
    version, at = _piece(data, 0)
    count = int.from_bytes(data[at : at + 4], "big")
    at += 4
    topics: dict[str, TopicNumbers] = {}
    for _ in range(count):
        text, at = _piece(data, at)
        words = text.split(" ", 5)
        if len(words) < 4 or not all(w.isdecimal() and len(w) < 10 for w in words[1:4]):
            raise RemoteProtocolError(f"topic line {text[:80]!r} is malformed")
        topics[words[0]] = _checked(words[0], [int(w) for w in words[1:4]], 0)
    loaded = loads(version)
    return loaded if isinstance(loaded, dict) else {}, topics


def _piece(data: bytes, at: int) -> tuple[str, int]:
    size = int.from_bytes(data[at : at + 4], "big")
    end = at + 4 + size
    if at + 4 > len(data) or end > len(data):
        raise RemoteProtocolError(f"a length of {size} is beyond the body")
    try:
        return data[at + 4 : end].decode(), end
    except UnicodeDecodeError:
        raise RemoteProtocolError("the body is not UTF-8") from None
