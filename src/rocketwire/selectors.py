"""The queue selectors.

Give one to a send, or to a producer as its default strategy. ``best_queue``, ``round_robin``,
``random_queue`` and ``machine_room(...)`` are asked again for each retry; ``hash_queue`` and
``consistent_hash`` pin a message to the queue of its key.

>>> near = machine_room({"broker-a": "room-1", "broker-b": "room-2"}, prefer="room-1")
>>> near.pins
False
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from rocketwire.core.faults.selection import (
    QueueList,
    Selector,
    best_queue,
    hash_queue,
    key_of,
    prefer_untried,
)
from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.message import Message, MessageQueue
from rocketwire.wire.java_hash import java_long

__all__ = [
    "QueueList",
    "Selector",
    "best_queue",
    "consistent_hash",
    "hash_queue",
    "java_long",
    "machine_room",
    "named",
    "random_queue",
    "round_robin",
]

#: Points on the ring for each queue: the shares then differ by some 10 %.
_POINTS: Final = 128


def round_robin(queues: QueueList, message: Message, argument: Any = None) -> MessageQueue:
    """All queues in turn, whatever the fault policy thinks of their brokers.

    A retry avoids the brokers that failed.
    """
    pool = prefer_untried(queues.all, queues.failed)
    return pool[queues.next_index() % len(pool)]


def random_queue(queues: QueueList, message: Message, argument: Any = None) -> MessageQueue:
    """Any queue, each as likely as another, whatever the fault policy thinks of their brokers.

    A retry avoids the brokers that failed.
    """
    return random.choice(prefer_untried(queues.all, queues.failed))


round_robin.pins = False  # type: ignore[attr-defined]  # functions have attributes, mypy has not
random_queue.pins = False  # type: ignore[attr-defined]


def consistent_hash(queues: QueueList, message: Message, argument: Any = None) -> MessageQueue:
    """A queue by its key, so that few keys move when queues come or go.

    The key is ``argument`` (text, bytes, a whole number or a UUID), else the sharding key. Every
    process chooses the same queue; Java has no such selector.
    """
    key = key_of(message, argument)
    if isinstance(key, bool) or not isinstance(key, (str, bytes, int, UUID)):
        raise InvalidMessageError(
            f"consistent_hash can't use {key!r} as a key: give a str, bytes, int or UUID"
        )
    points, owners = _ring(queues.all)
    at = bisect_right(points, _point(key if isinstance(key, bytes) else str(key).encode()))
    return owners[at % len(owners)]


@lru_cache(maxsize=256)
def _ring(queues: tuple[MessageQueue, ...]) -> tuple[list[int], list[MessageQueue]]:
    # The topic is left out: keys of two topics with the same queues then go together.
    ring = sorted(
        (_point(f"{queue.broker}\0{queue.id}\0{number}".encode()), queue)
        for queue in queues
        for number in range(_POINTS)
    )
    return [point for point, _ in ring], [queue for _, queue in ring]


def _point(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Queues of brokers in the preferred room, in turn; others only when none there is usable."""

    rooms: Mapping[str, str] = field(hash=False)
    prefer: str

    @property
    def pins(self) -> bool:
        """False: a retry may go elsewhere."""
        return False

    def __call__(
        self,
        queues: QueueList,
        message: Message,
        argument: Any = None,
    ) -> MessageQueue:
        """Choose a queue."""
        usable, failed = queues.usable, queues.failed
        near = tuple(
            queue
            for queue in usable
            if self.rooms.get(queue.broker) == self.prefer and queue.broker not in failed
        )
        pool = near or prefer_untried(usable, failed)
        return pool[queues.next_index() % len(pool)]


def machine_room(rooms: Mapping[str, str], *, prefer: str) -> MachineRoom:
    """A selector that stays within a room while a broker there is usable.

    Args:
        rooms: the room of each broker by name; brokers that are missing belong to no room.
        prefer: the room to stay in.

    Raises:
        ConfigError: no broker is in the preferred room, or the mapping holds something else
            than text.
    """
    if not _is_text_by_text(rooms):
        raise ConfigError(
            f"machine_room: rooms is {rooms!r}; give rooms by broker name, "
            "e.g. {'broker-a': 'room-1'}"
        )
    if prefer not in rooms.values():
        known = ", ".join(sorted(set(rooms.values()))) or "none"
        raise ConfigError(
            f"machine_room: prefer is {prefer!r}; no broker is there (rooms: {known})"
        )
    return MachineRoom(dict(rooms), prefer)


def _is_text_by_text(rooms: object) -> bool:
    return isinstance(rooms, Mapping) and all(
        isinstance(text, str) for pair in rooms.items() for text in pair
    )


_NAMED: Final[dict[str, Selector]] = {
    "best_queue": best_queue,
    "round_robin": round_robin,
    "random_queue": random_queue,
    "hash_queue": hash_queue,
    "consistent_hash": consistent_hash,
}


def named(name: str) -> Selector:
    """The selector of a name, for settings that are text.

    Raises:
        ConfigError: there is none.
    """
    try:
        return _NAMED[name]
    except KeyError:
        raise ConfigError(f"selector is {name!r}; it is one of {', '.join(_NAMED)}") from None
