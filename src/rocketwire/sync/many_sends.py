"""Many messages in one call of a blocking producer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, overload

from rocketwire.config import ProducerConfig
from rocketwire.core.sending.send_many import ManySender
from rocketwire.core.sending.sender import Sender
from rocketwire.core.side_by_side import run_together
from rocketwire.errors import RocketMQError
from rocketwire.message import Message, SendResult
from rocketwire.sync.calls_under_way import CallsUnderWay
from rocketwire.sync.client import BlockingClient


class ManySends(BlockingClient[ProducerConfig]):
    """The part of a ``Producer`` that sends many messages at once."""

    _sender: Sender
    _calls: CallsUnderWay

    @overload
    def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | str | None = None,
        return_errors: Literal[False] = False,
    ) -> list[SendResult]: ...
    @overload
    def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | str | None = None,
        return_errors: bool,
    ) -> list[SendResult | RocketMQError]: ...
    def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | str | None = None,
        return_errors: bool = False,
    ) -> Any:
        """Send any number of messages to any topics, in batches, many at once.

        Messages of one sharding key stay in order.

        Args:
            messages: any number of them.
            timeout: seconds for each batch; ``send_timeout`` by default.
            return_errors: whether errors stand in the list that is returned.

        Returns:
            One result per message, in the order given.

        Raises:
            InvalidMessageError: one of them is wrong; nothing was sent.
            SendManyError: some failed; its ``results`` are in the order given.
        """
        if self._state != "running":
            self._make_ready()
        here = self._calls.here
        here.sends += 1
        try:
            many = ManySender(self._sender, messages, timeout)
            del messages  # a list that the caller does not keep is let go of as it is encoded
            while many.check():
                pass
            streams = self._driver.run(many.streams())
            self._driver.run(run_together([many.run(stream) for stream in streams]))
            return many.finish(return_errors=return_errors)
        finally:
            here.sends -= 1
