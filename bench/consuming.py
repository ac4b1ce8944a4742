"""Our consumers and readers: one function for each way to handle messages."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.ours import run_loop
from bench.samples import Sample, Stopwatch
from bench.shapes import Maker
from rocketwire import AsyncConsumer, AsyncReader, Consumer, Message, Producer, Reader

#: Messages that are seen before latencies count.
WARM = 100
#: Counted from the first message on; what was sent before that may be a backlog.
_SETTLED_NS = 1_000_000_000
#: Seconds between two messages on an idle cluster.
_PACE = 0.004
LIMIT = 120.0
_numbers = itertools.count(1)
_spawn = multiprocessing.get_context("spawn")


def new_group() -> str:
    """A group that nobody has seen before."""
    return f"bench-{os.getpid()}-{next(_numbers)}"


def look(message: Any) -> tuple[Any, ...]:
    """What a real handler does first: it looks at keys, tags, body and one property."""
    return message.keys, message.tags, message.body, message.properties.get("amount")


class Tally:
    """Counts messages from many threads, and says when enough have come.

    Time runs from the first message to the last: joining the group is not measured.
    """

    def __init__(self, wanted: int, enough: Callable[[], None]) -> None:
        self._wanted = wanted
        self._enough = enough
        # Counting by an iterator takes no lock, and no message escapes it.
        self._places = itertools.count(1)
        self._lock = threading.Lock()
        self._seen = 0
        self.latencies: list[float] = []
        self._from = 0
        self._began = self._ended = self._cpu = self._used = 0.0

    def begin(self) -> None:
        """The first message is here."""
        self._cpu, self._began = time.process_time(), time.perf_counter()

    def end(self) -> None:
        """The last one is."""
        self._ended, self._used = time.perf_counter(), time.process_time() - self._cpu
        self._enough()

    def one(self, _: Any) -> None:
        """A handler of single messages."""
        place = next(self._places)
        if place == 1:
            self.begin()
        if place == self._wanted:
            self.end()

    def many(self, messages: list[Any]) -> None:
        """A handler of lists."""
        with self._lock:
            before, self._seen = self._seen, self._seen + len(messages)
        if not before:
            self.begin()
        if before < self._wanted <= before + len(messages):
            self.end()

    def one_looked(self, message: Any) -> None:
        """A handler of single messages that looks at them."""
        look(message)
        self.one(message)

    def many_looked(self, messages: list[Any]) -> None:
        """A handler of lists that looks at every message."""
        for message in messages:
            look(message)
        self.many(messages)

    def handler(self, batch: int, *, looking: bool) -> Callable[[Any], None]:
        """The one of these that a consumer needs."""
        if looking:
            return self.one_looked if batch == 1 else self.many_looked
        return self.one if batch == 1 else self.many

    def late(self, message: Any) -> None:
        """A handler of messages that tell when they were sent."""
        now, sent = time.monotonic_ns(), int(message.body)
        if not self._from:
            self._from = now + _SETTLED_NS
        if sent >= self._from:
            self.latencies.append((now - sent) / 1e9)
            self.one(message)

    def sample(self) -> Sample:
        """What was measured."""
        found = sorted(self.latencies[WARM : self._wanted])
        seconds = self._ended - self._began
        if not found:
            return Sample(self._wanted, seconds, self._used)
        p99 = found[min(len(found) - 1, len(found) * 99 // 100)]
        return Sample(self._wanted, seconds, self._used, found[len(found) // 2], p99)


def blocking(
    name_server: str,
    topic: str,
    count: int,
    *,
    batch: int = 1,
    looking: bool = False,
    **options: Any,
) -> Sample:
    """``Consumer.run`` from the first message on, with a handler that looks or does nothing."""
    consumer = Consumer(name_server, group=new_group(), start="earliest", batch=batch, **options)
    tally = Tally(count, consumer.stop)
    return _run(consumer.subscribe(topic), tally, tally.handler(batch, looking=looking))


def blocking_latency(name_server: str, topic: str, count: int) -> Sample:
    """``Consumer.run``, from send to handler."""
    consumer = Consumer(name_server, group=new_group(), start="latest")
    tally = Tally(count + WARM, consumer.stop)
    return _run(consumer.subscribe(topic), tally, tally.late)


def _run(consumer: Consumer, tally: Tally, handler: Callable[[Any], None]) -> Sample:
    with _bounded(consumer):
        consumer.run(handler)
    return tally.sample()


def on_loop(
    name_server: str,
    topic: str,
    count: int,
    *,
    batch: int = 1,
    looking: bool = False,
    **options: Any,
) -> Sample:
    """``AsyncConsumer.run`` with a coroutine function, from the first message on."""

    async def main() -> Sample:
        consumer = AsyncConsumer(
            name_server, group=new_group(), start="earliest", batch=batch, **options
        )
        tally = Tally(count, consumer.stop)
        call = tally.handler(batch, looking=looking)

        async def handle(given: Any) -> None:
            call(given)

        return await _run_async(consumer.subscribe(topic), tally, handle)

    return run_loop(main)


def read(name_server: str, topic: str, count: int, *, looking: bool = False) -> Sample:
    """``Reader.read`` from the first message on."""
    with Reader(name_server) as reader, Stopwatch() as watch:
        for number, message in enumerate(reader.read(topic), 1):
            if looking:
                look(message)
            if number == count:
                break
        else:
            raise RuntimeError(f"{topic} has fewer than {count} messages")
    return watch.sample(count)


def read_on_loop(name_server: str, topic: str, count: int, *, looking: bool = False) -> Sample:
    """``AsyncReader.read`` from the first message on."""

    async def main() -> Sample:
        async with AsyncReader(name_server) as reader:
            number = 0
            with Stopwatch() as watch:
                async for message in reader.read(topic):
                    if looking:
                        look(message)
                    number += 1
                    if number == count:
                        break
            if number < count:
                raise RuntimeError(f"{topic} has fewer than {count} messages")
        return watch.sample(count)

    return run_loop(main)


def on_loop_latency(name_server: str, topic: str, count: int) -> Sample:
    """``AsyncConsumer.run``, from send to handler."""

    async def main() -> Sample:
        consumer = AsyncConsumer(name_server, group=new_group(), start="latest")
        tally = Tally(count + WARM, consumer.stop)

        async def handle(message: Any) -> None:
            tally.late(message)

        return await _run_async(consumer.subscribe(topic), tally, handle)

    return run_loop(main)


async def _run_async(consumer: AsyncConsumer, tally: Tally, handler: Any) -> Sample:
    with _bounded(consumer):
        await consumer.run(handler)
    return tally.sample()


@contextmanager
def _bounded(consumer: Consumer | AsyncConsumer) -> Iterator[None]:
    """Stop a consumer that does not get what it waits for."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        consumer.stop()

    timer = threading.Timer(LIMIT, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if late.is_set():
        raise RuntimeError(f"the messages did not come in {LIMIT:.0f} s")


# A sender of its own, for latencies: the same one for every consumer


@contextmanager
def trickle(name_server: str, topic: str) -> Iterator[None]:
    """Messages one by one from another process, each with its moment as its body."""
    process = _spawn.Process(target=_trickle, args=(name_server, topic), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join(20)


def _trickle(name_server: str, topic: str) -> None:
    with Producer(name_server, group="bench-trickle", send_timeout=30.0) as producer:
        while True:
            # As wide as other bodies, so that only the content differs.
            producer.send(Message(topic, b"%-200d" % time.monotonic_ns()))
            time.sleep(_PACE)


def fill(name_server: str, make: Maker, count: int) -> None:
    """Put so many messages into a topic."""
    with Producer(name_server, group="bench-fill", send_timeout=30.0) as producer:
        for first in range(0, count, 5_000):
            producer.send_many(map(make, range(first, first + 5_000)))
