"""One connection to a server: frames in, answers out, and nothing else.

Whatever a peer sends can only harm its own connection: a malformed frame closes it, with one
line in the log, and a peer that does not read its answers is not read from, either.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.command import RESPONSE, Command, decode_command, encode_command
from rocketwire.wire.framing import FrameBuffer

if TYPE_CHECKING:
    from rocketwire.embedded.server import Server

_log: Final = logging.getLogger("rocketwire.embedded")
#: Bytes of answers made before anything else gets its turn.
_ENOUGH: Final = 1 << 20


class Connection(asyncio.Protocol):
    """The server's end of a connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.peer = ""
        #: The peer's packed ip and port, which records bear as the place of birth.
        self.peer_host = b""
        self.last_heard = 0.0
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(server.frame_limit)
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._holding = False
        #: Frames that wait until the peer has read what we sent so far.
        self._backlog: deque[bytes] = deque()
        self._paused = False
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[Command]] = {}

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        # Not every loop's transports derive from asyncio's class.
        self._transport = cast("asyncio.Transport", transport)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = transport.get_extra_info("peername") or ("0.0.0.0", 0)  # noqa: S104 - not bound
        self.peer = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        self.peer_host = pack_host(name[0], name[1])
        self.last_heard = self.server.loop.time()
        if not self.server.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle every request in it; their answers leave together."""
        self.last_heard = self.server.loop.time()
        try:
            frames = self._frames.feed(data)
            if self._backlog or self._paused:
                self._backlog.extend(frames)
            else:
                self._handle(frames)
        except RemoteProtocolError as error:
            self._disconnect(error)

    def _handle(self, frames: Iterable[bytes]) -> None:
        waiting = iter(frames)
        self._holding, self._out_size = True, 0
        try:
            for frame in waiting:
                command = decode_command(frame)
                if command.flag & RESPONSE:
                    self._resolve(command)
                else:
                    self.server.receive(self, command)
                if self._out_size > _ENOUGH:
                    # Small requests may have large answers: never make them all at once.
                    self._backlog.extend(waiting)
                    self.server.loop.call_soon(self._go_on)
        finally:
            self._holding = False
            if self._out:
                self._flush()

    def _go_on(self) -> None:
        if self._backlog and not self._paused and self.open:
            frames, self._backlog = self._backlog, deque()
            try:
                self._handle(frames)
            except RemoteProtocolError as error:
                self._disconnect(error)

    def _disconnect(self, error: RemoteProtocolError) -> None:
        _log.warning("%s: %s is disconnected: %s", self.server.name, self.peer, error)
        self.abort()

    def pause_writing(self) -> None:
        """The peer does not read: stop listening to it until it does."""
        self._paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, or we have closed the connection."""
        self._transport = None
        self._out.clear()
        self._backlog.clear()
        for future in self._waiting.values():
            if not future.done():
                future.cancel()
        self._waiting.clear()
        self.server.lost(self)

    # From the server

    @property
    def open(self) -> bool:
        """Whether anything can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, pieces: list[bytes | memoryview]) -> None:
        """Send bytes; those sent while requests are being handled leave together."""
        self._out += pieces
        self._out_size += sum(map(len, pieces))
        if not self._holding:
            self._flush()

    def _flush(self) -> None:
        pieces, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            # One piece after another would be one system call each.
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def push(self, command: Command) -> None:
        """Send a request of our own that wants no answer."""
        if self.open:
            command.opaque = self._next_opaque()
            command.flag |= 2
            self.send([encode_command(command)])

    def invoke(self, command: Command) -> asyncio.Future[Command]:
        """Send a request of our own; the future is cancelled when the connection is lost."""
        future: asyncio.Future[Command] = self.server.loop.create_future()
        if not self.open:
            future.cancel()
            return future
        command.opaque = self._next_opaque()
        self._waiting[command.opaque] = future
        self.send([encode_command(command)])
        return future

    def forget(self, opaque: int) -> None:
        """Stop waiting for an answer."""
        self._waiting.pop(opaque, None)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def _resolve(self, command: Command) -> None:
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)

    def abort(self) -> None:
        """Close at once, whatever is still to be sent."""
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()

    def close_after(self, data: bytes) -> None:
        """Send this, then close."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._transport.close()


def pack_host(ip: str, port: int) -> bytes:
    """An address as records have it."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.partition("%")[0]) + port.to_bytes(4, "big")
