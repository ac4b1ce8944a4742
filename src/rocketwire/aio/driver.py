"""Runs operations on an event loop.

An operation is advanced right where its answer is read: no task, no future and no coroutine stands
between the socket and the generator. A coroutine that waits for the end of one gets
a future for that, and only then.

Everything here happens on the loop's own thread; only events may be set by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator
from typing import Any, Generic, TypeAlias, TypeVar, assert_never, cast

from rocketwire.aio.awaited_effects import EventWait, InnerSend, Together
from rocketwire.aio.connection_table import ConnectionTable
from rocketwire.aio.deadlines import Deadlines
from rocketwire.aio.responding import ResponderOf, refusing
from rocketwire.aio.waiter import Call, Waiter
from rocketwire.config import ClientConfig
from rocketwire.core.effects import Effect, Invoke, InvokeAll, Oneway, Op, Send, Sleep, Wait
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.finish import written_oneway
from rocketwire.errors import (
    ClientClosedError,
    LocalProtocolError,
    Outcome,
    RocketMQError,
    SendFailedError,
)

_log = logging.getLogger("rocketwire.aio")

T = TypeVar("T")
#: How a suspended operation goes on, and with what; None while it waits.
Next: TypeAlias = tuple[Callable[[Any], Effect], object] | None


class Run(Waiter, Generic[T]):
    """An operation under way. A subclass says what is done with its end."""

    __slots__ = ("_driver", "_op", "_undo", "is_over")

    def __init__(self, driver: Driver, op: Op[T]) -> None:
        self._driver = driver
        self._op = op
        self._undo: Callable[[], object] | None = None
        self.connection = None
        self.issued = 0.0
        self.is_over = False
        self.takes_frame = False

    @property
    def owner(self) -> object:
        """The driver that runs it."""
        return self._driver

    @abstractmethod
    def settled(self, result: T | None, error: Exception | None) -> None:
        """The operation has ended: it returned, or it raised. Must not raise."""

    def resume(self, value: object) -> None:
        """Go on with what was waited for; the first call, with None, starts the operation.

        Written out rather than built from ``_advance``: this is where a message spends its time.
        """
        if self.is_over:
            return
        try:
            effect = self._op.send(value)
        except StopIteration as stop:
            self.is_over = True
            self.settled(stop.value, None)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the operation's end
            self.is_over = True
            self.settled(None, error)
            return
        except BaseException as error:  # a hook ends the program
            self._abort(error)
            raise
        if type(effect) is Invoke:
            connection = self._driver.connections.get(effect.address)
            if connection is not None and connection.is_ready:
                try:
                    if connection.issue(self, effect.request, effect.deadline, effect.observer):
                        return
                except LocalProtocolError as error:
                    self._advance((self._op.throw, error))
                    return
                except BaseException as error:  # a function that gives the keys ends the program
                    self._abort(error)
                    raise
        self._go_on_from(effect)

    def _go_on_from(self, effect: Effect) -> None:
        try:
            step = self._perform(effect)
        except BaseException as error:  # a function that gives the keys ends the program
            self._abort(error)
            raise
        self._advance(step)

    def go_on(self, outcome: object) -> None:
        """Go on with what a send came to."""
        if isinstance(outcome, Exception):
            if not self.is_over:
                self._advance((self._op.throw, outcome))
        else:
            self.resume(outcome)

    def take_over(self, value: object) -> None:
        """Begin an operation whose first effect was done already, and came to this."""
        next(self._op)
        is_error = isinstance(value, RocketMQError)
        self._advance((self._op.throw if is_error else self._op.send, value))

    def fail(self, error: RocketMQError) -> None:
        """Go on with an error."""
        if not self.is_over:
            self._advance((self._op.throw, error))

    def give_up(self) -> bool:
        """Close the operation where it stands; ``settled`` is not called.

        What it had written stays written; the connection drops the answer and goes on.

        Returns:
            Whether there was anything to give up: False at the end, and from within the operation.
        """
        if self.is_over or getattr(self._op, "gi_running", False):
            return False
        self.is_over = True
        # Either may be left over from an earlier wait, and does nothing then.
        if self._undo is not None:
            self._undo()
        if self.connection is not None:
            self.connection.abandon(self)
        self._close()
        return True

    def _close(self) -> None:
        try:
            self._op.close()
        except Exception:  # noqa: BLE001 - the canceller is not to blame
            _log.exception("an operation failed while it was cancelled")

    def _advance(self, step: Next) -> None:
        while step is not None:
            go_on, value = step
            try:
                effect = go_on(value)
            except StopIteration as stop:
                self.is_over = True
                self.settled(stop.value, None)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the operation's end
                self.is_over = True
                self.settled(None, error)
                return
            except BaseException as error:
                self._abort(error)
                raise
            try:
                step = self._perform(effect)
            except BaseException as error:
                self._abort(error)
                raise

    def _abort(self, error: BaseException) -> None:
        """End the wait for what can't be known any more."""
        if self.is_over:
            return
        self.is_over = True
        if not getattr(self._op, "gi_running", False):
            self._close()
        outcome = Outcome.MAYBE_STORED
        self.settled(None, SendFailedError(f"{outcome.value}: ended by {error!r}", outcome=outcome))

    def _perform(self, effect: Effect) -> Next:
        """Do what an effect says; returns how to go on if there is nothing to wait for."""
        if type(effect) is Invoke:
            return self._call(effect)
        if type(effect) is Send:
            return self._send(effect)
        if type(effect) is Oneway:
            return self._call(effect)
        if type(effect) is InvokeAll:
            return self._call_all(effect)
        if type(effect) is Wait:
            return self._wait(effect)
        if type(effect) is Sleep:
            driver = self._driver
            delay = max(effect.until - driver.clock(), 0.0)
            self._undo = driver.loop.call_later(delay, self.resume, None).cancel
            return None
        assert_never(effect)

    def _call(self, call: Call) -> Next:
        try:
            is_written = self._driver.call(self, call)
        except RocketMQError as error:
            return self._op.throw, error
        return (self._op.send, None) if is_written else None

    def _send(self, effect: Send) -> Next:
        sending = InnerSend(effect.attempt, self)
        self._undo = (
            sending.give_up
        )  # before it begins: it may end at once, and something else begin
        sending.begin(self._driver)
        return None

    def _call_all(self, effect: InvokeAll) -> Next:
        together = Together(self, len(effect.invokes))
        self._undo = together.cancel
        together.start(self._driver, effect.invokes)
        return None

    def _wait(self, effect: Wait) -> Next:
        if effect.event.is_set:
            return self._op.send, True
        waiting = EventWait(self, self._driver, effect.deadline)
        self._undo = waiting.cancel
        effect.event.add_waiter(waiting.wake)
        return None


