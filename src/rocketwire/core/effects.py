"""What an operation may ask of its driver.

An operation is a generator. It yields one of the effects below, and only in order to wait; the
driver does it and resumes the generator with the outcome, or throws the error into it. Nothing
else passes between the two, so the same operation runs over blocking sockets, over asyncio, and
over a simulated network with a virtual clock.

Rules that drivers and operations rely on:

* deadlines are absolute, on the clock that was injected into the operation;
* an operation never yields while it holds a lock, nor inside ``finally``;
* a driver may close an operation at any yield (cancellation).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, cast, final

from rocketwire.errors import RocketMQError
from rocketwire.wire.command import Reply, Request

T = TypeVar("T")


class Flight(Protocol):
    """What a driver tells of a request under way. The fault table listens."""

    def written(self, now: float, unanswered: int) -> None:
        """The request was handed to a connected socket.

        Args:
            now: the moment, on the injected clock.
            unanswered: bytes on that connection that have no answer yet, this request included.
        """


@final
@dataclass(slots=True, eq=False)
class Invoke:
    """Send a request and wait for its reply; resumes with a ``Reply`` or a ``TransportError``.

    A driver sets ``written`` on the error when any byte may have left, and ``arrived`` on the
    reply to the moment at which it was read.
    """

    address: str
    request: Request
    deadline: float
    flight: Flight | None = None


@final
@dataclass(slots=True, eq=False)
class InvokeAll:
    """Send several requests at once; resumes with one ``Reply`` or error for each, in order."""

    invokes: tuple[Invoke, ...]


@final
@dataclass(slots=True, eq=False)
class Oneway:
    """Write a request that gets no answer; resumes with None when it is written."""

    address: str
    request: Request
    deadline: float
    flight: Flight | None = None


@final
@dataclass(slots=True, eq=False)
class Sleep:
    """Wait until a moment; resumes with None."""

    until: float


class Gate:
    """Something that opens once. Who waits is told by a call, from whatever thread opened it.

    It has no lock of its own: the owner opens it and adds waiters under one lock of his.
    """

    __slots__ = ("_waiters", "is_open", "opener")

    def __init__(self) -> None:
        self.is_open = False
        #: The thread without which it can't be opened, where that is known.
        self.opener: int | None = None
        self._waiters: list[Callable[[], None]] = []

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the gate opens, or now if it is open."""
        self._waiters.append(wake)
        # Appended first, tested second: the gate may open in another thread at any moment.
        if self.is_open:
            self.open()

    def open(self) -> None:
        """Open it and wake everybody; opening twice is harmless."""
        self.is_open = True
        while self._waiters:
            try:
                # In the order in which they came. In two steps between which nothing comes: an
                # interrupt that is raised behind a call of pop() would take the waiter along.
                wake = self._waiters[0]
                del self._waiters[0]
            except IndexError:  # another thread took the last one
                return
            wake()


@final
@dataclass(slots=True, eq=False)
class Wait:
    """Wait for a gate; resumes with True, or with False when the deadline came first."""

    gate: Gate
    deadline: float


Effect: TypeAlias = Invoke | InvokeAll | Oneway | Sleep | Wait
Op: TypeAlias = Generator[Effect, Any, T]


def invoke(
    address: str, request: Request, deadline: float, flight: Flight | None = None
) -> Op[Reply]:
    """Send a request, wait for its reply."""
    return cast("Reply", (yield Invoke(address, request, deadline, flight)))


def invoke_all(invokes: tuple[Invoke, ...]) -> Op[list[Reply | RocketMQError]]:
    """Send several requests, wait for all replies; a failure stands in its place."""
    return cast("list[Reply | RocketMQError]", (yield InvokeAll(invokes)))


def oneway(
    address: str, request: Request, deadline: float, flight: Flight | None = None
) -> Op[None]:
    """Write a request that has no reply."""
    yield Oneway(address, request, deadline, flight)


def sleep(until: float) -> Op[None]:
    """Wait until a moment."""
    yield Sleep(until)


def wait(gate: Gate, deadline: float) -> Op[bool]:
    """Wait for a gate; False when the deadline came first."""
    return cast("bool", (yield Wait(gate, deadline)))
