"""The life of an asyncio consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from tests.conformance.members import unique_group
from tests.unit.core.group.test_process_queue import message as stored

from rocketwire import AsyncConsumer, ClientClosedError, ConfigError, Message, Producer
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.wake_up import WakeUp
from rocketwire.embedded import EmbeddedCluster
from rocketwire.message import MessageQueue


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    name = unique_group().replace("group", "topic")
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def send(cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., None]]:
    with Producer(cluster.name_server, group="feeder") as producer:
        yield lambda *bodies: [producer.send(Message(topic, body)) for body in bodies]


@pytest.fixture
def make(cluster: EmbeddedCluster, topic: str) -> Callable[..., AsyncConsumer]:
    def make_one(**options: Any) -> AsyncConsumer:
        options = {"group": unique_group(), "start": "earliest"} | options
        return AsyncConsumer(cluster.name_server, **options).subscribe(topic)

    return make_one


def test_run_starts_and_shuts_down_by_itself(run, make, send):
    send("a", "b")
    seen = []

    async def main():
        one = make()

        async def handle(message):
            await asyncio.sleep(0)
            seen.append(message.text)
            if len(seen) == 2:
                one.stop()

        await one.run(handle)
        with pytest.raises(ClientClosedError):
            await one.run(handle)

    run(main())
    assert sorted(seen) == ["a", "b"]


def test_going_on_acknowledges_and_break_does_not(run, make, send):
    send("a", "b", "c")
    group = unique_group()

    async def read(count: int, stop_at: str | None = None) -> list[str]:
        seen = []
        async with make(group=group) as one:
            async for message in one:
                seen.append(message.text)
                if message.text == stop_at:
                    break
                if len(seen) == count:
                    one.stop()
        return seen

    async def main():
        assert await read(3, stop_at="b") == ["a", "b"]
        assert await read(2) == ["b", "c"]

    run(main())


def test_a_message_left_by_break_comes_again_in_the_next_loop(run, make, send):
    send("a", "b")

    async def main():
        async with make() as one:
            first = await anext(aiter(one))
            again = []
            async for message in one:
                again.append(message.text)
                if len(again) == 2:
                    one.stop()
            return first.text, sorted(again)

    assert run(main()) == ("a", ["a", "b"])


def test_cancelling_run_leaves_the_group_and_the_message(run, make, send):
    send("a")
    group = unique_group()

    async def main():
        entered = asyncio.Event()

        async def hang(_):
            entered.set()
            await asyncio.Event().wait()

        async with make(group=group, shutdown_timeout=0.2) as one:
            task = asyncio.create_task(one.run(hang))
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert one.assignment() == ()
        async with make(group=group) as two:
            return (await anext(aiter(two))).text

    assert run(main()) == "a"


def test_tasks_handle_at_the_same_time(run, make, send):
    send("a", "b", "c")

    async def main():
        together = asyncio.Barrier(3)
        async with make(workers=3) as one:

            async def handle(_):
                await together.wait()
                one.stop()

            await one.run(handle)

    run(main())


def test_a_message_is_not_lost_on_one_who_stopped_waiting_for_it(run, make):
    """Whoever was woken was cancelled before it could look: the next one must be woken."""

    async def main():
        async with make() as one:
            workload = one._workload = one._make_workload()
            queue = ProcessQueue(MessageQueue("T", "a", 0), 0, WakeUp(nullcontext()))
            first, second = (asyncio.create_task(one._next()) for _ in range(2))
            await asyncio.sleep(0)
            workload.put(queue, [stored(0)], 1)
            first.cancel()
            work = await asyncio.wait_for(second, 10)
            assert [m.offset for m in work.messages] == [0]
            assert first.cancelled()

    run(main())


def test_a_handler_that_never_waits_does_not_starve_the_loop(run, make, send):
    send(*[str(i) for i in range(200)])

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        seen = []
        async with make() as one:

            def handle(message):
                seen.append(ticks)
                end = time.monotonic() + 0.0005  # however fast the machine is
                while time.monotonic() < end:
                    pass
                if len(seen) == 200:
                    one.stop()

            await one.run(handle)
        ticker.cancel()
        return seen

    seen = run(main())
    assert seen[-1] - seen[0] > 5


def test_what_is_wrong_is_said(run, cluster):
    async def main():
        one = AsyncConsumer(cluster.name_server, group="g")
        with pytest.raises(ConfigError, match="nothing is subscribed to"):
            await one.run(print)
        two = AsyncConsumer(cluster.name_server, group="g").subscribe("t")
        with pytest.raises(ConfigError, match="the handler is None"):
            await two.run(None)
        with pytest.raises(ClientClosedError, match="no member"):
            two.stats()

    run(main())
