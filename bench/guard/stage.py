"""Producers without a network: everything is real but the other end of the connection.

The blocking producer writes to one end of a socket pair, whose other end is answered by a thread.
The asyncio producer writes to a transport in memory, which answers when it is told to, so that
what is read at once is the same in every run.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from bench.guard.counting import uncounted
from bench.python_acker import Server
from rocketwire import AsyncProducer, Producer
from rocketwire.aio.connection import Connection as AsyncConnection
from rocketwire.sync.connection import Connection
from rocketwire.system import surroundings
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute

TOPIC = "guard"
#: Nobody listens there: what would leave the stage fails at once.
ADDRESS = "127.0.0.1:1"
ROUTE = TopicRoute(
    (QueueData("broker-a", 4, 4, 6, 0),),
    (BrokerData("cluster", "broker-a", {0: ADDRESS}, None, False),),
    None,
    {},
)
_stages = itertools.count(1)


def stage_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """No thread, no refresh: nothing happens but what is counted.

    An instance of its own: one that is shared with a client that was left open has the real time.
    """
    usual = {"group": "guard", "background": False, "route_refresh": 1e6}
    return usual | {"instance_name": f"guard-{next(_stages)}"} | dict(given)


class SteadyTime:
    """A clock that goes on by a microsecond at each look.

    What a producer does depends on how long answers take, and counting makes everything slow.
    """

    def __init__(self) -> None:
        self._looks = itertools.count(1)

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return 1000.0 + next(self._looks) * 1e-6

    def time(self) -> float:
        """Seconds since 1970."""
        return 1_700_000_000.0 + next(self._looks) * 1e-6


@contextmanager
def steady_time() -> Iterator[None]:
    real = surroundings.time
    surroundings.time = cast("Any", SteadyTime())
    try:
        yield
    finally:
        surroundings.time = real


class Wire:
    """What a producer wrote, and the answers to it, which wait until they are asked for."""

    def __init__(self) -> None:
        self.written = 0
        self.writes = 0
        #: Whether nothing is answered any more.
        self.is_deaf = False
        self._answers: list[bytes] = []
        self._server = Server(0, b"")
        self._server.connection_made(cast("Any", self))

    def write(self, data: bytes) -> None:
        """Called by our connection as its transport, and by the server with an answer."""
        self._answers.append(data)

    def request(self, data: bytes) -> None:
        """Take what a producer wrote."""
        self.written += len(data)
        self.writes += 1
        if not self.is_deaf:
            with uncounted():
                self._server.data_received(data)

    def answers(self) -> bytes:
        """All answers so far, once."""
        found = b"".join(self._answers)
        self._answers.clear()
        return found


class MemoryTransport:
    """As much of a transport as a connection uses."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def write(self, data: bytes) -> None:
        """Hand it to the other side."""
        self._wire.request(data)

    def is_closing(self) -> bool:
        """It never is."""
        return False

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    def set_write_buffer_limits(self, **limits: int) -> None:
        """It takes everything."""

    def close(self) -> None:
        """Nothing is open."""

    abort = close


@asynccontextmanager
async def asyncio_stage(**given: Any) -> AsyncIterator[tuple[AsyncProducer, Wire, Any]]:
    """A producer, its wire, and a function that lets it read its answers."""
    wire = Wire()
    producer = AsyncProducer(ADDRESS, **stage_options(given))
    with steady_time():
        await producer.start()
    driver, instance = producer._driver, producer._instance
    instance.learned(instance.routes.update(TOPIC, ROUTE))
    connection = AsyncConnection(
        ADDRESS, loop=driver.loop, clock=driver.clock, on_over=lambda _: None
    )
    connection.connection_made(cast("Any", MemoryTransport(wire)))
    driver.connections[ADDRESS] = connection

    def read() -> None:
        connection._flush()
        connection.data_received(wire.answers())

    try:
        yield producer, wire, read
    finally:
        read()
        # There is no network to say goodbye to.
        producer._upkeep_driver._is_closed = True
        await producer.shutdown()


@contextmanager
def blocking_stage(**given: Any) -> Iterator[tuple[Producer, Wire]]:
    """A producer with one idle connection, answered by a thread."""
    wire = Wire()
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=_serve, args=(theirs, wire), daemon=True)
    thread.start()
    producer = Producer(ADDRESS, **stage_options(given))
    with steady_time():
        producer.start()
    try:
        instance = producer._instance
        instance.learned(instance.routes.update(TOPIC, ROUTE))
        producer._pool.give_back(Connection(ADDRESS, ours, instance.clock, 1 << 24))
        yield producer, wire
    finally:
        producer.shutdown()
        ours.close()
        thread.join(5)


def _serve(sock: socket.socket, wire: Wire) -> None:
    with sock:
        while data := sock.recv(1 << 20):
            wire.request(data)
            sock.sendall(wire.answers())
