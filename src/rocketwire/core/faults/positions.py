"""Where the round robin over a topic's queues stands."""

from __future__ import annotations

from typing import Final, Protocol

from rocketwire.core.faults.entries import RandomSource

_MASK: Final = 0x7FFFFFFF


class Positions(Protocol):
    """Round-robin positions by topic: one object per thread, or per producer in asyncio."""

    def next(self, topic: str) -> int:
        """The next position, from 0 to 2**31 - 1."""

    def reset(self, topic: str) -> None:
        """Go on from a random position; Java 5 does so before a retry."""


class RoundRobinCounter:
    """Positions that start at random and go up by one. Not for several threads at once.

    Args:
        random: where the start comes from.
    """

    __slots__ = ("_positions", "_random")

    def __init__(self, random: RandomSource) -> None:
        self._random = random.random
        self._positions: dict[str, int] = {}

    def next(self, topic: str) -> int:
        """The next position. Masked, so that it never turns negative as Java's could."""
        try:
            position = (self._positions[topic] + 1) & _MASK
        except KeyError:
            position = int(self._random() * _MASK)
        self._positions[topic] = position
        return position

    def reset(self, topic: str) -> None:
        """Go on from a random position."""
        self._positions[topic] = int(self._random() * _MASK)
