"""How submitted messages are handed over: each in a request of its own, or collected in batches.

A producer has one of the two, chosen at its start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from rocketwire.aio.compressing import CompressFirst, Compressor
from rocketwire.aio.delivery import BatchedDelivery, Delivery, SingleDelivery, in_callback
from rocketwire.aio.driver import Driver
from rocketwire.aio.in_flight import InFlightLimit
from rocketwire.config import AutoBatch
from rocketwire.core.sending.collect import Accumulator
from rocketwire.core.sending.flush import no_room
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.message import Message, MessageQueue
from rocketwire.selectors import Selector

Messages: TypeAlias = Message | Sequence[Message]
#: Messages and bytes that a submit takes of the in-flight limit.
Size: TypeAlias = tuple[int, int]


class SingleSubmitter:
    """Hands every message over at once, in a request of its own.

    Args:
        sender: starts the sends.
        driver: writes them.
        in_flight: how many may be without an answer.
        compressor: compresses large bodies elsewhere, before they are handed over.
    """

    #: Messages that are handed over in a row before the loop goes on: answers are read while others
    #: are still being handed over, and their latency is the broker's, not ours.
    burst = 128

    def __init__(
        self, sender: Sender, driver: Driver, in_flight: InFlightLimit, compressor: Compressor
    ) -> None:
        self._sender = sender
        self._driver = driver
        self._in_flight = in_flight
        self._compressor = compressor
        #: Counts down to the message before which the loop goes on, or others that wait for a body.
        self.left = self.burst
        #: Messages behind one whose body is being compressed wait here for one another.
        self._order = asyncio.Lock()
        self._in_order = 0

    def submit(
        self,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        timeout: float | str | None,
    ) -> Delivery | None:
        """Hand a message or a batch over; None if it has to wait: then ``submit_later`` does it.

        Raises:
            InvalidMessageError: something is wrong with it; nothing was sent.
        """
        left = self.left = self.left - 1
        if left <= 0:
            return None
        in_flight = self._in_flight
        if type(message) is Message:
            count, size = 1, len(message.body)
        else:
            count, size = self._sender.measured(message)
        if not in_flight.take(count, size):
            return None
        try:
            return self._hand_over(message, queue, selector, argument, timeout, count, size)
        except CompressFirst:
            in_flight.give_back(count, size)
            return None
        except BaseException:
            in_flight.give_back(count, size)
            raise

    async def submit_later(
        self,
        check_loop: Callable[[], None],
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        timeout: float | str | None,  # noqa: ASYNC109 - a deadline over all attempts
    ) -> Delivery:
        """Hand a message or a batch over that has to wait: for the loop, for a body, or for room.

        Args:
            check_loop: whether the producer is still open, after each wait.
            message: one, or a list.
            queue: the only queue that it may go to.
            selector: chooses the queue.
            argument: given to the selector.
            timeout: seconds over all attempts.

        Raises:
            InvalidMessageError: something is wrong with it; nothing was sent.
            SendFailedError: there was no room before the deadline.
        """
        if self.left <= 0 and not self._in_order:  # now, because what follows may be cancelled
            await self.give_way(check_loop)
        with self._compressor.forgetting(message):
            room = await self._take_room(message, timeout)
            hand_over = partial(self._hand_over, message, queue, selector, argument, timeout, *room)
            try:
                check_loop()
                return await self._hand_over_in_order(check_loop, message, hand_over)
            except BaseException:
                self._in_flight.give_back(*room)
                raise

    async def _hand_over_in_order(
        self, check_loop: Callable[[], None], message: Messages, hand_over: Callable[[], Delivery]
    ) -> Delivery:
        """Hand over now; behind those whose bodies are compressed, or once that is done."""
        if not self._in_order:
            with contextlib.suppress(CompressFirst):
                return hand_over()
        self._in_order += 1
        self.left = 0  # all others come here meanwhile
        try:
            async with self._order:
                check_loop()
                with contextlib.suppress(CompressFirst):
                    return hand_over()
                return await self._compressor.start(message, hand_over, check_loop)
        finally:
            self._in_order -= 1
            self.left = 0 if self._in_order else self.burst

    def is_due(self) -> bool:
        """Count a message that is written by itself; whether the loop has to go on before it."""
        self.left -= self.burst // SingleSubmitter.burst
        return self.left <= 0

    async def give_way(self, check_loop: Callable[[], None]) -> None:
        """Let the loop go on."""
        self.left = 0 if self._in_order else self.burst
        await asyncio.sleep(0)
        check_loop()

    def _hand_over(
        self,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        timeout: float | str | None,
        count: int,
        size: int,
    ) -> Delivery:
        """Hand a message or a batch over that has room; after an error the caller gives that back.

        Raises:
            InvalidMessageError: something is wrong with it; nothing was sent.
            CompressFirst: its body has to be compressed elsewhere before.
        """
        # Not by keyword, for the reason that is told there.
        attempt = self._sender.start(
            message,
            SendMode.ASYNC,
            queue,
            selector,
            argument,
            timeout,
            True,  # noqa: FBT003
        )
        delivery = SingleDelivery(attempt, self._in_flight, count, size)
        try:
            delivery.begin(self._driver)
        except BaseException:  # a hook, or a function that gives keys, ends the program
            self._in_flight.take_anyway(count, size)  # the delivery gives its room back itself
            raise
        return delivery

    async def _take_room(
        self,
        message: Messages,
        timeout: float | str | None,  # noqa: ASYNC109 - a deadline over all attempts
    ) -> Size:
        """Take room for a message when there is some; at once in a callback.

        Callbacks make room for others, so they never wait for it.

        Raises:
            InvalidMessageError: something is wrong with the message, so it need not wait.
            SendFailedError: there was no room before the deadline.
        """
        in_flight = self._in_flight
        self._sender.checked(message)  # a bad one need not wait
        room = self._sender.measured(message)
        limit = self._sender.check_timeout(timeout)
        if in_callback.get():
            in_flight.take_anyway(*room)
        elif not in_flight.take(*room) and not await in_flight.wait(*room, limit):
            raise no_room(in_flight.held, limit)
        return room

    def hurry(self) -> None:
        """Nothing is held back."""

    def disown(self) -> None:
        """In a forked child: what is in flight is the parent's."""
        self._in_flight.is_inherited = True


