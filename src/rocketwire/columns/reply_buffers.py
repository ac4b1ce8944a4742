"""Reads answers from a connection into large buffers, so that their bodies are never copied.

A client's own way of reading cuts frames out of what it received, which is right for small
answers. Pull bodies come by the hundred megabytes; here they stay where the kernel put them until
their columns are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from rocketwire.columns.buffers import Bytes
from rocketwire.errors import RemoteProtocolError
from rocketwire.sync.connection import Connection
from rocketwire.wire.command import RESPONSE, Reply
from rocketwire.wire.framing import LENGTH_SIZE, body_at, length_of

_BUFFER_SIZE: Final = 4 * 1024 * 1024
#: Less room than this is not worth another read.
_LEAST: Final = 128 * 1024


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
        return held >= LENGTH_SIZE and held >= LENGTH_SIZE + self._frame_length()

    def read(self, deadline: float) -> Answer:
        """The next answer.

        Raises:
            TransportError: none came in time, or the connection was closed.
            RemoteProtocolError: the peer does not speak the protocol.
        """
        while True:
            while not self.has_more():
                self._receive(deadline)
            start = self._start + LENGTH_SIZE
            stop = self._start = start + self._frame_length()
            frame = self._view[start:stop]
            try:
                at = body_at(frame)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"{self._address}: {error}") from None
            reply = self.session.read(bytes(frame[:at]))
            if reply.flag & RESPONSE:
                reply.arrived = self._clock()
                return Answer(reply, frame[at:], self._buffer, start + at)

    def _frame_length(self) -> int:
        try:
            return length_of(self._view, self._start, self._max_frame)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self._address}: {error}") from None

    def _receive(self, deadline: float) -> None:
        self._make_room()
        self._filled += self._connection.receive_into(self._view[self._filled :], deadline)

    def _make_room(self) -> None:
        """Begin another buffer when this one can't hold the frame under way, or is nearly full.

        The old one lives on as long as a body in it is referred to.
        """
        held = self._filled - self._start
        needed = LENGTH_SIZE + self._frame_length() if held >= LENGTH_SIZE else _LEAST
        room = len(self._buffer) - self._start
        if room >= needed and len(self._buffer) - self._filled >= min(_LEAST, needed - held):
            return
        fresh: Bytes = np.empty(max(_BUFFER_SIZE, needed), dtype=np.uint8)
        fresh[:held] = self._buffer[self._start : self._filled]
        self._buffer, self._view = fresh, fresh.data
        self._start, self._filled = 0, held
