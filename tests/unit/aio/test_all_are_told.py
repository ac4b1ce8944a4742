"""One waiter whose hook or callback ends the program keeps no other from being told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.core.world import World, on_trial

from rocketwire.aio.connection import Connection
from rocketwire.aio.driver import Driver
from rocketwire.aio.waiter import SendWaiter, Waiter, finish_stored
from rocketwire.config import ProducerConfig
from rocketwire.core.effects import Invoke, Oneway, Op
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.tell_each import tell_each
from rocketwire.errors import (
    ConnectionLostError,
    LocalProtocolError,
    RocketMQError,
    SendFailedError,
)
from rocketwire.message import Message
from rocketwire.wire.command import RESPONSE, Command, encode_command

COUNT = 4


class Leaving(Waiter):
    """The second one ends the program when it is told."""

    def __init__(self, number: int, told: list[int]) -> None:
        self.number = number
        self.told = told
        self.user: object = told
        self.connection = None
        self.takes_frame = False
        self.issued = 0.0

    @property
    def owner(self) -> object:
        return self.user

    def resume(self, value: object) -> None:
        self._tell()

    def fail(self, error: RocketMQError) -> None:
        self._tell()

    def _tell(self) -> None:
        self.told.append(self.number)
        if self.number == 1:
            raise SystemExit("a hook ends the program")


class Transport:
    """As much of a transport as is written to."""

    is_open = True

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Noted."""
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    def set_write_buffer_limits(self, **limits: int) -> None:
        """It takes everything."""

    def close(self) -> None:
        self.is_open = False

    abort = close


def issue(connection: Connection, waiters: list[Leaving], deadline: float) -> None:
    connection.connection_made(Transport())  # type: ignore[arg-type]
    for waiter in waiters:
        connection.issue(waiter, Command(7), deadline, None)


def enqueue(connection: Connection, waiters: list[Leaving], deadline: float) -> None:
    for waiter in waiters:
        connection.enqueue(waiter, Invoke("a:1", Command(7), deadline))


def answer(connection: Connection, waiters: list[Leaving]) -> None:
    answers = [Command(0, opaque=waiter.opaque, flag=RESPONSE) for waiter in waiters]
    connection.data_received(b"".join(map(encode_command, answers)))


def connect(connection: Connection, waiters: list[Leaving]) -> None:
    for waiter in waiters:
        connection._line[waiter] = Oneway("a:1", Command(7), waiter.deadline)
    connection.connection_made(Transport())  # type: ignore[arg-type]


Begin = Callable[[Connection, list[Leaving], float], None]
#: How each of some waiters comes to be told: how they begin to wait, until when, and what happens then.
ENDS: dict[str, tuple[Begin, float, Callable[[Connection, list[Leaving]], None]]] = {
    "answered": (issue, 60, answer),
    "lost": (issue, 60, lambda c, _: c.connection_lost(None)),
    "lost before they were written": (enqueue, 60, lambda c, _: c.connection_lost(None)),
    "not connected": (enqueue, 60, lambda c, _: c.connect_failed("refused")),
    "oneway requests written": (enqueue, 60, connect),
    "shut down by one of many": (issue, 60, lambda c, w: c.dismiss(w[0].owner)),
    "closed": (issue, 60, lambda c, _: c.close()),
    "closed before they were written": (enqueue, 60, lambda c, _: c.close()),
    "unanswered in time": (issue, -1, lambda c, _: c._sweep()),
    "unwritten in time": (enqueue, -1, lambda c, _: c._sweep()),
}


@pytest.mark.parametrize("end", ENDS)
def test_all_that_wait_on_a_connection_are_told_though_one_ends_the_program(end: str) -> None:
    begin, left, happen = ENDS[end]
    told: list[int] = []

    async def main() -> None:
        connection = Connection(
            "a:1",
            loop=asyncio.get_running_loop(),
            clock=time.monotonic,
            on_over=lambda _: None,
        )
        waiters = [Leaving(number, told) for number in range(COUNT)]
        begin(connection, waiters, time.monotonic() + left)
        with pytest.raises(SystemExit):
            happen(connection, waiters)
        assert told == list(range(COUNT))
        assert not connection.session.pending
        assert not connection._line

    asyncio.run(main())


