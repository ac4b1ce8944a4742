"""Brokers that exist only in virtual time: how long they take, and what goes wrong with them.

A broker answers every request with a code and fields of its own; nothing is stored. What happens
to a request is decided when it arrives, by the fault that holds at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from rocketwire.core.effects import Observer
from rocketwire.errors import (
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    TransportError,
)
from rocketwire.testing.virtual_clock import VirtualClock
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command

Latency = Callable[[Random], float]


class SimulatedRequest(Protocol):
    """What a simulated broker looks at in a request."""

    @property
    def code(self) -> int:
        """The request code."""


def steady(seconds: float) -> Latency:
    """Always the same latency."""
    return lambda _: seconds


def with_pauses(
    seconds: float, *, share: float, shortest: float, longest: float, spread: float = 0.25
) -> Latency:
    """A latency that varies a little, with a pause now and then.

    Args:
        seconds: the ordinary latency.
        share: part of the requests that meet a pause.
        shortest: of a pause.
        longest: of a pause.
        spread: part by which the ordinary latency varies up and down.
    """

    def draw(random: Random) -> float:
        latency = seconds * (1 + spread * (2 * random.random() - 1))
        if random.random() < share:
            latency += random.uniform(shortest, longest)
        return latency

    return draw


@dataclass(frozen=True, slots=True)
class Slow:
    """Every answer takes longer; heartbeats, too, unless only storing is slow."""

    extra: float
    heartbeats: bool = True


@dataclass(frozen=True, slots=True)
class Hang:
    """Requests are taken and never answered. With ``thaws`` they are answered when it is over."""

    thaws: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """The process is gone: what is under way is lost, connections are refused."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is closed instead of an answer."""

    after: float = 0.001


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Packets vanish: connecting takes for ever, and so does every answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with this code; heartbeats are answered well unless told otherwise."""

    code: int
    remark: str = ""
    heartbeats: bool = False


Fault = Slow | Hang | Refuse | Reset | Unreachable | Answer
Outcome = Reply | TransportError


class Call:
    """A request under way. It is finished once, by whatever comes first."""

    __slots__ = ("_done", "broker", "is_oneway", "observer", "request", "size", "written")

    def __init__(
        self,
        request: SimulatedRequest,
        observer: Observer | None,
        done: Callable[[Outcome | None], None],
        *,
        is_oneway: bool = False,
    ) -> None:
        self.request = request
        self.observer = observer
        self.size = len(getattr(request, "body", b"")) + 100
        self.written = False
        self.is_oneway = is_oneway
        self.broker: SimulatedBroker | None = None
        self._done: Callable[[Outcome | None], None] | None = done

    @property
    def pending(self) -> bool:
        """Whether nothing has come of it yet."""
        return self._done is not None

    def finish(self, outcome: Outcome | None) -> None:
        """Hand over what came of it, unless something did already."""
        done, self._done = self._done, None
        self._leave()
        if done is not None:
            done(outcome)

    def abandon(self) -> None:
        """Nobody waits any more; an answer that comes is dropped."""
        self._done = None
        self._leave()

    def _leave(self) -> None:
        broker = self.broker
        if broker is not None and self in broker.under_way:
            del broker.under_way[self]
            broker.unanswered -= self.size


class SimulatedBroker:
    """One broker at one address.

    Args:
        network: where it lives.
        address: where it is reached.
        latency: draws the time from a request's arrival to its answer's.
        connect_latency: time that the first request waits for its connection.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        address: str,
        *,
        latency: Latency,
        connect_latency: float = 0.0,
    ) -> None:
        self.address: Final = address
        self.latency = latency
        self.connect_latency = connect_latency
        #: Requests that arrived, by request code.
        self.arrivals: dict[int, int] = {}
        #: Called for each request that arrives, with the moment.
        self.on_arrival: Callable[[SimulatedRequest, float], None] | None = None
        #: Written and not answered, in order.
        self.under_way: dict[Call, None] = {}
        #: Their bytes.
        self.unanswered = 0
        self.fault: Fault | None = None
        self._network = network
        self._clock = network.clock
        self._connected = False

    def break_now(self, fault: Fault) -> None:
        """From now on this is wrong with it."""
        self.fault = fault
        if isinstance(fault, Refuse):
            self._connected = False
            for call in list(self.under_way):
                self._later(0.0, call, _lost(self.address))

    def heal(self) -> None:
        """All is well again; what thaws is answered now."""
        fault, self.fault = self.fault, None
        if isinstance(fault, Hang) and fault.thaws:
            for call in list(self.under_way):
                self._answer(call, ResponseCode.SUCCESS, "", 0.0)

    def break_between(self, start: float, end: float, fault: Fault) -> None:
        """Have this wrong with it from one moment to another."""
        self._clock.call_at(start, lambda: self.break_now(fault))
        self._clock.call_at(end, self.heal)

    def receive(self, call: Call) -> None:
        """A client wants to send a request."""
        call.broker = self
        if self._connected:
            self._write(call)
        elif isinstance(self.fault, Refuse):
            error = ConnectFailedError(f"{self.address} refused the connection")
            error.__cause__ = ConnectionRefusedError(111, "Connection refused")
            self._later(0.0001, call, error)
        elif not isinstance(self.fault, Unreachable):
            self._clock.call_at(
                self._clock() + self.connect_latency, lambda: self._connect(call), pausable=True
            )

    def _connect(self, call: Call) -> None:
        self._connected = True
        if call.pending:
            self._write(call)

    def _write(self, call: Call) -> None:
        call.written = True
        now = self._clock()
        self.under_way[call] = None
        self.unanswered += call.size
        if call.observer is not None:
            call.observer.written(now, self.unanswered)
        code = call.request.code
        self.arrivals[code] = self.arrivals.get(code, 0) + 1
        if self.on_arrival is not None:
            self.on_arrival(call.request, now)
        if call.is_oneway:
            self._later(0.0, call, None)
        else:
            self._decide(call)

    def _decide(self, call: Call) -> None:
        fault = self.fault
        beat = call.request.code == RequestCode.HEART_BEAT
        latency = self.latency(self._network.random)
        if isinstance(fault, Hang | Unreachable):
            return
        if isinstance(fault, Reset):
            self._connected = False
            self._later(fault.after, call, _lost(self.address))
        elif isinstance(fault, Slow) and (fault.heartbeats or not beat):
            self._answer(call, ResponseCode.SUCCESS, "", latency + fault.extra)
        elif isinstance(fault, Answer) and (fault.heartbeats or not beat):
            self._answer(call, fault.code, fault.remark, latency)
        else:
            self._answer(call, ResponseCode.SUCCESS, "", latency)

    def _answer(self, call: Call, code: int, remark: str, delay: float) -> None:
        reply = self._network.reply(call.request, code, remark)
        self._later(delay, call, reply)

    def _later(self, delay: float, call: Call, outcome: Outcome | None) -> None:
        clock = self._clock

        def deliver() -> None:
            if isinstance(outcome, Reply):
                outcome.arrived = clock()
            call.finish(outcome)

        clock.call_at(clock() + delay, deliver, pausable=True)


