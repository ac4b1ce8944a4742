"""A message in an asyncio program's hand, which it acknowledges itself."""

from __future__ import annotations

import asyncio
from functools import partial

from rocketwire.core.effects import Op
from rocketwire.core.group.deliveries import HandedOut
from rocketwire.stored_message import StoredMessage


class AsyncReceivedDelivery:
    """One message of ``AsyncConsumer.deliveries()``: open until it is acknowledged or given back.

    Deliveries may be decided about in any order, on the consumer's loop, as long as the consumer
    lives. Nothing is committed past an open one. A decision holds at once; awaiting what these
    methods return waits until it is carried out.
    """

    __slots__ = ("_handed_out", "_loop")

    def __init__(self, handed_out: HandedOut, loop: asyncio.AbstractEventLoop) -> None:
        self._handed_out = handed_out
        self._loop = loop

    @property
    def message(self) -> StoredMessage:
        """The message."""
        return self._handed_out.message

    def ack(self) -> asyncio.Future[bool]:
        """It is handled.

        Returns:
            To be awaited, or not: False if that came too late, because its queue went to another
            member or was moved by ``seek``: the message comes again.

        Raises:
            ClientClosedError: the consumer has left its group; the message comes again.
            ConfigError: it was given back already.
        """
        return self._answer(is_good=self._handed_out.acknowledge())

    def retry(self, after: float | str | None = None) -> asyncio.Future[bool]:
        """Have it come again.

        Args:
            after: seconds until then; None: longer with each try. See ``Retry``.

        Returns:
            Done when its broker has it. False if its queue was lost meanwhile: it comes again anyway.

        Raises:
            ClientClosedError: the consumer has left its group; the message comes again.
            ConfigError: something else was decided already, or the time makes no sense.
        """
        return self._carry_out(self._handed_out.retry(after))

    def dead_letter(self, reason: str) -> asyncio.Future[bool]:
        """Give it up: it goes to the dead letters of the group.

        Where the broker can't take it now, it comes again here.

        Args:
            reason: why, for the one who finds it.

        Returns:
            Done when it is there. False if its queue was lost meanwhile: it comes again.

        Raises:
            ClientClosedError: the consumer has left its group; the message comes again.
            ConfigError: something else was decided already, or the consumer broadcasts.
            InvalidMessageError: the reason says nothing.
        """
        return self._carry_out(self._handed_out.dead_letter(reason))

    def _answer(self, *, is_good: bool) -> asyncio.Future[bool]:
        answer = self._loop.create_future()
        answer.set_result(is_good)
        return answer

    def _carry_out(self, operation: Op[None] | None) -> asyncio.Future[bool]:
        if operation is None:
            return self._answer(is_good=self._handed_out.counts)
        done = self._loop.create_future()
        self._handed_out.when_seen_to(partial(_finish, done))
        limit = self._loop.call_later(self._handed_out.limit, _finish, done)
        done.add_done_callback(lambda _: limit.cancel())
        self._handed_out.run(operation)
        return done

    def __repr__(self) -> str:
        return f"AsyncReceivedDelivery({self.message.message_id!r}, {self.message.queue})"


def _finish(done: asyncio.Future[bool]) -> None:
    if not done.done():
        done.set_result(True)
