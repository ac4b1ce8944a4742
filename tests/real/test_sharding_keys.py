"""A sharding key leads to the same queue from Java and from us."""

import random
import struct
import uuid
from typing import Any

import pytest
from tests.interop.driver import JavaDriver, message
from tests.real.apache import ApacheCluster
from tests.real.running import unique

from rocketwire import Message, Producer
from rocketwire.selectors import hash_queue
from rocketwire.wire.java_hash import hash_index, java_hash, java_long

_random = random.Random(20_261_115)


def _texts() -> list[str]:
    alphabets = [
        "abcdefghijklmnop0123456789-_",
        "äöüßéèñ",
        "中文字符テスト",
        "😀🚀\U0001d518",
        "\x00\x01\x7f \t",
    ]
    texts = ["", "Aa", "BB", "polygenelubricants", "order-1001"]
    for alphabet in alphabets:
        texts += [
            "".join(_random.choices(alphabet, k=_random.randrange(1, 60))) for _ in range(300)
        ]
    return texts


def _key(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "value": value}


def _pairs(kind: str) -> list[tuple[dict[str, Any], Any]]:
    """What is given to Java, and what is the same key in Python."""
    if kind == "string":
        return [(_key("string", text), text) for text in _texts()]
    if kind == "utf16":
        # Halves of characters beyond the first plane, which only Java's strings can hold alone.
        units = [[_random.randrange(0xD800, 0xE000) for _ in range(5)] for _ in range(300)]
        return [(_key("utf16", each), "".join(map(chr, each))) for each in units]
    if kind == "uuid":
        values = [uuid.UUID(int=_random.getrandbits(128)) for _ in range(500)]
        return [(_key("uuid", str(each)), each) for each in values]
    if kind == "bool":
        return [(_key("bool", "true"), True), (_key("bool", "false"), False)]
    if kind == "double":
        return _doubles()
    bits = {"byte": 8, "short": 16, "int": 32, "long": 64}[kind]
    edges = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    values = edges + [_random.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) for _ in range(1000)]
    wrap = java_long if kind == "long" else int
    return [(_key(kind, str(each)), wrap(each)) for each in values]


def _doubles() -> list[tuple[dict[str, Any], Any]]:
    values = [0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 1e-310]
    values += [struct.unpack(">d", _random.randbytes(8))[0] for _ in range(300)]
    names = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
    return [(_key("double", names.get(repr(each), repr(each))), each) for each in values]


@pytest.mark.parametrize(
    "kind", ["string", "utf16", "byte", "short", "int", "long", "bool", "double", "uuid"]
)
@pytest.mark.parametrize("queues", [1, 4, 7, 16])
def test_hash_and_queue_are_java_s(java: JavaDriver, kind: str, queues: int):
    pairs = _pairs(kind)
    found = java.call("select", queues=queues, keys=[given for given, _ in pairs])
    ours = [[java_hash(value), hash_index(value, queues)] for _, value in pairs]
    wrong = [
        (pair[1], theirs, mine)
        for pair, theirs, mine in zip(pairs, found, ours, strict=True)
        if theirs != mine
    ]
    assert not wrong, f"{len(wrong)} of {len(pairs)} keys differ, as {wrong[:3]}"


def test_messages_of_a_key_meet_in_one_queue(cluster: ApacheCluster, java: JavaDriver, topic: str):
    producer = unique("producer")
    java.call("producer.start", producer=producer, group=producer, name_server=cluster.name_server)
    keys: list[tuple[dict[str, Any], Any]] = [
        pair for kind in ("string", "int", "long", "uuid") for pair in _pairs(kind)[:40]
    ]
    with Producer(cluster.name_server, group=unique("ours")) as ours:
        for given, value in keys:
            theirs = java.call(
                "producer.send", producer=producer, key=given, message=message(topic, "java")
            )
            mine = ours.send(Message(topic, b"ours"), selector=hash_queue, argument=value)
            assert (mine.queue.broker, mine.queue.id) == (theirs["broker"], theirs["queue"]), value
            if isinstance(value, str) and value.strip() and value.isprintable():
                ordered = ours.send(Message(topic, b"ordered", sharding_key=value))
                assert ordered.queue == mine.queue
    java.begin("producer.stop", producer=producer)
