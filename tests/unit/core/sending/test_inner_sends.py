"""A send that an operation waits for, over all three drivers: it ends as any other send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.core.world import World

from rocketwire import AsyncProducer, Message, Outcome, Producer, SendFailedError, SendStatus
from rocketwire.core.effects import Op, send
from rocketwire.core.sending.mode import SendMode
from rocketwire.embedded import EmbeddedCluster
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.wire.codes import RequestCode

OPTIONS: Any = {"group": "inner", "background": False, "send_timeout": 20.0}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("orders", queues=2)
        yield running


def two(sender: Any, mode: SendMode = SendMode.ASYNC, **how: Any) -> Op[list[Any]]:
    """Send twice, one after the other."""
    ends: list[Any] = []
    for body in ("first", "second"):
        try:
            ends.append((yield from send(sender.start(Message("orders", body), mode, **how))))
        except SendFailedError as error:
            ends.append(error)
    return ends


def run_blocking(cluster: EmbeddedCluster, **how: Any) -> list[Any]:
    with Producer(cluster.name_server, **OPTIONS) as producer:
        return producer._driver.run(two(producer._sender, SendMode.BLOCKING, **how))


def run_on_loop(cluster: EmbeddedCluster, **how: Any) -> list[Any]:
    async def main() -> list[Any]:
        async with AsyncProducer(cluster.name_server, **OPTIONS) as producer:
            return await producer._driver.run(two(producer._sender, **how))

    return asyncio.run(main())


@pytest.mark.parametrize("run", [run_blocking, run_on_loop])
def test_it_resumes_with_the_result(run: Any, cluster: EmbeddedCluster) -> None:
    first, second = run(cluster)  # the first has no route yet, and the second has
    assert first.status is second.status is SendStatus.OK
    assert sorted(m.text for m in cluster.messages("orders")) == ["first", "second"]


@pytest.mark.parametrize("run", [run_blocking, run_on_loop])
def test_it_raises_what_the_send_raises(run: Any, cluster: EmbeddedCluster) -> None:
    for broker in cluster.brokers:
        broker.lose_replies(code=RequestCode.SEND_MESSAGE_V2)
    ends = run(cluster, timeout=0.3)
    assert [end.outcome for end in ends] == [Outcome.MAYBE_STORED] * 2


@pytest.mark.parametrize("run", [run_blocking, run_on_loop])
def test_another_broker_is_tried(run: Any, cluster: EmbeddedCluster) -> None:
    cluster.broker("broker-a").disk_full()
    ends = run(cluster)
    assert {end.queue.broker for end in ends} == {"broker-b"}


def test_cancelling_the_operation_ends_the_send(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, **OPTIONS) as producer:
            await producer.send(Message("orders", "before"))
            for broker in cluster.brokers:
                broker.lose_replies(code=RequestCode.SEND_MESSAGE_V2)
            task = asyncio.create_task(producer._driver.run(two(producer._sender)))
            while not any(health.in_flight for health in producer.health()):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not any(health.in_flight for health in producer.health())
            for connection in producer._driver.connections.values():
                assert not connection.session.pending

    asyncio.run(main())


def test_an_operation_that_ends_the_program_harms_no_answer_beside_it(cluster) -> None:
    def fatal(sender: Any, queue: Any) -> Op[None]:
        yield from send(sender.start(Message("orders", "fatal"), SendMode.ASYNC, queue=queue))
        raise SystemExit(3)

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, **OPTIONS) as producer:
            queue = (await producer.send(Message("orders", "before"))).queue
            address = producer._instance.routes.addresses_of(queue.broker)[0]
            transport = producer._driver.connections[address]._transport
            transport.pause_reading()
            producer._driver.start(fatal(producer._sender, queue), lambda *_: None)
            for number in range(3):
                await producer.submit(
                    Message("orders", f"{number}"), queue=queue, on_success=told.append
                )
            while len(cluster.messages("orders")) < 5:
                await asyncio.sleep(0.001)
            transport.resume_reading()
            await asyncio.sleep(20.0)

    told: list[Any] = []
    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert len(told) == 3


def test_in_virtual_time_too() -> None:
    world = World()
    world.brokers["broker-a"].break_now(Refuse())

    def op() -> Op[list[Any]]:
        results = []
        for _ in range(3):
            attempt = world.sender.start(Message("T", b"x"), SendMode.BLOCKING)
            results.append((yield from send(attempt)))
        return results

    results = world.driver.run(op())
    assert {result.queue.broker for result in results} <= {"broker-b", "broker-c"}
    assert len(world.stored) == 3


def test_in_virtual_time_it_is_given_up_with_its_operation() -> None:
    world = World()
    for broker in world.brokers.values():
        broker.break_now(Hang())
    attempt = world.sender.start(Message("T", b"x"), SendMode.BLOCKING)
    task = world.driver.spawn(send(attempt))
    world.clock.run_until(world.clock() + 0.01)
    task.cancel()
    assert not any(h.in_flight for h in world.instance.faults.snapshot(world.clock()))
