"""How submitted messages are handed over: each in a request of its own, or collected in batches.

A producer has one of the two, chosen at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

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
    """

    #: Submits in a row after which the loop gets its turn: answers are read while messages are
    #: still being handed over, and their latency is the broker's, not ours.
    burst = 128

    def __init__(self, sender: Sender, driver: Driver, in_flight: InFlightLimit) -> None:
        self._sender = sender
        self._driver = driver
        self._in_flight = in_flight

    def submit(
        self,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        timeout: float | str | None,
        size: Size | None = None,
    ) -> Delivery | None:
        """Hand a message or a batch over; None if there is no room for it now.

        ``size`` is the room that the caller has taken for it, and gives back after an error.

        Raises:
            InvalidMessageError: something is wrong with it; nothing was sent.
            CompressFirst: its body has to be compressed elsewhere before.
        """
        in_flight = self._in_flight
        if size is None:
            if type(message) is Message:
                count, room = 1, len(message.body)
            else:
                count, room = self._sender.measured(message)
            if not in_flight.take(count, room):
                return None
        else:
            count, room = size
        try:
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
        except BaseException:
            if size is None:
                in_flight.give_back(count, room)
            raise
        delivery = SingleDelivery(attempt, in_flight, count, room)
        delivery.begin(self._driver)
        return delivery

    async def take_room(
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
        size = self._sender.measured(message)
        limit = self._sender.check_timeout(timeout)
        if in_callback.get():
            in_flight.take_anyway(*size)
        elif not await in_flight.wait(*size, limit):
            raise no_room(in_flight.held, limit)
        return size

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
        self, sender: Sender, driver: Driver, in_flight: InFlightLimit, settings: AutoBatch
    ) -> None:
        super().__init__(sender, driver, in_flight)
        self._accumulator = Accumulator(
            sender, settings, in_flight.batch_over, in_flight.batch_begun
        )

    def submit(
        self,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        timeout: float | str | None,
        size: Size | None = None,
    ) -> Delivery | None:
        """Hand a message over; None if there is no room for it now. A list travels as it is."""
        batches, in_flight, sender = self._accumulator, self._in_flight, self._sender
        fields = None
        if type(message) is Message and queue is None and selector is None and argument is None:
            fields = batches.accept(message)
        if type(message) is not Message or fields is None:
            return super().submit(message, queue, selector, argument, timeout, size)
        room = len(message.body)
        if size is None and not in_flight.take(1, room):
            return None
        try:
            limit = sender.timeout if timeout is None else sender.check_timeout(timeout)
            batch, place, is_new = batches.add(message, fields, limit)
        except BaseException:
            if size is None:
                in_flight.give_back(1, room)
            raise
        if is_new:
            self._driver.start(batches.deliver(batch), _ignore)
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
