"""What name servers and brokers have in common: a port, connections, dispatch, faults.

It decides in which order things happen to a request: it is noted in the journal, meets the
faults that act on requests, is handled, and its answer meets the faults that act on answers.
What requests mean is up to the handlers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from rocketwire.embedded.call import CONTROL_CODE, Answer, Call, Handler, Refusal
from rocketwire.embedded.connection import Connection
from rocketwire.embedded.delays import Delays
from rocketwire.embedded.faults import BEFORE, Fault, FaultKind, FaultPlan
from rocketwire.embedded.journal import Journal, JournalEntry
from rocketwire.embedded.store import MessageRefusedError, StoreError, StoreFullError
from rocketwire.errors import ConfigError, InvalidMessageError, ProtocolError
from rocketwire.wire.binary_header import encode_binary_header
from rocketwire.wire.codes import CLIENT_VERSION, Language, ResponseCode
from rocketwire.wire.command import BINARY, JSON, RESPONSE, Command, frame_start
from rocketwire.wire.framing import MAX_FRAME
from rocketwire.wire.json_header import encode_json_header

_log: Final = logging.getLogger("rocketwire.embedded")
#: Requests that wait for a hanging server to be healed.
_HELD_LIMIT: Final = 10_000
#: How far a broker's "VIP channel" is below its port.
FAST_STEP: Final = 2
_BUSY_REMARK: Final = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while (injected fault)"
)


def check_server(host: str, reply_header: str) -> None:
    """Refuse settings that make no sense, and addresses that others can reach.

    A client may do anything here, so only this machine may connect.

    Raises:
        ConfigError: one of them is wrong.
    """
    if reply_header not in {"same", "json"}:
        raise ConfigError(f"reply_header is {reply_header!r}: give 'same' or 'json'")
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise ConfigError(f"host is {host!r}: give a loopback address like 127.0.0.1 or ::1")


class Server:
    """A server on one port of one loopback address.

    Args:
        name: for the journal and the log.
        journal: where requests are noted.
        host: an address of this machine.
        port: 0 for any free one, which is then kept over restarts.
        seed: of the faults' chance.
        reply_header: ``"same"`` answers in the requester's kind of header, as 4.x does;
            ``"json"`` always in JSON, as 5.x does.
        tls: when given, every connection must be encrypted.
        connection_limit: further connections are closed at once.
        idle_timeout: seconds after which a silent connection is closed.
    """

    def __init__(  # noqa: PLR0913 - all but two have defaults
        self,
        name: str,
        journal: Journal,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 0,
        reply_header: str = "same",
        tls: ssl.SSLContext | None = None,
        connection_limit: int = 1024,
        idle_timeout: float = 120.0,
    ) -> None:
        check_server(host, reply_header)
        self.name = name
        self.journal = journal
        self.host = host
        self.port = port
        self.faults = FaultPlan(seed)
        self.handlers: dict[int, Handler] = {}
        #: Requests that meet no faults.
        self.exempt: frozenset[int] = frozenset({CONTROL_CODE})
        self.frame_limit = MAX_FRAME
        self.connections: set[Connection] = set()
        self._reply_header = reply_header
        self._tls = tls
        self.encrypted = tls is not None
        self._connection_limit = connection_limit
        self._idle_timeout = idle_timeout
        self._reserved: socket.socket | None = None
        #: Whether it listens at its port less two, too, as a broker's "VIP channel" does.
        self.has_fast_port = False
        self._fast: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        self._fast_listener: asyncio.Server | None = None
        self._held: deque[Callable[[], None]] = deque()
        self._delays = Delays()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> str:
        """Where it listens, as clients write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    # Opening and closing

    def reserve(self) -> None:
        """Take the port without listening on it, so that nobody else gets it meanwhile.

        Raises:
            ConfigError: the address is not ours, or the port is taken.
        """
        if self._reserved is None:
            self._reserved = self._bind(self.port)
            self.port = self._reserved.getsockname()[1]
            if self.has_fast_port and self.port > FAST_STEP:
                self._fast = self._take_fast()

    def _take_fast(self) -> socket.socket | None:
        """The port less two, if nobody has it."""
        plain = self._socket()
        try:
            plain.bind((self.host, self.port - FAST_STEP))
        except OSError:
            _log.debug("%s: port %d is taken: no VIP channel", self.name, self.port - FAST_STEP)
            plain.close()
            return None
        # Not before: another server that has reserved the port would share it.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return plain

    @property
    def fast_port(self) -> int | None:
        """Where senders may come, too; None where that port was taken."""
        return self.port - FAST_STEP if self._fast is not None else None

    def _socket(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.socket(family, socket.SOCK_STREAM)

    def _bind(self, port: int) -> socket.socket:
        plain = self._socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            plain.bind((self.host, port))
        except OSError as error:
            plain.close()
            raise ConfigError(
                f"{self.name} can't listen on {self.address}: {error.strerror}; "
                "give another port, or 0 for any"
            ) from None
        return plain

    async def listen(self) -> None:
        """Accept connections."""
        self.loop = asyncio.get_running_loop()
        self.reserve()
        if self._listener is None:
            self._listener = await self._serve_at(self.port)
        if self._fast is not None and self._fast_listener is None:
            self._fast_listener = await self._serve_at(self.port - FAST_STEP)
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._idle_timeout / 4, self._close_idle)

    async def _serve_at(self, port: int) -> asyncio.Server:
        return await self.loop.create_server(
            lambda: Connection(self), sock=self._bind(port), backlog=512, ssl=self._tls
        )

    @property
    def listening(self) -> bool:
        """Whether connections are accepted."""
        return self._listener is not None

    def stop_listening(self) -> None:
        """Refuse new connections; the port stays ours."""
        for listener in (self._listener, self._fast_listener):
            if listener is not None:
                listener.close()
        self._listener = self._fast_listener = None

    def abort_connections(self) -> None:
        """Close every connection at once."""
        for connection in tuple(self.connections):
            connection.abort()

    def shut(self) -> None:
        """Stop listening, close every connection, forget what was held or was to be done later."""
        self.stop_listening()
        self.abort_connections()
        self._held.clear()
        self._delays.forget()
        for task in self._tasks:
            task.cancel()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def release(self) -> None:
        """Give the port back."""
        for reserved in (self._reserved, self._fast):
            if reserved is not None:
                reserved.close()
        self._reserved = self._fast = None

    def _close_idle(self) -> None:
        limit = self.loop.time() - self._idle_timeout
        for connection in tuple(self.connections):
            if connection.last_heard < limit:
                connection.abort()
        self._idle_timer = self.loop.call_later(self._idle_timeout / 4, self._close_idle)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background until the server is shut."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Connections

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may stay."""
        if self._listener is None:
            # Accepted in the moment in which we stopped listening.
            return False
        if len(self.connections) >= self._connection_limit:
            _log.warning(
                "%s: %s is turned away: %d connections are open",
                self.name, connection.peer, self._connection_limit,
            )  # fmt: skip
            return False
        self.connections.add(connection)
        return True

    def lost(self, connection: Connection) -> None:
        """A connection is closed. Subclasses forget what it had registered."""
        self.connections.discard(connection)

    # Requests

    def receive(self, connection: Connection, command: Command) -> None:
        """Take a request from a connection."""
        entry = JournalEntry(
            time.time(), self.name, command.code, command.ext, len(command.body),
            connection.peer, command.flag, command.header,
        )  # fmt: skip
        self.journal.add(entry)
        call = Call(connection, command, entry)
        if self.faults.active and command.code not in self.exempt:
            self._meet_faults(call)
        else:
            self.process(call)

    def process(self, call: Call) -> None:
        """Handle a request and answer it."""
        handler = self.handlers.get(call.command.code)
        try:
            answer = self._unknown(call) if handler is None else handler(call)
        except Refusal as refusal:
            answer = Answer(refusal.code, refusal.ext, (), str(refusal))
        except Exception as error:  # noqa: BLE001 - one bad request must not stop a server
            answer = self._explain(call, error)
        if answer is not None:
            call.answer(answer)

    def _unknown(self, call: Call) -> Answer:
        code = call.command.code
        return Answer(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported"
        )

    def _explain(self, call: Call, error: Exception) -> Answer:
        code = ResponseCode.SYSTEM_ERROR
        if isinstance(error, StoreFullError):
            code = ResponseCode.SERVICE_NOT_AVAILABLE
        elif isinstance(error, (MessageRefusedError, InvalidMessageError)):
            code = ResponseCode.MESSAGE_ILLEGAL
        elif not isinstance(error, (StoreError, ProtocolError)):
            _log.error("%s: request %d failed", self.name, call.command.code, exc_info=error)
        return Answer(code, remark=f"{error}")

    def send_answer(self, call: Call, answer: Answer) -> None:
        """Encode an answer and send it, unless a fault has something against it."""
        if not call.connection.open:
            return
        data = self.encode(call, answer)
        if call.entry.fault is None:
            call.connection.send(data)
        else:
            self._send_faulty(call, data)

    def encode(
        self, call: Call, answer: Answer, opaque: int | None = None
    ) -> list[bytes | memoryview]:
        """An answer's frame."""
        command = call.command
        kind = JSON if self._reply_header == "json" else command.header
        encode = encode_binary_header if kind == BINARY else encode_json_header
        header = encode(
            answer.code, Language.PYTHON, CLIENT_VERSION,
            command.opaque if opaque is None else opaque, RESPONSE, answer.remark, answer.ext,
        )  # fmt: skip
        size = sum(map(len, answer.body)) if answer.body else 0
        return [frame_start(kind, len(header), size) + header, *answer.body]

    # Faults

    def heal(self) -> None:
        """End the faults of this module; what was held is handled now, in its order."""
        self.faults.clear()
        held, self._held = self._held, deque()
        for resume in held:
            resume()

    def _meet_faults(self, call: Call) -> None:
        struck = self.faults.strike(call.command.code, call.entry.topic)
        if not struck:
            self.process(call)
            return
        call.entry.fault = "+".join(fault.kind.value for fault in struck)
        call.faults = [fault for fault in struck if fault.kind not in BEFORE]
        before = [fault for fault in struck if fault.kind in BEFORE]
        kinds = {fault.kind for fault in before}
        if FaultKind.DROP in kinds:
            call.connection.abort()
        elif FaultKind.HANG in kinds:
            if len(self._held) < _HELD_LIMIT:
                self._held.append(lambda: self.process(call))
        else:
            waits = [fault for fault in before if fault.kind is FaultKind.SLOW]
            rejection = next((f for f in before if f.kind is not FaultKind.SLOW), None)
            self._delays.after(
                self.faults.delay(waits), lambda: self._refuse_or_process(call, rejection)
            )

    def _refuse_or_process(self, call: Call, rejection: Fault | None) -> None:
        if rejection is None:
            self.process(call)
        elif rejection.kind is FaultKind.BUSY:
            call.answer(Answer(ResponseCode.SYSTEM_BUSY, remark=_BUSY_REMARK))
        else:
            call.answer(Answer(rejection.response_code, remark="injected fault"))

    def _send_faulty(self, call: Call, data: list[bytes | memoryview]) -> None:
        kinds = {fault.kind for fault in call.faults}
        late = [fault for fault in call.faults if fault.kind is FaultKind.LATE_REPLY]
        if FaultKind.LOSE_REPLY in kinds:
            return
        whole = b"".join(data)
        if FaultKind.DROP_REPLY in kinds:
            call.connection.abort()
        elif FaultKind.HALF_REPLY in kinds:
            call.connection.close_after(whole[: len(whole) // 2])
        elif FaultKind.GARBAGE_REPLY in kinds:
            call.connection.send([b"\x00\x00\x00\x20" + b"\xff" * 32])
        else:
            if FaultKind.WRONG_REPLY in kinds:
                whole = b"".join(self.encode(call, Answer(), call.command.opaque ^ 0x40000000))
            self._delays.after(self.faults.delay(late), lambda: call.connection.send([whole]))
