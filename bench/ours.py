"""Our own paths: one function for each way to send."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.samples import Sample, Stopwatch
from rocketwire import AsyncProducer, Message, Producer

#: How many messages are sent before the clock starts: routes, connections and caches.
WARM_UP = 200
#: A busy machine makes answers late, which is no failure of the client's.
_PRODUCER: dict[str, Any] = {"group": "bench", "send_timeout": 30.0}


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


def blocking(name_server: str, topic: str, body: bytes, count: int, threads: int = 1) -> Sample:
    """``Producer.send``, one message after another in each thread."""
    latencies: list[float] = []
    clock = time.perf_counter
    with Producer(name_server, **_PRODUCER) as producer:

        def work(number: int, times: list[float]) -> None:
            send = producer.send
            for _ in range(number):
                began = clock()
                send(Message(topic, body))
                times.append(clock() - began)

        work(WARM_UP, [])
        with Stopwatch() as watch:
            if threads == 1:
                work(count, latencies)
            else:
                share = count // threads
                workers = [
                    threading.Thread(target=work, args=(share, latencies)) for _ in range(threads)
                ]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
    return watch.sample(len(latencies), latencies)


def awaited(
    name_server: str, topic: str, body: bytes, count: int, tasks: int = 256, **options: Any
) -> Sample:
    """``await producer.send`` in some tasks at once."""

    async def main() -> Sample:
        async with AsyncProducer(name_server, **(_PRODUCER | options)) as producer:

            async def work(number: int) -> None:
                send = producer.send
                for _ in range(number):
                    await send(Message(topic, body))

            await work(WARM_UP)
            with Stopwatch() as watch:
                await asyncio.gather(*[work(count // tasks) for _ in range(tasks)])
        return watch.sample(count // tasks * tasks)

    return run_loop(main)


def submitted(name_server: str, topic: str, body: bytes, count: int, **options: Any) -> Sample:
    """``await producer.submit``, then one ``flush``."""

    async def main() -> Sample:
        async with AsyncProducer(name_server, **(_PRODUCER | options)) as producer:
            submit = producer.submit
            for _ in range(WARM_UP):
                await submit(Message(topic, body))
            await producer.flush()
            with Stopwatch() as watch:
                for _ in range(count):
                    await submit(Message(topic, body))
                await producer.flush()
            if producer.stats().failed:
                raise RuntimeError(f"{producer.stats().failed} sends failed")
        return watch.sample(count)

    return run_loop(main)


def handed_over(name_server: str, topic: str, body: bytes, count: int, **options: Any) -> Sample:
    """``Producer.submit`` from one thread, then one ``flush``."""
    with Producer(name_server, **(_PRODUCER | options)) as producer:
        submit = producer.submit
        for _ in range(WARM_UP):
            submit(Message(topic, body))
        producer.flush()
        with Stopwatch() as watch:
            for _ in range(count):
                submit(Message(topic, body))
            producer.flush()
        if producer.stats().failed:
            raise RuntimeError(f"{producer.stats().failed} sends failed")
    return watch.sample(count)


def batches(
    name_server: str, topic: str, body: bytes, count: int, size: int, in_flight: int = 8
) -> Sample:
    """``await producer.submit`` of whole batches."""

    async def main() -> Sample:
        limit = in_flight * size
        async with AsyncProducer(name_server, **_PRODUCER, max_in_flight=limit) as producer:
            await producer.send([Message(topic, body) for _ in range(size)])
            with Stopwatch() as watch:
                for _ in range(count // size):
                    await producer.submit([Message(topic, body) for _ in range(size)])
                await producer.flush()
            if producer.stats().failed:
                raise RuntimeError(f"{producer.stats().failed} batches failed")
        return watch.sample(count // size * size)

    return run_loop(main)


def oneway(name_server: str, topic: str, body: bytes, count: int) -> Sample:
    """``Producer.send_oneway``."""
    with Producer(name_server, **_PRODUCER) as producer:
        for _ in range(WARM_UP):
            producer.send_oneway(Message(topic, body))
        with Stopwatch() as watch:
            for _ in range(count):
                producer.send_oneway(Message(topic, body))
    return watch.sample(count)


def columns(name_server: str, topic: str, body: bytes, count: int) -> Sample:
    """``send_table``: rows of an Arrow table, without a Python object for each."""
    import pyarrow as pa

    from rocketwire.columns import send_table

    table = pa.table({"body": pa.array([body] * count, pa.binary())})
    with Producer(name_server, **_PRODUCER) as producer:
        send_table(producer, table.slice(0, min(count, 1000)), topic)
        with Stopwatch() as watch:
            send_table(producer, table, topic)
    return watch.sample(count)
