"""TCP proxies between clients and brokers, which can be made to misbehave.

They run in a process of their own (this file is also its program), so that a proxy never competes
with the client under test for the interpreter. ``Proxies`` starts that process and gives one
``Proxy`` per broker. A broker listens on one loopback address and advertises another, with the same
port; the proxy listens on the advertised one.

What the faults mean:

* ``slow``: every answer is held back by the given time; order and throughput stay.
* ``blackhole``: connections are accepted and kept, nothing passes. What was written waits and passes
  when healed, as on a network that comes back, so an abandoned attempt may be stored after all.
* ``refuse``: the port is closed and every connection reset.
* ``reset``: every connection is reset once; new ones work.
* ``flap``: refuse and heal in turn until healed for good.
"""

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ANSWER_LIMIT = 20.0
_RESET = struct.pack("ii", 1, 0)


class Proxies:
    """Starts a process with one proxy per ``(listen, target)`` pair and commands it."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = list(pairs)
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.each = [Proxy(self, listen) for listen, _ in pairs]

    def __enter__(self) -> Self:
        command = [sys.executable, str(Path(__file__)), json.dumps(self._pairs)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read_answer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is None:
            return
        # The end of its input ends the process.
        _, _ = process.communicate(timeout=_ANSWER_LIMIT)
        self._process = None

    def command(self, listen: str, action: str, *values: float) -> Any:
        """Send one command and wait until it is in force."""
        with self._lock:
            process = self._process
            if process is None or process.stdin is None:
                raise RuntimeError("the proxies are not running; use them in a with statement")
            process.stdin.write(json.dumps([listen, action, *values]) + "\n")
            process.stdin.flush()
            return self._read_answer()

    def heal(self) -> None:
        """Every proxy passes everything at once again."""
        for proxy in self.each:
            proxy.heal()

    def _read_answer(self) -> Any:
        if self._process is None or self._process.stdout is None:
            raise RuntimeError("the proxies are not running")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the proxy process ended; its error output tells why")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the proxy process said: {answer['error']}")
        return answer["value"]


class Proxy:
    """The handle of one proxy; each method returns when the change is in force."""

    def __init__(self, owner: Proxies, listen: str) -> None:
        self._owner = owner
        self.listen = listen

    def slow(self, seconds: float) -> None:
        self._owner.command(self.listen, "slow", seconds)

    def blackhole(self) -> None:
        self._owner.command(self.listen, "blackhole")

    def refuse(self) -> None:
        self._owner.command(self.listen, "refuse")

    def reset(self) -> None:
        self._owner.command(self.listen, "reset")

    def flap(self, down: float, up: float) -> None:
        """Refuse for ``down`` seconds, work for ``up`` seconds, and so on, beginning with down."""
        self._owner.command(self.listen, "flap", down, up)

    def heal(self) -> None:
        self._owner.command(self.listen, "heal")

    def accepted(self) -> int:
        """How many connections it has accepted so far."""
        return int(self._owner.command(self.listen, "accepted"))


class _Gate:
    """The state of one proxy in its own process, and the links that pass through it."""

    def __init__(self, listen: str, target: str) -> None:
        self.listen = _split(listen)
        self.target = _split(target)
        self.delay = 0.0
        self.closed = False
        self.accepted = 0
        self.links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._flapping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Listen. After ``refuse`` the old connections may linger, hence the address is reused."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            host, port = self.listen
            self._server = await loop.create_server(
                lambda: _Near(self), host, port, reuse_address=True, backlog=1024
            )

    async def slow(self, seconds: float) -> None:
        await self.heal()
        self.delay = seconds

    async def blackhole(self) -> None:
        await self.heal()
        self.closed = True

    async def refuse(self) -> None:
        await self.heal()
        self._shut()

    async def reset(self) -> None:
        for link in list(self.links):
            link.reset()

    async def flap(self, down: float, up: float) -> None:
        await self.heal()
        self._shut()
        self._flapping = asyncio.create_task(self._alternate(down, up))

    async def heal(self) -> None:
        if self._flapping is not None:
            self._flapping.cancel()
            self._flapping = None
        self.delay = 0.0
        self.closed = False
        await self.open()
        for link in list(self.links):
            link.release()

    async def _alternate(self, down: float, up: float) -> None:
        while True:
            await asyncio.sleep(down)
            await self.open()
            await asyncio.sleep(up)
            self._shut()

    def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for link in list(self.links):
            link.reset()


class _Link:
    """One client connection with its broker connection, and what is waiting to pass."""

    def __init__(self, gate: _Gate, near: asyncio.Transport) -> None:
        self.gate = gate
        self.near = near
        self.far: asyncio.Transport | None = None
        self.over = False
        self.waiting: list[tuple[bool, bytes]] = []
        self._answers: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        gate.links.add(self)
        if not gate.closed:
            self.connect()

    def connect(self) -> None:
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            far, _ = await loop.create_connection(lambda: _Far(self), *self.gate.target)
        except OSError:
            self.reset()
            return
        self.far = far
        self.release()

    def pass_on(self, data: bytes, *, towards_broker: bool) -> None:
        if self.gate.closed or self.far is None:
            self.waiting.append((towards_broker, data))
        elif towards_broker:
            self.far.write(data)
        else:
            self._answer(data)

    def _answer(self, data: bytes) -> None:
        if self.gate.delay == 0.0 and not self._answers:
            self.near.write(data)
            return
        loop = asyncio.get_running_loop()
        self._answers.append((loop.time() + self.gate.delay, data))
        self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and self._answers:
            self._timer = loop.call_at(self._answers[0][0], self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        if self.gate.closed:
            return
        loop = asyncio.get_running_loop()
        while self._answers and self._answers[0][0] <= loop.time():
            self.near.write(self._answers.popleft()[1])
        self._arm(loop)
        self._end_if_over()

    def release(self) -> None:
        """Let through what waited; connect to the broker if that was put off."""
        if self.gate.closed:
            return
        if self.far is None:
            if self._connecting is None:
                self.connect()
            return
        waiting, self.waiting = self.waiting, []
        for towards_broker, data in waiting:
            self.pass_on(data, towards_broker=towards_broker)
        self._arm(asyncio.get_running_loop())
        self._end_if_over()

    def lost(self) -> None:
        """One side is gone. What it wrote before still passes; a blackhole lets nobody know."""
        self.over = True
        self.release()

    def _end_if_over(self) -> None:
        if self.over and not self._answers:
            self.gate.links.discard(self)
            self.near.close()
            if self.far is not None:
                self.far.close()

    def reset(self) -> None:
        """End both sides at once, the client's side with a reset it cannot take for an end."""
        self.gate.links.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        known = self.near.get_extra_info("socket")
        if known is not None and not self.near.is_closing():
            with contextlib.suppress(OSError):
                known.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.near.abort()
        if self.far is not None:
            self.far.abort()


