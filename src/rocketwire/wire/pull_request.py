"""Pull requests from templates.

A consumer that is far behind sends one for every 32 messages, and but for the offset it is the same
each time. Encoding it field by field costs as much as reading ten of the messages.
"""

from __future__ import annotations

import struct
from typing import Final

from rocketwire.wire.binary_header import encode_ext
from rocketwire.wire.codes import CLIENT_VERSION, Language, RequestCode

_pack_start = struct.Struct(">IIhBhiiii").pack
_FIXED: Final = 21
_BINARY: Final = 1 << 24
_PULL: Final = int(RequestCode.PULL_MESSAGE)
_PYTHON: Final = int(Language.PYTHON)
#: The name of the offset and three bytes of its length; the fourth is the number of its digits.
_OFFSET_FIELD: Final = b"\x00\x0bqueueOffset\x00\x00\x00"


class PullRequest:
    """A pull, ready for any connection."""

    __slots__ = ("_offset", "_prefix")

    code = _PULL
    body = b""

    def __init__(self, prefix: bytes, offset: int) -> None:
        self._prefix = prefix
        self._offset = offset

    def head(self, opaque: int, flag: int = 0) -> bytes:
        """Length, header kind and header."""
        digits = b"%d" % self._offset
        ext = len(self._prefix) + 1 + len(digits)
        header = _FIXED + ext
        start = _pack_start(
            4 + header, _BINARY | header, _PULL, _PYTHON, CLIENT_VERSION, opaque, flag, 0, ext
        )
        return b"%b%b%c%b" % (start, self._prefix, len(digits), digits)


class PullTemplate:
    """Makes binary pull requests of one queue.

    Args:
        fields: those of a pull; its offset counts for nothing.
    """

    __slots__ = ("_prefix",)

    def __init__(self, fields: dict[str, str]) -> None:
        others = {name: value for name, value in fields.items() if name != "queueOffset"}
        self._prefix = encode_ext(others) + _OFFSET_FIELD

    def request(self, offset: int) -> PullRequest:
        """The request from an offset on."""
        return PullRequest(self._prefix, offset)
