"""Messages that were received and not acknowledged yet: who has them, and until when.

Each queue of a group has a mark behind the last message that was given away, and the messages
before it that are out. What is out is invisible; when its time is over it goes to the group's
retry topic, and comes again from there. The offset that the group has committed is that of the
first message that is out, so ordinary tools show what is left.

The state is kept in ``config/pops.json``, on a timer and at a proper end: after a crash, messages of
the last seconds may come twice. Apache keeps it in a topic, which this is not compatible with.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.embedded.json_file import JsonFile
from rocketwire.embedded.parked import read_parked
from rocketwire.embedded.store import StoreError
from rocketwire.embedded.topics import RETRY_PREFIX
from rocketwire.wire.pop import Receipt, retry_topics

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

_log: Final = logging.getLogger("rocketwire.embedded")
_TRY_AGAIN: Final = 1.0
#: Moments of messages that are done with are dropped when there are so many of them.
_SLACK: Final = 4096
_FIRST_POP: Final = "1ST_POP_TIME"

#: Group, topic (the real one) and queue.
Key = tuple[str, str, int]


@dataclass(slots=True)
class PopQueue:
    """How far a group has come in a queue by receiving."""

    next: int
    #: When each message that is out was given, and until when it is invisible, by offset.
    out: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def settled(self) -> int:
        """Everything before this is acknowledged, or has gone to the retry topic."""
        return min(self.out, default=self.next)


class Pops:
    """What is out on one broker."""

    def __init__(self, broker: Broker, path: Path) -> None:
        self._broker = broker
        self._file = JsonFile(path)
        self._queues: dict[Key, PopQueue] = {}
        self._heap: list[tuple[int, Key, int]] = []
        self._out = 0
        self._timer: asyncio.TimerHandle | None = None
        self._dirty = False
        self._running = False
        self._load(self._file.load())

    def _load(self, data: Any) -> None:
        for item in data if isinstance(data, list) else ():
            try:
                key = (str(item["group"]), str(item["topic"]), int(item["queue"]))
                out = {int(k): (int(v[0]), int(v[1])) for k, v in item["out"].items()}
                self._queues[key] = PopQueue(int(item["next"]), out)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                _log.warning("%s: a line of pops.json is not understood", self._broker.name)
                continue
        self._rebuild()

    def _rebuild(self) -> None:
        """Note the moments of what is out, and of nothing else."""
        self._heap = [
            (due, key, offset)
            for key, queue in self._queues.items()
            for offset, (_, due) in queue.out.items()
        ]
        heapq.heapify(self._heap)
        self._out = len(self._heap)

    def start(self) -> None:
        """Begin to bring back what nobody acknowledges."""
        self._running = True
        self._arm()

    def stop(self) -> None:
        """Bring nothing back any more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Giving away

    def queue(self, key: Key, *, from_first: bool) -> PopQueue:
        """The state of a queue, which begins where the group has committed."""
        broker = self._broker
        group, topic, queue_id = key
        moved = broker.offsets.take_reset(group, topic, queue_id)
        committed = broker.offsets.get(group, topic, queue_id)
        found = self._queues.get(key)
        if found is None or moved is not None:
            begin = committed
            if begin is None:
                stored = broker.store.queues.get(topic, queue_id)
                first = from_first or topic.startswith(RETRY_PREFIX)
                begin = 0 if stored is None else stored.minimum if first else stored.maximum
            self._out -= len(found.out) if found is not None else 0
            found = self._queues[key] = PopQueue(begin)
            self._settle(key, found)
        elif committed is not None and committed > found.next:
            # An operator set it by hand.
            found.next = committed
        return found

    def give(self, key: Key, queue: PopQueue, offsets: list[int], next_offset: int,
             now: int, invisible_ms: int) -> None:  # fmt: skip
        """Messages go out, invisible for so long."""
        for offset in offsets:
            queue.out[offset] = (now, now + invisible_ms)
            heapq.heappush(self._heap, (now + invisible_ms, key, offset))
        self._out += len(offsets)
        if len(self._heap) > 2 * self._out + _SLACK:
            self._rebuild()
        queue.next = next_offset
        self._settle(key, queue)
        self._arm()

    def acknowledge(self, group: str, topic: str, receipt: Receipt) -> None:
        """A message is done with; a receipt that does not count any more changes nothing."""
        key = (group, topic, receipt.queue_id)
        queue = self._queues.get(key)
        if queue is not None and self._counts(queue, receipt):
            del queue.out[receipt.offset]
            self._out -= 1
            self._settle(key, queue)

    def change(self, group: str, topic: str, receipt: Receipt, invisible_ms: int) -> int | None:
        """A message stays invisible for so long from now on; None if its receipt does not count.

        Returns:
            The time that the new receipt bears.
        """
        key = (group, topic, receipt.queue_id)
        queue = self._queues.get(key)
        if queue is None or not self._counts(queue, receipt):
            return None
        # A later time than before, so that the old receipt does not count any more.
        now = max(self._broker.clock_ms(), receipt.pop_ms + 1)
        queue.out[receipt.offset] = (now, now + invisible_ms)
        heapq.heappush(self._heap, (now + invisible_ms, key, receipt.offset))
        self._dirty = True
        self._arm()
        return now

    def _counts(self, queue: PopQueue, receipt: Receipt) -> bool:
        return queue.out.get(receipt.offset, (None, 0))[0] == receipt.pop_ms

    def _settle(self, key: Key, queue: PopQueue) -> None:
        self._broker.offsets.put(*key, queue.settled)
        self._dirty = True

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is deleted."""
        for key in [k for k in self._queues if k[1] == topic or k[0] == group]:
            self._out -= len(self._queues.pop(key).out)
            self._dirty = True

    # Bringing back

    def seconds_left(self) -> float | None:
        """Until a message that is out comes back; None when none is."""
        self._drop_settled()
        if not self._heap:
            return None
        return max((self._heap[0][0] - self._broker.clock_ms()) / 1000, 0.0)

    def _drop_settled(self) -> None:
        while self._heap:
            due, key, offset = self._heap[0]
            queue = self._queues.get(key)
            if queue is not None and queue.out.get(offset, (0, -1))[1] == due:
                return
            heapq.heappop(self._heap)

    def _arm(self, at_least: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = self.seconds_left() if self._running else None
        if left is not None:
            self._timer = self._broker.loop.call_later(max(left, at_least), self.do_due)

    def do_due(self) -> int:
        """Bring back all whose time is over; returns how many there were."""
        done = 0
        try:
            while self.seconds_left() == 0:
                _, key, offset = self._heap[0]
                self._bring_back(key, offset)
                done += 1
        except StoreError as error:
            _log.warning("%s: a received message has to wait: %s", self._broker.name, error)
            self._arm(_TRY_AGAIN)
            return done
        self._arm()
        return done

    def _bring_back(self, key: Key, offset: int) -> None:
        """Store a message again in the retry topic, and be done with the old one."""
        broker, (group, topic, queue_id), queue = self._broker, key, self._queues[key]
        stored = broker.store.queues.get(topic, queue_id)
        unit = stored.unit(offset) if stored is not None else None
        record = broker.store.record_at(unit[0]) if unit is not None else None
        if record is not None:
            parked = read_parked(record)
            draft = parked.draft
            if not topic.startswith(RETRY_PREFIX):
                draft.topic = retry_topics(topic, group)[broker.options.retry_topic_v2]
            draft.queue_id = 0
            draft.reconsume_times += 1
            if _FIRST_POP not in parked.properties:
                parked.note(_FIRST_POP, str(queue.out[offset][0]))
            if broker.topics.get(draft.topic) is None:
                broker.topics.make_parked(draft.topic)
                broker.topics_changed()
            broker.put(draft)
        del queue.out[offset]
        self._out -= 1
        self._settle(key, queue)

    def save(self) -> None:
        """Write the file if anything has changed."""
        if self._dirty:
            self._file.save(
                [
                    {"group": k[0], "topic": k[1], "queue": k[2], "next": q.next, "out": q.out}
                    for k, q in self._queues.items()
                ]
            )
            self._dirty = False
