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
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast, final

from rocketwire.errors import RocketMQError
from rocketwire.wire.command import Reply, Request

if TYPE_CHECKING:
    from rocketwire.core.sending.attempt import SendAttempt
    from rocketwire.message import SendResult

T = TypeVar("T")


class Observer(Protocol):
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
    observer: Observer | None = None


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
    observer: Observer | None = None


@final
@dataclass(slots=True, eq=False)
class Send:
    """Carry a whole send out; resumes with its ``SendResult``, or with what its operation raises.

    As a shell carries out the sends of its own callers, which costs less than their operation.
    """

    attempt: SendAttempt


@final
@dataclass(slots=True, eq=False)
class Sleep:
    """Wait until a moment; resumes with None."""

    until: float


class Event:
    """Something that happens once. Waiters are told by a call, in whatever thread sets it.

    It has no lock of its own: the owner sets it and adds waiters under a lock of its own.
    """

    __slots__ = ("_waiters", "is_set", "setter")

    def __init__(self) -> None:
        self.is_set = False
        #: The thread without which it can't be set, where that is known.
        self.setter: int | None = None
        self._waiters: list[Callable[[], None]] = []

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when it is set, or now if it is set already."""
        self._waiters.append(wake)
        # Appended first, tested second: it may be set in another thread at any moment.
        if self.is_set:
            self.set()

    def set(self) -> None:
        """Set it and wake all that wait; setting twice is harmless."""
        self.is_set = True
        while self._waiters:
            try:
                wake = self._waiters[0]  # in the order in which they came
            except IndexError:  # another thread took the last one
                return
            try:
                self._waiters.remove(wake)
            except ValueError:  # another thread took it meanwhile, and calls it
                continue
            except BaseException:  # an interrupt behind that call must not take the waiter along
                if wake not in self._waiters:
                    wake()
                raise
            wake()


@final
@dataclass(slots=True, eq=False)
class Wait:
    """Wait for an event; resumes with True, or with False when the deadline came first."""

    event: Event
    deadline: float


Effect: TypeAlias = Invoke | InvokeAll | Oneway | Send | Sleep | Wait
Op: TypeAlias = Generator[Effect, Any, T]


def invoke(
    address: str, request: Request, deadline: float, observer: Observer | None = None
) -> Op[Reply]:
    """Send a request, wait for its reply."""
    return cast("Reply", (yield Invoke(address, request, deadline, observer)))


def invoke_all(invokes: tuple[Invoke, ...]) -> Op[list[Reply | RocketMQError]]:
    """Send several requests, wait for all replies; a failure stands in its place."""
    return cast("list[Reply | RocketMQError]", (yield InvokeAll(invokes)))


def send(attempt: SendAttempt) -> Op[SendResult]:
    """Carry a send out, and wait for its end."""
    return cast("SendResult", (yield Send(attempt)))


def sleep(until: float) -> Op[None]:
    """Wait until a moment."""
    yield Sleep(until)


def wait(event: Event, deadline: float) -> Op[bool]:
    """Wait for an event; False when the deadline came first."""
    return cast("bool", (yield Wait(event, deadline)))
