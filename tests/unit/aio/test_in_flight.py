"""The room that submitted messages take: bounded, fair, never lost."""

import asyncio

import pytest

from rocketwire.aio.in_flight import InFlightLimit


def room_of(messages=10, size=1000):
    return InFlightLimit(asyncio.get_running_loop(), messages, size)


def test_room_is_bounded_by_messages_and_by_bytes(run):
    async def main():
        room = room_of(messages=3, size=100)
        assert room.take(2, 10)
        assert not room.take(2, 10)
        assert room.take(1, 90)
        room.give_back(2, 10)
        assert not room.take(1, 11)
        assert room.take(1, 10)
        assert room.held == 2

    run(main())


def test_what_is_larger_than_the_room_may_go_in_when_it_is_empty(run):
    async def main():
        room = room_of(messages=3, size=100)
        assert room.take(5, 1000)
        assert not room.take(1, 1)
        room.give_back(5, 1000)
        assert room.take(1, 1)

    run(main())


def test_those_who_wait_are_served_in_order_and_nobody_overtakes_them(run):
    async def main():
        room = room_of(messages=1)
        assert room.take(1, 1)
        order = []

        async def come(name):
            if not room.take(1, 1):
                assert await room.wait(1, 1, 10)
            order.append(name)
            room.give_back(1, 1)

        tasks = [asyncio.create_task(come(n)) for n in range(5)]
        await asyncio.sleep(0)
        room.give_back(1, 1)
        assert not room.take(1, 1), "the first of the line has it already"
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3, 4]
        assert room.held == 0
        assert room.take(1, 1)

    run(main())


def test_waiting_in_vain_ends_at_its_limit_and_lets_the_next_one_in(run):
    async def main():
        room = room_of(messages=10)
        assert room.take(8, 1)
        large = asyncio.create_task(room.wait(5, 1, 0.02))
        await asyncio.sleep(0)
        small = asyncio.create_task(room.wait(2, 1, 10))
        assert await large is False
        assert await small is True
        assert room.held == 10

    run(main())


def test_cancelling_a_wait_gives_back_what_was_just_granted(run):
    async def main():
        room = room_of(messages=1)
        assert room.take(1, 1)
        task = asyncio.create_task(room.wait(1, 1, 10))
        await asyncio.sleep(0)
        room.give_back(1, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert room.held == 0
        assert room.take(1, 1)

    run(main())


def test_quiet_comes_when_the_last_answer_has_come(run):
    async def main():
        room = room_of()
        assert await room.quiet(None)
        room.take(2, 2)
        assert not await room.quiet(0.01)
        task = asyncio.create_task(room.quiet(None))
        await asyncio.sleep(0)
        room.give_back(1, 1)
        await asyncio.sleep(0)
        assert not task.done()
        room.give_back(1, 1)
        assert await task

    run(main())


def test_quiet_may_mean_awaited_sends_too(run):
    async def main():
        room = room_of()
        room.awaited = 1
        assert await room.quiet(0)
        task = asyncio.create_task(room.quiet(10, awaited=True))
        await asyncio.sleep(0)
        assert room.has_waiters
        room.awaited = 0
        room.look_around()
        assert await task

    run(main())
