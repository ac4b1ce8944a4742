"""Sends of a blocking producer that are one part of something longer: transactions and requests."""

from __future__ import annotations

from typing import TypeVar

from rocketwire.core.effects import Op
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.requests import check_request, request
from rocketwire.message import Message, SendResult
from rocketwire.stored_message import StoredMessage
from rocketwire.sync.contention import Contention
from rocketwire.sync.many_sends import ManySends
from rocketwire.sync.relayed_send import RelayedSend
from rocketwire.sync.transaction import Transaction

T = TypeVar("T")


class Conversations(ManySends):
    """The part of a ``Producer`` for transactions and requests.

    Those of more than a few threads at once are handed to the background.
    """

    _contention: Contention

    def transaction(self, message: Message, *, timeout: float | str | None = None) -> Transaction:
        """A message that is delivered if a block ends without an error.

        ``with producer.transaction(message) as tx:`` stores it so that nobody sees it, commits it
        at the end of the block, and rolls it back if the block raises. ``tx.commit()``,
        ``tx.rollback()`` and ``tx.leave_open()`` decide by hand.

        Args:
            message: neither delayed nor with a sharding key.
            timeout: seconds for storing it, and as many for the decision; ``send_timeout`` by
                default.

        Raises:
            InvalidMessageError: it can't be part of a transaction.
        """
        if self._state != "running":
            self._make_ready()
        return Transaction(self._sender, message, timeout, self._send_half, self._carry_out)

    def _send_half(self, attempt: SendAttempt) -> SendResult:
        here = self._calls.here
        here.sends += 1
        try:
            with self._contention as contention:
                if contention.is_large and attempt.target is not None and self._may_relay():
                    return self._background.send_for(RelayedSend(attempt))
                return self._driver.send(attempt)
        finally:
            here.sends -= 1

    def _carry_out(self, operation: Op[T]) -> T:
        """Run an operation of a transaction."""
        if self._state != "running":
            self._make_ready()
        here = self._calls.here
        here.sends += 1
        try:
            with self._contention as contention:
                if contention.is_large and self._may_relay():
                    return self._background.run_for(operation, delays_end=True)
                return self._driver.run(operation)
        finally:
            here.sends -= 1

    def _may_relay(self) -> bool:
        """Whether the background may work for this thread: it runs, and no hook would move there."""
        if self._sender.tells:
            return False
        if self._background.is_ready:
            return not super()._must_not_wait()
        self._background.hurry()
        return False

    def request(self, message: Message, *, timeout: float | str = 3.0) -> StoredMessage:
        """Send a request, and wait for the reply of its handler.

        Brokers since 4.6 serve it; a proxy does not.

        Args:
            message: neither delayed nor a batch.
            timeout: seconds until the reply must be there.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: the request could not be sent, or was refused.
            ReplyTimeoutError: no reply came; its ``outcome`` tells whether the request was stored.
            ClientClosedError: the producer is not running, or was shut down meanwhile.
            UnsupportedRequestError: a proxy is in the way, and nothing was sent.
        """
        if self._state != "running":
            self._make_ready()
        sender, background, here = self._sender, self._background, self._calls.here
        here.sends += 1
        try:
            check_request(message, background=self._config.background)
            limit = sender.check_timeout(timeout)
            background.start()
            background.hurry()
            asking = request(sender, message, SendMode.BLOCKING, limit)
            with self._contention as contention:
                if contention.is_large and background.is_ready and not super()._must_not_wait():
                    return background.run_for(asking)
                return self._driver.run(asking)
        finally:
            here.sends -= 1