class _Near(asyncio.Protocol):
    """The client's side."""

    def __init__(self, gate: _Gate) -> None:
        self._gate = gate
        self._link: _Link | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gate.accepted += 1
        self._link = _Link(self._gate, _stream(transport))

    def data_received(self, data: bytes) -> None:
        if self._link is not None:
            self._link.pass_on(data, towards_broker=True)

    def connection_lost(self, error: Exception | None) -> None:
        if self._link is not None:
            self._link.lost()


class _Far(asyncio.Protocol):
    """The broker's side."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:
        self._link.pass_on(data, towards_broker=False)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.lost()


def _stream(transport: asyncio.BaseTransport) -> asyncio.Transport:
    if not isinstance(transport, asyncio.Transport):
        raise TypeError(f"a stream transport was expected, not {type(transport).__name__}")
    return transport


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def _serve(pairs: Sequence[tuple[str, str]]) -> None:
    gates = {listen: _Gate(listen, target) for listen, target in pairs}
    for gate in gates.values():
        await gate.open()
    _say({"value": None})
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read_lines, args=(loop, lines.put_nowait), daemon=True).start()
    while line := await lines.get():
        listen, action, *values = json.loads(line)
        try:
            _say({"value": await _obey(gates[listen], action, values)})
        except OSError as error:
            _say({"error": repr(error)})


async def _obey(gate: _Gate, action: str, values: list[float]) -> Any:
    if action == "accepted":
        return gate.accepted
    return await getattr(gate, action)(*values)


def _read_lines(loop: asyncio.AbstractEventLoop, put: Callable[[str], None]) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(put, line)
    loop.call_soon_threadsafe(put, "")


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """The program of the proxy process: pairs as JSON in the first argument, commands on stdin."""
    asyncio.run(_serve(json.loads(sys.argv[1])))
    # Links that are held keep the loop's transports alive; there is nothing left to save.
    os._exit(0)


if __name__ == "__main__":
    main()
