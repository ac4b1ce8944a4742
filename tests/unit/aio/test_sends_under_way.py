"""Sends under way on an event loop: what happens when callers interfere, or nothing is usual."""

import asyncio
import fcntl
import logging
import struct
import termios

import pytest

from rocketwire import AsyncProducer, Message, Outcome, SendFailedError, SendStatus
from rocketwire.aio.delivery import SingleDelivery
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
    """Two messages whose answers are both there; the first has the callback."""
    first = await producer.submit(Message("orders", "first"), **how)
    await held.arrived()
    second = await producer.submit(Message("orders", "second"))
    await held.arrived()
    assert type(first) is type(second) is SingleDelivery
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


def test_who_leaves_a_shared_connection_takes_only_his_own_messages_with_him(run, cluster):
    async def main():
        shared = {"client_id": "both", "shutdown_timeout": 0.1}
        async with make(cluster, group="stays", **shared) as stays:
            goes = await make(cluster, group="goes", **shared).start()
            for producer in (stays, goes):
                await producer.send(Message("orders", "warm-up"))
            broker = cluster.broker("broker-a")
            broker.hang()
            mine = await stays.submit(Message("orders", "mine"))
            his = await goes.submit(Message("orders", "his"))
            assert mine.connection is his.connection
            assert type(mine) is type(his) is SingleDelivery
            awaited = asyncio.create_task(goes.send(Message("orders", "his, too")))
            await asyncio.sleep(0)
            await goes.shutdown()
            assert his.exception().outcome is Outcome.MAYBE_STORED
            with pytest.raises(SendFailedError, match="maybe stored") as failed:
                await awaited
            assert failed.value.outcome is Outcome.MAYBE_STORED
            assert not mine.done()
            broker.heal()
            assert (await mine).status is SendStatus.OK
            assert stays.stats().in_flight == 0

    run(main())


def test_a_cancelled_send_is_maybe_stored_and_its_late_answer_harms_nobody(run, cluster):
    async def main():
        async with make(cluster) as producer:
            await producer.send(Message("orders", "warm-up"))
            async with Held(producer) as held:
                send = asyncio.create_task(producer.send(Message("orders", "given up")))
                submitted = await producer.submit(Message("orders", "given up, too"))
                await held.arrived()
                send.cancel()
                submitted.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await send
                assert submitted.exception().outcome is Outcome.MAYBE_STORED
                assert [h.in_flight for h in producer.health()] == [0]
                assert producer.stats().in_flight == 0
            assert (await producer.send(Message("orders", "after"))).status is SendStatus.OK
            assert producer.stats().late_replies == 2
        assert len(cluster.messages("orders")) == 4

    run(main())


@pytest.mark.parametrize("how", ["drop_connections", "kill"])
def test_a_connection_lost_in_flight_is_maybe_stored(run, cluster, how):
    async def main():
        async with make(cluster, async_retries=0) as producer:
            await producer.send(Message("orders", "warm-up"))
            broker = cluster.broker("broker-a")
            broker.hang()
            delivery = await producer.submit(Message("orders", "x"))
            send = asyncio.create_task(producer.send(Message("orders", "y")))
            while sum(h.in_flight for h in producer.health()) < 2:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(getattr(broker, how))
            with pytest.raises(SendFailedError) as failed:
                await delivery
            assert failed.value.outcome is Outcome.MAYBE_STORED
            with pytest.raises(SendFailedError) as failed:
                await send
            assert failed.value.outcome is Outcome.MAYBE_STORED
            assert len(failed.value.attempts) == 1
            assert producer.stats().in_flight == 0

    run(main())


def test_a_message_that_is_given_up_before_it_leaves_is_forgotten_by_the_fault_table(run, cluster):
    async def main():
        async with make(cluster) as producer:
            await producer.send(Message("orders", "warm-up"))
            delivery = await producer.submit(Message("orders", "x"))
            assert type(delivery) is SingleDelivery
            delivery.cancel()  # in the tick in which it was submitted
            with pytest.raises(SendFailedError) as failed:
                await delivery
            assert failed.value.outcome is Outcome.NOT_SENT
            await producer.send(Message("orders", "behind it"))
            assert [h.in_flight for h in producer.health()] == [0]
            assert producer.stats().in_flight == 0

    run(main())


def test_answers_to_awaited_and_submitted_messages_may_come_in_the_same_bytes(run, cluster):
    async def main():
        async with make(cluster) as producer:
            await producer.send(Message("orders", "warm-up"))
            async with Held(producer) as held:
                waiting = []
                for number in range(2):
                    waiting.append(asyncio.create_task(producer.send(Message("orders", "a"))))
                    await held.arrived()
                    waiting.append(await producer.submit(Message("orders", f"{number}")))
                    await held.arrived()
            results = [await each for each in waiting]
            assert len({(r.queue, r.offset) for r in results}) == 4
            stats = producer.stats()
            assert (stats.sent, stats.messages, stats.in_flight) == (5, 5, 0)
            assert [b.answers for b in stats.brokers] == [5]
            assert [h.in_flight for h in producer.health()] == [0]

    run(main())