class Told(Run[T]):
    """A run whose end is told to a function."""

    __slots__ = ("_on_done",)

    def __init__(
        self, driver: Driver, op: Op[T], on_done: Callable[[T | None, Exception | None], object]
    ) -> None:
        super().__init__(driver, op)
        self._on_done = on_done

    def settled(self, result: T | None, error: Exception | None) -> None:
        """Tell it."""
        try:
            self._on_done(result, error)
        except Exception:  # noqa: BLE001 - others wait for answers in the same bytes
            _log.exception("a completion function failed")


class Awaited(Run[T]):
    """A run that begins when it is awaited; cancelling the wait closes the operation."""

    __slots__ = ("_error", "_future", "_result")

    def __init__(self, driver: Driver, op: Op[T]) -> None:
        super().__init__(driver, op)
        self._future: asyncio.Future[T] | None = None
        self._result: T | None = None
        self._error: Exception | None = None

    def __await__(self) -> Generator[Any, None, T]:
        self.resume(None)
        if self.is_over:
            if self._error is not None:
                raise self._error
            return cast("T", self._result)
        self._future = self._driver.loop.create_future()
        try:
            return (yield from self._future)
        finally:
            if not self.is_over:
                self.give_up()

    def settled(self, result: T | None, error: Exception | None) -> None:
        """Wake what waits."""
        future = self._future
        if future is None:
            self._result, self._error = result, error
        elif not future.done():
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast("T", result))


