"""How a broker keeps itself known to name servers, ours or Apache's.

One connection to each name server, kept open, because a name server forgets a broker when the
connection over which it registered is closed. A change is registered at once; besides, everything
is registered again every few seconds, which is also the heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from rocketwire.embedded.register_body import body_checksum
from rocketwire.errors import ConfigError, RemoteProtocolError, RocketMQError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import JSON, Command, decode_command, encode_command
from rocketwire.wire.framing import FrameBuffer

_log: Final = logging.getLogger("rocketwire.embedded")
_TIMEOUT: Final = 6.0


class _LinkProtocol(asyncio.Protocol):
    """Our end of a connection to a name server. One request is under way at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._frames = FrameBuffer()
        self._answer: asyncio.Future[Command] | None = None
        self._opaque = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                reply = decode_command(frame)
                waiting = self._answer
                if reply.opaque == self._opaque and waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        except RemoteProtocolError as error:
            _log.warning("name server: %s", error)
            self.abort()

    def ask(self, command: Command) -> asyncio.Future[Command]:
        self._opaque = command.opaque = self._opaque + 1
        self._answer = asyncio.get_running_loop().create_future()
        if self.transport is None:
            self._answer.set_exception(ConnectionResetError("the connection was closed"))
        else:
            self.transport.write(encode_command(command))
        return self._answer

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a name server.

    Raises:
        ConfigError: they are not both there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"name server {address!r}: give host:port")
    return host.strip("[]"), int(port)


def _trusting() -> ssl.SSLContext:
    """For connections within one cluster, whose certificate a test has made up."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class NameServerLink:
    """The connection to one name server, made when it is needed."""

    def __init__(self, address: str, *, encrypted: bool = False) -> None:
        self.address = address
        self._host, self._port = split_address(address)
        self._protocol: _LinkProtocol | None = None
        self._turn = asyncio.Lock()
        self._tls = _trusting() if encrypted else None

    async def invoke(self, command: Command) -> Command:
        """Send a request and wait for its answer.

        Raises:
            OSError: the name server can't be reached.
            TimeoutError: it does not answer.
        """
        async with self._turn:
            try:
                async with asyncio.timeout(_TIMEOUT):
                    if not self.alive:
                        _, self._protocol = await asyncio.get_running_loop().create_connection(
                            _LinkProtocol, self._host, self._port, ssl=self._tls
                        )
                    assert self._protocol is not None
                    return await self._protocol.ask(command)
            except BaseException:
                self.abort()
                raise

    def abort(self) -> None:
        """Close the connection at once; the name server forgets us."""
        if self._protocol is not None:
            self._protocol.abort()
            self._protocol = None

    @property
    def alive(self) -> bool:
        """Whether the connection stands, as far as we know."""
        return self._protocol is not None and self._protocol.transport is not None


class Registrar:
    """Registers one broker with all its name servers.

    Args:
        name_servers: their addresses.
        identity: the header fields that name the broker.
        body: makes the registration's body as it is now.
        interval: seconds between two registrations without a change.
        encrypted: whether the name servers want TLS.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        identity: Callable[[], dict[str, str]],
        body: Callable[[], bytes],
        *,
        interval: float = 10.0,
        encrypted: bool = False,
    ) -> None:
        self._links = [NameServerLink(a, encrypted=encrypted) for a in name_servers]
        self._identity = identity
        self._body = body
        self._interval = interval
        self._wake: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register once, then keep at it in the background.

        A name server that can't be reached is tried again, and does not keep a broker from
        starting: Apache's don't mind the order, either.
        """
        await self.register_now()
        for link in self._links:
            wake = asyncio.Event()
            self._wake.append(wake)
            self._tasks.append(asyncio.create_task(self._keep(link, wake)))

    def change(self) -> None:
        """Something has changed: register soon."""
        for wake in self._wake:
            wake.set()

    async def register_now(self) -> None:
        """Register with all name servers and wait for their answers."""
        await asyncio.gather(*(self._register(link) for link in self._links))

    async def _keep(self, link: NameServerLink, wake: asyncio.Event) -> None:
        while True:
            pause = self._interval if link.alive else 1.0
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), pause)
            wake.clear()
            await self._register(link)

    async def _register(self, link: NameServerLink) -> bool:
        body = self._body()
        ext = self._identity() | {
            "bodyCrc32": str(body_checksum(body)),
            "compressed": "false",
        }
        command = Command(RequestCode.REGISTER_BROKER, ext, body, header=JSON)
        return await self._attempt(link, command)

    async def _attempt(self, link: NameServerLink, command: Command) -> bool:
        try:
            reply = await link.invoke(command)
        except (OSError, TimeoutError, RocketMQError) as error:
            _log.warning("name server %s: %s", link.address, str(error) or type(error).__name__)
            return False
        if reply.code != ResponseCode.SUCCESS:
            _log.warning("name server %s: %d %s", link.address, reply.code, reply.remark)
        return reply.code == ResponseCode.SUCCESS

    async def ask(self, command: Command) -> Command:
        """The answer of any name server.

        Raises:
            OSError: none could be reached.
            TimeoutError: none answered.
        """
        failure: OSError | TimeoutError = OSError("there is no name server")
        for link in self._links:
            try:
                return await link.invoke(command)
            except (OSError, TimeoutError) as error:
                failure = error
        raise failure

    async def unregister(self) -> None:
        """Say goodbye to all name servers."""
        await asyncio.gather(
            *(
                self._attempt(
                    link, Command(RequestCode.UNREGISTER_BROKER, self._identity(), header=JSON)
                )
                for link in self._links
                if link.alive
            )
        )

    def abort(self) -> None:
        """Stop at once, without a word."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._wake.clear()
        for link in self._links:
            link.abort()
