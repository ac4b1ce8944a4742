"""Which topics and queues a consumer has paused, whether they are its own just now or not."""

from __future__ import annotations

from collections.abc import Collection

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue


class Pauses:
    """What was paused and resumed. The last word about a queue counts, its own or its topic's.

    It belongs to the consumer and not to a membership: a queue that goes and comes back, or a
    consumer that leaves and joins again, finds the same pauses.
    """

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._queues: dict[MessageQueue, bool] = {}

    def put(
        self, what: str | MessageQueue, subscribed: Collection[str], *, is_paused: bool
    ) -> None:
        """Pause or resume a topic with all its queues, or one queue.

        Raises:
            ConfigError: it is neither, or its topic is not subscribed to.
        """
        if not isinstance(what, (str, MessageQueue)):
            raise ConfigError(f"{what!r} is neither a topic nor a MessageQueue")
        topic = what if isinstance(what, str) else what.topic
        if topic not in subscribed:
            wanted = ", ".join(sorted(subscribed)) or "nothing"
            raise ConfigError(f"topic {topic!r} is not subscribed to (subscribed: {wanted})")
        if isinstance(what, MessageQueue):
            # Replaced and not changed: it is read without a lock.
            self._queues = self._queues | {what: is_paused}
            return
        self.forget(topic)
        if is_paused:
            self._topics = self._topics | {topic}

    def forget(self, topic: str) -> None:
        """Know nothing of a topic and its queues any more."""
        self._topics = self._topics - {topic}
        self._queues = {q: word for q, word in self._queues.items() if q.topic != topic}

    def hold(self, queue: MessageQueue) -> bool:
        """Whether a queue is paused."""
        return self._queues.get(queue, queue.topic in self._topics)

    @property
    def topics(self) -> frozenset[str]:
        """Topics that are paused as a whole."""
        return frozenset(self._topics)
