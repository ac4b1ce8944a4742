"""A send that the background carries out for a thread that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.aio.waiter import SendWaiter
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.message import SendResult
from rocketwire.sync.chained_wake_ups import ChainedWakeUps
from rocketwire.system.latch import Latch

if TYPE_CHECKING:
    from rocketwire.aio.driver import Driver


class RelayedSend(SendWaiter):
    """A send whose caller waits in another thread than the one that writes and reads it."""

    __slots__ = ("_latch", "_outcome", "wake_ups")

    #: Set by the background, before it is handed over.
    wake_ups: ChainedWakeUps

    def __init__(self, attempt: SendAttempt) -> None:
        super().__init__(attempt)
        self._latch = Latch()
        self._outcome: SendResult | Exception | None = None

    def relay(self, driver: Driver) -> None:
        """Write the message, on the background's thread."""
        if self.is_over:  # the caller was interrupted before
            return
        sender = self.attempt.sender
        if not sender.is_current(self.attempt):  # a broker was left while it waited for this
            sender.start_over(self.attempt)
        self.begin(driver)

    def refuse(self, error: Exception) -> None:
        """The background does not run: the message is not sent."""
        self.attempt.give_up()
        self.is_over = True
        self.settled(None, error)

    def settled(self, result: SendResult | None, error: Exception | None) -> None:
        """The answer is there, and came by the operation of the send."""
        self._outcome = result if error is None else error
        self._latch.open()

    def stored(self) -> None:
        """The usual answer is there: the caller reads it."""
        self.wake_ups.let_go_on(self._latch)

    def done(self, result: SendResult | None, error: Exception | None) -> None:
        """The background has ended; only the first end counts."""
        if not self._latch.is_open:
            self.settled(result, error)

    @property
    def delays_end(self) -> bool:
        """Whether a shutdown waits for it now."""
        return not self._latch.is_open

    def withdraw(self) -> None:
        """The caller was interrupted: end the send where it stands, on the background's thread."""
        self.give_up()
        self._latch.open()

    def wait_for_end(self, timeout: float) -> None:
        """Wait until nothing is done for it any more, but not for ever."""
        self._latch.wait(timeout)

    def wait(self) -> SendResult:
        """What came of it.

        Raises:
            SendFailedError: its ``outcome`` tells whether the message may be stored all the same.
        """
        self._latch.wait()
        self.wake_ups.pass_on()
        outcome = self._outcome
        if outcome is None:
            return self.read_result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
