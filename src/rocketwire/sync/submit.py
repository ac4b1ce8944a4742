"""How submitted messages are handed over: each in a request of its own, or collected in batches.

A producer has one of the two, chosen at its start. The caller's thread checks, encodes and chooses;
the background writes and reads the answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rocketwire.aio.waiter import SendWaiter
from rocketwire.config import AutoBatch
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.collect import Accumulator
from rocketwire.core.sending.flush import FlushGroup, left_to_parent, no_room
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.open_batch import OpenBatch
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.validate import at_once
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.selectors import Selector
from rocketwire.sync.background import Background
from rocketwire.sync.callbacks import CallbackThread
from rocketwire.sync.delivery import BatchedDelivery, Delivery
from rocketwire.sync.in_flight import InFlightLimit

if TYPE_CHECKING:
    from rocketwire.aio.driver import Driver

_log = logging.getLogger("rocketwire.producer")

Messages: TypeAlias = Message | Sequence[Message]


class SingleDelivery(SendWaiter, Delivery):
    """A message that travels alone, or a batch that was made by the caller.

    Instead of having an event it is one, which is set under the lock of the in-flight limit.
    """

    __slots__ = (
        "_callbacks",
        "_outcome",
        "count",
        "group",
        "in_flight",
        "is_posted",
        "is_set",
        "room",
        "version",
        "waiters",
    )  # fmt: skip

    _outcome: SendResult | Exception | None

    def __init__(
        self,
        attempt: SendAttempt,
        submitter: SingleSubmitter,
        group: FlushGroup,
        count: int,
        room: int,
        version: int = -1,
    ) -> None:
        # What SendWaiter.__init__ does: a call of it costs as much as all these stores together.
        self.attempt = attempt
        self.connection = None
        self.issued = 0.0
        self.is_over = False
        self._run = None
        self._callbacks = submitter.callbacks
        self.in_flight = submitter.in_flight
        self.count = count
        self.room = room
        self._outcome = None
        self.group = group
        self.is_set = False
        #: Whether it was handed over.
        self.is_posted = False
        self.waiters: list[Callable[[], None]] | None = None
        #: That of the fault table before the attempt was made; -1: any.
        self.version = version

    @property
    def _event(self) -> SingleDelivery:
        return self

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the answer is there, or now if it is."""
        if not self.is_set:  # looked at first: in a forked child the lock may never be free
            with self.in_flight.lock:
                if not self.is_set:
                    self.waiters = [*(self.waiters or ()), wake]
                    return
        wake()

    def _leave_to_parent(self) -> None:
        self._outcome, self.waiters, self.is_set = left_to_parent(), None, True

    def _look(self) -> SendResult | Exception:
        return self.read_result()

    def relay(self, driver: Driver) -> None:
        """Write the message, on the background's thread."""
        attempt = self.attempt
        sender = attempt.sender
        # A broker may have been left while it waited for this. Mostly none was.
        if self.version != sender.instance.faults.watch.version and not sender.is_current(attempt):
            sender.start_over(attempt)
        self.begin(driver)

    def refuse(self, error: Exception) -> None:
        """The background does not run: the message is not sent."""
        self.attempt.give_up()
        self.attempt.release()
        self.is_over = True
        self.settled(None, error)

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """The answer is there, and came by the operation of the send."""
        self._outcome = result if error is None else error
        self.stored()

    def stored(self) -> None:
        """Give the room back, and wake the threads that wait."""
        self.stored_together((self,))

    @classmethod
    def stored_together(cls, deliveries: Sequence[SingleDelivery]) -> None:
        """Give the room of all back, and wake the threads that wait."""
        # The background is one producer's, and so is the limit.
        for wake in deliveries[0].in_flight.finish(deliveries):
            try:
                wake()
            except Exception:  # noqa: BLE001 - others wait for answers in the same bytes
                _log.exception("a caller that waits for a submitted message could not be told")


