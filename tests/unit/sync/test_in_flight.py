"""The room of submitted messages, where several threads want some."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.unit.sync.moments import Moments, run_bounded

from rocketwire.core.sending.flush import FlushGroup
from rocketwire.sync.in_flight import InFlightLimit


@contextmanager
def waiting(room: InFlightLimit, messages: int, size: int) -> Iterator[list[bool]]:
    """A thread that stands in line; gives the list in which its answer will be."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(room.take(messages, size, 30.0)))
    thread.start()
    while not room._waiting:
        time.sleep(0.001)
    yield answers
    thread.join(30)
    assert not thread.is_alive()


def test_nobody_overtakes_a_batch_that_waits_for_more_room_than_there_is() -> None:
    room = InFlightLimit(10, 1000)
    assert room.take(10, 10, 0.0)
    with waiting(room, 6, 6) as answers:
        room.give_back(5, 5)
        assert room.admit(1, 1) is None
        assert not room.take(1, 1, 0.0)
        assert answers == []
        room.give_back(1, 1)
    assert answers == [True]
    assert room.held == 10


def test_nobody_overtakes_a_large_message_either() -> None:
    room = InFlightLimit(10, 100)
    assert room.take(1, 50, 0.0)
    assert room.take(1, 50, 0.0)
    with waiting(room, 1, 90) as answers:
        room.give_back(1, 50)
        assert not room.take(1, 10, 0.0)
        room.give_back(1, 50)
    assert answers == [True]


def test_who_must_not_wait_takes_room_whoever_else_does() -> None:
    main = threading.current_thread()
    room = InFlightLimit(1, 100, lambda: threading.current_thread() is main)
    assert room.take(1, 1, 0.0)
    with waiting(room, 1, 1) as answers:
        assert room.take(1, 1, 30.0)
        room.give_back(2, 2)
    assert answers == [True]


def test_those_behind_go_on_when_the_one_before_them_gives_up() -> None:
    room = InFlightLimit(10, 1000)
    assert room.take(8, 8, 0.0)
    ends: list[bool] = []
    first = threading.Thread(target=lambda: ends.append(room.take(5, 5, 0.3)))
    first.start()
    while not room._waiting:
        time.sleep(0.001)
    assert room.take(2, 2, 30.0)
    first.join(30)
    assert ends == [False]


def test_what_is_larger_than_the_room_goes_in_when_it_is_empty() -> None:
    room = InFlightLimit(3, 100)
    assert room.take(1, 1, 0.0)
    with waiting(room, 5, 500) as answers:
        room.give_back(1, 1)
    assert answers == [True]
    assert room.held == 5


@pytest.mark.parametrize("comes", ["room", "none"])
def test_an_interrupt_at_any_moment_of_waiting_for_room_loses_no_place(comes: str) -> None:
    at = 0
    while True:
        room = InFlightLimit(1, 100)
        assert room.take(1, 1, 0.0)

        def interrupt() -> None:
            raise KeyboardInterrupt

        moments = Moments(at, interrupt, raises=True)
        taken: list[bool] = []

        def work(
            room: InFlightLimit = room, moments: Moments = moments, taken: list[bool] = taken
        ) -> None:
            with moments:
                taken.append(room.take(1, 1, 5.0 if comes == "room" else 0.001))

        other = threading.Timer(0.002, room.give_back, (1, 1))
        if comes == "room":
            other.start()
        problem = run_bounded(work, 10)
        if comes == "room":
            other.join()
        else:
            room.give_back(1, 1)
        if taken == [True]:
            room.give_back(1, 1)
        assert (room.held, room._held_bytes, room._waiting) == (0, 0, []), moments.where
        if not moments.is_done:
            assert taken == [comes == "room"]
            return
        assert isinstance(problem, KeyboardInterrupt), f"{problem!r} after {moments.where}"
        at += 1


class Ended:
    """A delivery whose answer has come."""

    def __init__(self, group: FlushGroup, room: int) -> None:
        self.count = 1
        self.room = room
        self.group = group
        self.is_set = False
        self.waiters: list[Callable[[], None]] | None = None


def test_deliveries_that_end_together_give_back_all_their_room_before_anyone_goes_on() -> None:
    room = InFlightLimit(10, 100)
    ended: list[Ended] = []
    told: list[int] = []
    for number in range(6):
        group = room.admit(1, 10)
        assert group is not None
        delivery = Ended(group, 10)
        if number % 2:
            delivery.waiters = [lambda n=number: told.append(n)]  # type: ignore[misc]
        ended.append(delivery)
        if number == 3:  # a flush: what follows is of another group
            assert not room.flush(0.0)
    assert ended[3].group is not ended[4].group
    with waiting(room, 1, 90) as answers:
        for wake in room.finish(ended):
            wake()
    assert answers == [True]
    assert told == [1, 3, 5]
    assert all(delivery.is_set for delivery in ended)
    assert [delivery.group.count for delivery in ended] == [0] * 6
    assert ended[0].group.over.is_set
    assert (room.held, room._held_bytes) == (1, 90)
    assert room.flush(0.0)
