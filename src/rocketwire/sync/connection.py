"""Blocking connections and the pool that keeps them.

A connection is used by one thread at a time, for one request or one pipelined row of requests.
There is no reader thread: who waits for an answer reads it.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketwire.config import Tls
from rocketwire.core.effects import Flight
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.errors import (
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
)
from rocketwire.sync.dial import open_socket
from rocketwire.unreachable import explain
from rocketwire.wire.command import ONEWAY, RESPONSE, Reply, Request
from rocketwire.wire.framing import FrameBuffer
from rocketwire.wire.reply_layout import Layout, stored_in_binary

if TYPE_CHECKING:
    import ssl

#: Most answers are small. Asking for more than malloc's mmap threshold (128 KiB) at once costs two
#: further system calls and fresh pages for each of them: 13 µs of a send's 35.
_READ = 64 * 1024
#: For the rest of an answer that is known to be large.
_READ_ON = 1024 * 1024
_JOIN_BELOW = 64 * 1024
#: What the kernel takes at once on a connection whose requests are all answered, come what may.
_AT_ONCE = 8 * 1024
_MAX_IDLE = 60.0
_timeval = struct.Struct("ll")
# The kernel keeps the time limit of a plain socket: Python's own would cost a poll() for each
# read and each write. It means something else on Windows, and TLS must poll anyway.
_KERNEL_LIMITS = sys.platform != "win32"


class Connection:
    """One socket to one address."""

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_clock",
        "_frames",
        "_layout",
        "_least",
        "_most",
        "_opaque",
        "_poll",
        "_socket",
        "_uses_kernel",
        "_usual",
        "address",
        "late",
        "used_at",
    )

    def __init__(
        self, address: str, sock: socket.socket, clock: Callable[[], float], max_frame: int
    ) -> None:
        self.address = address
        self._socket = sock
        self._clock = clock
        self._buffer = FrameBuffer(max_frame)
        self._frames: list[bytes] = []
        self._layout: Layout | None = None
        #: How answers that say "stored" look here.
        self._usual: Layout | None = None
        self._opaque = 0
        #: How much time may be left for the limit that the kernel has to be good enough.
        self._least = self._most = math.inf
        self._uses_kernel = _KERNEL_LIMITS and type(sock) is socket.socket
        if self._uses_kernel:
            sock.settimeout(None)
        poll = select.poll() if hasattr(select, "poll") else None
        if poll is not None:
            poll.register(sock, select.POLLIN | select.POLLERR | select.POLLHUP)
        self._poll = poll
        self.used_at = clock()
        self.late = 0

    def is_fresh(self, now: float | None = None) -> bool:
        """Whether it may be used again: not idle for long, and nothing to read.

        Whatever is readable now is the end of the stream, or an answer that came too late. Looking
        is a system call in each send, and a hundredth of its time.
        """
        if (now or self._clock()) - self.used_at > _MAX_IDLE or self._frames:
            return False
        if self._poll is not None:
            return not self._poll.poll(0)
        return not select.select([self._socket], [], [], 0)[0]

    def fileno(self) -> int:
        """For polling several connections at once."""
        return self._socket.fileno()

    def has_more(self) -> bool:
        """Whether an answer can be read without waiting, because it is in memory already."""
        pending = getattr(self._socket, "pending", None)
        return bool(self._frames) or (pending is not None and pending() > 0)

    def close(self) -> None:
        """Close our end. Never shut it down: after a fork the other process still uses it."""
        self._socket.close()

    def call(self, request: Request, deadline: float, flight: Flight | None) -> Reply:
        """Write a request and read its answer.

        Raises:
            TransportError: ``written`` tells whether any byte left. Close the connection then.
            RemoteProtocolError: the peer does not speak the protocol. Close it, too.
        """
        opaque = self.write(request, deadline, flight)
        while True:
            reply = self.read(deadline)
            if reply.opaque == opaque:
                return reply
            self.late += 1

    def exchange(self, attempt: SendAttempt) -> bytes | Reply:
        """Write an attempt and read its answer: the frame of one that says "stored", as it is.

        ``used_at`` is when it was read.

        Raises:
            TransportError: ``written`` tells whether any byte left. Close the connection then.
            RemoteProtocolError: the peer does not speak the protocol. Close it, too.
        """
        opaque = self._opaque = self._opaque % 0x7FFFFFFF + 1
        head, body, deadline = attempt.head(opaque), attempt.body, attempt.deadline
        now, size, usual = self._clock(), len(head) + len(body), self._usual
        is_limited = self._least <= deadline - now <= self._most
        if size > _AT_ONCE:
            attempt.written(now, size)
            self._write(head, body, deadline)
        else:
            self._write_all(head + body, deadline, is_limited=is_limited)
            # Done while the broker works: when the answer is here, every µs counts.
            attempt.written(now, size)
        ending = b"" if usual is None else usual.ending(opaque)
        data = self._receive(deadline, is_limited=size <= _AT_ONCE)
        self.used_at = self._clock()
        if usual is not None and not self._buffer.held and usual.says_stored(data, ending):
            return data[4:]
        self._frames = self._buffer.feed(data)
        return self._find(opaque, deadline)

    def _find(self, opaque: int, deadline: float) -> bytes | Reply:
        """The answer to an attempt, when it is not the next thing that is read."""
        while True:
            if not self._frames:
                self._frames = self._buffer.feed(self._receive(deadline))
                continue
            if self._stored_number(self._frames[0]) == opaque:
                self.used_at = self._clock()
                return self._frames.pop(0)
            reply = self.read(deadline)
            if reply.layout is not None and reply.layout.has_place:
                self._usual = reply.layout
            if reply.opaque == opaque:
                return reply
            self.late += 1

    def _stored_number(self, frame: bytes) -> int:
        """The number of the request whose answer this is, if it says "stored"; else 0."""
        if frame[0]:  # a binary header, as brokers before 5.0 answer
            return stored_in_binary(frame)
        return 0 if self._usual is None else self._usual.stored_number(frame)

    def write(self, request: Request, deadline: float, flight: Flight | None) -> int:
        """Write a request; returns its opaque number."""
        opaque = self._opaque = self._opaque % 0x7FFFFFFF + 1
        head, body = request.head(opaque), request.body
        if flight is not None:
            flight.written(self._clock(), len(head) + len(body))
        self._write(head, body, deadline)
        return opaque

    def write_oneway(self, request: Request, deadline: float, flight: Flight | None) -> None:
        """Write a request that gets no answer."""
        self._opaque = self._opaque % 0x7FFFFFFF + 1
        head, body = request.head(self._opaque, ONEWAY), request.body
        if flight is not None:
            flight.written(self._clock(), len(head) + len(body))
        self._write(head, body, deadline)
        self.used_at = self._clock()

    def _write(self, head: bytes, body: bytes | memoryview, deadline: float) -> None:
        if len(body) < _JOIN_BELOW:
            self._write_all(head + body, deadline)
        else:
            self._write_all(head, deadline)
            self._write_all(body, deadline, some_left=True)

    def _write_all(
        self,
        left: bytes | memoryview,
        deadline: float,
        *,
        some_left: bool = False,
        is_limited: bool = False,
    ) -> None:
        """Write it.

        Args:
            left: what is to be written.
            deadline: until when.
            some_left: whether bytes of the same request have left before.
            is_limited: whether the limit that the kernel has is good enough for the first call.
        """
        while True:
            try:
                if not is_limited:
                    self._set_limit(deadline)
                is_limited = False
                count = self._socket.send(left)
            except RequestTimeoutError:  # a TimeoutError, too, so it comes first
                raise RequestTimeoutError(
                    f"{self.address} took no more bytes in time", written=some_left
                ) from None
            except (BlockingIOError, TimeoutError, InterruptedError) as error:
                self._check_early(error)
                continue
            except OSError as error:
                raise ConnectionLostError(
                    f"{self.address} closed the connection: {error}", written=some_left
                ) from None
            if count == len(left):
                return
            some_left = some_left or count > 0
            left = memoryview(left)[count:]

    def read(self, deadline: float) -> Reply:
        """The next answer on this connection, whoever it is for."""
        frames = self._frames
        while True:
            if not frames:
                data = self._receive(deadline)
                frames = self._frames = self._buffer.feed(data)
                continue
            reply = Reply(frames.pop(0), self._layout)
            self._layout = reply.layout
            if reply.flag & RESPONSE:
                reply.arrived = self.used_at = self._clock()
                return reply
            # A request from the broker: only upkeep's connections answer those.

    def _receive(self, deadline: float, *, is_limited: bool = False) -> bytes:
        """What is there to be read; ``is_limited`` means that the limit was set just before."""
        size = _READ_ON if self._buffer.held else _READ
        while True:
            try:
                if not is_limited:
                    self._set_limit(deadline)
                is_limited = False
                data = self._socket.recv(size)
            except RequestTimeoutError:  # a TimeoutError, too, so it comes first
                raise
            except (BlockingIOError, TimeoutError, InterruptedError) as error:
                self._check_early(error)
                continue
            except OSError as error:
                raise ConnectionLostError(
                    f"{self.address} closed the connection: {error}", written=True
                ) from None
            if not data:
                raise ConnectionLostError(f"{self.address} closed the connection", written=True)
            return data

    def _check_early(self, error: OSError) -> None:
        """Go on after a limit that was early: the next round tells whether time is left.

        The kernel's limit looks like this, and no other: what else comes, a signal handler of the
        application has raised.
        """
        if self._uses_kernel and not isinstance(error, BlockingIOError):
            raise error

    def _set_limit(self, deadline: float) -> None:
        """Make the next system call end near the deadline."""
        left = deadline - self._clock()
        # Most requests have the same time limit: a limit that is a little late is kept, because
        # setting it is a system call. An early one only makes the caller go round again.
        if self._least <= left <= self._most:
            return
        if left <= 0:
            raise RequestTimeoutError(f"{self.address} gave no answer", written=True)
        if not self._uses_kernel:
            self._socket.settimeout(left)
            return
        value = _timeval.pack(int(left), max(1, int(left % 1 * 1_000_000)))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
        self._least, self._most = max(left - 0.001, left / 2), left * 2


class Connector:
    """Makes connections as the settings say.

    Raises:
        ConfigError: a file named in the TLS settings can't be used.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        connect_timeout: float,
        tls: Tls | None,
        max_frame: int,
    ) -> None:
        self._clock = clock
        self._timeout = connect_timeout
        self._tls = tls
        self._max_frame = max_frame
        self._context: ssl.SSLContext | None = None
        if tls is not None:
            from rocketwire.tls import make_context

            self._context = make_context(tls)

    def connect(self, address: str, deadline: float) -> Connection:
        """A new connection.

        Raises:
            ConnectFailedError: there is none to be had in time.
        """
        left = min(self._timeout, deadline - self._clock())
        if left <= 0:
            raise RequestTimeoutError(f"no time was left to connect to {address}")
        sock, host = open_socket(address, left, self._clock)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._tls is not None and self._context is not None:
                name = self._tls.server_name or host
                sock = self._context.wrap_socket(sock, server_hostname=name)
        except OSError as error:
            sock.close()
            raise ConnectFailedError(f"{address} {explain(error, host, encrypted=True)}") from error
        return Connection(address, sock, self._clock, self._max_frame)


