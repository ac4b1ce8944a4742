"""A message in a blocking program's hand, which it acknowledges itself."""

from __future__ import annotations

import asyncio
import threading

from rocketwire.core.effects import Op
from rocketwire.core.group.deliveries import HandedOut
from rocketwire.errors import ClientClosedError
from rocketwire.stored_message import StoredMessage


class ReceivedDelivery:
    """One message of ``Consumer.deliveries()``: open until it is acknowledged or given back.

    Deliveries may be decided about in any order and from any thread, as long as the consumer lives.
    Nothing is committed past an open one.
    """

    __slots__ = ("_handed_out", "_loop", "_thread")

    def __init__(self, handed_out: HandedOut, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        self._handed_out = handed_out
        self._loop = loop
        self._thread = thread

    @property
    def message(self) -> StoredMessage:
        """The message."""
        return self._handed_out.message

    def ack(self) -> bool:
        """It is handled.

        Returns:
            False if that came too late, because its queue went to another member or was moved by
            ``seek``: the message comes again.

        Raises:
            ClientClosedError: the consumer has left its group; the message comes again.
            ConfigError: it was given back already.
        """
        return self._handed_out.acknowledge()

    def retry(self, after: float | str | None = None) -> bool:
        """Have it come again; returns when its broker has it.

        Args:
            after: seconds until then; None: longer with each try. See ``Retry``.

        Returns:
            False if its queue was lost meanwhile: it comes again anyway.

        Raises:
            ClientClosedError: the consumer has left its group; the message comes again.
            ConfigError: something else was decided already, or the time makes no sense.
        """
        return self._carry_out(self._handed_out.retry(after))

    def dead_letter(self, reason: str) -> bool:
        """Give it up: it goes to the dead letters of the group; returns when it is there.

        Where the broker can't take it now, it comes again here.

        Args:
            reason: why, for the one who finds it.

        Returns:
            False if its queue was lost meanwhile: it comes again.

        Raises:
            ClientClosedError: the consumer has left its group; the message comes again.
            ConfigError: something else was decided already, or the consumer broadcasts.
            InvalidMessageError: the reason says nothing.
        """
        return self._carry_out(self._handed_out.dead_letter(reason))

    def _carry_out(self, operation: Op[None] | None) -> bool:
        handed_out = self._handed_out
        if operation is None:
            return handed_out.counts
        done = threading.Event()
        handed_out.when_seen_to(done.set)
        try:
            self._loop.call_soon_threadsafe(handed_out.run, operation)
        except RuntimeError:
            operation.close()
            raise ClientClosedError("the consumer was shut down: the message comes again") from None
        if threading.get_ident() != self._thread:  # a hook can't wait for its own thread
            done.wait(handed_out.limit)
        return True

    def __repr__(self) -> str:
        return f"ReceivedDelivery({self.message.message_id!r}, {self.message.queue})"
