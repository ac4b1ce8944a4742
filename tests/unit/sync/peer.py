"""A server that does what a test tells it, over a real socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from rocketwire.errors import ProtocolError
from rocketwire.wire.command import RESPONSE, Command, decode_command, encode_command
from rocketwire.wire.framing import FrameBuffer


class Peer:
    """Each connection is handled by ``handle(connection)`` in a thread of its own."""

    def __init__(self, handle: Callable[[PeerConnection], None], host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((host, 0))
        self._listener.listen(16)
        port = self._listener.getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.connections: list[PeerConnection] = []
        self._handle = handle
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            connection = PeerConnection(sock)
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, connection: PeerConnection) -> None:
        with contextlib.suppress(OSError, EOFError, ProtocolError):
            self._handle(connection)
        connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()
        for thread in self._threads:
            thread.join(5)


class PeerConnection:
    """One connection, as the peer sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._buffer = FrameBuffer()
        self._frames: list[bytes] = []

    def next(self) -> Command:
        while not self._frames:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._frames += self._buffer.feed(data)
        return decode_command(self._frames.pop(0))

    def answer(self, request: Command, code: int = 0, **ext: str) -> bytes:
        return encode_command(
            Command(code, ext, request.body, opaque=request.opaque, flag=RESPONSE)
        )

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def echo(connection: PeerConnection) -> None:
    """Answer everything with its own body."""
    while True:
        request = connection.next()
        if not request.is_oneway:
            connection.send(connection.answer(request))


@contextlib.contextmanager
def peer(
    handle: Callable[[PeerConnection], None] = echo, host: str = "127.0.0.1"
) -> Iterator[Peer]:
    server = Peer(handle, host)
    try:
        yield server
    finally:
        server.close()
