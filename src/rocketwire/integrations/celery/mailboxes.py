"""Queues of one consumer: replies, events, remote control, broadcasts.

Such a queue has no topic of its own: thousands of clients would each leave one behind. It remembers
where the topics of its exchanges ended when it was declared, reads them from there, and takes what is
addressed to it. All declarations of a queue in one process share one mailbox, because Celery may declare
a queue on one connection and consume it on another.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from rocketwire import MessageQueue, Reader, StoredMessage, TransportError

#: Mailboxes that a process keeps: the oldest one that is not read goes first.
_MOST_MAILBOXES: Final = 10_000
_AT_ONCE: Final = 32
#: Seconds between two looks into a mailbox.
_PAUSE: Final = 0.1

Fits = Callable[[str], bool]


def tag_of(routing_key: str) -> str:
    """A routing key as a tag, by which brokers leave out what is for others."""
    return f"{crc32(routing_key.encode()):08x}"


@dataclass
class Source:
    """A topic that a mailbox reads.

    Attributes:
        topic: its name.
        fits: whether a routing key is one of the mailbox's.
        tag: what brokers filter by; None: everything is looked at.
        offsets: where to go on.
    """

    topic: str
    fits: Fits
    tag: str | None = None
    offsets: dict[MessageQueue, int] = field(default_factory=dict)

    def begin(self, reader: Reader) -> None:
        """Begin behind what is there now."""
        self.offsets = {queue: reader.max_offset(queue) for queue in reader.queues(self.topic)}

    def read(self, reader: Reader) -> list[StoredMessage]:
        """What came since the last time."""
        found: list[StoredMessage] = []
        for queue in reader.queues(self.topic):
            # A queue that was not there is read from its beginning: all of it came since.
            offset = self.offsets.get(queue, 0)
            try:
                fetched = reader.fetch(queue, offset, _AT_ONCE, tags=self.tag)
            except TransportError:
                # One broker that is away must not keep the messages of the others.
                continue
            self.offsets[queue] = fetched.next_offset
            found += [
                message
                for message in fetched.messages
                if self.fits(str((message.properties or {}).get("kombuRoutingKey", "")))
            ]
        return found


class Mailbox:
    """What a queue of one consumer reads.

    Args:
        expires: seconds after which one that is not read is forgotten; None: never.
    """

    def __init__(self, expires: float | None) -> None:
        self.expires = expires
        self.sources: dict[tuple[str, str], Source] = {}
        self._waiting: deque[StoredMessage] = deque()
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._next_look = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it was not read for longer than it may be."""
        return self.expires is not None and time.monotonic() - self._looked_at > self.expires

    def add(self, key: str, source: Source, reader: Reader) -> None:
        """Read one more topic, from its end; nothing new if it is read already."""
        with self._lock:
            if (source.topic, key) not in self.sources:
                source.begin(reader)
                self.sources[source.topic, key] = source

    def take(self, reader: Reader) -> StoredMessage | None:
        """The next message, if there is one."""
        with self._lock:
            now = time.monotonic()
            self._looked_at = now
            if not self._waiting and now >= self._next_look:
                for source in self.sources.values():
                    self._waiting.extend(source.read(reader))
                if not self._waiting:
                    self._next_look = time.monotonic() + _PAUSE
            return self._waiting.popleft() if self._waiting else None

    def clear(self, reader: Reader) -> int:
        """Forget what was not taken; returns how many."""
        count = 0
        self._next_look = 0.0
        while self.take(reader) is not None:
            count += 1
        return count


class Mailboxes:
    """The mailboxes of a process, by cluster and queue."""

    def __init__(self) -> None:
        self._all: OrderedDict[tuple[str, str], Mailbox] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, cluster: str, queue: str, expires: float | None) -> Mailbox:
        """The mailbox of a queue; a new one unless there is one that is still good."""
        with self._lock:
            found = self._all.get((cluster, queue))
            if found is None or found.is_over:
                found = self._all[cluster, queue] = Mailbox(expires)
            self._all.move_to_end((cluster, queue))
            while len(self._all) > _MOST_MAILBOXES:
                self._all.popitem(last=False)
            return found

    def get(self, cluster: str, queue: str) -> Mailbox | None:
        """The mailbox of a queue, if it has one."""
        return self._all.get((cluster, queue))

    def forget(self, cluster: str, queue: str) -> bool:
        """Be done with a mailbox; False if there is none."""
        with self._lock:
            return self._all.pop((cluster, queue), None) is not None


#: Of this process.
MAILBOXES: Final = Mailboxes()
