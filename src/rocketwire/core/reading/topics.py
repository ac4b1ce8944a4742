"""Reading a whole topic, or one queue of it: where each queue starts, ends and stands.

Per queue, messages come in order; queues take turns. A queue whose broker can't be reached is
asked again later, while the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from rocketwire.core.effects import Invoke, Op, invoke_all, sleep
from rocketwire.core.instance import Instance
from rocketwire.core.reading.expected import complete_queues
from rocketwire.core.reading.pull import (
    Fetched,
    TagFilter,
    address_of,
    max_offset,
    min_offset,
    offset_for_time,
    read_pull,
)
from rocketwire.core.reading.queue_pulls import QueuePulls
from rocketwire.errors import (
    BrokerError,
    MissingQueuesError,
    PermissionDeniedError,
    ProtocolError,
    RocketMQError,
    TransportError,
)
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue, epoch_of
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.command import Reply

_log = logging.getLogger("rocketwire.reader")

#: ``earliest``, ``latest``, a moment, or offsets by queue.
Position: TypeAlias = Literal["earliest", "latest"] | datetime | float | Mapping[MessageQueue, int]

_PATIENCE = 30.0
_PAUSE = 0.25
#: How long a reading waits that finds nothing new: at first, by how much longer each time, and at most.
_FIRST_PAUSE = 0.05
_GROWTH = 1.5
_LONGEST_PAUSE = 0.5


def resolve(
    instance: Instance, queue: MessageQueue, position: Position, group: str, deadline: float
) -> Op[int]:
    """The offset that a position means for a queue.

    Raises:
        InvalidMessageError: it means nothing.
    """
    if isinstance(position, Mapping):
        if queue in position:
            return int(position[queue])
        return (yield from min_offset(instance, queue, deadline))
    if position == "earliest":
        return (yield from min_offset(instance, queue, deadline))
    if position == "latest":
        return (yield from max_offset(instance, queue, deadline))
    moment = epoch_of(position, "the position")
    return (yield from offset_for_time(instance, queue, moment, group, deadline))


@dataclass(slots=True)
class Cursor:
    """Where a queue stands."""

    queue: MessageQueue
    next: int
    end: int | None
    pulls: QueuePulls
    #: Whether the broker itself told the end: what is before it was there.
    is_end_told: bool = False
    failing_since: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the end is reached."""
        return self.end is not None and self.next >= self.end


