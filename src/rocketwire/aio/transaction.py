"""Transactions of the asyncio producer."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from rocketwire.aio.awaited_send import AwaitedSend
from rocketwire.aio.compressing import Compressor
from rocketwire.aio.driver import Driver
from rocketwire.aio.in_flight import InFlightLimit
from rocketwire.core.effects import Op
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.retry import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.transactions import TransactionSteps
from rocketwire.errors import TransactionError
from rocketwire.message import Message, SendResult, TransactionState


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
        self._prepared(await self._send(attempt))
        if self._is_unsafe:
            await self.rollback()
            raise self._unsafe()
        return self

    async def _send(self, attempt: SendAttempt) -> SendResult:
        # As ``AsyncProducer.send`` waits, where a further coroutine would cost every send something.
        driver, in_flight = self._driver, self._in_flight
        waiter = AwaitedSend(attempt, driver.loop.create_future())
        waiter.begin(driver)
        in_flight.awaited += 1
        try:
            return await waiter.future
        finally:
            in_flight.awaited -= 1
            if in_flight.has_waiters:
                in_flight.look_around()
            if not waiter.is_over:
                waiter.give_up()

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
        return await self._carry_out(self._end(TransactionState.COMMITTED))

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
            return await self._carry_out(self._end(wanted))
        with contextlib.suppress(TransactionError):
            await self._carry_out(self._end(wanted))
        return self._state

    async def _carry_out(self, operation: Op[TransactionState]) -> TransactionState:
        """Run a decision to its end, even if the caller does not wait so long."""
        future: asyncio.Future[Any] = self._driver.loop.create_future()

        def ended(result: object, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._driver.start(operation, ended)
        state: TransactionState = await future
        return state
