"""The blocking reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from rocketwire.config import ReaderConfig
from rocketwire.core.reading import by_key, pull
from rocketwire.core.reading.arguments import (
    check_fetch,
    check_id,
    check_key,
    check_queue,
    check_readable_topic,
    check_reading,
)
from rocketwire.core.reading.expected import Expected, check_expected
from rocketwire.core.reading.filters import check_filter, message_filter
from rocketwire.core.reading.pull import Fetched, tag_filter
from rocketwire.core.reading.topics import Position, Reading
from rocketwire.errors import InvalidMessageError
from rocketwire.message import MessageQueue, epoch_of
from rocketwire.settings_help import lists_settings
from rocketwire.stored_message import StoredMessage
from rocketwire.sync.client import BlockingClient
from rocketwire.system.registry import make_config

if TYPE_CHECKING:
    from rocketwire.options import ReaderOptions

_FAR_FUTURE = 32_503_680_000.0  # the year 3000


@lists_settings(ReaderConfig)
class Reader(BlockingClient[ReaderConfig]):
    """Gets messages back, by queue and offset. It keeps no position and joins no group.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the group under which brokers see its pulls.
        config: further settings as a mapping; ``options`` are stronger.
        **options: the settings that are listed below.
    """

    _what = "reader"

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[ReaderOptions],
    ) -> None:
        super().__init__(make_config(ReaderConfig, name_servers, group, config, options))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        check_readable_topic(topic)
        deadline = self._deadline()
        return self._run(pull.read_queues(self._instance, topic, deadline))

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that the queue still has."""
        check_queue(queue)
        deadline = self._deadline()
        return self._run(pull.min_offset(self._instance, queue, deadline))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        check_queue(queue)
        deadline = self._deadline()
        return self._run(pull.max_offset(self._instance, queue, deadline))

    def offset_for_time(self, queue: MessageQueue, moment: datetime | float) -> int:
        """The first offset that was stored at or after a moment; the end if there is none."""
        check_queue(queue)
        moment = epoch_of(moment, "moment")
        deadline = self._deadline()
        operation = pull.offset_for_time(
            self._instance, queue, moment, self._config.group, deadline
        )
        return self._run(operation)

    def fetch(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        wait: float | str = 0.0,
        *,
        tags: str | None = None,
    ) -> Fetched:
        """One pull from a queue.

        Args:
            queue: which.
            offset: from where on.
            max_messages: brokers may give fewer (32 by default).
            wait: seconds to wait for the first message if there is none yet.
            tags: ``TagA || TagB``; all by default.
        """
        patience = check_fetch(queue, offset, max_messages, wait)
        limit = patience + (pull.HOLD_SLACK if patience else 0.0) + self._config.pull_timeout
        self._deadline()
        operation = pull.fetch(
            self._instance,
            queue,
            offset,
            group=self._config.group,
            max_messages=max_messages,
            wait=patience,
            tags=tag_filter(tags),
            deadline=self._instance.clock() + limit,
        )
        return self._run(operation)

    def read(
        self,
        topic: str | MessageQueue,
        start: Position = "earliest",
        end: Position | None = None,
        tags: str | None = None,
        *,
        follow: bool = False,
        sql: str | None = None,
        expected_brokers: Expected | None = None,
    ) -> Iterator[StoredMessage]:
        """The messages of a topic, or of one queue; in order per queue.

        Args:
            topic: a topic, or one of its queues.
            start: ``earliest``, ``latest``, an aware datetime, epoch seconds, or offsets by queue.
            end: where to stop, likewise; by default what is the end of each queue now.
            tags: ``TagA || TagB``; all by default.
            follow: go on for ever, with what comes.
            sql: an SQL92 expression over properties instead of tags, which brokers evaluate.
            expected_brokers: names of the topic's brokers, or how many there are; one that is missing
                is an error. Without it, those that this client saw minutes ago count.

        Raises:
            MissingQueuesError: a broker that the topic is known to have is missing.
        """
        self._deadline()
        check_reading(topic, start, end, follow=follow)
        wanted = message_filter(tags, sql)
        reading = Reading(
            self._instance,
            group=self._config.group,
            tags=wanted,
            follow=follow,
            request_timeout=self._config.pull_timeout,
            expected=check_expected(expected_brokers),
        )
        name = topic.topic if isinstance(topic, MessageQueue) else topic
        queues = [topic] if isinstance(topic, MessageQueue) else None
        deadline = self._deadline()
        self._run(check_filter(self._instance, self._config.group, name, wanted, deadline))
        self._run(reading.begin(name, queues, start, end))
        return self._iterate(reading)

    def _iterate(self, reading: Reading) -> Iterator[StoredMessage]:
        while not reading.is_over:
            messages = self._run(reading.next_messages())
            # Each is forgotten here when the next is asked for: its body may be large by then.
            messages.reverse()
            while messages:
                yield messages.pop()

    def message_by_id(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """A message by its id.

        Args:
            message_id: an offset message id; or, with ``topic``, a message id.
            topic: needed for a message id, which is looked up in the brokers' index.

        Raises:
            InvalidMessageError: the id is malformed, or there is no such message.
        """
        check_id(message_id)
        deadline = self._deadline()
        if topic is None:
            operation = pull.message_by_offset_id(self._instance, message_id, deadline)
            return self._run(operation)
        found = self.messages_by_key(topic, message_id, max_messages=1, unique=True)
        if not found:
            raise InvalidMessageError(f"topic {topic} has no message with the id {message_id!r}")
        return found[0]

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin: float = 0.0,
        end: float = _FAR_FUTURE,
        unique: bool = False,
    ) -> tuple[StoredMessage, ...]:
        """Messages that have a key, from the brokers' indexes, oldest first."""
        check_key(topic, key, max_messages)
        deadline = self._deadline()
        operation = by_key.messages_by_key(
            self._instance,
            topic,
            key,
            unique=unique,
            max_messages=max_messages,
            begin=begin,
            end=end,
            deadline=deadline,
        )
        return self._run(operation)