class BatchSubmitter(SingleSubmitter):
    """Collects messages into batches, where that can be."""

    #: Batches take a quarter of the time, and are not cut short.
    burst = 512

    def __init__(
        self,
        sender: Sender,
        driver: Driver,
        in_flight: InFlightLimit,
        compressor: Compressor,
        settings: AutoBatch,
    ) -> None:
        super().__init__(sender, driver, in_flight, compressor)
        self._accumulator = Accumulator(
            sender, settings, in_flight.batch_over, in_flight.batch_begun
        )

    def _hand_over(
        self,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        timeout: float | str | None,
        count: int,
        size: int,
    ) -> Delivery:
        """Hand a message over that has room; a list travels as it is."""
        batches, sender = self._accumulator, self._sender
        fields = batches.accept(message, queue, selector, argument)
        if fields is None:
            return super()._hand_over(message, queue, selector, argument, timeout, count, size)
        one: Any = message  # of a list there are no fields
        limit = sender.timeout if timeout is None else sender.check_timeout(timeout)
        batch, place, is_new = batches.add(one, fields, limit)
        if is_new:
            try:
                self._driver.start(batches.deliver(batch), _ignore)
            except BaseException:
                self._in_flight.take_anyway(count, size)  # the batch gives it back
                raise
        return BatchedDelivery(batch, place)

    def hurry(self) -> None:
        """Let every batch leave now."""
        self._accumulator.hurry()

    def disown(self) -> None:
        """In a forked child: what is in flight is the parent's."""
        super().disown()
        self._accumulator.disown()


def _ignore(result: object, error: Exception | None) -> None:
    """For operations that tell everything themselves."""
