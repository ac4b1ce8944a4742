"""How long each asyncio call keeps its event loop from everything else: ``python -m bench.pauses``.

A timer that is due every millisecond runs beside the call. How late it comes is how long any other
task of the program would have waited; every due moment counts, also those that passed during one
pause, so that p99.9 is what a task that wakes at any moment sees. The first line is a loop with
nothing to do: what the clock and the machine add to all others. Messages are made before the clock
starts. The servers only answer (``acker.c``, ``pull_server.c``).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench import consuming, report
from bench.acker import acker
from bench.ours import run_loop
from bench.pull_server import pull_server
from bench.shapes import RICH, maker
from rocketwire import AsyncConsumer, AsyncProducer, AsyncReader, Message

TOPIC: Final = "bench"
_STEP: Final = 0.001
_PRODUCER: Final[dict[str, Any]] = {"group": "bench", "send_timeout": 30.0}
_LARGE: Final = 3_000_000
#: Seconds that a call is repeated, so that one moment in a thousand is one that was seen.
_LEAST: Final = 1.2


class Metronome:
    """A timer that is due every millisecond, and knows by how much it came late."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self.late: list[float] = []

    def start(self) -> None:
        """Begin to count."""
        self._due = self._clock() + _STEP
        self._handle = asyncio.get_running_loop().call_later(_STEP, self._beat)

    def stop(self) -> None:
        """Count what is late now, and no more."""
        if self._handle is not None:
            self._handle.cancel()
        self.count(self._clock())

    def _beat(self) -> None:
        now = self._clock()
        self.count(now)
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(max(0.0, self._due - now), self._beat)

    def count(self, now: float) -> None:
        """Every moment that has become due was late by as much as it is past."""
        while self._due <= now:
            self.late.append(now - self._due)
            self._due += _STEP


@dataclass(frozen=True)
class Pause:
    """The longest pause, the one that one moment in a thousand sees, and how long a call takes."""

    longest: float
    p999: float
    seconds: float


