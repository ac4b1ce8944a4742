"""What waits for answers on a connection, and sends under way on an event loop.

``Waiter`` is what a connection knows of a request under way. ``SendWaiter`` is one that carries an
attempt: the connection writes it, and it ends when the frame of an answer that says "stored" is
read. Anything else makes it ask the attempt for its operation, and run that.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Self, TypeAlias

from rocketwire.core.effects import Invoke, Oneway
from rocketwire.core.sending import finish
from rocketwire.core.sending.attempt import SendAttempt, written_together
from rocketwire.core.sending.results import result_later
from rocketwire.core.tell_each import tell_each
from rocketwire.errors import LocalProtocolError, RocketMQError
from rocketwire.message import SendResult
from rocketwire.wire.session import SharedSession

if TYPE_CHECKING:
    from rocketwire.aio.connection import Connection
    from rocketwire.aio.driver import Driver, Run

Call: TypeAlias = Invoke | Oneway


class Waiter:
    """What waits for one request at a time. Told exactly once how it ended."""

    __slots__ = ("answer", "connection", "deadline", "issued", "opaque", "size", "takes_frame")

    connection: Connection | None
    #: Zero while the request waits for the connection.
    opaque: int
    deadline: float
    #: When the request was written; 0.0 before.
    issued: float
    # As a session wants it (``wire/session``).
    size: int
    takes_frame: bool
    answer: bytes

    @property
    @abstractmethod
    def owner(self) -> object:
        """The user of a shared connection whose request it is."""

    @abstractmethod
    def resume(self, value: object) -> None:
        """The reply came, or the oneway request was written (None)."""

    @abstractmethod
    def fail(self, error: RocketMQError) -> None:
        """There will be no reply."""


class SendWaiter(Waiter):
    """A send under way. A subclass says what is done with its end (``settled``, ``stored``)."""

    __slots__ = ("_driver", "_run", "attempt", "is_over")

    _driver: Driver
    _run: Run[SendResult] | None

    def __init__(self, attempt: SendAttempt) -> None:
        self.attempt = attempt
        self.connection = None
        self.issued = 0.0
        self.is_over = False
        self._run = None

    @property
    def owner(self) -> object:
        """The driver that it was begun on."""
        return self._driver

    def begin(self, driver: Driver) -> None:
        """Write the attempt, or run its operation if it can't be written now."""
        self._driver = driver
        attempt = self.attempt
        target = attempt.target
        if target is not None:
            # Hooks want the answer read, which is the operation's business.
            self.takes_frame = not attempt.sender.tells
            connection = driver.connections.get(target.address)
            if connection is not None and connection.is_ready and connection.gather(self, attempt):
                return
        self._start().resume(None)

    def _start(self) -> Run[SendResult]:
        run = self._run = self._driver.make_run(self.attempt.operation(), self._ended)
        return run

    def resume(self, value: object) -> None:
        """Go on with an answer other than "stored"."""
        if not self.is_over:
            self._start().take_over(value)

    def fail(self, error: RocketMQError) -> None:
        """Go on with an error."""
        if not self.is_over:
            self._start().take_over(error)

    def give_up(self) -> bool:
        """End the send where it stands; False if it has ended, or is in the midst of a step."""
        if self.is_over:
            return False
        run = self._run
        if run is not None:
            if not run.give_up():
                return False
        else:
            if self.connection is not None:
                self.connection.abandon(self)
            self.attempt.give_up()
        self.is_over = True
        self.attempt.release()
        return True

    def read_result(self) -> SendResult:
        """Where the message is; only after an answer that says "stored"."""
        return result_later(self.attempt, self.answer)

    def _ended(self, result: SendResult | None, error: Exception | None) -> None:
        self.is_over = True
        self.attempt.release()
        self.settled(result, error)

    @abstractmethod
    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """The operation of the send has ended: it returned, or it raised. Must not raise."""

    @abstractmethod
    def stored(self) -> None:
        """An answer said "stored"; ``answer`` is its frame. Must not raise."""

    @classmethod
    def stored_together(cls, waiters: Sequence[Self]) -> None:
        """As ``stored`` for several of this class, whose answers came together."""
        for waiter in waiters:
            waiter.stored()


def fail_each(waiters: Iterable[Waiter], error_of: Callable[[], RocketMQError]) -> None:
    """Tell waiters that there will be no reply, each by an error of its own."""
    tell_each(waiters, lambda waiter: waiter.fail(error_of()))


def number_together(
    session: SharedSession[Waiter], waiters: list[SendWaiter], now: float
) -> tuple[list[bytes | memoryview], float, list[tuple[Waiter, LocalProtocolError]]]:
    """Make requests of the attempts of several waiters, and tell the fault table.

    Returns:
        The bytes of the requests in pieces; their first deadline; and the waiters whose attempt
        can't be written, with the reason.
    """
    attempts = [waiter.attempt for waiter in waiters]
    unanswered = session.unanswered
    pieces, sizes, errors = session.issue_sends(waiters, attempts)
    if errors:
        for _, error in errors:
            if not isinstance(error.__cause__, Exception | None):
                # The caller's function wants to end the program. The others have to leave before that.
                waiters[0]._driver.loop.call_soon(end_by, error.__cause__)  # noqa: SLF001
        lost = {failed for failed, _ in errors}
        waiters = [waiter for waiter in waiters if waiter not in lost]
        attempts, sizes = [w.attempt for w in waiters], [w.size for w in waiters]
    deadline = math.inf
    for waiter, attempt in zip(waiters, attempts, strict=True):
        waiter.issued = now
        waiter.deadline = limit = attempt.deadline
        if limit < deadline:  # noqa: PLR1730  a call of min() costs more
            deadline = limit
    written_together(attempts, sizes, now, unanswered)
    return pieces, deadline, errors


def tell_unwritten(
    errors: Iterable[tuple[Waiter, LocalProtocolError]],
    call_soon: Callable[[Callable[[BaseException], None], BaseException], object],
) -> None:
    """Tell waiters whose attempt could not be written why. Raises nothing, so that the others leave.

    A hook that ends the program does so in the next tick.
    """
    try:
        tell_each(errors, lambda failed: failed[0].fail(failed[1]))
    except BaseException as error:  # noqa: BLE001 - raised by the loop
        call_soon(end_by, error)


def end_by(error: BaseException) -> None:
    """End the program, when a loop calls this."""
    raise error


def finish_stored(waiters: list[SendWaiter], now: float) -> None:
    """Answers that say "stored" were read at ``now``: tell the table, statistics and waiters."""
    attempts: list[SendAttempt] = []
    for waiter in waiters:
        # All of them, before the first one's callback can cancel others.
        waiter.is_over = True
        attempts.append(waiter.attempt)
    try:
        finish.stored_all(attempts, now)
    finally:
        groups = [list(some) for _, some in groupby(waiters, type)]
        tell_each(groups, lambda ended: ended[0].stored_together(ended))
