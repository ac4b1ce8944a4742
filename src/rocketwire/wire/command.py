"""Requests and replies: what is inside a frame.

Three forms, by what they are for:

* ``Command`` has every field, both ways. Servers and rare requests use it.
* ``Request`` is what a driver needs in order to write one: a head, made for the connection's own
  opaque number, and a body that is not copied.
* ``Reply`` keeps the header's bytes and decodes them when asked. The fields that a
  connection needs for every reply (code, opaque) are read without decoding the rest: at fixed
  places of a binary header, by the layout of the reply before in a JSON one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from rocketwire.errors import LocalProtocolError, RemoteProtocolError
from rocketwire.wire.binary_header import decode_binary_header, encode_binary_header
from rocketwire.wire.codes import CLIENT_VERSION, Language
from rocketwire.wire.framing import MAX_FRAME, MAX_HEADER
from rocketwire.wire.json_header import decode_json_header, encode_json_header
from rocketwire.wire.reply_layout import Layout, is_status, learn

if TYPE_CHECKING:
    import re

JSON: Final = 0
BINARY: Final = 1
RESPONSE: Final = 1
ONEWAY: Final = 2

_lengths = struct.Struct(">II")
_mark = struct.Struct(">I")
_binary_start = struct.Struct(">hBhii")
_BINARY_MARK: Final = BINARY << 24


class Request(Protocol):
    """Something that a driver can write."""

    @property
    def code(self) -> int:
        """The request code."""

    @property
    def body(self) -> bytes | memoryview:
        """What follows the head."""

    def head(self, opaque: int, flag: int = 0) -> bytes:
        """Length, header kind, and header."""


@dataclass(slots=True, eq=True)
class Command:
    """A request or a response with all its fields."""

    code: int
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: int = Language.PYTHON
    version: int = CLIENT_VERSION
    header: int = BINARY

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer."""
        return bool(self.flag & ONEWAY)

    def head(self, opaque: int, flag: int = 0) -> bytes:
        """Length, header kind and header, for a connection that uses this opaque number."""
        encode = encode_binary_header if self.header == BINARY else encode_json_header
        header = encode(
            self.code, self.language, self.version, opaque, self.flag | flag, self.remark, self.ext
        )
        return frame_start(self.header, len(header), len(self.body)) + header


def frame_start(kind: int, header_size: int, body_size: int) -> bytes:
    """The first eight bytes of a frame.

    Raises:
        LocalProtocolError: the frame would be larger than any server takes.
    """
    if header_size + body_size + 8 > MAX_FRAME or header_size > 0xFFFFFF:
        raise LocalProtocolError(
            f"request of {header_size + body_size + 8} bytes: at most {MAX_FRAME} fit into a frame"
        )
    return _lengths.pack(4 + header_size + body_size, kind << 24 | header_size)


def encode_command(command: Command) -> bytes:
    """The whole frame of a command, under its own opaque number."""
    return b"".join((command.head(command.opaque), command.body))


def _split(frame: bytes) -> tuple[int, int]:
    """Kind of the header and where it ends."""
    (mark,) = _mark.unpack_from(frame, 0)
    kind, size = mark >> 24, mark & 0xFFFFFF
    if size > len(frame) - 4 or size > MAX_HEADER:
        raise RemoteProtocolError(f"header length {size} is beyond its frame or the limit")
    if kind not in {JSON, BINARY}:
        raise RemoteProtocolError(f"header kind {kind} is neither JSON (0) nor binary (1)")
    return kind, 4 + size


def decode_command(frame: bytes) -> Command:
    """A frame (without its length field) with all its fields.

    Raises:
        RemoteProtocolError: the frame is malformed.
    """
    kind, end = _split(frame)
    decode = decode_binary_header if kind == BINARY else decode_json_header
    code, language, version, opaque, flag, remark, ext = decode(frame[4:end])
    return Command(code, ext, frame[end:], remark, opaque, flag, language, version, kind)