def test_a_sweep_goes_on_though_one_of_those_that_are_told_ends_the_program() -> None:
    """Else nothing would end at its deadline any more, if nothing else was sent."""
    told: list[int] = []

    async def main() -> None:
        connection = Connection(
            "a:1", loop=asyncio.get_running_loop(), clock=time.monotonic, on_over=lambda _: None
        )
        issue(connection, [Leaving(1, told)], time.monotonic() - 1)
        connection.issue(Leaving(2, told), Command(7), time.monotonic() + 0.05, None)
        with pytest.raises(SystemExit):
            connection._sweep()
        while told != [1, 2]:  # bounded by the time limit of tests
            await asyncio.sleep(0.01)

    asyncio.run(main())


class Signing:
    """A request whose keys can't be had, because their function ends the program."""

    code = 7
    body = b""

    def head(self, opaque: int, flag: int = 0) -> bytes:
        raise SystemExit("the function that gives the keys ends the program")


def connection_of(address: str = "a:1", **options: Any) -> tuple[Connection, Transport]:
    given = {"clock": time.monotonic, "on_over": lambda _: None} | options
    connection = Connection(address, loop=asyncio.get_running_loop(), **given)
    return connection, Transport()


def test_one_in_the_line_whose_request_ends_the_program_is_told_too() -> None:
    told: list[int] = []

    async def main() -> None:
        connection, transport = connection_of()
        deadline = time.monotonic() + 60
        for number, request in ((0, Command(7)), (2, Signing()), (3, Command(7))):
            call = Invoke("a:1", request, deadline)  # type: ignore[arg-type]
            connection.enqueue(Leaving(number, told), call)
        with pytest.raises(SystemExit):
            connection.connection_made(transport)  # type: ignore[arg-type]
        assert told == [2]
        assert [waiter.number for waiter in connection.session.pending.values()] == [0, 3]  # type: ignore[attr-defined]

    asyncio.run(main())


@pytest.mark.parametrize("end", ["close", "abort", "leave"])
def test_all_connections_are_closed_though_one_that_is_told_ends_the_program(end: str) -> None:
    told: list[int] = []

    async def main() -> None:
        driver = Driver(ProducerConfig(name_servers=("a:1",)))
        transports = []
        if end == "leave":
            driver.table.users += 1
        for address in ("a:1", "b:1"):
            connection, transport = connection_of(address, on_over=driver.table._over)
            transports.append(transport)
            connection.connection_made(transport)  # type: ignore[arg-type]
            driver.connections[address] = connection
            driver.table._alive.add(connection)
            for number in (1, 2):
                waiter = Leaving(number, told)
                waiter.user = driver
                connection.issue(waiter, Command(7), driver.clock() + 60, None)
        with pytest.raises(SystemExit):
            if end == "abort":
                driver.abort()
            else:
                await driver.close(0.01)
        assert sorted(told) == [1, 1, 2, 2]
        assert [transport.is_open for transport in transports] == [end == "leave"] * 2

    asyncio.run(main())


def test_an_operation_ends_whose_next_request_ends_the_program() -> None:
    ended: list[Any] = []
    closed: list[str] = []

    async def main() -> None:
        driver = Driver(ProducerConfig(name_servers=("a:1",)))
        for address in ("a:1", "b:1"):
            connection, transport = connection_of(address)
            connection.connection_made(transport)  # type: ignore[arg-type]
            driver.connections[address] = connection

        def operation() -> Op[None]:
            try:
                with contextlib.suppress(ConnectionLostError):
                    yield Invoke("a:1", Command(7), driver.clock() + 60)
                yield Invoke("b:1", Signing(), driver.clock() + 60)  # type: ignore[arg-type]
            finally:
                closed.append("what it holds is released")

        run = driver.start(operation(), lambda result, error: ended.append(error))
        with pytest.raises(SystemExit):
            driver.connections["a:1"].connection_lost(None)
        assert run.is_over
        assert [type(error) for error in ended] == [SendFailedError]
        assert closed == ["what it holds is released"]

    asyncio.run(main())


