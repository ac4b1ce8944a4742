"""Many messages in one call of an asyncio producer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal, overload

from rocketwire.aio.client import AsyncClient
from rocketwire.aio.compressing import Compressor
from rocketwire.aio.in_flight import InFlightLimit
from rocketwire.config import ProducerConfig
from rocketwire.core.sending.send_many import ManySender, as_messages
from rocketwire.core.sending.sender import Sender
from rocketwire.errors import RocketMQError
from rocketwire.message import Message, SendResult


class ManySends(AsyncClient[ProducerConfig]):
    """The part of an ``AsyncProducer`` that sends many messages at once."""

    _sender: Sender
    _in_flight: InFlightLimit
    _compressor: Compressor

    @overload
    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | str | None = None,  # noqa: ASYNC109 - for each batch
        return_errors: Literal[False] = False,
    ) -> list[SendResult]: ...
    @overload
    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | str | None = None,  # noqa: ASYNC109 - for each batch
        return_errors: bool,
    ) -> list[SendResult | RocketMQError]: ...
    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | str | None = None,  # noqa: ASYNC109 - for each batch
        return_errors: bool = False,
    ) -> Any:
        """Send any number of messages to any topics, in batches, many at once.

        Messages of one sharding key stay in order. ``timeout`` is for each batch.

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
        self._check_loop()
        # All of them now: while this waits, others may change what an iterator goes through.
        many = ManySender(self._sender, list(as_messages(messages)), timeout)
        del messages  # a list that the caller does not keep is let go of as it is encoded
        in_flight, driver = self._in_flight, self._driver
        in_flight.awaited += 1
        try:
            while many.check():  # noqa: ASYNC110 - in pieces, so that the loop is not kept
                await asyncio.sleep(0)
            await self._compressor.prepare_all(many.large)
            streams = await driver.run(many.streams())
            ends = [driver.run(many.run(stream, in_turns=True)) for stream in streams]
            for end in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(end, BaseException):
                    raise end
        finally:
            in_flight.awaited -= 1
            in_flight.look_around()
            self._compressor.forget(many.large)
        return many.finish(return_errors=return_errors)
