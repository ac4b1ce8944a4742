"""Remoting frames by hand, for asking a server directly.

Written from the protocol's description alone and free of the library under test: the harness must
be able to say that a broker is ready, and vectors be recorded, without trusting our own codecs.
"""

import base64
import hashlib
import hmac
import json
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

JSON, BINARY = 0, 1
PYTHON = 3
TOPIC_NOT_EXIST = 17


@dataclass(frozen=True, slots=True)
class Answer:
    """One frame as received; ``raw`` is the whole frame, length field included."""

    code: int
    remark: str | None
    ext: dict[str, str]
    body: bytes
    header_type: int
    opaque: int
    version: int
    raw: bytes = field(repr=False)


def encode(
    code: int,
    ext: Mapping[str, Any] | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    flag: int = 0,
    version: int = 475,
    header_type: int = JSON,
) -> bytes:
    """One request frame."""
    fields = {name: _text(value) for name, value in (ext or {}).items()}
    if header_type == JSON:
        header = _json_header(code, fields, opaque, flag, version)
    else:
        header = _binary_header(code, fields, opaque, flag, version)
    mark = struct.pack(">I", header_type << 24 | len(header))
    return struct.pack(">I", 4 + len(header) + len(body)) + mark + header + body


def decode(raw: bytes) -> Answer:
    """The frame ``raw``, which must be complete."""
    length, mark = struct.unpack_from(">II", raw)
    header_type, header_size = mark >> 24, mark & 0xFFFFFF
    if len(raw) != 4 + length:
        raise ValueError(f"a frame of {4 + length} bytes was announced, {len(raw)} bytes given")
    header, body = raw[8 : 8 + header_size], raw[8 + header_size :]
    if header_type == JSON:
        found = json.loads(header)
        ext = {name: str(value) for name, value in (found.get("extFields") or {}).items()}
        values = (found["code"], found.get("remark"), ext)
        tail = (found["opaque"], found.get("version", 0))
    else:
        values, tail = _read_binary(header)
    return Answer(*values, body, header_type, *tail, raw)


class RawConnection:
    """A blocking connection which sends one request at a time."""

    def __init__(
        self,
        address: str,
        timeout: float = 5.0,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: tuple[str, str] | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._credentials = credentials
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(
        self,
        code: int,
        ext: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        version: int = 475,
        header_type: int = JSON,
    ) -> Answer:
        """Send a request and wait for the answer with its opaque; others are dropped."""
        self._opaque += 1
        if self._credentials is not None:
            ext = sign(ext or {}, body, *self._credentials)
        frame = encode(
            code, ext, body, opaque=self._opaque, version=version, header_type=header_type
        )
        self._socket.sendall(frame)
        while (answer := self._read()).opaque != self._opaque:
            pass
        return answer

    def _read(self) -> Answer:
        head = self._exactly(4)
        return decode(head + self._exactly(struct.unpack(">I", head)[0]))

    def _exactly(self, size: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < size:
            piece = self._socket.recv(size - len(pieces))
            if not piece:
                raise ConnectionError(f"closed after {len(pieces)} of {size} bytes")
            pieces += piece
        return bytes(pieces)


def sign(ext: Mapping[str, Any], body: bytes, access_key: str, secret_key: str) -> dict[str, str]:
    """``ext`` with the key and the signature which ACL asks for."""
    signed = {name: _text(value) for name, value in ext.items()} | {"AccessKey": access_key}
    content = "".join(signed[name] for name in sorted(signed)).encode() + body
    digest = hmac.new(secret_key.encode(), content, hashlib.sha1).digest()
    return signed | {"Signature": base64.b64encode(digest).decode()}


def read_route(answer: Answer) -> dict[str, tuple[int, int]]:
    """Broker name to (write queues, permission); empty when the topic is unknown."""
    if answer.code == TOPIC_NOT_EXIST:
        return {}
    queues = json.loads(answer.body)["queueDatas"]
    return {each["brokerName"]: (each["writeQueueNums"], each["perm"]) for each in queues}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json_header(code: int, ext: dict[str, str], opaque: int, flag: int, version: int) -> bytes:
    header: dict[str, Any] = {
        "code": code,
        "flag": flag,
        "language": "PYTHON",
        "opaque": opaque,
        "version": version,
    }
    if ext:
        header["extFields"] = ext
    return json.dumps(header).encode()


def _binary_header(code: int, ext: dict[str, str], opaque: int, flag: int, version: int) -> bytes:
    block = bytearray()
    for name, value in ext.items():
        key, data = name.encode(), value.encode()
        block += struct.pack(">H", len(key)) + key + struct.pack(">I", len(data)) + data
    fixed = struct.pack(">HBHII", code, PYTHON, version, opaque, flag)
    return fixed + struct.pack(">II", 0, len(block)) + block


def _read_binary(header: bytes) -> tuple[tuple[int, str | None, dict[str, str]], tuple[int, int]]:
    code, _, version, opaque, _ = struct.unpack_from(">hBhii", header)
    at = 13
    (size,) = struct.unpack_from(">I", header, at)
    remark = header[at + 4 : at + 4 + size].decode() or None
    at += 4 + size
    (size,) = struct.unpack_from(">I", header, at)
    at, end = at + 4, at + 4 + size
    ext = {}
    while at < end:
        (key_size,) = struct.unpack_from(">H", header, at)
        key = header[at + 2 : at + 2 + key_size].decode()
        at += 2 + key_size
        (value_size,) = struct.unpack_from(">I", header, at)
        ext[key] = header[at + 4 : at + 4 + value_size].decode()
        at += 4 + value_size
    return (code, remark, ext), (opaque, version)


def ask(address: str, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"") -> Answer:
    """One request on a plain connection of its own."""
    with RawConnection(address) as connection:
        return connection.call(code, ext, body)
