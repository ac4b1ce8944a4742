"""Reading a whole topic of a real broker: our ``read_table`` beside Java's pull loop, in one run.

``python -m bench.pull_race [--rows N] [--rounds N]``. The broker is Apache RocketMQ 5.3.3 with its
default cap of 32 messages a reply. Java reads queue by queue with one thread and with four; the
better counts. Both look at keys and bodies.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pyarrow as pa

from bench.foreign import VERSION, ForeignClient, java_client
from rocketwire.columns import read_table, send_table
from rocketwire.sync.producer import Producer
from rocketwire.sync.reader import Reader

TOPIC = "bench-pull"
QUEUES = 4
TARGET = 1.3
_CHUNK = 100_000


def race(rows: int, rounds: int) -> dict[str, float]:
    """Messages a second of each way, the median of some rounds."""
    from tests.real.apache import ApacheCluster

    jvm = ("-XX:+UseG1GC", "-Xms512m", "-Xmx512m")
    with ApacheCluster(VERSION, brokers=1, jvm=jvm) as cluster:
        cluster.create_topic(TOPIC, QUEUES)
        stored = fill(cluster.name_server, rows)
        with (
            Reader(cluster.name_server) as reader,
            java_client(cluster.name_server, "BenchPull") as java,
        ):
            ways: dict[str, Callable[[], int]] = {
                "java, one thread": lambda: java_reads(java, rows, 1),
                "java, four threads": lambda: java_reads(java, rows, 4),
                "read_table, keys and body": lambda: we_read(reader, ["keys", "body"]),
                "read_table, all columns": lambda: we_read(reader, None),
            }
            return compare(ways, stored, rounds)


def fill(name_server: str, rows: int) -> int:
    """Messages of 200 bytes with a key; returns how many are there."""
    body = pa.array([b"x" * 200] * _CHUNK, pa.binary())
    with Producer(name_server, group="fill") as producer:
        for first in range(0, rows, _CHUNK):
            keys = [f"order-{number:09d}" for number in range(first, first + _CHUNK)]
            send_table(producer, pa.table({"body": body, "keys": keys}), TOPIC)
    with Reader(name_server) as reader:
        return settled(reader, rows)


def settled(reader: Reader, rows: int) -> int:
    """How many messages there are, once a broker has made all that it stored readable.

    It does that behind its answers; and a frame may be there twice.
    """
    before = -1
    while True:
        queues = reader.queues(TOPIC)
        count = sum(reader.max_offset(queue) - reader.min_offset(queue) for queue in queues)
        if count >= rows and count == before:
            return count
        before = count
        time.sleep(0.5)


def java_reads(java: ForeignClient, rows: int, threads: int) -> int:
    return java.run("pull", TOPIC, rows, threads=threads).messages


def we_read(reader: Reader, columns: list[str] | None) -> int:
    return int(read_table(reader, TOPIC, columns=columns).num_rows)


def compare(ways: dict[str, Callable[[], int]], stored: int, rounds: int) -> dict[str, float]:
    """All ways in turn; whoever reads another number of messages is wrong, not fast."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            count = way()
            seconds = time.perf_counter() - began
            if count != stored:
                raise RuntimeError(f"{name} read {count} messages of {stored}")
            if number:  # the first round only warms up
                rates[name].append(count / seconds)
    return {name: median(found) for name, found in rates.items()}


def verdict(rates: dict[str, float]) -> dict[str, Any]:
    """How many times Java's better way we are."""
    java = max(rate for name, rate in rates.items() if name.startswith("java"))
    return {name: rate / java for name, rate in rates.items() if not name.startswith("java")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rates = race(chosen.rows, chosen.rounds)
    for name, rate in rates.items():
        print(f"{name:28} {rate:>12,.0f} messages/s")
    for name, times in verdict(rates).items():
        word = "held" if times >= TARGET else "missed"
        print(f"{name} / java's better way: {times:.2f} (at least {TARGET}) {word}")
    print(json.dumps({name: round(rate) for name, rate in rates.items()}))


if __name__ == "__main__":
    main()
