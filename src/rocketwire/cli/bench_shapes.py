"""The messages that ``rocketwire bench --topic`` sends: of some shapes, each with a body of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from rocketwire.message import Message

Maker = Callable[[int], Message]
_PLACES: Final = 1 << 16


class Shape(StrEnum):
    """What a message has: a body alone, tag and key beside it, or three properties as well."""

    BODY = "body"
    KEY = "key"
    RICH = "rich"


def maker(shape: Shape, topic: str, size: int) -> Maker:
    """A function that makes the message of a number."""
    noise = os.urandom(_PLACES + size)

    def make(number: int) -> Message:
        place = number % _PLACES
        body = noise[place : place + size]
        if shape is Shape.BODY:
            return Message(topic, body)
        key = f"order-{number}"
        if shape is Shape.KEY:
            return Message(topic, body, tags="pay", keys=key)
        named = {"region": "eu-west", "amount": str(number), "trace": f"{number:016x}"}
        return Message(topic, body, tags="pay", keys=key, properties=named)

    return make
