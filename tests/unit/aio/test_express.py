"""The fast lane on an event loop: what happens when callers interfere, or nothing is usual."""

import asyncio
import fcntl
import logging
import struct
import termios

import pytest

from rocketwire import AsyncProducer, Message, SendStatus
from rocketwire.aio.express import ExpressDelivery
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture
def cluster():
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic("orders", queues=2)
        yield running


def make(cluster, **options):
    settings = {"group": "lane", "background": False, "send_timeout": 20.0}
    return AsyncProducer(cluster.name_server, **(settings | options))


class Held:
    """Answers that came, and are read in one go when the test says so."""

    def __init__(self, producer):
        (address,) = producer._instance.routes.addresses()
        self._connection = producer._driver.connections[address]

    async def __aenter__(self):
        self._connection._transport.pause_reading()
        return self

    async def __aexit__(self, *_):
        self._connection._transport.resume_reading()

    async def arrived(self):
        """Wait until the next answer is there."""
        before = now = self._bytes()
        while now == before:
            await asyncio.sleep(0.001)
            now = self._bytes()

    def _bytes(self):
        answer = fcntl.ioctl(self._connection.descriptor, termios.FIONREAD, b"\0" * 4)
        return struct.unpack("i", answer)[0]


async def submit_two(producer, held, **how):
    """Two messages in the fast lane whose answers are both there; the first has the callback."""
    first = await producer.submit(Message("orders", "first"), **how)
    await held.arrived()
    second = await producer.submit(Message("orders", "second"))
    await held.arrived()
    assert type(first) is type(second) is ExpressDelivery
    return first, second


def test_a_callback_may_cancel_a_message_whose_answer_came_in_the_same_bytes(run, cluster, caplog):
    async def main():
        async with make(cluster) as producer:
            await producer.send(Message("orders", "warm-up"))
            later = []
            async with Held(producer) as held:
                first, second = await submit_two(
                    producer, held, on_success=lambda _: later[0].cancel()
                )
                later.append(second)
            assert (await first).status is SendStatus.OK
            assert (await second).status is SendStatus.OK  # it was stored, and that is known
            assert producer.stats().in_flight == 0
            await producer.flush(1.0)

    run(main())
    assert not caplog.records


def test_a_callback_that_raises_a_cancellation_harms_no_answer_beside_it(run, cluster, caplog):
    async def main():
        def ask_a_cancelled_future(_):
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            future.result()

        async with make(cluster) as producer:
            await producer.send(Message("orders", "warm-up"))
            async with Held(producer) as held:
                first, second = await submit_two(producer, held, on_success=ask_a_cancelled_future)
            assert (await first).status is SendStatus.OK
            assert (await second).status is SendStatus.OK
            assert producer.stats().in_flight == 0
            (address,) = producer._instance.routes.addresses()
            assert producer._driver.connections[address].is_ready

    with caplog.at_level(logging.ERROR, logger="rocketwire.producer"):
        run(main())
    assert "a callback of a submitted message failed" in caplog.text


@pytest.mark.parametrize("size", [10, 5000])
def test_a_message_waits_for_room_once_whatever_way_it_takes(run, cluster, size):
    async def main():
        async with make(cluster, max_in_flight=1) as producer:
            await producer.send(Message("orders", "warm-up"))
            async with Held(producer):
                await producer.submit(Message("orders", "x"))
                waiting = asyncio.create_task(producer.submit(Message("orders", "y" * size)))
                await asyncio.sleep(0)
                behind = asyncio.create_task(producer.submit(Message("orders", "z")))
                await asyncio.sleep(0)
            delivery = await waiting
            assert not behind.done()  # whoever came first got room first, and kept it
            await delivery
            await (await behind)
            assert producer.stats().in_flight == 0

    run(main())