class SingleSubmitter:
    """Hands every message over at once, in a request of its own.

    Args:
        sender: starts the sends.
        background: writes them.
        in_flight: how many may be without an answer.
        callbacks: the thread on which callbacks run.
    """

    def __init__(
        self,
        sender: Sender,
        background: Background,
        in_flight: InFlightLimit,
        callbacks: CallbackThread,
    ) -> None:
        self._sender = sender
        self._background = background
        self.in_flight = in_flight
        self.callbacks = callbacks
        self._watch = sender.instance.faults.watch

    def submit(
        self,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        timeout: float | str | None,
    ) -> Delivery:
        """Hand a message or a batch over, when there is room for it.

        Raises:
            InvalidMessageError: something is wrong with it; nothing was sent.
            SendFailedError: there was no room before the deadline.
        """
        in_flight = self.in_flight
        if type(message) is Message:
            count, size = 1, len(message.body)
        else:
            message = at_once(message)
            count, size = self._sender.measured(message)
        group = in_flight.admit(count, size)
        if group is None:
            group = self._admit_later(message, count, size, timeout)
        attempt = delivery = None
        try:
            version = self._watch.version
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
            delivery = SingleDelivery(attempt, self, group, count, size, version)
            self._background.post(delivery)
        except BaseException:  # something is wrong with it, or the thread is interrupted
            if delivery is not None and delivery.is_posted:
                self._background.call()  # it is in line already, but nobody may know
            else:
                if attempt is not None:
                    attempt.give_up()
                in_flight.withdraw(group, count, size)
            raise
        return delivery

    def _admit_later(
        self, message: Messages, count: int, size: int, timeout: float | str | None
    ) -> FlushGroup:
        self._sender.checked(message)  # a bad one need not wait
        self._wait_for_room(count, size, timeout)
        try:
            return self.in_flight.enter()
        except BaseException:
            self.in_flight.give_back(count, size)
            raise

    def _wait_for_room(self, count: int, size: int, timeout: float | str | None) -> None:
        limit = self._sender.check_timeout(timeout)
        if not self.in_flight.take(count, size, limit):
            raise no_room(self.in_flight.held, limit)

    def hurry(self) -> None:
        """Nothing is held back."""


class BatchSubmitter(SingleSubmitter):
    """Collects messages into batches, where that can be."""

    def __init__(
        self,
        sender: Sender,
        background: Background,
        in_flight: InFlightLimit,
        callbacks: CallbackThread,
        settings: AutoBatch,
    ) -> None:
        super().__init__(sender, background, in_flight, callbacks)
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
    ) -> Delivery:
        """Hand a message over, when there is room for it; a list travels as it is."""
        batches = self._accumulator
        fields = batches.accept(message, queue, selector, argument)
        # What it interrupts may have a batch open on the table: then it goes alone.
        if fields is None or batches.is_in_midst():
            return super().submit(message, queue, selector, argument, timeout)
        one: Any = message  # of a list there are no fields
        in_flight, sender, room = self.in_flight, self._sender, len(one.body)
        limit = sender.timeout if timeout is None else sender.check_timeout(timeout)
        if not in_flight.take(1, room, limit):
            raise no_room(in_flight.held, limit)
        is_in = False
        try:
            batch, place, is_new = batches.add(one, fields, limit)
            is_in = True
            if is_new:
                self._begin(batch)
        except BaseException as error:
            if not is_in and not batches.took(error):
                in_flight.give_back(1, room)
            for left in batches.not_begun():
                self._begin(left)
            raise
        return BatchedDelivery(batch, place, self.callbacks)

    def _begin(self, batch: OpenBatch) -> None:
        batches = self._accumulator

        def done(_: object, error: Exception | None) -> None:
            if error is not None:
                batches.refuse(batch, error)

        self._background.run(batches.deliver(batch), done)

    def hurry(self) -> None:
        """Let every batch leave now."""
        self._accumulator.hurry()
