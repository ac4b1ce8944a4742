"""The room of a producer with ``auto_batch``: what boards is counted, and never too much."""

import asyncio
import random

import pytest

from rocketwire import AsyncProducer, Message
from rocketwire.aio.boarding import BatchRoom
from rocketwire.config import AutoBatch
from rocketwire.core.accumulate import Lane, Lot
from rocketwire.embedded import EmbeddedCluster

OVERHEAD = 64


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=1, queues=4) as running:
        yield running


@pytest.fixture
def topic(cluster):
    cluster.create_topic("boarding")
    return "boarding"


class Batches:
    """What a room asks of an accumulator."""

    overhead = OVERHEAD
    largest = 4096
    most = 10


def room_of(messages=100, size=1 << 20):
    return BatchRoom(asyncio.get_running_loop(), messages, size)


def new_lot(size=10_000):
    return Lot(Lane(("T", True, 3.0, False)), size)


def first_in(room, lot, body=b"1"):
    """What a producer does with a message that can't board."""
    assert room.take(1, len(body))
    lot.put(Message("T", body), None, len(body) + OVERHEAD)
    room.begin(lot, Batches)


def board(room, *bodies):
    return [room.board(Message("T", body)) is not None for body in bodies]


def test_plain_messages_of_the_topic_board_until_the_lot_is_full(run):
    async def main():
        room, lot = room_of(), new_lot()
        first_in(room, lot)
        assert board(room, *[b"22"] * 10) == [True] * 9 + [False]
        assert room.in_flight == 10
        assert room.held_bytes == lot.bytes == 1 + 9 * 2
        assert lot.left == 10_000 - 19 - 10 * OVERHEAD
        room.lot_over(lot)
        assert (room.in_flight, room.held_bytes) == (0, 0)

    run(main())


def test_a_delivery_knows_the_place_of_its_message(run):
    async def main():
        room, lot = room_of(), new_lot()
        first_in(room, lot)
        deliveries = [room.board(Message("T", b"%d" % n)) for n in range(3)]
        lot.settle(range(3), ValueError("0 to 2"))
        lot.finish(ValueError("3"))
        lot.over.open()
        assert [str(d.exception()) for d in deliveries] == ["0 to 2", "0 to 2", "3"]

    run(main())


@pytest.mark.parametrize(
    "message",
    [
        Message("U", b"x"),
        Message("T", b""),
        Message("T", b"x" * 4096),
        Message("T", b"x", tags="t"),
        Message("T", b"x", sharding_key="k"),
        Message("T", b"x", wait_store_ok=False),
    ],
    ids=["topic", "empty", "large", "tags", "key", "wait"],
)
def test_a_message_that_needs_a_closer_look_does_not_board(run, message):
    async def main():
        room, lot = room_of(), new_lot()
        assert room.board(message) is None
        first_in(room, lot)
        assert room.board(message) is None
        assert (lot.count, room.in_flight) == (1, 1)

    run(main())


def test_nobody_boards_a_lot_that_has_no_bytes_left(run):
    async def main():
        room, lot = room_of(), new_lot(size=3 * OVERHEAD + 7)
        first_in(room, lot)
        assert board(room, b"333", b"55555", b"333", b"1") == [True, False, True, False]
        assert (lot.left, lot.count) == (0, 3)

    run(main())


def test_nobody_boards_beyond_the_messages_of_the_room(run):
    async def main():
        room, lot = room_of(messages=4), new_lot()
        assert room.take(1, 50)
        first_in(room, lot)
        assert board(room, b"x", b"x", b"x") == [True, True, False]
        assert not room.take(1, 1)
        assert room.in_flight == 4

    run(main())


def test_nobody_boards_where_the_bytes_of_the_room_may_not_suffice(run):
    async def main():
        room, lot = room_of(size=10_000), new_lot()
        assert room.take(1, 200)
        first_in(room, lot)
        assert board(room, b"x") == [False]
        room.give_back(1, 200)
        lot = new_lot(size=9_000)
        first_in(room, lot)
        assert board(room, b"x") == [True]

    run(main())


def test_whoever_takes_room_finds_what_has_boarded_counted(run):
    async def main():
        room, lot = room_of(messages=5), new_lot()
        first_in(room, lot)
        assert board(room, b"x", b"x") == [True, True]
        assert not room.is_full(1)
        assert not room.take(3, 1)
        assert room.take(2, 1)
        assert board(room, b"x") == [False], "there is no room left for it"
        assert room.is_full(1)

    run(main())


def test_nobody_boards_past_those_who_wait_for_room(run):
    async def main():
        room, lot = room_of(messages=5), new_lot()
        first_in(room, lot)
        assert not room.take(5, 5)
        waiting = asyncio.create_task(room.wait(5, 5, 10))
        await asyncio.sleep(0)
        room.begin(lot, Batches)
        assert board(room, b"x") == [False]
        room.lot_over(lot)
        assert await waiting
        assert room.in_flight == 5

    run(main())


def test_nobody_boards_a_lot_that_has_left(run):
    async def main():
        room, lot = room_of(), new_lot()
        first_in(room, lot)
        lot.is_closed, lot.limit = True, 0
        assert board(room, b"x") == [False]
        room.begin(lot, Batches)
        assert board(room, b"x") == [False]

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_is_counted_right_and_never_beyond_the_limits(run, seed):
    async def main():
        dice = random.Random(seed)
        most, most_bytes = dice.randrange(1, 60), dice.randrange(500, 5000)
        room, lot = room_of(most, most_bytes), None
        lots, singles = [], []
        for _ in range(400):
            body = b"x" * dice.choice([1, 1, 30, 200])
            step = dice.random()
            if step < 0.7:
                if room.board(Message("T", body)) is None and room.take(1, len(body)):
                    needed = len(body) + OVERHEAD
                    if lot is None or lot.left < needed or lot.count >= Batches.most:
                        lot = new_lot(size=1000)
                        lots.append(lot)
                    lot.put(Message("T", body), None, needed)
                    room.begin(lot, Batches)
            elif step < 0.8 and room.take(1, len(body)):
                singles.append(len(body))
            elif step < 0.9 and singles:
                room.give_back(1, singles.pop())
            elif lots:
                over = lots.pop(dice.randrange(len(lots)))
                over.is_closed, over.limit = True, 0
                lot = None if over is lot else lot
                room.lot_over(over)
            bodies = [m.body for each in lots for m in each.messages]
            count, size = len(bodies) + len(singles), sum(map(len, bodies)) + sum(singles)
            assert count <= most
            assert size <= most_bytes or count == 1
            if dice.random() < 0.2:
                assert (room.in_flight, room.held_bytes) == (count, size)
        for each in lots:
            room.lot_over(each)
        assert (room.in_flight, room.held_bytes) == (len(singles), sum(singles))

    run(main())


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
