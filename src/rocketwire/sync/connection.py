"""Blocking connections and the pool that keeps them.

A connection is used by one thread at a time, for one request or one pipelined row of requests.
There is no reader thread: the thread that waits for an answer reads it.
"""

from __future__ import annotations

import select
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from rocketwire.config import Tls
from rocketwire.core.effects import Observer
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.errors import ConnectFailedError, ConnectionLostError, RequestTimeoutError
from rocketwire.sync.connecting import open_socket
from rocketwire.system.latch import forked_meanwhile
from rocketwire.system.socket_tuning import tune
from rocketwire.system.unreachable import explain
from rocketwire.wire.command import Reply, Request
from rocketwire.wire.reply_layout import says_stored
from rocketwire.wire.session import Session

if TYPE_CHECKING:
    import ssl

#: Most answers are small. Asking for more than malloc's mmap threshold (128 KiB) at once costs two
#: further system calls and fresh pages for each of them: 13 µs of a send's 35.
_READ = 64 * 1024
#: For the rest of an answer that is known to be large.
_READ_ON = 1024 * 1024
#: Smaller bodies are copied behind their heads, and leave in one system call.
JOIN_BELOW: Final = 64 * 1024
_MAX_IDLE = 60.0
#: Longer waits than a poll can be asked for go round again.
_LONGEST_WAIT: Final = 86_400.0
#: What to wait for; Windows has no poll, nor names for it.
POLLIN: Final = getattr(select, "POLLIN", 1)
POLLOUT: Final = getattr(select, "POLLOUT", 4)

A = TypeVar("A")
B = TypeVar("B")


