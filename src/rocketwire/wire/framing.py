"""Cut a stream of bytes into frames.

A frame is a four-byte length, a byte for the kind of header, three bytes for the header's length,
the header and the body. This module knows the lengths only; ``command`` knows what is inside.

Every length is checked before anything is kept: a peer can make us hold the bytes it has really
sent, up to the limit, and no more.
"""

from __future__ import annotations

import struct
from typing import Final

from rocketwire.errors import RemoteProtocolError

#: Java's default for the largest frame, its length field included.
MAX_FRAME: Final = 16 * 1024 * 1024
#: Headers hold properties of at most 32 KiB and a dozen short fields.
MAX_HEADER: Final = 1024 * 1024

#: Bytes of the field that tells how long a frame is, and of the one that does so of its header.
LENGTH_SIZE: Final = 4
_unpack_length = struct.Struct(">i").unpack_from
_unpack_mark = struct.Struct(">I").unpack_from


def length_of(data: bytes | memoryview, at: int, limit: int = MAX_FRAME) -> int:
    """How long the frame is whose length field begins there, that field not counted.

    Raises:
        RemoteProtocolError: no frame is.
    """
    length: int = _unpack_length(data, at)[0]
    if not LENGTH_SIZE <= length <= limit - LENGTH_SIZE:
        most = limit - LENGTH_SIZE
        raise RemoteProtocolError(_explain(bytes(data[at : at + 16]), length, most))
    return length


def body_at(frame: bytes | memoryview) -> int:
    """Where the body of a frame begins, its length field not counted.

    Raises:
        RemoteProtocolError: its header goes beyond it.
    """
    at = LENGTH_SIZE + int(_unpack_mark(frame)[0] & 0xFFFFFF)
    if at > len(frame):
        raise RemoteProtocolError(f"a header of {at} bytes goes beyond its frame of {len(frame)}")
    return at


class FrameBuffer:
    """Collects bytes and gives back whole frames, each without its length field.

    After it has raised, the stream can't be trusted and the connection must be closed.
    """

    __slots__ = ("_chunks", "_needed", "held", "limit")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self._chunks: list[bytes] = []
        #: Bytes of a frame that is not complete yet.
        self.held = 0
        self._needed = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was read; return the frames that are complete now.

        Raises:
            RemoteProtocolError: a length is impossible or beyond the limit.
        """
        if self.held:
            # Chunks are joined once the frame is whole, so that a large frame which comes in
            # small pieces costs linear time.
            self._chunks.append(data)
            self.held += len(data)
            if self.held < self._needed:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
            self.held = 0
        elif len(data) >= 8:
            # One whole frame is what a client reads that waits for one answer.
            (length,) = _unpack_length(data)
            if length + 4 == len(data) <= self.limit:
                return [data[4:]]
        return self._cut(data)

    def _cut(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        position, end, needed, most = 0, len(data), 4, self.limit - 4
        last = end - 4
        while position <= last:
            (length,) = _unpack_length(data, position)
            if not 4 <= length <= most:
                raise RemoteProtocolError(_explain(data[position : position + 16], length, most))
            start = position + 4
            stop = start + length
            if stop > end:
                needed = 4 + length
                break
            frames.append(data[start:stop])
            position = stop
        if position < end:
            rest = data[position:] if position else data
            self._chunks.append(rest)
            self.held = len(rest)
            self._needed = needed
        return frames


def _explain(start: bytes, length: int, most: int) -> str:
    """What sends bytes that begin like this, and are no frame of ours."""
    if start.startswith((b"HTTP/", b"<!", b"<htm", b"<HTM")):
        return (
            "it is a web server, perhaps the RocketMQ dashboard: give the port of the name server "
            "(usually 9876) or broker (usually 10911)"
        )
    if start[:1] in (b"\x15", b"\x16") and start[1:2] == b"\x03":
        return "it takes encrypted connections only: set tls"
    return (
        f"frame length {length} is not between 4 and {most}: "
        "the peer does not speak RocketMQ's remoting protocol, or the frame is too large"
    )
