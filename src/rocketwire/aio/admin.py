"""The asyncio admin client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rocketwire.admin_values import (
    Broker,
    Connection,
    Group,
    GroupSummary,
    OffsetChange,
    Topic,
    TopicSummary,
    TraceEvent,
)
from rocketwire.aio.admin_access import AsyncAccessAdmin
from rocketwire.aio.message_admin import AsyncMessageAdmin
from rocketwire.config import ReaderConfig
from rocketwire.core.admin import brokers as broker_operations
from rocketwire.core.admin import groups, messages, resets, topics, traces
from rocketwire.core.reading.topics import Position
from rocketwire.message import epoch_of
from rocketwire.settings_help import lists_settings
from rocketwire.stored_message import StoredMessage


@lists_settings(ReaderConfig)
class AsyncAdmin(AsyncAccessAdmin, AsyncMessageAdmin):
    """Looks at a cluster and changes it. The twin of ``Admin``, with the same names.

    It is a reader, too, to look into topics. It joins no group and keeps no position.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the group under which brokers see its pulls.
        config: further settings as a mapping; ``options`` are stronger.
        **options: the settings that are listed below.
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

    async def alter_topic(  # noqa: PLR0913 - each is a setting of a topic
        self,
        name: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        can_read: bool | None = None,
        can_write: bool | None = None,
        message_type: str | None = None,
        brokers: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> tuple[str, ...]:
        """Change what is given and keep the rest; returns the brokers that were changed.

        Args:
            name: of the topic.
            queues: both ``read_queues`` and ``write_queues``. To have fewer, lower the latter
                first, and the former when those queues are read empty.
            read_queues: on each broker.
            write_queues: on each broker.
            can_read: whether consumers may read it.
            can_write: whether producers may write to it.
            message_type: as in ``create_topic``.
            brokers: names of brokers; all that have it by default.
            dry_run: check, change nothing, and return the brokers that would be changed.

        Raises:
            TopicNotFoundError: the name server does not know it.
            InvalidMessageError: a change makes no sense, or there is none.
            BrokerError: a broker refused; the text tells on which brokers it was done.
        """
        changes = topics.TopicChanges(
            queues if read_queues is None else read_queues,
            queues if write_queues is None else write_queues,
            can_read,
            can_write,
            message_type,
        )
        deadline = self._deadline()
        return await self._run(
            topics.alter_topic(
                self._instance,
                name,
                changes=changes,
                brokers=brokers,
                dry_run=dry_run,
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

    # -- groups ------------------------------------------------------------------------------

    async def groups(self) -> tuple[GroupSummary, ...]:
        """All consumer groups by name, those of the system included: see ``is_system``."""
        deadline = self._deadline()
        return await self._run(groups.list_groups(self._instance, deadline))

    async def group(self, name: str) -> Group:
        """Members, assignment and lag of a consumer group.

        Raises:
            GroupNotFoundError: no broker knows it.
        """
        deadline = self._deadline()
        return await self._run(groups.show_group(self._instance, name, deadline))

    async def reset(
        self, group: str, topic: str, to: Position, *, dry_run: bool = False
    ) -> tuple[OffsetChange, ...]:
        """Move a consumer group in one topic; returns what changed, queue by queue.

        Members need not stop: they go on at the new place. Only brokers before 5.0 can't move a
        group with members to given offsets.

        Args:
            group: of consumers.
            topic: which.
            to: ``earliest``, ``latest``, an aware datetime, epoch seconds, or offsets by queue.
            dry_run: change nothing, and return what would change.

        Raises:
            GroupNotFoundError: no broker knows the group.
            TopicNotFoundError: no name server knows the topic.
            InvalidMessageError: ``to`` means nothing, or a queue does not have such an offset.
        """
        deadline = self._deadline()
        return await self._run(
            resets.reset(
                self._instance,
                group,
                topic,
                to,
                dry_run=dry_run,
                reader_group=self._config.group,
                deadline=deadline,
            )
        )

    async def clone_offsets(
        self, source: str, target: str, topic: str, *, dry_run: bool = False
    ) -> tuple[OffsetChange, ...]:
        """Put a group where another one is in a topic; returns what changed, queue by queue.

        Raises:
            GroupNotFoundError: no broker knows the source.
            InvalidMessageError: the target has members, or the source never consumed the topic.
        """
        deadline = self._deadline()
        return await self._run(
            resets.clone_offsets(
                self._instance, source, target, topic, dry_run=dry_run, deadline=deadline
            )
        )

    async def delete_group(self, name: str, *, with_topics: bool = False) -> tuple[str, ...]:
        """Delete a group that has no members, and its positions; returns the brokers.

        Args:
            name: of the group.
            with_topics: its retry and dead-letter topics, too, with their messages.

        Raises:
            GroupNotFoundError: no broker knows it.
            InvalidMessageError: it has members.
        """
        deadline = self._deadline()
        return await self._run(
            groups.delete_group(self._instance, name, deadline, with_topics=with_topics)
        )

    async def connections(self, group: str) -> tuple[Connection, ...]:
        """Consumers and producers that are connected with a group of that name.

        Raises:
            GroupNotFoundError: there is none.
        """
        deadline = self._deadline()
        return await self._run(groups.show_connections(self._instance, group, deadline))

    # -- brokers -----------------------------------------------------------------------------

    async def brokers(self) -> tuple[Broker, ...]:
        """All brokers with release and figures; one that gives no answer says so in ``error``."""
        deadline = self._deadline()
        return await self._run(broker_operations.list_brokers(self._instance, deadline))

    async def broker_settings(self, broker: str) -> dict[str, str]:
        """The settings of a broker's master, by Java's names.

        Raises:
            RouteError: there is no such broker.
        """
        deadline = self._deadline()
        return await self._run(broker_operations.broker_settings(self._instance, broker, deadline))

    async def change_broker_settings(
        self, broker: str, changes: Mapping[str, object]
    ) -> dict[str, str]:
        """Change settings of a broker while it runs; returns what they were before.

        Raises:
            InvalidMessageError: it has no such setting (the nearest is told), or did not take it.
            RouteError: there is no such broker.
        """
        deadline = self._deadline()
        return await self._run(
            broker_operations.change_broker_settings(self._instance, broker, changes, deadline)
        )

    async def name_server_settings(self) -> dict[str, dict[str, str]]:
        """The settings of every name server, by its address."""
        deadline = self._deadline()
        return await self._run(broker_operations.name_server_settings(self._instance, deadline))

    async def change_name_server_settings(
        self, changes: Mapping[str, object]
    ) -> dict[str, dict[str, str]]:
        """Change settings of every name server; returns what they were before, by its address.

        Raises:
            InvalidMessageError: one has no such setting, or did not take it.
        """
        deadline = self._deadline()
        return await self._run(
            broker_operations.change_name_server_settings(self._instance, changes, deadline)
        )

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
            max_messages: the newest; of one second brokers tell 64 at most.

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

    async def trace(
        self, message_id: str, *, trace_topic: str | None = None
    ) -> tuple[TraceEvent, ...]:
        """What happened to a message, oldest first: who sent it, who consumed it, how it went.

        Only what clients with ``trace=True`` (or Java's) wrote is known; brokers index it a moment
        later. Without any of it the answer is empty.

        Args:
            message_id: the message id (no offset message id), as a result or a log has it.
            trace_topic: where clients write traces, if that is no system topic.

        Raises:
            TopicNotFoundError: there is no trace topic.
        """
        deadline = self._deadline()
        return await self._run(traces.trace(self._instance, message_id, trace_topic, deadline))
