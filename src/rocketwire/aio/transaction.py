"""Transactions of the asyncio producer."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Final, Self, cast

from rocketwire.aio.awaited_send import AwaitedSend
from rocketwire.aio.compressing import Compressor
from rocketwire.aio.driver import Driver
from rocketwire.aio.in_flight import InFlightLimit
from rocketwire.aio.waiter import Waiter
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.transactions import Decision, TransactionSteps
from rocketwire.errors import LocalProtocolError, RocketMQError, TransactionError
from rocketwire.message import Message, TransactionState
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Reply

_SUCCESS: Final = ResponseCode.SUCCESS


class AsyncTransaction(TransactionSteps):
    """A message that is delivered if the block of its ``async with`` statement ends without an error.

    ``producer.transaction(message)`` makes it. Entering stores the half message, which nobody sees;
    leaving commits it, or rolls it back if the block raises or is cancelled.
    """

    def __init__(
        self,
        sender: Sender,
        message: Message,
        timeout: float | str | None,
        driver: Driver,
        in_flight: InFlightLimit,
        compressor: Compressor,
    ) -> None:
        super().__init__(sender, message, timeout)
        self._driver = driver
        self._in_flight = in_flight
        self._compressor = compressor

    async def __aenter__(self) -> Self:
        """Store the half message.

        Raises:
            SendFailedError: it is not stored, or that is not known; nothing of it is delivered
                unless a checker commits it.
            TransactionError: it was stored less safely than asked for, and rolled back.
            UnsupportedRequestError: there is a proxy, and no checker; nothing was sent.
        """
        if not self._is_direct:
            await self._driver.run(self._look_for_proxy())
        if self._compressor.takes_long(self._message):
            async with self._compressor.beforehand([self._message]):
                attempt = self._begin(SendMode.ASYNC)
        else:
            attempt = self._begin(SendMode.ASYNC)
        # As ``AsyncProducer.send`` waits; a further coroutine would cost every transaction something.
        driver, in_flight = self._driver, self._in_flight
        waiter = AwaitedSend(attempt, driver.loop.create_future())
        waiter.begin(driver)
        in_flight.awaited += 1
        try:
            result = await waiter.future
        finally:
            in_flight.awaited -= 1
            if in_flight.has_waiters:
                in_flight.look_around()
            if not waiter.is_over:
                waiter.give_up()
        self._prepared(result)
        if self._is_unsafe:
            await self.rollback()
            raise self._unsafe()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._wants_end:
            return
        if error is None:
            await self.commit()
        else:
            await self.rollback()

    async def commit(self) -> TransactionState:
        """Have the message delivered. Cancelling the wait does not stop it.

        Raises:
            TransactionError: the broker has not confirmed it. The state is ``UNKNOWN`` then, and
                the checkers of the group decide.
        """
        return await self._tell(TransactionState.COMMITTED)

    async def rollback(self) -> TransactionState:
        """Have the message dropped. Cancelling the wait does not stop it.

        Returns:
            ``ROLLED_BACK``, or ``UNKNOWN`` if the broker has not confirmed it, which is logged: the
            checkers of the group decide then.

        Raises:
            TransactionError: it was committed before.
        """
        wanted = TransactionState.ROLLED_BACK
        if self._result is None or self._state is not TransactionState.OPEN:
            return await self._tell(wanted)
        with contextlib.suppress(TransactionError):
            await self._tell(wanted)
        return self._state

    def _tell(self, wanted: TransactionState) -> asyncio.Future[TransactionState]:
        """Tell the broker a decision, to the end, even if the caller does not wait so long."""
        future: asyncio.Future[TransactionState] = self._driver.loop.create_future()
        decision = self._decide_on(wanted)
        if decision is None:
            future.set_result(wanted)
        else:
            AwaitedDecision(self._driver, decision, future).begin()
        return future


class AwaitedDecision(Waiter):
    """A decision under way, whose caller awaits ``future``, or has gone."""

    __slots__ = ("_decision", "_driver", "_future")

    def __init__(
        self, driver: Driver, decision: Decision, future: asyncio.Future[TransactionState]
    ) -> None:
        self._driver = driver
        self._decision = decision
        self._future = future
        self.connection = None
        self.issued = 0.0
        self.takes_frame = False

    @property
    def owner(self) -> object:
        """The driver that it was begun on."""
        return self._driver

    def begin(self) -> None:
        """Write it, or run its operation if it can't be written now."""
        driver, decision = self._driver, self._decision
        connection = driver.connections.get(decision.address)
        if connection is not None and connection.is_ready:
            try:
                if connection.issue(self, decision.request, decision.deadline, None):
                    return
            except LocalProtocolError:  # the operation tells it
                pass
        driver.start(decision.operation(), self._ended)

    def resume(self, value: object) -> None:
        """An answer has come."""
        if cast("Reply", value).code == _SUCCESS:
            self._ended(self._decision.confirmed(), None)
        else:
            self._go_on(value)

    def fail(self, error: RocketMQError) -> None:
        """There will be no answer."""
        self._go_on(error)

    def _go_on(self, value: object) -> None:
        self._driver.make_run(self._decision.operation(), self._ended).take_over(value)

    def _ended(self, state: TransactionState | None, error: Exception | None) -> None:
        future = self._future
        if future.done():  # the caller was cancelled
            return
        if error is None:
            future.set_result(cast("TransactionState", state))
        else:
            future.set_exception(error)