class Connection:
    """One socket to one address."""

    __slots__ = (
        "__weakref__", "_clock", "_is_plain", "_poll", "_socket", "address", "session", "used_at",
    )  # fmt: skip

    def __init__(
        self, address: str, sock: socket.socket, clock: Callable[[], float], max_frame: int
    ) -> None:
        self.address = address
        self._socket = sock
        self._clock = clock
        self.session = Session(max_frame)
        # A plain socket never waits by itself: what waits is a poll, which counts down to the deadline
        # whatever signal wakes it. A limit of the kernel's would begin anew after every signal. TLS
        # has to read and write in order to do either, so there Python's own limits serve.
        self._is_plain = type(sock) is socket.socket
        if self._is_plain:
            sock.settimeout(0.0)
        poll = select.poll() if hasattr(select, "poll") else None
        if poll is not None:
            poll.register(sock, select.POLLIN | select.POLLERR | select.POLLHUP)
        self._poll = poll
        self.used_at = clock()

    def is_fresh(self, now: float | None = None) -> bool:
        """Whether it may be used again: not idle for long, and nothing to read.

        Whatever is readable now is the end of the stream, or an answer that came too late. Looking
        is a system call in each send, and a hundredth of its time.
        """
        if (now or self._clock()) - self.used_at > _MAX_IDLE or self.session.frames:
            return False
        if self._poll is not None:
            return not self._poll.poll(0)
        return not wait_for([self], POLLIN, 0)

    def fileno(self) -> int:
        """For polling several connections at once."""
        return self._socket.fileno()

    def has_more(self) -> bool:
        """Whether an answer can be read without waiting, because it is in memory already."""
        pending = getattr(self._socket, "pending", None)
        return bool(self.session.frames) or (pending is not None and pending() > 0)

    def close(self) -> None:
        """Close our end. Never shut it down: after a fork the other process still uses it."""
        self._socket.close()

    def disown(self) -> None:
        """In a forked child: close our end, and do not look at its number, which may be another's soon."""
        self._poll = None
        self._socket.close()

    def call(self, request: Request, deadline: float, observer: Observer | None) -> Reply:
        """Write a request and read its answer.

        Raises:
            TransportError: ``written`` tells whether any byte left. Close the connection then.
            RemoteProtocolError: the peer does not speak the protocol. Close it, too.
        """
        opaque = self.write(request, deadline, observer)
        while True:
            reply = self.read(deadline)
            if reply.opaque == opaque:  # others are late
                return reply

    def exchange(self, attempt: SendAttempt) -> bytes | Reply:
        """As ``call`` for an attempt; the frame of an answer that says "stored", as it is.

        ``used_at`` is when it was read.
        """
        session, deadline = self.session, attempt.deadline
        if len(attempt.body) < JOIN_BELOW:
            opaque, frame = session.issue_send(attempt)
            self._write_all(frame, deadline, len(frame), attempt)
        else:
            opaque = self.write(attempt, deadline, attempt)
        expected = session.expect(opaque)
        data = self._take(self._socket.recv, _READ, deadline)
        self.used_at = self._clock()
        if expected is not None and says_stored(data, expected):
            return data[4:]
        while True:
            session.feed(data)
            answer = session.find(opaque)
            if answer is not None:
                if type(answer) is Reply:
                    answer.arrived = self.used_at
                return answer
            data = self._receive(deadline)
            self.used_at = self._clock()

    def write(self, request: Request, deadline: float, observer: Observer | None) -> int:
        """Write a request; returns its opaque number."""
        opaque, head = self.session.issue(request)
        self._write(head, request.body, deadline, observer)
        return opaque

    def write_frames(self, frames: Sequence[bytes], deadline: float) -> None:
        """Write whole requests that have numbers of this session."""
        row = b"".join(frames)
        self._write_all(row, deadline, len(row), None)

    def write_oneway(self, request: Request, deadline: float, observer: Observer | None) -> None:
        """Write a request that gets no answer."""
        self._write(self.session.issue_oneway(request), request.body, deadline, observer)
        self.used_at = self._clock()

    def _write(
        self, head: bytes, body: bytes | memoryview, deadline: float, observer: Observer | None
    ) -> None:
        """Write a request; ``observer`` is told when its first bytes have left, and not before."""
        size = len(head) + len(body)
        if len(body) < JOIN_BELOW:
            self._write_all(head + body, deadline, size, observer)
        else:
            self._write_all(head, deadline, size, observer)
            self._write_all(body, deadline, size, None, some_left=True)

    def _write_all(
        self,
        left: bytes | memoryview,
        deadline: float,
        size: int,
        observer: Observer | None,
        some_left: bool = False,  # noqa: FBT001, FBT002 - a function without such is called faster
    ) -> None:
        """Write a piece of a request of ``size`` bytes; ``some_left``: bytes of it have left before."""
        while True:
            try:
                if not self._is_plain:
                    self._socket.settimeout(self._time_left(deadline))
                count = self._socket.send(left)
            except InterruptedError:  # only a signal handler of the application raises it
                raise
            except BlockingIOError:
                self._wait(POLLOUT, deadline, some_left=some_left)
                continue
            except TimeoutError as error:
                if self._is_plain:
                    self._check_timeout(error, written=some_left)
                raise self._too_slow(some_left=some_left) from None
            except OSError as error:
                raise ConnectionLostError(
                    f"{self.address} closed the connection: {error}", written=some_left
                ) from None
            if observer is not None:
                observer.written(self._clock(), size)
                observer = None
            if count == len(left):
                return
            some_left = some_left or count > 0
            left = memoryview(left)[count:]

    def _check_timeout(self, error: TimeoutError, *, written: bool) -> None:
        """What a socket that never waits means by it: the kernel has given the peer up.

        Without a number it is none of the kernel's: a signal handler of the application raised it.
        """
        if error.errno is None:
            raise error
        raise ConnectionLostError(
            f"{self.address} closed the connection: {error}", written=written
        ) from None

    def _too_slow(self, *, some_left: bool) -> RequestTimeoutError:
        return RequestTimeoutError(f"{self.address} took no more bytes in time", written=some_left)

    def _wait(self, what: int, deadline: float, *, some_left: bool) -> None:
        """Wait until more can be written."""
        while not wait_for([self], what, deadline - self._clock()):
            if deadline <= self._clock():
                raise self._too_slow(some_left=some_left)

    def read(self, deadline: float) -> Reply:
        """The next answer on this connection, to any request."""
        session = self.session
        while True:
            reply = session.next_reply()
            if reply is not None:
                reply.arrived = self.used_at = self._clock()
                return reply
            session.feed(self._receive(deadline))

    def receive_into(self, room: memoryview, deadline: float) -> int:
        """Read whatever is there, past the session; returns the number of bytes.

        For callers that cut frames out of large buffers and have them read by the session.
        """
        return self._take(self._socket.recv_into, room, deadline)

    def _receive(self, deadline: float) -> bytes:
        """What is there to be read, as soon as there is anything."""
        return self._take(
            self._socket.recv, _READ_ON if self.session.buffer.held else _READ, deadline
        )

    def _take(self, take: Callable[[A], B], what: A, deadline: float) -> B:
        """Call a reading method of the socket as soon as there is anything."""
        while True:
            left = self._time_left(deadline)
            try:
                # Not in a method of its own: from here on a caller's answer may be there.
                if not self._is_plain:
                    self._socket.settimeout(left)
                elif self._poll is not None:
                    if not self._poll.poll(min(left, _LONGEST_WAIT) * 1000):
                        continue
                elif not wait_for([self], POLLIN, left):
                    continue
                found = take(what)
            except InterruptedError:  # only a signal handler of the application raises it
                raise
            except BlockingIOError:
                continue
            except TimeoutError as error:
                if self._is_plain:
                    self._check_timeout(error, written=True)
                continue  # the next round says that no time is left
            except OSError as error:
                raise ConnectionLostError(
                    f"{self.address} closed the connection: {error}", written=True
                ) from None
            if not found:
                raise ConnectionLostError(f"{self.address} closed the connection", written=True)
            return found

    def _time_left(self, deadline: float) -> float:
        left = deadline - self._clock()
        if left <= 0:
            raise RequestTimeoutError(f"{self.address} gave no answer", written=True)
        return left


class Waited(Protocol):
    """Something with a socket that can be waited for."""

    def fileno(self) -> int:
        """The number of the socket."""


