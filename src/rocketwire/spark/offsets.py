"""Offsets of a stream: their JSON, what a batch begins with, and how much it admits.

Spark compares offsets as text, so keys are always sorted, and the same offsets give the same text.
It asks for the initial offset more than once, also when it repeats the first batch after a crash,
where "latest" has moved on; so the end of each batch carries where queues began that its start
does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue

VERSION: Final = 1

QueueOffsets = Mapping[MessageQueue, int]
Nested = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A point of the stream.

    ``begins`` holds where queues were begun that appeared in the batch which ended here;
    ``is_initial`` marks the point before the first batch. ``firsts`` holds where queues begin that
    the start of the batch may not know, where that start is not told (PySpark before 4.2).
    """

    offsets: QueueOffsets
    begins: QueueOffsets = field(default_factory=dict)
    is_initial: bool = False
    #: Queues that can't be read now; told with the latest offset only, never logged.
    missing: tuple[MessageQueue, ...] = ()
    firsts: QueueOffsets = field(default_factory=dict)
    #: Whether Spark shows this in its progress as the brokers' ends, which it is not (before 4.2).
    is_blind: bool = False

    def to_json(self) -> dict[str, Any]:
        """What goes to Spark's log; readable, and stable as text."""
        made: dict[str, Any] = {"v": VERSION}
        if self.is_initial:
            made["initial"] = True
        if self.is_blind:
            made["blind"] = True
        if self.begins:
            made["begins"] = nest(self.begins)
        if self.firsts:
            made["firsts"] = nest(self.firsts)
        if self.missing:
            made["missing"] = nest(dict.fromkeys(self.missing, 0))
        made["offsets"] = nest(self.offsets)
        return made

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Read what an earlier run wrote.

        Raises:
            ConfigError: it is not ours, or of a later version.
        """
        version = value.get("v")
        if version != VERSION:
            raise ConfigError(
                f"the checkpoint holds offsets of version {version!r}, this release reads {VERSION}: "
                "it was written by another source or a later release; use a new checkpoint"
            )
        try:
            return cls(
                flatten(value["offsets"]),
                flatten(value.get("begins", {})),
                is_initial=value.get("initial") is True,
                missing=tuple(flatten(value.get("missing", {}))),
                firsts=flatten(value.get("firsts", {})),
                is_blind=value.get("blind") is True,
            )
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise ConfigError(f"the checkpoint's offsets can't be read: {error!r}") from None


def nest(offsets: QueueOffsets) -> Nested:
    """Offsets as topic -> broker -> queue, everything sorted."""
    made: Nested = {}
    for queue in sorted(offsets):
        made.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.id)] = offsets[
            queue
        ]
    return made


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, dict[str, list[int]]]:
    """Queues as topic -> broker -> ids, everything sorted."""
    made: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(queues):
        made.setdefault(queue.topic, {}).setdefault(queue.broker, []).append(queue.id)
    return made


def flatten(nested: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """The reverse of `nest`."""
    return {
        MessageQueue(topic, broker, int(number)): int(offset)
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for number, offset in queues.items()
    }


def admit(start: QueueOffsets, ends: QueueOffsets, limit: int | None) -> dict[MessageQueue, int]:
    """Where a batch ends that takes at most ``limit`` messages.

    Queues share the limit in proportion to what waits in them, and the shares come to the limit
    exactly: the queues with the largest fractions get what rounding leaves over.
    """
    waiting = {queue: max(0, end - start[queue]) for queue, end in ends.items()}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {queue: start[queue] + count for queue, count in waiting.items()}
    shares = {queue: count * limit // total for queue, count in waiting.items()}
    left = limit - sum(shares.values())
    # Ties go by the queue's name, so that the same input always gives the same batch.
    by_fraction = sorted(waiting, key=lambda queue: (-(waiting[queue] * limit % total), queue))
    for queue in by_fraction[:left]:
        shares[queue] += 1
    return {queue: start[queue] + share for queue, share in shares.items()}


def batch_end(
    start: StreamOffset,
    first: QueueOffsets,
    ends: QueueOffsets,
    limit: int | None,
    corrections: QueueOffsets | None = None,
) -> StreamOffset:
    """The end of the next batch; ``start`` itself when nothing has come.

    Args:
        start: the end of the batch before.
        first: where to begin queues that ``start`` does not know.
        ends: the brokers' ends of all queues that can be read now.
        limit: the most messages to take.
        corrections: where to begin queues whose place in ``start`` the broker does not have.
    """
    begins = {
        queue: first[queue]
        for queue, end in ends.items()
        # A new queue without messages is left out: naming it would make a batch of nothing.
        if queue not in start.offsets and end > first[queue]
    }
    begins |= corrections or {}
    known = {**start.offsets, **begins}
    readable = {queue: end for queue, end in ends.items() if queue in known}
    # Queues that can't be read now keep their place until they come back.
    offsets = {**known, **admit(known, readable, limit)}
    if offsets == dict(start.offsets):
        return start
    return StreamOffset(offsets, {**start.offsets, **begins} if start.is_initial else begins)


def batch_begin(start: StreamOffset, end: StreamOffset) -> dict[MessageQueue, int]:
    """Where each queue of a batch begins: what its end remembers, else the start."""
    return {
        queue: end.begins.get(queue, start.offsets.get(queue, end.firsts.get(queue, offset)))
        for queue, offset in end.offsets.items()
    }
