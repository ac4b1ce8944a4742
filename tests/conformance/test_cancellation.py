"""Conversations of the asyncio shell, cancelled at any moment: nothing hangs, leaks or is decided twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conformance.members import unique_group

from rocketwire import (
    AsyncConsumer,
    AsyncProducer,
    AsyncReader,
    AsyncSimpleConsumer,
    Message,
    Reply,
    TransactionState,
)
from rocketwire.embedded import EmbeddedCluster

#: Moments at which a call is cancelled, from its start to well behind its end.
MOMENTS = 60
#: The first of them are rounds of the loop, and the last are behind the end, however slow the machine is.
ROUNDS, BEHIND = 12, 3
LIMIT = 20.0


async def cancel_at(moment: int, span: float, task: asyncio.Future[Any]) -> None:
    if moment < ROUNDS:
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
    elif moment < MOMENTS - BEHIND:
        # Not one long sleep: timers of a loop are rounded up to a millisecond, which is more than a call takes.
        at = time.perf_counter() + span * (moment - ROUNDS) / (MOMENTS - ROUNDS)
        while time.perf_counter() < at:
            await asyncio.sleep(0)
        task.cancel()


async def cancelled_at_each_moment(
    call: Callable[[int], Awaitable[Any]], span: float
) -> list[BaseException | Any]:
    """Call it so many times, and cancel each call at another moment of ``span`` seconds."""
    found = []
    for number in range(MOMENTS):
        task = asyncio.ensure_future(call(number))
        canceller = asyncio.ensure_future(cancel_at(number, span, task))
        _, waiting = await asyncio.wait({task}, timeout=LIMIT)
        assert not waiting, f"cancelled at moment {number}, and still there after {LIMIT:g} s"
        canceller.cancel()
        if task.cancelled():
            found.append(asyncio.CancelledError())
        else:
            found.append(task.exception() or task.result())
    return found


async def span_of(call: Callable[[int], Awaitable[Any]]) -> float:
    """Twice the time that a call takes; the shortest of several, which no pause has prolonged."""
    spans = []
    for number in range(-6, 0):
        began = time.perf_counter()
        await call(number)
        spans.append(time.perf_counter() - began)
    return 2 * min(spans)


def count_cancelled(found: list[Any]) -> int:
    assert not [f for f in found if isinstance(f, Exception)]
    return sum(isinstance(f, asyncio.CancelledError) for f in found)


def run(main: Callable[[EmbeddedCluster, str], Awaitable[None]]) -> None:
    with EmbeddedCluster(brokers=2, transaction_check_interval=60.0) as cluster:
        topic = unique_group()
        cluster.create_topic(topic, 2)
        asyncio.run(asyncio.wait_for(main(cluster, topic), 4 * LIMIT))


def test_a_transaction_is_decided_once_wherever_it_is_cancelled():
    """Before the half message, in the block, and at the commit, which goes on without its caller."""

    async def main(cluster: EmbeddedCluster, topic: str) -> None:
        begun: dict[str, Any] = {}
        async with AsyncProducer(cluster.name_server, group="shop") as producer:
            within = asyncio.Event()

            async def transact(number: int, pause: float = 0.001) -> None:
                tx = producer.transaction(Message(topic, f"{number}"))
                begun[f"{number}"] = tx
                async with tx:
                    within.set()
                    await asyncio.sleep(pause)

            in_the_block = asyncio.ensure_future(transact(MOMENTS, LIMIT))
            await within.wait()
            in_the_block.cancel()
            await asyncio.wait({in_the_block})
            count = count_cancelled(
                await cancelled_at_each_moment(transact, await span_of(transact))
            )
            assert 5 < count < MOMENTS
            deadline = time.monotonic() + LIMIT
            while any(tx.state is TransactionState.UNKNOWN for tx in begun.values()):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            await producer.send(Message(topic, "still there"))
            assert producer.stats().in_flight == 0
        states = {text: tx.state for text, tx in begun.items()}
        assert TransactionState.ROLLED_BACK in states.values()
        committed = {text for text, state in states.items() if state is TransactionState.COMMITTED}
        async with AsyncReader(cluster.name_server) as reader:
            found = [message.text async for message in reader.read(topic)]
        assert sorted(found) == sorted([*committed, "still there"])

    run(main)


def test_a_request_leaves_nothing_behind_wherever_it_is_cancelled():
    async def main(cluster: EmbeddedCluster, topic: str) -> None:
        consumer = AsyncConsumer(cluster.name_server, group="service", start="earliest")
        async with consumer.subscribe(topic), AsyncProducer(cluster.name_server) as producer:
            await consumer.join()
            service = asyncio.ensure_future(consumer.run(lambda m: Reply(m.body)))

            async def ask(number: int) -> str:
                return (await producer.request(Message(topic, f"{number}"), timeout=LIMIT)).text

            found = await cancelled_at_each_moment(ask, await span_of(ask))
            assert 5 < count_cancelled(found) < MOMENTS
            assert {text for text in found if isinstance(text, str)} <= set(
                map(str, range(MOMENTS))
            )
            assert await ask(MOMENTS) == f"{MOMENTS}"
            assert not producer._instance.replies._expected
            assert producer.stats().in_flight == 0
            consumer.stop()
            await service

    run(main)


def test_no_message_is_lost_wherever_a_receive_is_cancelled():
    """What a cancelled call had received comes again when its time is over."""

    async def main(cluster: EmbeddedCluster, topic: str) -> None:
        bodies = {f"{number}" for number in range(200)}
        async with AsyncProducer(cluster.name_server) as producer:
            await producer.send_many([Message(topic, body) for body in sorted(bodies)])
        consumer = AsyncSimpleConsumer(cluster.name_server, group="workers", start="earliest")
        done: list[str] = []
        async with consumer.subscribe(topic):

            async def work(number: int) -> None:
                messages = await consumer.receive(2, wait=0.0, invisible=30)
                await consumer.acknowledge(messages)
                done.extend(message.text for message in messages)

            count = count_cancelled(await cancelled_at_each_moment(work, await span_of(work)))
            assert 5 < count < MOMENTS
            deadline = time.monotonic() + LIMIT
            while len(done) < len(bodies) and time.monotonic() < deadline:
                await work(0)
                cluster.clock.advance("31s")
        # What was acknowledged by a call that was cancelled meanwhile is not told here.
        assert len(bodies - set(done)) <= 2 * count
        assert len(done) == len(set(done))

    run(main)


@pytest.mark.parametrize("name", ["seek", "committed", "recall"])
def test_other_questions_can_be_given_up_at_any_moment(name: str):
    async def main(cluster: EmbeddedCluster, topic: str) -> None:
        consumer = AsyncConsumer(cluster.name_server, group="members", start="earliest")
        async with consumer.subscribe(topic), AsyncProducer(cluster.name_server) as producer:
            await consumer.join()
            while not consumer.assignment():
                await asyncio.sleep(0.01)
            queue = consumer.assignment()[0]
            timed = await producer.send(Message(topic, "later", deliver_at=time.time() + 3600))
            handle = timed.recall_handle
            assert handle is not None
            calls: dict[str, Callable[[int], Awaitable[Any]]] = {
                "seek": lambda _: consumer.seek(queue, "earliest"),
                "committed": lambda _: consumer.committed(queue),
                "recall": lambda _: producer.recall(topic, handle),
            }
            call = calls[name]
            found = await cancelled_at_each_moment(call, await span_of(call))
            assert 5 < count_cancelled(found) < MOMENTS
            await call(0)

    run(main)
