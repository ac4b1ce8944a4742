"""The asyncio admin client."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rocketwire.admin_values import Topic, TopicSummary
from rocketwire.aio.reader import AsyncReader
from rocketwire.core.admin import messages, topics
from rocketwire.message import epoch_of
from rocketwire.stored_message import StoredMessage


class AsyncAdmin(AsyncReader):
    """Looks at a cluster and changes it. The twin of ``Admin``, with the same names.

    It is a reader, too, to look into topics. It joins no group and keeps no position.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the group under which brokers see its pulls.
        config: further settings as a mapping; ``options`` are stronger.
        **options: the settings, see the reference of ``ReaderConfig``.
    """

    _what = "admin client"

    # -- topics ------------------------------------------------------------------------------

    async def topics(self) -> tuple[TopicSummary, ...]:
        """All topics by name, those of the system and of groups included: see their ``kind``."""
        deadline = self._deadline()
        return await self._run(topics.list_topics(self._instance, deadline))

    async def topic(self, name: str) -> Topic:
        """Where a topic lives, and what its queues hold.

        Raises:
            TopicNotFoundError: the name server does not know it.
        """
        deadline = self._deadline()
        return await self._run(topics.show_topic(self._instance, name, deadline))

    async def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        brokers: Sequence[str] | None = None,
        order: bool = False,
        message_type: str | None = None,
    ) -> tuple[str, ...]:
        """Create a topic, or change it; returns the brokers that have it now.

        Args:
            name: letters, digits and ``% | _ -``.
            queues: on each broker.
            brokers: names of brokers; every master by default.
            order: sharding keys keep their queue while a broker is away.
            message_type: NORMAL, FIFO, DELAY, TRANSACTION or MIXED; brokers from 5.0 on.

        Raises:
            InvalidMessageError: an argument is wrong.
            UnsupportedRequestError: a broker is too old for ``message_type``.
            BrokerError: a broker refused; the text tells on which brokers it was done.
        """
        deadline = self._deadline()
        return await self._run(
            topics.create_topic(
                self._instance,
                name,
                queues=queues,
                order=order,
                brokers=brokers,
                message_type=message_type,
                deadline=deadline,
            )
        )

    async def delete_topic(self, name: str) -> tuple[str, ...]:
        """Delete a topic and its messages everywhere; returns the brokers.

        Raises:
            TopicNotFoundError: the name server does not know it.
        """
        deadline = self._deadline()
        return await self._run(topics.delete_topic(self._instance, name, deadline))

    # -- messages ----------------------------------------------------------------------------

    async def message(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """A message by its message id or its offset message id.

        Args:
            message_id: either of them, as a result or a log has it.
            topic: spares a search through all topics where it is a message id.

        Raises:
            InvalidMessageError: there is no such message.
        """
        deadline = self._deadline()
        return await self._run(messages.find_message(self._instance, message_id, topic, deadline))

    async def find(
        self,
        topic: str,
        key: str,
        *,
        since: datetime | float = 0.0,
        until: datetime | float = messages.FAR_FUTURE,
        max_messages: int = 32,
    ) -> tuple[StoredMessage, ...]:
        """The messages of a topic that have a key (or that message id), oldest first.

        Args:
            topic: where to look.
            key: one of a message's keys.
            since: stored at or after that.
            until: stored at or before that.
            max_messages: brokers give 32 at most by default.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        deadline = self._deadline()
        return await self._run(
            messages.find_by_key(
                self._instance,
                topic,
                key,
                begin=epoch_of(since, "since"),
                end=epoch_of(until, "until"),
                max_messages=max_messages,
                deadline=deadline,
            )
        )
