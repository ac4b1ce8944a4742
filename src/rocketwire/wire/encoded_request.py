"""Requests whose fields are encoded beforehand, and fit on any connection."""

from __future__ import annotations

import struct
from typing import Final

from rocketwire.wire.codes import CLIENT_VERSION, Language

_pack_start = struct.Struct(">IIhBhiiii").pack
_FIXED: Final = 21
_BINARY: Final = 1 << 24
_PYTHON: Final = int(Language.PYTHON)


class EncodedRequest:
    """A request without a body, with a binary header. A subclass names its code.

    Args:
        ext: its fields, as ``encode_ext`` writes them.
    """

    __slots__ = ("_ext",)

    code = 0
    body = b""

    def __init__(self, ext: bytes) -> None:
        self._ext = ext

    def head(self, opaque: int, flag: int = 0) -> bytes:
        """Length, header kind and header."""
        ext = len(self._ext)
        header = _FIXED + ext
        start = _pack_start(
            4 + header, _BINARY | header, self.code, _PYTHON, CLIENT_VERSION, opaque, flag, 0, ext
        )
        return start + self._ext
