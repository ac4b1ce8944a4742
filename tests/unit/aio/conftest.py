"""Servers that do exactly what a test tells them, on both event loops."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from rocketwire.aio.driver import Driver
from rocketwire.config import ClientConfig
from rocketwire.wire.command import RESPONSE, Command, decode_command, encode_command

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=sorted(LOOPS))
def run(request):
    """Runs a coroutine on each kind of loop, with a limit that only a hang reaches."""

    def run_on_loop(main):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(asyncio.wait_for(main, 30))

    return run_on_loop


class Peer:
    """One accepted connection, as the test's script sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Command:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return decode_command(await self.reader.readexactly(length))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def answer(self, command: Command, code: int = 0, **ext: str) -> None:
        self.send(self.reply(command, code, **ext))

    @staticmethod
    def reply(command: Command, code: int = 0, **ext: str) -> bytes:
        return encode_command(Command(code, ext, opaque=command.opaque, flag=RESPONSE))

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """A listener that runs a script for each connection."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.accepted = 0
        self.address = ""
        self._tasks: set[asyncio.Task] = set()

    async def serve(self, reader, writer) -> None:
        self.accepted += 1
        self._tasks.add(asyncio.current_task())
        try:
            await self.script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def listening(self, host="127.0.0.1", **options):
        server = await asyncio.start_server(self.serve, host, 0, **options)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def answer_all(peer: Peer) -> None:
    while True:
        peer.answer(await peer.request())


@pytest.fixture
def serve():
    """``async with serve(script) as server``; without a script every request is answered."""

    def make(script: Script = answer_all, host: str = "127.0.0.1", **options):
        return Server(script).listening(host, **options)

    return make


@pytest.fixture
def driving():
    """``async with driving() as driver``: a driver that is closed at the end."""

    @contextlib.asynccontextmanager
    async def make(*, clock=time.monotonic, responder=None, **settings):
        more = {} if responder is None else {"responder_of": lambda _: responder}
        driver = Driver(ClientConfig(**settings), clock=clock, **more)
        try:
            yield driver
        finally:
            await driver.close()

    return make


@pytest.fixture
def free_address():
    """An address on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