class Stored(SendWaiter):
    """A send whose end is noted."""

    def __init__(self, attempt: Any, told: list[SendWaiter]) -> None:
        super().__init__(attempt)
        self.told = told

    def settled(self, result: object, error: object) -> None:
        raise AssertionError("it was stored")

    def stored(self) -> None:
        self.told.append(self)


class Unsigned(SendWaiter):
    """A send whose end is noted; the program ends if it was not written."""

    def __init__(self, attempt: Any, told: list[str]) -> None:
        super().__init__(attempt)
        self.told = told
        self.takes_frame = True

    def fail(self, error: RocketMQError) -> None:
        self.is_over = True
        self.told.append(str(error))
        raise SystemExit("a hook ends the program")

    def settled(self, result: object, error: object) -> None:
        raise AssertionError("it waits")

    def stored(self) -> None:
        raise AssertionError("it waits")


class BadTarget:
    """Whose requests can't be signed."""

    template = None

    def head(self, attempt: Any, opaque: int, flag: int) -> bytes:
        raise LocalProtocolError("no keys")


def test_sends_of_one_tick_leave_though_one_that_can_t_be_written_ends_the_program() -> None:
    """They were written when they had no time any more, or never."""

    async def main() -> None:
        world = World(2)
        world.send()
        connection, transport = connection_of()
        connection.connection_made(transport)  # type: ignore[arg-type]
        told: list[str] = []
        waiters = []
        for number in range(3):
            attempt = world.sender.start(Message("T", b"body %d" % number), SendMode.ASYNC)
            attempt.began, attempt.deadline = time.monotonic(), time.monotonic() + 60
            if number == 1:
                attempt.target = BadTarget()  # type: ignore[assignment]
            waiters.append(Unsigned(attempt, told))
            connection.gather(waiters[-1], attempt)
        later = Leaving(7, [])
        connection.issue(later, Command(7), time.monotonic() + 60, None)
        assert told == ["no keys"]
        connection._flush()
        assert b"body 0" in transport.written[0]
        assert b"body 2" in transport.written[0]
        assert list(connection.session.pending.values()) == [waiters[0], waiters[2], later]
        await asyncio.sleep(0)

    with pytest.raises(SystemExit, match="a hook"):
        asyncio.run(main())


class Hook:
    """Ends the program when a broker is back."""

    def broker_returned(self, event: object) -> None:
        raise SystemExit("leaving")


def test_answers_that_came_with_one_of_which_a_hook_ends_the_program_are_told() -> None:
    world, is_over = on_trial(2, "broker-a", hooks=[Hook()]), False
    table = world.instance.faults
    while not is_over:
        told: list[SendWaiter] = []
        waiters = []
        for _ in range(COUNT):
            attempt = world.sender.start(Message("T", b"x"), SendMode.ASYNC)
            attempt.written(world.clock(), 10)
            waiters.append(Stored(attempt, told))
        world.clock.advance(0.001)
        before = world.sender.counters.snapshot().sent
        try:
            finish_stored(waiters, world.clock())  # type: ignore[arg-type]
        except SystemExit:
            is_over = True
        assert told == waiters
        assert world.sender.counters.snapshot().sent == before + COUNT
        assert [entry.under_way for entry in table._entries.values()] == [{}, {}]


def test_what_is_raised_first_is_raised_when_all_are_told() -> None:
    told: list[int] = []

    def tell(number: int) -> None:
        told.append(number)
        if number:
            raise KeyboardInterrupt(number)

    with pytest.raises(KeyboardInterrupt, match="1"):
        tell_each(range(4), tell)
    assert told == [0, 1, 2, 3]
