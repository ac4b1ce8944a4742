"""Submitted messages that travel in batches are counted, wherever they are submitted."""

import asyncio

import pytest

from rocketwire import AsyncProducer, Credentials, Message
from rocketwire.config import AutoBatch
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=1, queues=4) as running:
        yield running


@pytest.fixture
def topic(cluster):
    cluster.create_topic("collected")
    return "collected"


def test_submitted_messages_are_in_flight_until_their_lot_is_answered(run, cluster, topic):
    async def main():
        batch = AutoBatch(messages=50, linger=30.0)
        async with AsyncProducer(cluster.name_server, auto_batch=batch) as producer:
            await producer.send(Message(topic, b"x"))
            for number in range(1, 120):
                await producer.submit(Message(topic, b"x"))
                assert 0 < producer.stats().in_flight <= number
            await producer.flush()
            assert producer.stats().in_flight == 0
            deliveries = [await producer.submit(Message(topic, b"%d" % n)) for n in range(300)]
            await producer.flush()
            places = [(d.result().queue.id, d.result().offset) for d in deliveries]
            assert len(set(places)) == 300

    run(main())


def test_submitting_goes_on_where_the_loop_moves_to_another_thread(cluster, topic):
    loop = asyncio.new_event_loop()
    producer = AsyncProducer(cluster.name_server, auto_batch=True, background=False)

    async def submit():
        return await (await producer.submit(Message(topic, b"x")))

    async def elsewhere():
        return await asyncio.to_thread(loop.run_until_complete, submit())

    try:
        loop.run_until_complete(producer.start())
        here = loop.run_until_complete(submit())
        there = asyncio.run(elsewhere())
        loop.run_until_complete(producer.shutdown())
    finally:
        loop.close()
    assert here.message_id != there.message_id


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("auto_batch", [None, True])
def test_a_submit_that_ends_the_program_gives_its_room_back_once(
    run, cluster, topic, auto_batch, is_late
):
    """It was given back by the delivery and by the submit: a shutdown waited for less than nothing."""
    leaves = False

    def keys():
        nonlocal leaves
        if leaves:
            leaves = False
            raise SystemExit("leaving")
        return Credentials("access", "secret")

    async def main():
        nonlocal leaves
        options = {"credentials": keys, "background": False, "auto_batch": auto_batch}
        async with AsyncProducer(cluster.name_server, **options) as producer:
            await producer.send(Message(topic, b"x"))
            producer._submitter.left = 1 if is_late else 9
            leaves = True
            steps = producer.submit([Message("new", b"x")])  # its route has to be asked for
            with pytest.raises(SystemExit):
                while True:
                    steps.send(None)
            await producer.flush(20)
            assert producer.stats().in_flight == 0
            assert producer._in_flight.held_bytes == 0

    run(main())


@pytest.mark.parametrize("auto_batch", [None, True])
def test_a_callback_that_ends_the_program_keeps_none_of_the_others_from_being_told(
    cluster, topic, auto_batch
):
    def leave(_):
        raise SystemExit(3)

    async def main():
        options = {"background": False, "auto_batch": auto_batch}
        async with AsyncProducer(cluster.name_server, **options) as producer:
            queue = (await producer.send(Message(topic, b"x"))).queue
            before = len(cluster.messages(topic))
            address = producer._instance.routes.addresses_of(queue.broker)[0]
            transport = producer._driver.connections[address]._transport
            transport.pause_reading()  # all answers are read at once
            for call in (leave, told.append, told.append):
                await producer.submit(Message(topic, b"x"), on_success=call)
            while len(cluster.messages(topic)) < before + 3:
                await asyncio.sleep(0.001)
            transport.resume_reading()
            await asyncio.sleep(20)

    told = []
    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert len(told) == 2
