"""Our own paths: one function for each way to send.

Only public names are used here, because ``bench.compare`` runs these functions with the package of
another commit. Every path makes its messages as it goes, as a program would; how much of its CPU
time that took is measured apart, right after it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from bench.samples import Sample, Stopwatch
from bench.shapes import Maker, making
from rocketwire import AsyncProducer, Message, Producer

#: How many messages are sent before the clock starts: routes, connections and caches.
WARM_UP = 200
#: A busy machine makes answers late, which is no failure of the client's.
_PRODUCER: dict[str, Any] = {"group": "bench", "send_timeout": 30.0}
#: How many messages are made again to learn what making them took.
_MADE_AGAIN = 2000


def run_loop(main: Callable[[], Awaitable[Sample]]) -> Sample:
    """Run a coroutine on uvloop, or on asyncio's own loop where that is missing."""
    try:
        import uvloop
    except ImportError:
        factory: Any = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())  # type: ignore[arg-type]


def _sample(watch: Stopwatch, count: int, make: Maker, latencies: Sequence[float] = ()) -> Sample:
    """What was measured, with the part that making the messages had in it."""
    times = max(1, min(count, _MADE_AGAIN))
    each = making(make, range(times)) / times
    return replace(watch.sample(count, latencies), making=each * count)


def _check(producer: Producer | AsyncProducer) -> None:
    if failed := producer.stats().failed:
        raise RuntimeError(f"{failed} sends failed")


def _some(make: Maker, first: int, count: int) -> list[Message]:
    return [make(number) for number in range(first, first + count)]


def _one_list(make: Maker, count: int) -> tuple[list[list[Message]], float]:
    """All messages in one list, to be taken out of another so that it is kept nowhere, and the CPU of making them.

    That is measured here, not again later: messages that all stay in memory take the garbage collector's
    time as they are made, as much again as making them.
    """
    began = time.process_time()
    given = [_some(make, 0, count)]
    return given, time.process_time() - began


def blocking(name_server: str, make: Maker, count: int, threads: int = 1) -> Sample:
    """``Producer.send``, one message after another in each thread."""
    latencies: list[float] = []
    clock = time.perf_counter
    with Producer(name_server, **_PRODUCER) as producer:

        def work(first: int, number: int, times: list[float]) -> None:
            send = producer.send
            for place in range(first, first + number):
                began = clock()
                send(make(place))
                times.append(clock() - began)

        work(0, WARM_UP, [])
        share = count // threads
        workers = [
            threading.Thread(target=work, args=(number * share, share, latencies))
            for number in range(threads)
        ]
        with Stopwatch() as watch:
            if threads == 1:
                work(0, count, latencies)
            else:
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
    return _sample(watch, len(latencies), make, latencies)


def awaited(name_server: str, make: Maker, count: int, tasks: int = 1024, **options: Any) -> Sample:
    """``await producer.send`` in some tasks at once."""

    async def main() -> Sample:
        async with AsyncProducer(name_server, **(_PRODUCER | options)) as producer:

            async def work(first: int, number: int) -> None:
                send = producer.send
                for place in range(first, first + number):
                    await send(make(place))

            await work(0, WARM_UP)
            share = max(1, count // tasks)
            with Stopwatch() as watch:
                await asyncio.gather(*[work(number * share, share) for number in range(tasks)])
        return _sample(watch, share * tasks, make)

    return run_loop(main)


def submitted(name_server: str, make: Maker, count: int, **options: Any) -> Sample:
    """``await producer.submit``, then one ``flush``."""

    async def main() -> Sample:
        async with AsyncProducer(name_server, **(_PRODUCER | options)) as producer:
            submit = producer.submit
            for number in range(WARM_UP):
                await submit(make(number))
            await producer.flush()
            with Stopwatch() as watch:
                for number in range(count):
                    await submit(make(number))
                await producer.flush()
            _check(producer)
        return _sample(watch, count, make)

    return run_loop(main)


def handed_over(name_server: str, make: Maker, count: int, **options: Any) -> Sample:
    """``Producer.submit`` from one thread, then one ``flush``."""
    with Producer(name_server, **(_PRODUCER | options)) as producer:
        submit = producer.submit
        for number in range(WARM_UP):
            submit(make(number))
        producer.flush()
        with Stopwatch() as watch:
            for number in range(count):
                submit(make(number))
            producer.flush()
        _check(producer)
    return _sample(watch, count, make)


def batches(
    name_server: str, make: Maker, count: int, size: int = 500, in_flight: int = 8
) -> Sample:
    """``await producer.submit`` of whole lists, some of them in flight."""

    async def main() -> Sample:
        limit = in_flight * size
        async with AsyncProducer(name_server, **_PRODUCER, max_in_flight=limit) as producer:
            await producer.send(_some(make, 0, size))
            with Stopwatch() as watch:
                for first in range(0, count - size + 1, size):
                    await producer.submit(_some(make, first, size))
                await producer.flush()
            _check(producer)
        return _sample(watch, count // size * size, make)

    return run_loop(main)


def lists(name_server: str, make: Maker, count: int, size: int = 500) -> Sample:
    """``Producer.send`` of lists, one after another."""
    with Producer(name_server, **_PRODUCER) as producer:
        producer.send(_some(make, 0, size))
        with Stopwatch() as watch:
            for first in range(0, count - size + 1, size):
                producer.send(_some(make, first, size))
    return _sample(watch, count // size * size, make)


def many(name_server: str, make: Maker, count: int) -> Sample:
    """``Producer.send_many`` of one long list."""
    with Producer(name_server, **_PRODUCER) as producer:
        producer.send_many(_some(make, 0, WARM_UP))
        with Stopwatch() as watch:
            given, making = _one_list(make, count)
            producer.send_many(given.pop())
    return replace(watch.sample(count), making=making)


def many_on_loop(name_server: str, make: Maker, count: int) -> Sample:
    """``await AsyncProducer.send_many`` of one long list."""

    async def main() -> Sample:
        async with AsyncProducer(name_server, **_PRODUCER) as producer:
            await producer.send_many(_some(make, 0, WARM_UP))
            with Stopwatch() as watch:
                given, making = _one_list(make, count)
                await producer.send_many(given.pop())
        return replace(watch.sample(count), making=making)

    return run_loop(main)


def oneway(name_server: str, make: Maker, count: int) -> Sample:
    """``Producer.send_oneway``, then one send: before its answer, all have been written."""
    with Producer(name_server, **_PRODUCER) as producer:
        for number in range(WARM_UP):
            producer.send_oneway(make(number))
        with Stopwatch() as watch:
            for number in range(count):
                producer.send_oneway(make(number))
            producer.send(make(count))
    return _sample(watch, count, make)


def oneway_on_loop(name_server: str, make: Maker, count: int) -> Sample:
    """``await AsyncProducer.send_oneway``, then one send, likewise."""

    async def main() -> Sample:
        async with AsyncProducer(name_server, **_PRODUCER) as producer:
            for number in range(WARM_UP):
                await producer.send_oneway(make(number))
            with Stopwatch() as watch:
                for number in range(count):
                    await producer.send_oneway(make(number))
                await producer.send(make(count))
        return _sample(watch, count, make)

    return run_loop(main)


def columns(name_server: str, topic: str, table: Any) -> Sample:
    """``send_table``: rows of an Arrow table, without a Python object for each."""
    from rocketwire.columns import send_table

    with Producer(name_server, **_PRODUCER) as producer:
        send_table(producer, table.slice(0, min(table.num_rows, 1000)), topic)
        with Stopwatch() as watch:
            send_table(producer, table, topic)
    return watch.sample(table.num_rows)
