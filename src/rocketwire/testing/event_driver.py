"""A lean driver in virtual time, for millions of sends.

It does what the shells do: it writes an attempt, finishes it with the answer that says "stored", and
for everything else asks for the attempt's operation and resumes that. Nothing is checked on the way,
as ``simulation`` does, and no answer is encoded that nobody reads; so a send costs about as much as
in a real shell without its sockets.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any, Final, Protocol, TypeAlias

from rocketwire.core.effects import Effect, Invoke, InvokeAll, Oneway, Op, Send, Sleep, Wait
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.finish import stored, written_oneway
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.errors import (
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketwire.message import Message, MessageQueue
from rocketwire.testing.simulated_producer import Answers

#: What a request comes to, beside a response code: the connection is refused, or closed.
REFUSED: Final = -1
LOST: Final = -2
#: The delay of an answer that never comes.
NEVER_ANSWERED: Final = math.inf
_LATE: Final = -3
#: What a request has beside its body, roughly.
_HEAD: Final = 250


class Brokers(Protocol):
    """Decides the fate of requests."""

    def receive(self, address: str, request: Any, now: float) -> tuple[float, int]:
        """What comes of a request that arrives now: after so many seconds, a response code, REFUSED or LOST."""


#: Told when a send is over: the moment, and the error if it failed.
Done: TypeAlias = Callable[[float, RocketMQError | None], None]


class EventDriver:
    """Runs sends and operations over brokers of a model.

    Args:
        brokers: what comes of requests.
        answers: how answers look.
        start: the first moment.
    """

    def __init__(self, brokers: Brokers, answers: Answers, *, start: float = 0.0) -> None:
        self.now = start
        self._receive = brokers.receive
        self._answers = answers
        self._stored: dict[int, bytes] = {}
        self._events: list[tuple[float, int, Callable[..., None], Any, Any]] = []
        self._next = count().__next__
        #: Attempts that were written or refused.
        self.attempts = 0

    def clock(self) -> float:
        """The moment that it is."""
        return self.now

    def make_lock(self) -> AbstractContextManager[Any]:
        """There is one thread, so nobody waits."""
        return nullcontext()

    # -- time ---------------------------------------------------------------------------------

    def call_at(
        self, when: float, action: Callable[..., None], one: Any = None, two: Any = None
    ) -> None:
        """Have something done at a moment, with two arguments."""
        heapq.heappush(self._events, (when, self._next(), action, one, two))

    def run_until(self, moment: float) -> None:
        """Do everything up to a moment."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= moment:
            when, _, action, one, two = pop(events)
            self.now = when
            action(one, two)
        self.now = max(self.now, moment)

    # -- sends --------------------------------------------------------------------------------

    def send(
        self,
        sender: Sender,
        message: Message,
        mode: SendMode,
        done: Done,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Begin a send; ``done`` is told when it is over."""
        attempt = sender.start(message, mode, queue, None, None, timeout)
        if attempt.target is None:
            operation = sender.oneway(attempt) if mode is SendMode.ONEWAY else attempt.operation()
            self._perform(next(operation), operation, done)
        elif mode is SendMode.ONEWAY:
            self.attempts += 1
            written_oneway(attempt, self.now)
            done(self.now, None)
        else:
            self._write(attempt, None, done)

    def _write(self, attempt: SendAttempt, operation: Op[Any] | None, done: Done | None) -> None:
        now = self.now
        self.attempts += 1
        delay, code = self._receive(attempt.where.address, attempt, now)
        if code != REFUSED:
            attempt.written(now, len(attempt.body) + _HEAD)
        when = now + delay
        if when > attempt.deadline:
            when, code = attempt.deadline, _LATE
        action = self._answered if operation is None and code == 0 else self._resolved
        heapq.heappush(self._events, (when, self._next(), action, attempt, (operation, code, done)))

    def _answered(self, attempt: SendAttempt, rest: tuple[Any, int, Done]) -> None:
        """As a shell ends most sends: the frame says "stored", and there is nothing to decide."""
        queue = attempt.where.queue.id
        frame = self._stored.get(queue)
        if frame is None:
            frame = self._stored[queue] = self._answers.to(attempt, 0).frame
        stored(attempt, frame, self.now)
        rest[2](self.now, None)

    def _resolved(self, attempt: SendAttempt, rest: tuple[Op[Any] | None, int, Done]) -> None:
        operation, code, done = rest
        if operation is None:
            operation = attempt.operation()
            next(operation)  # the attempt itself, which is written
        self._resume(operation, self._outcome(attempt.where.address, attempt, code), done)

    def _outcome(self, address: str, request: Any, code: int) -> Any:
        if code >= 0:
            reply = self._answers.to(request, code)
            reply.arrived = self.now
            return reply
        if code == REFUSED:
            error = ConnectFailedError(f"{address} refused the connection")
            error.__cause__ = ConnectionRefusedError(111, "Connection refused")
            return error
        if code == LOST:
            return ConnectionLostError(f"{address} closed the connection", written=True)
        return RequestTimeoutError(f"{address} gave no answer in time", written=True)

    # -- operations ---------------------------------------------------------------------------

    def spawn(self, operation: Op[Any]) -> None:
        """Run an operation beside everything else; what it returns or raises interests nobody."""
        self._resume(operation, None, None)

    def _resume(self, operation: Op[Any], outcome: Any, done: Done | None) -> None:
        try:
            if isinstance(outcome, RocketMQError):
                effect = operation.throw(outcome)
            else:
                effect = operation.send(outcome)
        except StopIteration:
            if done is not None:
                done(self.now, None)
        except RocketMQError as error:
            if done is not None:
                done(self.now, error)
        else:
            self._perform(effect, operation, done)

    def _perform(self, effect: Effect, operation: Op[Any], done: Done | None) -> None:
        if type(effect) is Invoke:
            if isinstance(effect.observer, SendAttempt):
                self._write(effect.observer, operation, done)
            else:
                self._invoke(effect, operation, done)
        elif type(effect) is Sleep:
            self.call_at(effect.until, lambda *_: self._resume(operation, None, done))
        elif type(effect) is Wait:
            self._wait(effect, operation, done)
        else:
            assert isinstance(effect, Oneway | InvokeAll | Send)
            raise NotImplementedError(f"{type(effect).__name__} is no part of what is modelled")

    def _invoke(self, effect: Invoke, operation: Op[Any], done: Done | None) -> None:
        """A question to a name server, or a probe."""
        now = self.now
        delay, code = self._receive(effect.address, effect.request, now)
        if code != REFUSED and effect.observer is not None:
            effect.observer.written(now, _HEAD)
        when = now + delay
        if when > effect.deadline:
            when, code = effect.deadline, _LATE
        self.call_at(when, self._replied, (effect, code), (operation, done))

    def _replied(self, what: tuple[Invoke, int], rest: tuple[Op[Any], Done | None]) -> None:
        effect, code = what
        self._resume(rest[0], self._outcome(effect.address, effect.request, code), rest[1])

    def _wait(self, effect: Wait, operation: Op[Any], done: Done | None) -> None:
        event, is_over = effect.event, False

        def go_on(*_: Any) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._resume(operation, event.is_set, done)

        # Through the line of events: what sets the event goes on first.
        event.add_waiter(lambda: self.call_at(self.now, go_on))
        if effect.deadline < math.inf:
            self.call_at(effect.deadline, go_on)
