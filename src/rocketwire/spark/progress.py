"""How far a stream is behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark.offsets import StreamOffset


@dataclass(frozen=True, slots=True)
class Lag:
    """Messages that wait, per queue and in all; and queues that can't be read.

    ``is_known`` is False where Spark's progress does not tell the brokers' ends: PySpark before
    4.2 leaves them out. All figures are 0 then, which means nothing.
    """

    queues: Mapping[MessageQueue, int] = field(default_factory=dict)
    #: Queues that can't be read now; an id of -1 stands for all queues of a broker.
    missing_queues: tuple[MessageQueue, ...] = ()
    is_known: bool = True

    @property
    def missing(self) -> int:
        """How many queues can't be read now. What waits in them is not in the other figures."""
        return len(self.missing_queues)

    def __str__(self) -> str:
        if not self.is_known:
            return "unknown"
        away = f", {self.missing} queues can't be read" if self.missing else ""
        return f"{self.total} messages{away}"

    @property
    def total(self) -> int:
        """All together."""
        return sum(self.queues.values())

    @property
    def min(self) -> int:
        """Of the queue that is least behind."""
        return min(self.queues.values(), default=0)

    @property
    def max(self) -> int:
        """Of the queue that is most behind."""
        return max(self.queues.values(), default=0)

    @property
    def avg(self) -> float:
        """On average over the queues."""
        return self.total / len(self.queues) if self.queues else 0.0


def lag(progress: Any) -> Lag:
    """How many messages a streaming query has not processed yet.

    Args:
        progress: ``query.lastProgress``, ``query.recentProgress[i]``, or their JSON.

    Raises:
        ConfigError: it is no progress of a query.
    """
    content = _as_mapping(progress)
    found: dict[MessageQueue, int] = {}
    missing: set[MessageQueue] = set()
    is_known = True
    for source in content.get("sources", ()):
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is None:
            continue
        if latest is None or latest.is_blind:
            is_known = False
            continue
        missing |= set(latest.missing)
        for queue, offset in latest.offsets.items():
            # A queue that the query has not begun is behind by what is in it from the start on,
            # which is not known here; count it from zero.
            found[queue] = max(0, offset - end.offsets.get(queue, 0))
    return Lag(dict(sorted(found.items())), tuple(sorted(missing)), is_known)


def _as_mapping(progress: Any) -> Mapping[str, Any]:
    if progress is None:
        return {}
    text = getattr(progress, "json", progress)
    if isinstance(text, str):
        try:
            text = json.loads(text)
        except ValueError:
            text = None
    if not isinstance(text, Mapping):
        raise ConfigError(
            f"progress is a {type(progress).__name__}: give query.lastProgress, or its JSON"
        )
    return text


def _offset(value: Any) -> StreamOffset | None:
    # Spark shows the offsets of Python sources as JSON within a string.
    for _ in range(2):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return None
    if not isinstance(value, Mapping) or "v" not in value:
        return None
    return StreamOffset.from_json(value)
