"""What can be asked of a blocking consumer while it runs: its queues, where it stands, its numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

from rocketwire.core.group.pauses import Pauses
from rocketwire.core.group.stats import ConsumerStats
from rocketwire.core.reading.pull import TagFilter
from rocketwire.errors import ClientClosedError
from rocketwire.message import MessageQueue
from rocketwire.sync.member import Member


class ConsumerControl:
    """The side of a ``Consumer`` that steers and looks."""

    _state: str
    _member: Member | None
    _pauses: Pauses
    _subscriptions: dict[str, TagFilter]

    @abstractmethod
    def _call(self, make: Callable[[Member], Any]) -> Any:
        """Run a coroutine of the member on its loop."""

    # -- control -----------------------------------------------------------------------------

    def pause(self, topic_or_queue: str | MessageQueue) -> None:
        """Hand out nothing more of a topic or a queue until ``resume``; handlers at work finish.

        It remains a member, and keeps its queues. A pause holds for queues that come later, too. A
        topic's pause keeps back its retried messages, a queue's does not: they come through the
        group's retry topic. The last word about a queue counts, of topic or queue.

        Raises:
            ConfigError: the topic is not subscribed to.
            ClientClosedError: the consumer was shut down.
        """
        self._set_pause(topic_or_queue, is_paused=True)

    def resume(self, topic_or_queue: str | MessageQueue) -> None:
        """End a pause of a topic and all its queues, or of one queue.

        Raises:
            ConfigError: the topic is not subscribed to.
        """
        self._set_pause(topic_or_queue, is_paused=False)

    def _check_open(self) -> None:
        if self._state == "closed":
            raise ClientClosedError("this consumer was shut down: make a new one")

    def _set_pause(self, what: str | MessageQueue, *, is_paused: bool) -> None:
        self._check_open()
        self._pauses.put(what, self._subscriptions, is_paused=is_paused)
        if self._member is not None:
            self._member.apply_pauses()

    def seek(
        self, queue: MessageQueue, where: int | Literal["earliest", "latest"] | datetime
    ) -> None:
        """Go on elsewhere in one of our queues; handlers at work finish, and count no more.

        Args:
            queue: one of ``assignment()``.
            where: an offset, ``"earliest"``, ``"latest"``, or an aware ``datetime``: the first
                message stored at that time or later.

        Raises:
            ConfigError: the queue is not ours, or has no such place.
            ClientClosedError: the consumer is no member of its group now.
        """
        self._call(lambda member: member.seek(queue, where))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the message of one of our queues that is handed out next.

        Raises:
            ConfigError: the queue is not ours.
            ClientClosedError: the consumer is no member of its group now.
        """
        found: int = self._call(lambda member: member.position(queue))
        return found

    def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has come in a queue, as its broker knows; None: nothing yet.

        When broadcasting: as the local file knows.

        Raises:
            ClientClosedError: the consumer is no member of its group now.
        """
        found: int | None = self._call(lambda member: member.committed(queue))
        return found

    # -- looking -----------------------------------------------------------------------------

    def lag(self) -> dict[MessageQueue, int]:
        """How many messages of each of our queues are not handled yet; brokers are asked."""
        found: dict[MessageQueue, int] = self._call(lambda member: member.lag())
        return found

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are ours now."""
        return () if self._member is None else self._member.assignment()

    def stats(self) -> ConsumerStats:
        """Counters since the consumer joined, and each queue as it stands.

        After it has left, the numbers of the time when it was a member.

        Raises:
            ClientClosedError: it never was a member.
        """
        if self._member is None:
            raise ClientClosedError(
                "this consumer is no member of its group, and never was: run it, or join()"
            )
        return self._member.stats()
