"""``python -m bench.middleware``: what a middleware adds to each message, in microseconds of CPU.

At the end of every chain stands a client that does nothing, so that the figures are those of the
chain alone. Paths are interleaved in rounds; the figure is the smallest, which other programs on
the machine disturb least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketwire import Message, MessageQueue, SendResult, SendStatus
from rocketwire.aio.surround import SurroundedSends as AsyncSends
from rocketwire.sync.surround import SurroundedSends
from rocketwire.system.surrounded_handler import surround, surround_async
from rocketwire.wire.lazy_message import messages_in
from rocketwire.wire.stored_message import encode_record

#: Microseconds that an empty middleware may add to a send.
GOAL = 2.0
RESULT = SendResult(SendStatus.OK, "A1", "B1", MessageQueue("orders", "broker-a", 0), 7)
MESSAGE = Message("orders", b"x" * 200, tags="paid", keys="order-42")

Measured = Callable[[int], float]


class _Config:
    group = "bench"


class Still:
    """A blocking producer, or consumer, that does nothing."""

    client_id = "bench"
    _config = _Config()

    def send(self, message: Message, **_: Any) -> SendResult:
        return RESULT


class StillLater(Still):
    """One of asyncio."""

    async def send(self, message: Message, **_: Any) -> SendResult:  # type: ignore[override]
        return RESULT


def empty(message: Any, call_next: Any) -> Any:
    return call_next(message)


async def empty_later(message: Any, call_next: Any) -> Any:
    return await call_next(message)


def replacing(message: Any, call_next: Any) -> Any:
    return call_next(message.replace(properties={"stamp": "yes"}))


async def replacing_later(message: Any, call_next: Any) -> Any:
    return await call_next(message.replace(properties={"stamp": "yes"}))


def _stored() -> Any:
    properties = b"KEYS\x01order-42\x02TAGS\x01paid\x02UNIQ_KEY\x01A1\x02"
    (message,) = messages_in(
        encode_record(topic="orders", body=b"x" * 200, properties=properties), broker="broker-a"
    )
    return message


def blocking_send(*layers: Any) -> Measured:
    client: Any = Still()
    send = SurroundedSends(client, layers).send if layers else client.send

    def run(count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            send(MESSAGE)
        return time.process_time() - began

    return run


def awaited_send(*layers: Any) -> Measured:
    client: Any = StillLater()
    send = AsyncSends(client, layers).send if layers else client.send

    async def main(count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            await send(MESSAGE)
        return time.process_time() - began

    return lambda count: asyncio.run(main(count))


def handler(*layers: Any) -> Measured:
    message = _stored()
    call = surround(Still(), layers, lambda _: None) if layers else lambda _: None

    def run(count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            call(message)
        return time.process_time() - began

    return run


def awaited_handler(*layers: Any) -> Measured:
    message = _stored()

    async def handle(_: Any) -> None:
        return None

    call = surround_async(StillLater(), layers, handle) if layers else handle

    async def main(count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            await call(message)
        return time.process_time() - began

    return lambda count: asyncio.run(main(count))


def telemetry() -> dict[str, Any]:
    """OpenTelemetry without and with an SDK; nothing where it is not installed."""
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider

        from rocketwire.integrations.opentelemetry import OpenTelemetry
    except ModuleNotFoundError:
        return {}
    sdk = OpenTelemetry(TracerProvider(), MeterProvider([InMemoryMetricReader()]))
    return {"OpenTelemetry, no SDK": OpenTelemetry(), "OpenTelemetry, SDK": sdk}


def paths() -> dict[str, dict[str, Measured]]:
    """Each contest with its ways; the first is without any middleware."""
    found = {
        "send": {
            "none": blocking_send(),
            "empty": blocking_send(empty),
            "three empty": blocking_send(empty, empty, empty),
            "replacing the message": blocking_send(replacing),
        },
        "await send": {
            "none": awaited_send(),
            "empty": awaited_send(empty_later),
            "three empty": awaited_send(empty_later, empty_later, empty_later),
            "replacing the message": awaited_send(replacing_later),
        },
        "handler": {"none": handler(), "empty": handler(empty)},
        "await handler": {"none": awaited_handler(), "empty": awaited_handler(empty_later)},
    }
    makers = (blocking_send, awaited_send, handler, awaited_handler)
    for name, layer in telemetry().items():
        for contest, make in zip(found.values(), makers, strict=True):
            contest[name] = make(layer)
    return found


def measure(count: int, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds that each way adds to a message."""
    added: dict[str, dict[str, float]] = {}
    for contest, ways in paths().items():
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(rounds):
            for name, run in ways.items():
                best[name] = min(best[name], run(count) / count * 1e6)
        added[contest] = {n: best[n] - best["none"] for n in ways if n != "none"}
    return added


def main(words: list[str] | None = None) -> int:
    """Measure and print; 1 if an empty middleware costs more than its goal."""
    parser = argparse.ArgumentParser(prog="python -m bench.middleware", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    chosen = parser.parse_args(words)
    added = measure(chosen.count, chosen.rounds)
    for contest, ways in added.items():
        for name, microseconds in ways.items():
            print(f"{contest:<14} {name:<24} {microseconds:8.2f} µs")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(added, indent=1) + "\n")
    worst = max(ways["empty"] for ways in added.values())
    is_held = worst < GOAL
    print(f"an empty one: {worst:.2f} µs, goal {GOAL:.1f}: {'held' if is_held else 'missed'}")
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