class Driver:
    """The operations of one client on one event loop, and the connections that they use.

    Must be made on the loop's thread, while the loop runs.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        responder_of: ResponderOf = refusing,
        table: ConnectionTable | None = None,
    ) -> None:
        """Connect to no server yet.

        Args:
            config: time limits, sizes and TLS.
            clock: the clock that operations use.
            responder_of: what answers requests of the server at an address.
            table: connections that are shared with others; its own by default.

        Raises:
            ConfigError: a file named in the TLS settings can't be used.
        """
        self.loop = asyncio.get_running_loop()
        self.clock = clock
        if table is None:
            table = ConnectionTable(config, loop=self.loop, clock=clock, responder_of=responder_of)
        self.table = table
        self.connections = table.connections
        self.deadlines = Deadlines(self.loop, clock)
        self._is_closed = False

    def start(self, op: Op[T], on_done: Callable[[T | None, Exception | None], object]) -> Run[T]:
        """Run an operation; ``on_done(result, error)`` is called at its end, maybe at once."""
        run = Told(self, op, on_done)
        run.resume(None)
        return run

    def make_run(
        self, op: Op[T], on_done: Callable[[T | None, Exception | None], object]
    ) -> Run[T]:
        """As ``start``, for a caller that begins it."""
        return Told(self, op, on_done)

    async def run(self, op: Op[T]) -> T:
        """Run an operation and wait for its end; cancelling the wait closes the operation."""
        return await Awaited(self, op)

    def call(self, waiter: Waiter, call: Call) -> bool:
        """Give a request to its address's connection; True if it was a oneway and is written.

        Raises:
            ClientClosedError: the driver is closed.
            LocalProtocolError: the request fits into no frame.
        """
        if self._is_closed:
            raise ClientClosedError("the client was shut down")
        connection = self.connections.get(call.address)
        if connection is not None and connection.is_stale():
            connection.retire()
            connection = None
        if connection is None:
            connection = self.table.open(call.address)
        if not connection.is_ready:
            connection.enqueue(waiter, call)
            return False
        if type(call) is Oneway:
            connection.write_oneway(call.request, call.observer)
            return True
        if not connection.issue(waiter, call.request, call.deadline, call.observer):
            return self.call(waiter, call)  # it turned stale in this very moment
        return False

    def write_oneway(self, attempt: SendAttempt) -> bool:
        """Write an attempt that gets no answer; False if its operation has to be run."""
        target = attempt.target
        if target is None or self._is_closed:
            return False
        connection = self.connections.get(target.address)
        if connection is None or not connection.is_ready or connection.is_stale():
            return False
        try:
            connection.write_oneway(attempt, None)
        except LocalProtocolError:  # the operation tells it as every send does
            return False
        written_oneway(attempt, attempt.began)
        return True

    def retain(self, addresses: Collection[str]) -> None:
        """Close the connections to all other addresses, each when its last answer has come."""
        self.table.retain(addresses)

    def descriptors(self) -> list[int]:
        """The numbers of all open sockets, for a forked child that has to let go of them."""
        return self.table.descriptors()

    async def close(self, limit: float = 1.0) -> None:
        """Callers that still wait are told; connections without another user are closed.

        What was written gets ``limit`` seconds to leave.
        """
        if self._finish():
            await self.table.close(limit)

    def abort(self) -> None:
        """The same without a word to the servers; for clients that were lost."""
        if self._finish():
            self.table.abort()

    def leave_behind(self) -> None:
        """The loop is closed, and its connections with it: only leave the other users."""
        with contextlib.suppress(RuntimeError):  # a caller that waited there can't be told
            self._finish()

    def _finish(self) -> bool:
        if self._is_closed:
            return False
        self._is_closed = True
        is_last = self.table.leave(self)
        if not is_last:
            self.connections = {}  # an operation that goes on finds nobody to talk to
        return is_last

    @property
    def late_replies(self) -> int:
        """Replies that came after their request was given up."""
        return self.table.late_replies