def judge(late: Sequence[float], seconds: float) -> Pause:
    """What a metronome heard."""
    ordered = sorted(late) or [0.0]
    return Pause(ordered[-1], ordered[min(len(ordered) - 1, len(ordered) * 999 // 1000)], seconds)


async def _watched(call: Callable[[], Awaitable[Any]], least: float | None = None) -> Pause:
    """Run a call beside a metronome, again and again until it has beaten often enough."""
    least = _LEAST if least is None else least
    gc.collect()
    gc.freeze()  # what the benchmark itself holds is not looked through
    metronome = Metronome()
    metronome.start()
    await asyncio.sleep(5 * _STEP)
    began, times = time.perf_counter(), 0
    while times == 0 or time.perf_counter() - began < least:
        await call()
        times += 1
    seconds = (time.perf_counter() - began) / times
    metronome.stop()
    gc.unfreeze()
    return judge(metronome.late, seconds)


@cache
def _text(size: int) -> str:
    """Words, which can be compressed as real text can."""
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(3000)]
    return " ".join(chance.choices(words, k=size // 5))[:size]


@cache
def _messages(count: int, size: int = 200) -> list[Message]:
    make = maker(RICH, TOPIC, size)
    return [make(number) for number in range(count)]


@asynccontextmanager
async def _producing(name_server: str, **options: Any) -> AsyncIterator[AsyncProducer]:
    async with AsyncProducer(name_server, **(_PRODUCER | options)) as producer:
        await producer.send(_messages(1)[0])
        yield producer


Call = Callable[[AsyncProducer], Awaitable[Any]]


async def _one_by_one(producer: AsyncProducer) -> None:
    for message in _messages(1000):
        await producer.send(message)


async def _at_once(producer: AsyncProducer) -> None:
    await asyncio.gather(*map(producer.send, _messages(1024)))


async def _large(producer: AsyncProducer) -> None:
    message = Message(TOPIC, _text(_LARGE), tags="pay", keys="order-1")
    await producer.send(message)


async def _submitted(producer: AsyncProducer) -> None:
    for message in _messages(20_000):
        await producer.submit(message)
    await producer.flush()


async def _large_submitted(producer: AsyncProducer) -> None:
    await producer.submit(Message(TOPIC, _text(_LARGE)))
    await producer.flush()


async def _oneway(producer: AsyncProducer) -> None:
    for message in _messages(20_000):
        await producer.send_oneway(message)


async def _lists(producer: AsyncProducer) -> None:
    await producer.send(_messages(500))


#: Calls of a producer, and its options.
CALLS: Final[dict[str, tuple[Call, dict[str, Any]]]] = {
    "send, one after another": (_one_by_one, {}),
    "send, 1024 at once": (_at_once, {}),
    "send of 3 MB of text": (_large, {}),
    "send of a list of 500": (_lists, {}),
    "submit of 20,000": (_submitted, {}),
    "submit of 20,000, auto_batch": (_submitted, {"auto_batch": True}),
    "submit of 3 MB of text": (_large_submitted, {}),
    "send_oneway of 20,000": (_oneway, {}),
    "send_many of 20,000": (lambda producer: producer.send_many(_messages(20_000)), {}),
    "send_many of 2,000 of 2 KB": (lambda producer: producer.send_many(_messages(2000, 2000)), {}),
}


async def _produce(name_server: str, call: Call, options: dict[str, Any]) -> Pause:
    async with _producing(name_server, **options) as producer:
        return await _watched(lambda: call(producer))


async def _idle(_: str) -> Pause:
    return await _watched(lambda: asyncio.sleep(0.5))


async def _life(name_server: str) -> Pause:
    async def live() -> None:
        async with _producing(name_server) as producer:
            await producer.publish_queues(TOPIC)

    return await _watched(live)


async def _read(name_server: str) -> Pause:
    async def read() -> None:
        number = 0
        async with AsyncReader(name_server) as reader:
            async for message in reader.read(TOPIC):
                consuming.look(message)
                number += 1
                if number == 10_000:
                    break

    return await _watched(read)


async def _handle(name_server: str) -> Pause:
    with tempfile.TemporaryDirectory() as folder:
        alone = {"broadcast": True, "offsets_folder": folder, "start": "earliest"}
        consumer = AsyncConsumer(name_server, group=consuming.new_group(), **alone)  # type: ignore[arg-type]
        tally = consuming.Tally(50_000, consumer.stop)

        async def handle(message: Any) -> None:
            tally.one_looked(message)

        consumer.subscribe(TOPIC)
        return await _watched(lambda: consumer.run(handle), least=0.0)  # it runs once


def _paths(sends: str, pulls: str) -> dict[str, Callable[[], Awaitable[Pause]]]:
    found: dict[str, Callable[[], Awaitable[Pause]]] = {
        "nothing": lambda: _idle(sends),
        "start, first send, shutdown": lambda: _life(sends),
    }
    for name, (call, options) in CALLS.items():
        found[name] = lambda call=call, options=options: _produce(sends, call, options)  # type: ignore[misc]
    found["AsyncReader.read of 10,000"] = lambda: _read(pulls)
    found["AsyncConsumer, 50,000 handled"] = lambda: _handle(pulls)
    return found


def measure(rounds: int, only: Sequence[str] = ()) -> dict[str, Pause]:
    """Every call: medians over some rounds, which go over all calls in turn."""
    taken: dict[str, list[Pause]] = {}
    with acker(1, 8) as sends, pull_server(1_000_000, 32, queues=8, shape="rich") as pulls:
        paths = _paths(sends.name_server, pulls.name_server)
        chosen = [name for name in paths if not only or any(word in name for word in only)]
        for _ in range(rounds):
            for name in chosen:
                taken.setdefault(name, []).append(run_loop(paths[name]))  # type: ignore[arg-type]
    return {
        name: Pause(
            statistics.median(pause.longest for pause in found),
            statistics.median(pause.p999 for pause in found),
            statistics.median(pause.seconds for pause in found),
        )
        for name, found in taken.items()
    }


def lines(found: dict[str, Pause]) -> list[str]:
    """A table for people."""
    head = f"{'pauses of the event loop':<32}{'longest ms':>12}{'p99.9 ms':>10}{'call ms':>10}"
    return [head] + [
        f"{name:<32}{pause.longest * 1e3:>12.1f}{pause.p999 * 1e3:>10.1f}{pause.seconds * 1e3:>10.0f}"
        for name, pause in found.items()
    ]


def main(words: list[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.pauses", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each call is run (5)")
    parser.add_argument("--only", default="", help="calls that contain one of these words")
    parser.add_argument("--json", type=Path, default=Path("bench/results/pauses.json"))
    chosen = parser.parse_args(words)
    if chosen.rounds < 1:
        parser.error("--rounds is at least 1")
    found = measure(chosen.rounds, [word for word in chosen.only.split(",") if word])
    if not found:
        parser.error(f"--only {chosen.only}: there is no such call")
    print("\n".join(lines(found)))
    content = {"machine": report.machine(), "pauses": {n: asdict(p) for n, p in found.items()}}
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
