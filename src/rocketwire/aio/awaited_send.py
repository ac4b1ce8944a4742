"""A send whose caller awaits the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from rocketwire.aio.waiter import SendWaiter
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.results import result_later
from rocketwire.message import SendResult


class AwaitedSend(SendWaiter):
    """A send whose caller awaits its ``future``."""

    __slots__ = ("future",)

    def __init__(self, attempt: SendAttempt, future: asyncio.Future[SendResult]) -> None:
        # What SendWaiter.__init__ does: a call of it costs as much as all these stores together.
        self.attempt = attempt
        self.connection = None
        self.issued = 0.0
        self.is_over = False
        self._run = None
        self.future = future

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """Wake the caller."""
        if not self.future.done():
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(cast("SendResult", result))

    def stored(self) -> None:
        """Wake the caller."""
        self.stored_together((self,))

    @classmethod
    def stored_together(cls, sends: Sequence[AwaitedSend]) -> None:
        """Wake the callers."""
        for send in sends:
            if not send.future.done():
                send.future.set_result(result_later(send.attempt, send.answer))