def _lost(address: str) -> ConnectionLostError:
    return ConnectionLostError(f"{address} closed the connection", written=True)


class SimulatedNetwork:
    """Brokers by address, one clock, one random generator.

    Args:
        seed: two networks with the same seed behave alike.
        clock: the time that everything happens in.
        respond: makes the answer to a request from the request and a code; by default a reply
            with the fields of a stored message.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        clock: VirtualClock | None = None,
        respond: Callable[[SimulatedRequest, int], Reply] | None = None,
    ) -> None:
        self.clock: Final = VirtualClock() if clock is None else clock
        self.random: Final = Random(seed)
        self.brokers: Final[dict[str, SimulatedBroker]] = {}
        self._respond = respond
        self._frames: dict[tuple[int, str], bytes] = {}

    def add_broker(
        self, address: str, *, latency: Latency | float = 0.002, connect_latency: float = 0.0
    ) -> SimulatedBroker:
        """Start a broker."""
        draw = latency if callable(latency) else steady(latency)
        broker = SimulatedBroker(self, address, latency=draw, connect_latency=connect_latency)
        self.brokers[address] = broker
        return broker

    def start(self, call: Call, address: str, deadline: float) -> None:
        """Send a request; ``call`` is finished by its answer, by an error, or at the deadline."""
        clock = self.clock

        def expire() -> None:
            call.finish(
                RequestTimeoutError(f"{address} gave no answer in time", written=call.written)
            )

        clock.call_at(deadline, expire, pausable=True)
        broker = self.brokers.get(address)
        if deadline <= clock():
            return
        if broker is None:
            error = ConnectFailedError(f"nobody listens at {address}: connection refused")
            clock.call_at(clock(), lambda: call.finish(error), pausable=True)
        else:
            broker.receive(call)

    def reply(self, request: SimulatedRequest, code: int, remark: str = "") -> Reply:
        """An answer as it would come from a socket."""
        if self._respond is not None:
            return self._respond(request, code)
        frame = self._frames.get((code, remark))
        if frame is None:
            fields = {"msgId": "7F0000010000000000000000000000000001"[:32], "queueId": "0"}
            fields |= {"queueOffset": "0"}
            command = Command(code, fields, remark=remark or None, flag=RESPONSE)
            frame = self._frames[code, remark] = encode_command(command)[4:]
        return Reply(frame)