class Pool:
    """Idle connections by address, newest first.

    ``list.append`` and ``list.pop`` are atomic, so that no lock is needed on the way.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._idle: dict[str, list[Connection]] = {}
        #: All that were made and are not forgotten; looked at only in the end.
        self._made: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._dialling: list[str] = []
        self._is_closed = False
        self._users = 1
        self._lock = threading.Lock()

    def join(self) -> bool:
        """Use it, too; False if it is closed already."""
        with self._lock:
            self._users += not self._is_closed
            return not self._is_closed

    def leave(self) -> None:
        """One of the users goes; with the last one it is closed."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self._is_closed = True
        self.close()

    def take(self, address: str, deadline: float, now: float | None = None) -> Connection:
        """A connection that is good as far as can be told, an idle one if there is one.

        ``now`` is the moment, of a caller who knows it.
        """
        idle = self._idle.get(address)
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread took the last one
                break
            if connection.is_fresh(now):
                return connection
            connection.close()
        self._dialling.append(address)
        try:
            connection = self._connector.connect(address, deadline)
            with self._lock:
                self._made.add(connection)
            return connection
        finally:
            self._dialling.pop()

    def is_quiet(self) -> bool:
        """Whether nobody uses a connection of it. True while others share it: it may be them.

        Found out when asked: keeping count would cost every request something.
        """
        with self._lock:
            if self._users > 1:
                return True
            made = [c for c in self._made if c.fileno() >= 0]
        idle = {c for found in list(self._idle.values()) for c in list(found)}
        return not self._dialling and idle.issuperset(made)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        if self._is_closed:
            connection.close()
            return
        try:
            self._idle[connection.address].append(connection)
        except KeyError:
            self._idle.setdefault(connection.address, []).append(connection)

    def drop(self, address: str) -> None:
        """Close what is idle to an address that nobody advertises any more."""
        for connection in self._idle.pop(address, []):
            connection.close()

    def addresses(self) -> tuple[str, ...]:
        """Addresses with idle connections."""
        return tuple(self._idle)

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they come back."""
        self._is_closed = True
        self.forget()

    def forget(self) -> None:
        """Close all idle connections and go on."""
        for address in self.addresses():
            self.drop(address)