class Reply:
    """An answer. ``arrived`` is the moment at which the driver read it, on its clock.

    It is not set by itself: the fault table counts from it, and a default would be a wrong one.
    ``layout`` is how its header is written, if that is known: give it to the next reply of the
    same connection.
    """

    __slots__ = (
        "_end",
        "_ext",
        "_frame",
        "_match",
        "_remark",
        "arrived",
        "code",
        "flag",
        "layout",
        "opaque",
    )

    arrived: float
    _ext: dict[str, str] | None
    _match: re.Match[bytes] | None
    _remark: str | None

    def __init__(self, frame: bytes, layout: Layout | None = None) -> None:
        """Read the start of a frame (without its length field).

        Args:
            frame: all of it.
            layout: that of the reply before, which this one probably has, too.

        Raises:
            RemoteProtocolError: the frame is malformed.
        """
        self._frame = frame
        self.layout = layout
        (mark,) = _mark.unpack_from(frame)
        if layout is not None and mark < _BINARY_MARK:
            self._end = end = 4 + mark
            number = layout.stored_number(frame) if layout.has_place and end == len(frame) else 0
            if number:  # the values are looked at when they are asked for
                self._match = self._ext = None
                self.code = layout.code
                self.flag = layout.flag
                self.opaque = number
                return
            match = layout.match(frame, 4, end)
            if match is not None and end <= len(frame):
                self._match = match
                self._ext = None
                self.code = layout.code
                self.flag = layout.flag
                self.opaque = int(match[layout.opaque])
                return
        self._match = None
        self._start(mark)

    def _start(self, mark: int) -> None:
        """Read a header of a layout that is not known yet."""
        frame = self._frame
        self._ext = self._remark = None
        self._end = end = 4 + (mark & 0xFFFFFF)
        if end > len(frame):
            raise RemoteProtocolError(f"header length {end - 4} is beyond its frame")
        if mark >> 24 == BINARY and end >= 25:
            self.code, _, _, self.opaque, self.flag = _binary_start.unpack_from(frame, 4)
        else:
            self._decode()

    def _decode(self) -> None:
        if self._match is None and self.layout is not None:
            self._match = self.layout.match(self._frame, 4, self._end)
        if self._match is not None and self.layout is not None:
            self._remark, self._ext = self.layout.remark, self.layout.ext(self._match)
            return
        kind, end = _split(self._frame)
        header = self._frame[4:end]
        decode = decode_binary_header if kind == BINARY else decode_json_header
        code, language, version, opaque, flag, remark, ext = decode(header)
        self.code, self.opaque, self.flag = code, opaque, flag
        self._remark, self._ext = remark, ext
        if kind == JSON and (remark is None or is_status(remark)):
            self.layout = learn(header, code, language, version, flag, ext, remark)

    @property
    def ext(self) -> dict[str, str]:
        """The custom header.

        Raises:
            RemoteProtocolError: it is malformed.
        """
        if self._ext is None:
            self._decode()
        return self._ext if self._ext is not None else {}

    @property
    def remark(self) -> str | None:
        """The server's words."""
        if self._ext is None:
            self._decode()
        return self._remark

    @property
    def body(self) -> bytes:
        """What follows the header."""
        return self._frame[self._end :]

    def as_request(self) -> Command:
        """The same as what the peer asks of us; who it is by language and version is left out.

        Raises:
            RemoteProtocolError: it is malformed.
        """
        if self._match is not None and self.layout is not None:  # nothing in it can be malformed
            return MatchedRequest(self, self.layout, self._match)
        ext = self.ext
        kind = BINARY if self._frame[0] else JSON
        return Command(self.code, ext, self.body, self._remark, self.opaque, self.flag, header=kind)

    @property
    def frame(self) -> bytes:
        """All of it, for callers that decode it as a command."""
        return self._frame

    def __repr__(self) -> str:
        return f"Reply(code={self.code}, opaque={self.opaque}, {len(self._frame)} bytes)"


class MatchedRequest(Command):
    """A request of the peer whose header has a known layout; ``ext`` is made when it is asked for."""

    __slots__ = ("_made", "layout", "match")

    def __init__(self, read: Reply, layout: Layout, match: re.Match[bytes]) -> None:
        self.code = read.code
        self.body = read.body
        self.remark = layout.remark
        self.opaque = read.opaque
        self.flag = read.flag
        self.language = Language.PYTHON
        self.version = CLIENT_VERSION
        self.header = JSON
        self.layout = layout
        self.match = match
        self._made: dict[str, str] | None = None

    @property
    def ext(self) -> dict[str, str]:  # type: ignore[override]  # nobody sets it
        """The custom header."""
        if self._made is None:
            self._made = self.layout.ext(self.match)
        return self._made