W = TypeVar("W", bound=Waited)


def wait_for(those: Sequence[W], what: int, seconds: float) -> list[W]:
    """Wait until some of them can be read (``POLLIN``) or written (``POLLOUT``); returns which.

    Counts down whatever signals come, and takes descriptors above 1023, which ``select`` refuses.
    """
    seconds = max(0.0, seconds)
    if not hasattr(select, "poll"):  # Windows, where descriptors are not numbered from 0
        readers, writers = (those, []) if what == POLLIN else ([], those)
        readable, writable, _ = select.select(readers, writers, [], seconds)
        return [*readable, *writable]
    poll, by_number = select.poll(), {one.fileno(): one for one in those}
    if -1 in by_number:
        return [by_number[-1]]  # closed, by a fork in the midst of this: using it says so
    for number in by_number:
        poll.register(number, what)
    ready = poll.poll(min(seconds, _LONGEST_WAIT) * 1000)
    return [by_number[number] for number, _ in ready]


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
            from rocketwire.system.tls import make_context

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
            tune(sock)
            if self._tls is not None and self._context is not None:
                name = self._tls.server_name or host
                sock = self._context.wrap_socket(
                    sock, server_hostname=name, do_handshake_on_connect=False
                )
                sock.do_handshake()  # not in there: an interrupt would lose the socket
            return Connection(address, sock, self._clock, self._max_frame)
        except BaseException as error:  # an interrupt may come at any moment
            sock.close()
            if not isinstance(error, OSError):
                raise
            raise ConnectFailedError(f"{address} {explain(error, host, encrypted=True)}") from error


class Pool:
    """Idle connections by address, newest first.

    One is taken by deleting its key, which one thread only can do: so no lock is needed on the way.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._idle: dict[str, dict[Connection, None]] = {}
        #: All that were made and are not forgotten; looked at only in the end.
        self._made: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._dialling: list[str] = []
        self._is_closed = False
        #: Whether this is a forked child, in which only calls that began before the fork come here.
        self._is_parents = False
        #: By number: it must not keep clients alive that nobody uses any more.
        self._users: set[int] = set()
        self._lock = threading.RLock()

    def join(self, who: object) -> bool:
        """Use it, too; False if it is closed already."""
        with self._lock:
            if not self._is_closed:
                self._users.add(id(who))
            return not self._is_closed

    def leave(self, who: object) -> None:
        """A user goes, for which twice is harmless; with the last one it is closed."""
        with self._lock:
            self._users.discard(id(who))
            if self._users:
                return
            self._is_closed = True
        self.close()

    def take(self, address: str, deadline: float, now: float | None = None) -> Connection:
        """A connection that is good as far as can be told, an idle one if there is one.

        ``now`` is the moment, of a caller that knows it.
        """
        idle = self._idle.get(address)
        while idle:
            try:
                # No pop(): an interrupt that is raised behind its call would take the connection along.
                connection = next(reversed(idle))
                del idle[connection]
            except (KeyError, StopIteration, RuntimeError):  # another thread took it, or one more
                continue
            try:
                if connection.is_fresh(now):
                    return connection
                connection.close()
            except BaseException:
                connection.close()
                raise
        self._dialling.append(address)
        try:
            if self._is_parents:
                raise forked_meanwhile()
            connection = self._connector.connect(address, deadline)
            try:
                with self._lock:
                    self._made.add(connection)
            except BaseException:
                connection.close()
                raise
            return connection
        finally:
            del self._dialling[-1]  # no call, behind which an interrupt would lose the connection

    def is_quiet(self) -> bool:
        """Whether nobody uses a connection of it. True while others share it: it may be them.

        Found out when asked: keeping count would cost every request something.
        """
        with self._lock:
            if len(self._users) > 1:
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
            self._idle[connection.address][connection] = None
        except KeyError:
            self._idle.setdefault(connection.address, {})[connection] = None

    def discard(self, connection: Connection) -> None:
        """Close a connection after an error, or an interrupt that came at any moment."""
        with suppress(KeyError):
            del self._idle[connection.address][connection]
        connection.close()

    def drop(self, address: str) -> None:
        """Close what is idle to an address that nobody advertises any more."""
        idle = self._idle.get(address, {})
        for connection in list(idle):
            with suppress(KeyError):  # another thread uses it
                del idle[connection]
                try:
                    connection.close()
                finally:
                    connection.close()  # an interrupt may come at any moment
        self._idle.pop(address, None)

    def addresses(self) -> tuple[str, ...]:
        """Addresses with idle connections."""
        return tuple(self._idle)

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they come back."""
        self._is_closed = True
        self.forget()

    def disown(self) -> None:
        """In a forked child: close our ends, in use or not: reading on takes the parent's answers."""
        self._lock = threading.RLock()  # the old one may have been held when the process forked
        self._is_parents = True
        for connection in list(self._made):
            connection.disown()
        self.close()

    def forget(self) -> None:
        """Close all idle connections and go on."""
        for address in self.addresses():
            self.drop(address)
