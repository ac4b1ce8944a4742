"""Bare sockets with constant bytes: what Python costs when a client does nothing at all.

The bytes are as many as our producer writes for messages of the same shape, made once. The opaque
number is the same in every frame, which no server minds.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.samples import Sample, Stopwatch
from bench.shapes import Maker
from rocketwire.wire.send_request import SendTemplate, born_field, send_fields

_READ = 64 * 1024
_length = struct.Struct(">I")
#: Of one message in a batch: its size, two numbers that brokers fill in, its flag, the size of its body.
_item_head = struct.Struct(">i8xii")
_short = struct.Struct(">h")


def properties(make: Maker) -> bytes:
    """What the messages of a shape carry beside their body, as it travels."""
    message = make(100_000)
    named: dict[str, str] = {"KEYS": str(message.keys)} if message.keys else {}
    named |= {"TAGS": message.tags} if message.tags else {}
    named |= dict(message.properties)
    named |= {"__SHARDINGKEY": message.sharding_key} if message.sharding_key else {}
    named["UNIQ_KEY"] = "7F00000100012A9F00000000000000FF"
    return "".join(f"{name}\x01{value}\x02" for name, value in named.items()).encode()


def frame(broker: str, make: Maker, *, batch: int = 0) -> bytes:
    """A send request of one message, or of a batch of that many."""
    message = make(0)
    topic, body, carried = message.topic, bytes(message.body), properties(make)
    fields = send_fields(
        group="bench",
        topic=topic,
        default_topic="TBW102",
        default_queues=4,
        queue_id=0,
        broker=broker,
        batch=bool(batch),
    )
    if batch:
        head = _item_head.pack(22 + len(body) + len(carried), 0, len(body))
        body = (head + body + _short.pack(len(carried)) + carried) * batch
        carried = b""
    born_ms = int(time.time() * 1000)
    return SendTemplate(fields).head(1, 0, 0, 0, born_field(born_ms), carried, len(body)) + body


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """A plain socket to a broker."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def ping_pong(address: str, data: bytes, count: int, pause: float = 0.0) -> Sample:
    """Write, read, write, read.

    Args:
        address: the broker's.
        data: one request.
        count: how many of them.
        pause: seconds between an answer and the next request, as a client has that does anything at
            all. They are not counted, but a broker's threads go to sleep in them.
    """
    latencies: list[float] = []
    clock = time.perf_counter
    with connected(address) as sock:
        sock.settimeout(None)  # a time-out would cost a poll for each call
        send, receive = sock.send, sock.recv
        with Stopwatch() as watch:
            for _ in range(count):
                began = clock()
                send(data)
                receive(_READ)
                answered = clock()
                latencies.append(answered - began)
                while clock() - answered < pause:
                    pass
    return watch.sample(count, latencies)


def pipelined(address: str, data: bytes, count: int, *, window: int, each: int = 1) -> Sample:
    """Keep up to ``window`` frames unanswered; answers are counted by their length fields."""
    with connected(address) as sock:
        sock.settimeout(None)
        send, receive = sock.sendall, sock.recv
        unpack = _length.unpack_from
        written = answered = 0
        rest = b""
        with Stopwatch() as watch:
            while answered < count:
                room = min(window - (written - answered), count - written)
                if room:
                    send(data * room)
                    written += room
                rest += receive(_READ)
                position, end = 0, len(rest)
                while end - position >= 4:
                    after = position + 4 + unpack(rest, position)[0]
                    if after > end:
                        break
                    position = after
                    answered += 1
                rest = rest[position:]
    return watch.sample(count * each)
