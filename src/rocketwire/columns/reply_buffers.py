"""Reads answers from a connection into large buffers, so that their bodies are never copied.

A client's own way of reading cuts frames out of what it received, which is right for small
answers. Pull bodies come by the hundred megabytes; here they stay where the kernel put them until
their columns are made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from rocketwire.columns.buffers import Bytes
from rocketwire.errors import RemoteProtocolError
from rocketwire.sync.connection import Connection
from rocketwire.wire.command import RESPONSE, Reply

_BUFFER_SIZE: Final = 4 * 1024 * 1024
#: Less room than this is not worth another read.
_LEAST: Final = 128 * 1024
_length = struct.Struct(">i").unpack_from
_head = struct.Struct(">I").unpack_from


class Answer(NamedTuple):
    """An answer: its header, and where its body lies."""

    reply: Reply
    body: memoryview
    buffer: Bytes
    at: int


class ReplyReader:
    """Takes answers from one connection.

    Args:
        connection: nobody else reads from it.
        clock: seconds.
    """

    def __init__(self, connection: Connection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._address = connection.address
        self._clock = clock
        self.session = connection.session
        self._max_frame = self.session.limit
        self._start = self._filled = 0
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)
        self._view = self._buffer.data

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left that was received and not given out."""
        return self._start == self._filled

    def has_more(self) -> bool:
        """Whether a whole answer is here already."""
        held = self._filled - self._start
        return held >= 4 and held >= 4 + self._frame_length()

    def read(self, deadline: float) -> Answer:
        """The next answer.

        Raises:
            TransportError: none came in time, or the connection was closed.
            RemoteProtocolError: the peer does not speak the protocol.
        """
        while True:
            while not self.has_more():
                self._receive(deadline)
            start = self._start + 4
            stop = self._start = start + self._frame_length()
            frame = self._view[start:stop]
            body_at = start + 4 + (_head(frame)[0] & 0xFFFFFF)
            if body_at > stop:
                raise RemoteProtocolError(f"{self._address}: a header goes beyond its frame")
            reply = self.session.read(bytes(self._view[start:body_at]))
            if reply.flag & RESPONSE:
                reply.arrived = self._clock()
                return Answer(reply, self._view[body_at:stop], self._buffer, body_at)

    def _frame_length(self) -> int:
        length: int = _length(self._view, self._start)[0]
        if not 4 <= length <= self._max_frame - 4:
            raise RemoteProtocolError(
                f"{self._address}: frame length {length} is not between 4 and {self._max_frame - 4}"
            )
        return length

    def _receive(self, deadline: float) -> None:
        self._make_room()
        self._filled += self._connection.receive_into(self._view[self._filled :], deadline)

    def _make_room(self) -> None:
        """Begin another buffer when this one can't hold the frame under way, or is nearly full.

        The old one lives on as long as a body in it is referred to.
        """
        held = self._filled - self._start
        needed = 4 + self._frame_length() if held >= 4 else _LEAST
        room = len(self._buffer) - self._start
        if room >= needed and len(self._buffer) - self._filled >= min(_LEAST, needed - held):
            return
        fresh: Bytes = np.empty(max(_BUFFER_SIZE, needed), dtype=np.uint8)
        fresh[:held] = self._buffer[self._start : self._filled]
        self._buffer, self._view = fresh, fresh.data
        self._start, self._filled = 0, held
