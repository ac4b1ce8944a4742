"""What is raised when messages are gone; apart, so that planners need not load what decodes them."""

from __future__ import annotations

from rocketwire.errors import RocketMQError


class DataLossError(RocketMQError):
    """Messages that should have been read are not there any more."""


def what_is_there(first: int, end: int) -> str:
    """What a broker has of a queue, in words."""
    if end <= 0:
        return "the queue is empty: the topic was deleted, or made anew"
    if first >= end:
        return f"the broker has none before {end}: all messages have expired"
    return f"the broker has {first} to {end - 1}"
