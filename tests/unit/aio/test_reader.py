"""The asyncio reader over an embedded cluster."""

import asyncio
from datetime import UTC, datetime

import pytest

from rocketwire import AsyncProducer, AsyncReader, ClientClosedError, InvalidMessageError, Message
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running


topics = iter(range(10_000))


@pytest.fixture
def topic(cluster):
    name = f"read-{next(topics)}"
    cluster.create_topic(name, queues=2)
    return name


async def fill(cluster, topic, count, **more):
    async with AsyncProducer(cluster.name_server) as producer:
        return await producer.send_many([Message(topic, str(n), **more) for n in range(count)])


def test_a_whole_topic_is_read_once_in_order_per_queue(run, cluster, topic):
    async def main():
        await fill(cluster, topic, 300)
        async with AsyncReader(cluster.name_server) as reader:
            read = [m async for m in reader.read(topic)]
            assert sorted(int(m.body) for m in read) == list(range(300))
            for queue in await reader.queues(topic):
                offsets = [m.offset for m in read if m.queue == queue]
                assert offsets == list(range(len(offsets)))
                assert await reader.min_offset(queue) == 0
                assert await reader.max_offset(queue) == len(offsets)

    run(main())


def test_one_queue_can_be_read_between_offsets(run, cluster, topic):
    async def main():
        results = await fill(cluster, topic, 100)
        queue = results[0].queue
        async with AsyncReader(cluster.name_server) as reader:
            found = [m.offset async for m in reader.read(queue, {queue: 3}, {queue: 9})]
            assert found == [3, 4, 5, 6, 7, 8]

    run(main())


def test_following_goes_on_with_what_comes(run, cluster, topic):
    async def main():
        async with AsyncReader(cluster.name_server) as reader:
            following = reader.read(topic, follow=True)
            first = asyncio.create_task(anext(following))
            await fill(cluster, topic, 1)
            assert (await first).body == b"0"
            await following.aclose()

    run(main())


def test_a_fetch_waits_for_the_first_message(run, cluster, topic):
    async def main():
        async with (
            AsyncReader(cluster.name_server) as reader,
            AsyncProducer(cluster.name_server) as producer,
        ):
            (queue, *_) = await reader.queues(topic)
            assert (await reader.fetch(queue, 0)).messages == ()
            waiting = asyncio.create_task(reader.fetch(queue, 0, wait=10.0))
            await asyncio.sleep(0.05)
            await producer.send(Message(topic, "late"), queue=queue)
            fetched = await waiting
            assert [m.text for m in fetched.messages] == ["late"]
            assert fetched.next_offset == 1

    run(main())


def test_messages_are_found_by_time_key_and_id(run, cluster, topic):
    async def main():
        before = datetime.now(UTC)
        (result,) = await fill(cluster, topic, 1, keys="order-7")
        async with AsyncReader(cluster.name_server) as reader:
            assert await reader.offset_for_time(result.queue, before.timestamp() - 60) == 0
            assert await reader.offset_for_time(result.queue, before.replace(year=2020)) == 0
            with pytest.raises(InvalidMessageError, match="time zone"):
                await reader.offset_for_time(result.queue, datetime(2024, 1, 1))
            (found,) = await reader.messages_by_key(topic, "order-7")
            assert found.message_id == result.message_id
            assert (await reader.message_by_id(result.message_id, topic)) == found
            with pytest.raises(InvalidMessageError, match="no message"):
                await reader.message_by_id("0" * 32, topic)
            with pytest.raises(InvalidMessageError, match="no offset message id"):
                await reader.message_by_id("nonsense")

    run(main())


def test_tags_filter_what_is_read(run, cluster, topic):
    async def main():
        await fill(cluster, topic, 10, tags="a")
        await fill(cluster, topic, 5, tags="b")
        async with AsyncReader(cluster.name_server) as reader:
            assert len([m async for m in reader.read(topic, tags="b || c")]) == 5

    run(main())


def test_misuse_is_told_at_the_call(run, cluster, topic):
    async def main():
        reader = AsyncReader(cluster.name_server)
        with pytest.raises(ClientClosedError, match="not started"):
            reader.read(topic)
        async with reader:
            with pytest.raises(InvalidMessageError, match="exclude one another"):
                reader.read(topic, end="latest", follow=True)
        with pytest.raises(ClientClosedError, match="shut down"):
            await reader.queues(topic)

    run(main())
