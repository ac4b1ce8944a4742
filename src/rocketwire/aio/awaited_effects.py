"""What an operation waits for on an event loop: several requests, a send, or an event."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, cast

from rocketwire.aio.waiter import SendWaiter, Waiter
from rocketwire.core.effects import Invoke
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.errors import RocketMQError
from rocketwire.message import SendResult
from rocketwire.wire.command import Reply

if TYPE_CHECKING:
    from rocketwire.aio.driver import Driver, Run


class Together:
    """Requests that were sent at once, until the last of them is settled."""

    __slots__ = ("_left", "_parts", "_results", "_run")

    def __init__(self, run: Run[Any], count: int) -> None:
        self._run = run
        self._parts = [_Part(self, index) for index in range(count)]
        self._results: list[Reply | RocketMQError | None] = [None] * count
        # One more than there are: nothing is complete while requests are still being started.
        self._left = count + 1

    @property
    def owner(self) -> object:
        """The driver that runs the operation."""
        return self._run.owner

    def start(self, driver: Driver, invokes: tuple[Invoke, ...]) -> None:
        """Send all of them."""
        for part, invoke in zip(self._parts, invokes, strict=True):
            try:
                driver.call(part, invoke)
            except RocketMQError as error:
                part.fail(error)
        # In a tick of its own: the operation is still in the midst of its yield.
        driver.loop.call_soon(self._count_down)

    def put(self, index: int, result: Reply | RocketMQError) -> None:
        """What came of one of them; only the first counts."""
        if self._results[index] is None:
            self._results[index] = result
            self._count_down()

    def _count_down(self) -> None:
        self._left -= 1
        if not self._left:
            self._run.resume(self._results)

    def cancel(self) -> None:
        """Nobody waits for the rest any more."""
        for part in self._parts:
            if part.connection is not None and self._results[part.index] is None:
                part.connection.abandon(part)


class _Part(Waiter):
    """One of several requests that were sent at once."""

    __slots__ = ("_together", "index")

    def __init__(self, together: Together, index: int) -> None:
        self._together = together
        self.index = index
        self.connection = None
        self.takes_frame = False

    @property
    def owner(self) -> object:
        """The driver that runs the operation."""
        return self._together.owner

    def resume(self, value: object) -> None:
        self._together.put(self.index, cast("Reply", value))

    def fail(self, error: RocketMQError) -> None:
        self._together.put(self.index, error)


class InnerSend(SendWaiter):
    """A send that an operation waits for."""

    __slots__ = ("_waiting",)

    def __init__(self, attempt: SendAttempt, waiting: Run[Any]) -> None:
        super().__init__(attempt)
        self._waiting = waiting

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """Go on with the operation."""
        self._go_on(result if error is None else error)

    def stored(self) -> None:
        """Go on with the operation."""
        self._go_on(self.read_result())

    def _go_on(self, outcome: SendResult | Exception | None) -> None:
        try:
            self._waiting.go_on(outcome)
        except BaseException as error:  # noqa: BLE001 - others wait for answers in the same bytes
            self._driver.loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


class EventWait:
    """A wait for an event, with a deadline."""

    __slots__ = ("_driver", "_is_over", "_run", "_thread", "deadline")

    def __init__(self, run: Run[Any], driver: Driver, deadline: float) -> None:
        self._run = run
        self._driver = driver
        self._thread = threading.get_ident()
        self._is_over = False
        self.deadline = deadline
        if deadline != math.inf:
            driver.deadlines.add(self)

    def wake(self) -> None:
        """The event was set, in whatever thread."""
        loop = self._driver.loop
        if threading.get_ident() == self._thread:
            loop.call_soon(self._end, True)  # noqa: FBT003
            return
        try:
            loop.call_soon_threadsafe(self._end, True)  # noqa: FBT003
        except RuntimeError:  # the loop was closed: nobody waits any more
            return

    def _end(self, is_open: bool) -> None:  # noqa: FBT001 - called by the loop
        if not self._is_over:
            self.cancel()
            self._run.resume(is_open)

    def overdue(self) -> None:
        """The event was not set in time."""
        self._end(False)  # noqa: FBT003

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._is_over = True
        self._driver.deadlines.take_back(self)
