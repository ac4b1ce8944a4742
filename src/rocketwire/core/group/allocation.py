"""How the members of a group share queues: Java's strategies to the letter.

Every member computes the whole split for itself from the same two sorted lists, so a group agrees
without talking, Java members included, as long as all use one strategy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import md5
from typing import Final, TypeAlias

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue

#: ``(own id, all queues sorted, all member ids sorted) -> own queues``.
Allocation: TypeAlias = Callable[
    [str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]
]

#: Points that a member has on the ring of the consistent hash, as in Java.
_POINTS: Final = 10


def java_order(text: str) -> bytes:
    """A sort key that orders as Java compares strings: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def average(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> Sequence[MessageQueue]:
    """Neighbouring queues for each member; the first members get one more when it does not fit."""
    if client_id not in members:
        return ()
    index = members.index(client_id)
    count, rest = divmod(len(queues), len(members))
    start = index * count + min(index, rest)
    return queues[start : start + count + (1 if index < rest else 0)]


def average_by_circle(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> Sequence[MessageQueue]:
    """Queues dealt out one by one, so that each member has some of every broker."""
    if client_id not in members:
        return ()
    return queues[members.index(client_id) :: len(members)]


def on_hash_ring(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> Sequence[MessageQueue]:
    """Queues by their place on a ring: few of them move when a member comes or goes."""
    if client_id not in members:
        return ()
    # Later points win where two coincide, as in Java's map.
    ring = {_ring_hash(f"{member}-{n}"): member for member in members for n in range(_POINTS)}
    places = sorted(ring)

    def owner(queue: MessageQueue) -> str:
        name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.id}]"
        found = bisect_left(places, _ring_hash(name))
        return ring[places[found % len(places)]]

    return tuple(queue for queue in queues if owner(queue) == client_id)


def _ring_hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


_BY_NAME: Final[dict[str, Allocation]] = {
    "average": average,
    "average-by-circle": average_by_circle,
    "consistent-hash": on_hash_ring,
}


def allocation_named(name: str | Allocation) -> Allocation:
    """A strategy by its name; a function of one's own is taken as it is.

    Raises:
        ConfigError: there is none of that name.
    """
    if callable(name):
        return name
    found = _BY_NAME.get(name.replace("_", "-").lower())
    if found is None:
        raise ConfigError(
            f"allocation is {name!r}: one of {', '.join(_BY_NAME)}, or a function "
            "(own id, queues, member ids) -> own queues"
        )
    return found
