"""RocketMQ's binary form of a header. Lengths of zero mean "absent" in it."""

from __future__ import annotations

import struct
from typing import Final

from rocketwire.errors import LocalProtocolError, RemoteProtocolError

_fixed = struct.Struct(">hBhiii")
_int32 = struct.Struct(">i")
_int16 = struct.Struct(">h")
FIXED_SIZE: Final = _fixed.size


def encode_ext(ext: dict[str, str]) -> bytes:
    """The ext block without its length. Empty values are left out: Java reads them as null."""
    parts: list[bytes] = []
    for key, value in ext.items():
        if not value:
            continue
        name, text = key.encode(), value.encode()
        if not 0 < len(name) <= 0x7FFF:
            raise LocalProtocolError(f"header field name of {len(name)} bytes: 1 to 32767 fit")
        parts += (_int16.pack(len(name)), name, _int32.pack(len(text)), text)
    return b"".join(parts)


def encode_binary_header(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: dict[str, str] | None,
) -> bytes:
    """The whole header."""
    if not -0x8000 <= code <= 0x7FFF:
        raise LocalProtocolError(
            f"code {code} does not fit into a binary header: send this request with a JSON header"
        )
    text = remark.encode() if remark else b""
    block = encode_ext(ext) if ext else b""
    fixed = _fixed.pack(code, language, version, opaque, flag, len(text))
    return b"".join((fixed, text, _int32.pack(len(block)), block))


def decode_binary_header(
    data: bytes,
) -> tuple[int, int, int, int, int, str | None, dict[str, str]]:
    """Code, language, version, opaque, flag, remark and ext fields.

    Raises:
        RemoteProtocolError: a length points outside of the header, or a text is not UTF-8.
    """
    try:
        code, language, version, opaque, flag, remark_size = _fixed.unpack_from(data, 0)
        position = FIXED_SIZE
        if not 0 <= remark_size <= len(data) - position - 4:
            raise RemoteProtocolError(f"remark length {remark_size} is beyond the header")
        remark = data[position : position + remark_size].decode() if remark_size else None
        position += remark_size
        (ext_size,) = _int32.unpack_from(data, position)
        position += 4
        if not 0 <= ext_size <= len(data) - position:
            raise RemoteProtocolError(f"ext length {ext_size} is beyond the header")
        ext = decode_ext(data, position, position + ext_size)
    except struct.error:
        raise RemoteProtocolError(f"binary header of {len(data)} bytes is cut short") from None
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"binary header is not UTF-8: {error}") from None
    return code, language, version, opaque, flag, remark, ext


def decode_ext(data: bytes, position: int, end: int) -> dict[str, str]:
    """The ext block between two positions."""
    ext: dict[str, str] = {}
    while position < end:
        (size,) = _int16.unpack_from(data, position)
        start = position + 2
        position = start + size
        if size < 0 or position + 4 > end:
            raise RemoteProtocolError(f"ext key length {size} is beyond the header")
        key = data[start:position].decode()
        (size,) = _int32.unpack_from(data, position)
        start = position + 4
        position = start + size
        if size < 0 or position > end:
            raise RemoteProtocolError(f"ext value length {size} is beyond the header")
        if key and size:
            ext[key] = data[start:position].decode()
    return ext