class Reading:
    """One pass over some queues."""

    def __init__(
        self,
        instance: Instance,
        *,
        group: str,
        tags: TagFilter,
        follow: bool,
        batch: int = 32,
        request_timeout: float = 10.0,
        expected: tuple[str, ...] | int | None = None,
    ) -> None:
        self._instance = instance
        self._group = group
        self._tags = tags
        self._follow = follow
        self._batch = batch
        self._timeout = request_timeout
        self._expected = expected
        self._pause = _FIRST_PAUSE
        self.cursors: list[Cursor] = []
        #: Corrections of the broker that nobody was told of yet.
        self.moves: list[Fetched] = []

    def begin(
        self,
        topic: str,
        queues: Sequence[MessageQueue] | None,
        start: Position,
        end: Position | None,
    ) -> Op[None]:
        """Find out where each queue starts and ends."""
        instance = self._instance
        deadline = instance.clock() + self._timeout
        chosen = queues or (yield from complete_queues(instance, topic, deadline, self._expected))
        for queue in chosen:
            deadline = instance.clock() + self._timeout
            first = yield from resolve(instance, queue, start, self._group, deadline)
            last: int | None = None
            if not self._follow:
                last = yield from resolve(
                    instance, queue, "latest" if end is None else end, self._group, deadline
                )
            pulls = QueuePulls(instance, queue, self._group, self._tags)
            told = last is not None and not isinstance(end, Mapping)
            self.cursors.append(Cursor(queue, first, last, pulls, told))

    @property
    def is_over(self) -> bool:
        """Whether every queue has reached its end."""
        return all(cursor.is_over for cursor in self.cursors)

    def next_messages(self) -> Op[list[StoredMessage]]:
        """The next messages of all queues; an empty list when there are none just now.

        Waits a little before it says so: for longer each time.

        Raises:
            TransportError: a queue could not be read for a long time.
            MissingQueuesError: a queue ends before the end that it had, and stays so.
        """
        instance = self._instance
        open_cursors = [cursor for cursor in self.cursors if not cursor.is_over]
        deadline = instance.clock() + self._timeout
        calls = []
        for cursor in open_cursors:
            count = self._batch
            if cursor.end is not None:
                count = min(count, cursor.end - cursor.next)
            address = yield from address_of(instance, cursor.queue, deadline)
            calls.append(Invoke(address, cursor.pulls.request(cursor.next, count), deadline))
        replies = yield from invoke_all(tuple(calls))
        before = [cursor.next for cursor in open_cursors]
        found: list[StoredMessage] = []
        for cursor, reply in zip(open_cursors, replies, strict=True):
            found += self._take(cursor, reply)
        if found or before != [cursor.next for cursor in open_cursors]:
            self._pause = _FIRST_PAUSE
        elif any(cursor.failing_since is not None for cursor in open_cursors):
            yield from sleep(instance.clock() + _PAUSE)
        elif not self.is_over:
            yield from sleep(instance.clock() + self._pause)
            self._pause = min(self._pause * _GROWTH, _LONGEST_PAUSE)
        return found

    def _take(self, cursor: Cursor, reply: Reply | RocketMQError) -> Sequence[StoredMessage]:
        try:
            if not isinstance(reply, Reply):
                raise reply
            fetched = read_pull(
                reply,
                cursor.queue,
                cursor.next,
                self._tags,
                namespace=self._instance.config.namespace,
            )
        except (TransportError, BrokerError, ProtocolError) as error:
            self._bear(cursor, error)
            return []
        if fetched.moved_from is not None:
            self.moves.append(fetched)
            _log.warning(
                "%s: offset %d is gone, the broker has %d to %d; going on at %d",
                cursor.queue,
                fetched.moved_from,
                fetched.min_offset,
                fetched.max_offset,
                fetched.next_offset,
                extra=about(offset=fetched.moved_from),
            )
        elif self._tags.is_all and fetched.next_offset - cursor.next > len(fetched.messages):
            _log.warning(
                "%s: of the offsets %d to %d only %d are there; going on at %d (the others are gone, "
                "unless the topic is compacted)",
                cursor.queue,
                cursor.next,
                fetched.next_offset - 1,
                len(fetched.messages),
                fetched.next_offset,
                extra=about(offset=cursor.next),
            )
        cursor.next = fetched.next_offset
        if (
            fetched.moved_from is None
            and not fetched.messages
            and cursor.next >= fetched.max_offset
            and cursor.end is not None
            and cursor.next < cursor.end
        ):
            if cursor.is_end_told:
                # A slave that is behind its master, or a queue that is written this very moment.
                self._bear(cursor, _shortened(cursor.queue, cursor.end, fetched.max_offset))
                return []
            cursor.end = cursor.next  # the caller named an end that is not there yet
        cursor.failing_since = None
        messages, end = fetched.messages, cursor.end
        if end is None or not messages or messages[-1].offset < end:  # of all pulls but the last
            return messages
        return [message for message in messages if message.offset < end]

    def _bear(self, cursor: Cursor, error: RocketMQError) -> None:
        """A queue could not be read. Brokers die and return: try again, for a while."""
        if isinstance(error, PermissionDeniedError) and not self._follow:
            raise error  # waiting gives nobody a right
        now = self._instance.clock()
        self._instance.route_wake_up.wake()
        if cursor.failing_since is None:
            cursor.failing_since = now
            _log.warning(
                "%s can't be read, trying again: %s",
                cursor.queue,
                error,
                extra=about(offset=cursor.next),
            )
        elif not self._follow and now - cursor.failing_since > _PATIENCE:
            raise error


def _shortened(queue: MessageQueue, end: int, now: int) -> MissingQueuesError:
    return MissingQueuesError(
        f"{queue}: it ends at {now} and ended at {end} when the read began, so messages would be missing: a slave that "
        "is behind answers for its master, or the broker has lost its last messages. Read again when the "
        f"master is back; end={{queue: {now}}} reads what is there",
        (queue,),
    )
