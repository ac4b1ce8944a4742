"""Queues, by which messages, results and selectors name where something is."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. The order of the fields is Java's sort order."""

    topic: str
    broker: str
    id: int
