"""The asyncio simple consumer: receive messages, work on them, acknowledge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from rocketwire.aio.client import AsyncClient
from rocketwire.core.group.received import (
    Received,
    Subscriber,
    become,
    extension,
    receipt_of,
    release_after,
)
from rocketwire.settings_help import lists_settings
from rocketwire.simple_consumer_config import (
    SimpleConsumerConfig,
    check_receive,
)
from rocketwire.system.registry import make_config
from rocketwire.wire.client_bodies import Subscription
from rocketwire.wire.pop import Receipt

if TYPE_CHECKING:
    from rocketwire.options import SimpleConsumerOptions, Start


class AsyncReceivedMessage(Received):
    """A message that was received: this member's for a while, and then any member's again."""

    __slots__ = ()

    async def ack(self) -> None:
        """Be done with it: it does not come again.

        Raises:
            TransportError: the broker could not be reached; it may come again.
            BrokerError: the broker refused.
        """
        receipt_of(self)
        await self._consumer.acknowledge([self])

    async def extend(self, seconds: float | str) -> None:
        """Keep it for so long from now on.

        Raises:
            BrokerError: its time was over.
            TransportError: the broker could not be reached.
        """
        await self._change(extension(seconds))

    async def release(self, after: float | str = 0.0) -> None:
        """Give it back: any member may receive it after so long.

        Raises:
            BrokerError: its time was over.
            TransportError: the broker could not be reached.
        """
        await self._change(release_after(after))

    async def _change(self, seconds: float) -> None:
        receipt = await self._consumer._change(receipt_of(self), self.topic, seconds)  # noqa: SLF001
        self._renew(receipt)


@lists_settings(SimpleConsumerConfig)
class AsyncSimpleConsumer(Subscriber, AsyncClient[SimpleConsumerConfig]):
    """Receives messages and acknowledges them one by one, in any order.

    The twin of ``SimpleConsumer``, with the same names. Any number of members of a group share any number of queues. A message is invisible to the others
    while one works on it; when that one dies, or its time is over, the message comes again. Any
    number of tasks may use one consumer. It needs brokers of RocketMQ 5.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the consumer group.
        start: where a new group begins: ``earliest``, ``latest``, an aware datetime or epoch seconds.
        config: further settings as a mapping; ``options`` are stronger.
        **options: the settings that are listed below.
    """

    _what = "simple consumer"

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        start: Start | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        given: dict[str, Any] = {**options} if start is None else {**options, "start": start}
        super().__init__(make_config(SimpleConsumerConfig, name_servers, group, config, given))
        self._subscriptions: list[Subscription] = []

    async def start(self) -> Self:
        """Make it ready; what was subscribed to is checked by the brokers.

        Raises:
            ClientClosedError: it was shut down.
            ConfigError: a broker can't read an expression.
            TopicNotFoundError: a topic is unknown.
        """
        is_new = self._state == "new"
        await super().start()
        if is_new and self._receiver.has_subscriptions:
            try:
                await self._run(self._receiver.prepare())
            except BaseException:
                await self.shutdown()
                raise
        return self

    def _left(self) -> None:
        self._receiver.end()

    async def receive(
        self, count: int = 32, *, wait: float | str = 15.0, invisible: float | str = 60.0
    ) -> list[AsyncReceivedMessage]:
        """Up to so many messages; none when nothing came in time.

        Args:
            count: how many at most.
            wait: seconds to wait for the first one.
            invisible: seconds for which nobody else gets them.

        Raises:
            ConfigError: nothing was subscribed to.
            TransportError: no broker could be reached.
            BrokerError: a broker refused.
        """
        most, seconds, unseen = check_receive(count, wait, invisible)
        self._check_loop()
        self._check_subscribed()
        taken = await self._run(self._receiver.receive(most, seconds, unseen))
        return [become(item, AsyncReceivedMessage, self) for item in taken]

    async def acknowledge(self, messages: Iterable[AsyncReceivedMessage]) -> None:
        """Be done with several messages: in one request for each broker, where it has that.

        Raises:
            InvalidMessageError: one of them was not received, or by another group.
            TransportError: a broker could not be reached; its messages may come again.
            BrokerError: a broker refused.
        """
        receipts = self._receipts(messages)
        self._check_loop()
        await self._run(self._receiver.acknowledge(receipts))

    async def _change(self, receipt: Receipt, topic: str, seconds: float) -> Receipt:
        self._check_loop()
        return await self._run(self._receiver.change(receipt, topic, seconds))
