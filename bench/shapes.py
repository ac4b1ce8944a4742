"""What is sent: messages of some shapes, none with the body of another.

A message of RocketMQ's own quick start has a tag and a key, and most real ones have properties. The
bodies are slices of random bytes, each at a place of its own, so that no two are alike; keys and two
of the properties differ as well. Java and Go make theirs in the same way (``java/BenchClient.java``,
``go/main.go``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rocketwire import Message

TAG: Final = "pay"
#: How many sharding keys there are; a prime, so that they do not fall into step with anything.
SHARDS: Final = 997
#: Bytes of a body, unless said otherwise.
USUAL: Final = 200
_PLACES: Final = 1 << 20

Maker = Callable[[int], Message]


@dataclass(frozen=True)
class Shape:
    """Which parts a message has. ``word`` names the shape on a command line."""

    word: str
    name: str
    is_tagged: bool = True
    has_properties: bool = False
    is_sharded: bool = False


BODY: Final = Shape("body", "body only", is_tagged=False)
KEY: Final = Shape("key", "tag + key")
RICH: Final = Shape("rich", "tag + key + 3 properties", has_properties=True)
SHARDED: Final = Shape(
    "sharded", f"{RICH.name} + sharding key", has_properties=True, is_sharded=True
)
SHAPES: Final = {shape.word: shape for shape in (BODY, KEY, RICH, SHARDED)}


def title(contest: str, shape: Shape, size: int) -> str:
    """The name of a contest between paths that all send this."""
    return f"{contest}, {shape.name}" + ("" if size == USUAL else f", {size} B")


@cache
def noise(size: int) -> bytes:
    """Random bytes, the same in every run; a body begins at any of the first million."""
    return random.Random(size).randbytes(_PLACES + size)


def body(number: int, size: int) -> bytes:
    """The body of one message; the next million have other ones."""
    place = number % _PLACES
    return noise(size)[place : place + size]


def maker(shape: Shape, topic: str, size: int, run: int = 1) -> Maker:
    """A function that makes the message of a number, as a program that sends would.

    Args:
        shape: which parts it has.
        topic: where it goes.
        size: bytes of its body.
        run: how many messages in a row have the same sharding key, for lists.
    """
    data, last = noise(size), _PLACES - 1

    def plain(number: int) -> Message:
        place = number & last
        return Message(topic, data[place : place + size])

    def keyed(number: int) -> Message:
        place = number & last
        return Message(topic, data[place : place + size], tags=TAG, keys=f"order-{number}")

    def rich(number: int) -> Message:
        place = number & last
        return Message(
            topic,
            data[place : place + size],
            tags=TAG,
            keys=f"order-{number}",
            properties={"region": "eu-west", "amount": str(number), "trace": f"{number:016x}"},
        )

    def sharded(number: int) -> Message:
        place = number & last
        return Message(
            topic,
            data[place : place + size],
            tags=TAG,
            keys=f"order-{number}",
            properties={"region": "eu-west", "amount": str(number), "trace": f"{number:016x}"},
            sharding_key=f"user-{number // run % SHARDS}",
        )

    if shape.is_sharded:
        return sharded
    return rich if shape.has_properties else keyed if shape.is_tagged else plain


def table(shape: Shape, size: int, count: int) -> Any:
    """The same messages as an Arrow table."""
    import pyarrow as pa

    numbers = range(count)
    columns: dict[str, Any] = {"body": pa.array([body(n, size) for n in numbers], pa.binary())}
    if shape.is_tagged:
        columns |= {"tags": [TAG] * count, "keys": [f"order-{n}" for n in numbers]}
    if shape.has_properties:
        pairs = [
            [("region", "eu-west"), ("amount", str(n)), ("trace", f"{n:016x}")] for n in numbers
        ]
        columns["properties"] = pa.array(pairs, pa.map_(pa.string(), pa.string()))
    if shape.is_sharded:
        columns["shardingKey"] = [f"user-{n % SHARDS}" for n in numbers]
    return pa.table(columns)


def making(make: Maker, numbers: Iterable[int]) -> float:
    """Seconds of CPU for making these messages and nothing else."""
    began = time.thread_time()
    for number in numbers:
        make(number)
    return time.thread_time() - began


def construction(shape: Shape, topic: str, size: int, count: int) -> float:
    """Seconds of CPU for ``Message(...)`` alone: its parts are made before the clock starts."""
    parts = [
        (
            body(n, size),
            f"order-{n}",
            {"region": "eu-west", "amount": str(n), "trace": f"{n:016x}"},
            f"user-{n % SHARDS}",
        )
        for n in range(count)
    ]
    began = time.thread_time()
    if shape.is_sharded:
        for data, key, named, shard in parts:
            Message(topic, data, tags=TAG, keys=key, properties=named, sharding_key=shard)
    elif shape.has_properties:
        for data, key, named, _ in parts:
            Message(topic, data, tags=TAG, keys=key, properties=named)
    elif shape.is_tagged:
        for data, key, _, _ in parts:
            Message(topic, data, tags=TAG, keys=key)
    else:
        for data, _, _, _ in parts:
            Message(topic, data)
    return time.thread_time() - began
