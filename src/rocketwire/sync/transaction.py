"""Transactions of the blocking producer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from rocketwire.core.effects import Op
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.finish import interrupted
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.transactions import TransactionSteps
from rocketwire.errors import ClientClosedError, SendFailedError, TransactionError
from rocketwire.message import Message, SendResult, TransactionState


class Transaction(TransactionSteps):
    """A message that is delivered if the block of its ``with`` statement ends without an error.

    ``producer.transaction(message)`` makes it. Entering stores the half message, which nobody sees;
    leaving commits it, or rolls it back if the block raises.
    """

    def __init__(
        self,
        sender: Sender,
        message: Message,
        timeout: float | str | None,
        send: Callable[[SendAttempt], SendResult],
        run: Callable[[Op[Any]], Any],
    ) -> None:
        super().__init__(sender, message, timeout)
        self._send = send
        self._run = run
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        """Store the half message.

        Raises:
            SendFailedError: it is not stored, or that is not known; nothing of it is delivered
                unless a checker commits it.
            TransactionError: it was stored less safely than asked for, and rolled back.
            UnsupportedRequestError: there is a proxy, and no checker; nothing was sent.
        """
        if not self._is_direct:
            self._run(self._look_for_proxy())
        attempt = self._begin(SendMode.BLOCKING)
        try:
            self._prepared(self._send(attempt))
        except BaseException:
            interrupted(attempt)
            raise
        if self._is_unsafe:
            self.rollback()
            raise self._unsafe()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The block may end in a forked child, too; the decision is the parent's.
        if not self._wants_end or os.getpid() != self._pid:
            return
        if error is None:
            self.commit()
        else:
            self.rollback()

    def commit(self) -> TransactionState:
        """Have the message delivered.

        Raises:
            TransactionError: the broker has not confirmed it. The state is ``UNKNOWN`` then, and
                the checkers of the group decide.
        """
        return self._decide(TransactionState.COMMITTED)

    def rollback(self) -> TransactionState:
        """Have the message dropped.

        Returns:
            ``ROLLED_BACK``, or ``UNKNOWN`` if the broker has not confirmed it, which is logged: the
            checkers of the group decide then.

        Raises:
            TransactionError: it was committed before.
        """
        wanted = TransactionState.ROLLED_BACK
        if self._result is None or self._state is not TransactionState.OPEN:
            return self._decide(wanted)
        with contextlib.suppress(TransactionError):
            self._decide(wanted)
        return self._state

    def _decide(self, wanted: TransactionState) -> TransactionState:
        if os.getpid() != self._pid:
            raise TransactionError(
                "the transaction belongs to the parent process: it is ended there", self._state
            )
        try:
            state: TransactionState = self._run(self._end(wanted))
        except (ClientClosedError, SendFailedError) as error:  # the latter: it was not begun
            self._state = TransactionState.UNKNOWN
            raise self._unconfirmed(wanted, error) from error
        return state
