"""Queues that a stream can't read now: since when, and how long that may last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from rocketwire.columns.lost_messages import DataLossError
from rocketwire.message import MessageQueue
from rocketwire.spark.client import Bounds
from rocketwire.spark.completeness import (
    DELETED,
    Completeness,
    Missing,
    describe_missing,
    missing_error,
)
from rocketwire.spark.options import ReadOptions
from rocketwire.spark.topic_view import TopicView

#: A name server that was restarted knows nothing until the brokers have registered again.
_DELETED_AFTER: Final = 60.0


class AbsentQueues:
    """Follows what is missing from one look to the next.

    Args:
        completeness: finds it.
        options: of the read.
        clock: seconds.
    """

    def __init__(
        self, completeness: Completeness, options: ReadOptions, clock: Callable[[], float]
    ) -> None:
        self.completeness = completeness
        self.missing: Missing = {}
        self._options = options
        self._clock = clock
        self._since: dict[MessageQueue, float] = {}

    @property
    def told(self) -> str:
        """What is missing, in one line."""
        return describe_missing(self.missing)

    def look(
        self,
        views: Mapping[str, TopicView | None],
        bounds: Bounds,
        known: Iterable[MessageQueue],
    ) -> None:
        """Take note of what can be read now."""
        self.missing = self.completeness.missing(views, bounds, known)
        now = self._clock()
        self._since = {queue: self._since.get(queue, now) for queue in self.missing}

    def check_patience(self) -> None:
        """Say that something is missing for too long, if that matters.

        Raises:
            DataLossError: a topic was deleted.
            MissingQueuesError: queues can't be reached.
        """
        if not self._options.fail_on_data_loss:
            return
        now, limit = self._clock(), self._options.read_timeout
        waited = {queue: now - since for queue, since in self._since.items()}
        for queue, why in self.missing.items():
            if why == DELETED and waited[queue] >= min(limit, _DELETED_AFTER):
                raise DataLossError(
                    f"topic {queue.topic} was deleted while it was read. Set failOnDataLoss to false "
                    "to go on without it"
                )
        over = {queue: why for queue, why in self.missing.items() if waited[queue] >= limit}
        if over:
            raise missing_error(over, max(waited[queue] for queue in over))
