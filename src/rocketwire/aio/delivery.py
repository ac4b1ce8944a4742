"""The handle of a submitted message."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from rocketwire.aio.in_flight import InFlightLimit
from rocketwire.aio.waiter import SendWaiter
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.flush import left_to_parent
from rocketwire.core.sending.open_batch import OpenBatch
from rocketwire.errors import Outcome, SendFailedError
from rocketwire.message import SendResult

_log = logging.getLogger("rocketwire.producer")

_group_of: Final = attrgetter("group")

#: Whether this code, or the task that it belongs to, was started by a delivery's callback.
in_callback: ContextVar[bool] = ContextVar("rocketwire_in_callback", default=False)


class Delivery:
    """A message that was handed over; ``await`` it for the answer.

    No task and no future stands behind it unless it is awaited.
    """

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Whether the answer is there."""

    @abstractmethod
    def exception(self) -> Exception | None:
        """Why the send failed; None if it did not.

        Raises:
            asyncio.InvalidStateError: there is no answer yet.
        """

    @abstractmethod
    def result(self) -> SendResult:
        """The answer, if it is there; ``await`` the delivery to wait for it.

        Raises:
            SendFailedError: the send failed.
            asyncio.InvalidStateError: there is no answer yet.
        """

    @abstractmethod
    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the loop when the answer is there, or now if it is."""

    @abstractmethod
    def cancel(self) -> None:
        """Give the message up, if there is no answer yet.

        A caller that waits gets a ``SendFailedError``; its outcome says whether the message may be stored
        all the same.
        """

    def __await__(self) -> Generator[Any, None, SendResult]:
        if not self.done():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: Delivery) -> None:
                if not future.done():
                    future.set_result(None)

            self.add_done_callback(wake)
            yield from future
        return self.result()

    def _tell(self, listener: Callable[[Delivery], Any]) -> None:
        token = in_callback.set(True)
        try:
            listener(self)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - see below
            # A user's callback must not harm other answers in the same bytes; one that asks a
            # cancelled future raises what is no Exception.
            _log.exception("a callback of a submitted message failed")
        except BaseException as error:  # noqa: BLE001 - it ends the program when the others are told
            try:
                asyncio.get_running_loop().call_soon(_raise, error)
            except RuntimeError:  # none runs: there are no others
                raise error from None
        finally:
            in_callback.reset(token)


def _raise(error: BaseException) -> None:
    raise error


#: As ``rocketwire`` exports it, beside the blocking one.
AsyncDelivery = Delivery


class SingleDelivery(SendWaiter, Delivery):
    """A message that travels alone, or a batch that was made by the caller."""

    __slots__ = ("_outcome", "count", "group", "in_flight", "listeners", "room")

    def __init__(
        self, attempt: SendAttempt, in_flight: InFlightLimit, count: int, room: int
    ) -> None:
        # What SendWaiter.__init__ does: a call of it costs as much as all these stores together.
        self.attempt = attempt
        self.connection = None
        self.issued = 0.0
        self.is_over = False
        self._run = None
        self.in_flight = in_flight
        self.count = count
        self.room = room
        #: What became of it; None also of a stored message whose result is not made yet.
        self._outcome: SendResult | Exception | None = None
        self.listeners: list[Callable[[Delivery], Any]] | None = None
        group = self.group = in_flight.groups.current
        group.count += 1

    def done(self) -> bool:
        """Whether the answer is there."""
        if not self.is_over and self.in_flight.is_inherited:
            # The answer never comes in this process; waiting callers are told in the parent.
            self._outcome, self.listeners, self.is_over = left_to_parent(), None, True
        return self.is_over

    def _look(self) -> SendResult | Exception:
        if not self.done():
            raise _no_answer()
        outcome = self._outcome
        if outcome is None:
            outcome = self._outcome = self.read_result()
        return outcome

    def result(self) -> SendResult:
        """The answer, if it is there."""
        outcome = self._look()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self) -> Exception | None:
        """Why the send failed; None if it did not."""
        outcome = self._look()
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the loop when the answer is there, or now if it is."""
        if self.done():
            self._tell(callback)
        elif self.listeners is None:
            self.listeners = [callback]
        else:
            self.listeners.append(callback)

    def cancel(self) -> None:
        """Give the message up, if there is no answer yet."""
        if not self.done() and self.give_up():
            history = self.attempt.history
            outcome = Outcome.NOT_SENT if history is None else history.outcome
            self.settled(None, SendFailedError(f"{outcome.value}: cancelled", outcome=outcome))

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """The answer is there."""
        self._outcome = result if error is None else error
        self.stored()

    def stored(self) -> None:
        """Give the room back, and call the callbacks."""
        self.stored_together((self,))

    @classmethod
    def stored_together(cls, deliveries: Sequence[SingleDelivery]) -> None:
        """Give the room of all back, and call their callbacks."""
        for group, some in groupby(deliveries, _group_of):  # a group is of one producer
            ended = list(some)
            messages, size = sum([d.count for d in ended]), sum([d.room for d in ended])
            ended[0].in_flight.give_back(messages, size)
            group.leave(len(ended))
        for delivery in [d for d in deliveries if d.listeners is not None]:
            listeners, delivery.listeners = delivery.listeners, None
            for listener in listeners or ():
                delivery._tell(listener)  # noqa: SLF001 - one of us


class BatchedDelivery(Delivery):
    """A message that travels with others: its place among them, and nothing else.

    What became of it is looked up when it is asked for, so that an answer for a thousand messages
    costs no more than one for one.
    """

    __slots__ = ("_batch", "_outcome", "_place")

    def __init__(self, batch: OpenBatch, place: int) -> None:
        self._batch = batch
        self._place = place
        self._outcome: SendResult | Exception | None = None

    def _look(self) -> SendResult | Exception:
        outcome = self._outcome
        if outcome is None:
            if not self._batch.over.is_set:
                raise _no_answer()
            outcome = self._outcome = self._batch.outcome(self._place)
        return outcome

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._outcome is not None or self._batch.over.is_set

    def result(self) -> SendResult:
        """The answer, if it is there."""
        outcome = self._look()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self) -> Exception | None:
        """Why the send failed; None if it did not."""
        outcome = self._look()
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` on the loop when the answer is there, or now if it is."""
        if self._outcome is not None:
            self._tell(callback)
        else:
            self._batch.over.add_waiter(partial(self._tell, callback))

    def cancel(self) -> None:
        """Give the message up, if there is no answer yet.

        It is not sent if the others have not left yet. Callers are told when they have arrived.
        """
        if not self.done():
            is_back = self._batch.withdraw(self._place)
            outcome = Outcome.NOT_SENT if is_back else Outcome.MAYBE_STORED
            self._outcome = SendFailedError(f"{outcome.value}: cancelled", outcome=outcome)


def _no_answer() -> asyncio.InvalidStateError:
    return asyncio.InvalidStateError("no answer yet: await the delivery")
