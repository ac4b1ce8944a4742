"""Threads that are let go on one after the other: none is forgotten, whatever becomes of the one before it."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from typing import Any, cast

import pytest
from tests.unit.sync.moments import Moments

from rocketwire.sync.chained_wake_ups import ChainedWakeUps
from rocketwire.system.latch import Latch

LIMIT = 20.0


class Loop:
    """Keeps what it is asked to call."""

    def __init__(self) -> None:
        self.soon: list[Any] = []
        self.later: list[Any] = []

    def call_soon(self, call: Any, *given: Any) -> None:
        self.soon.append(lambda: call(*given))

    def call_later(self, _: float, call: Any, *given: Any) -> None:
        self.later.append(lambda: call(*given))

    def tick(self) -> None:
        """Call what is to be called soon."""
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def wait(self) -> None:
        """Call what is to be called later."""
        calls, self.later = self.later, []
        for call in calls:
            call()


def made(count: int) -> tuple[Loop, ChainedWakeUps, list[Latch], list[str]]:
    loop, ends = Loop(), cast("list[str]", [])
    wake_ups = ChainedWakeUps(lambda: ends.append("end"))
    wake_ups.begin(cast("Any", loop))
    latches = [Latch() for _ in range(count)]
    for latch in latches:
        wake_ups.let_go_on(latch)
    return loop, wake_ups, latches, ends


def opened(latches: list[Latch]) -> list[bool]:
    return [latch.is_open for latch in latches]


def test_one_after_the_other_when_all_answers_are_read() -> None:
    loop, wake_ups, latches, ends = made(3)
    assert opened(latches) == [False] * 3
    loop.tick()
    assert opened(latches) == [True, False, False]
    wake_ups.pass_on()
    assert wake_ups.has_more
    assert opened(latches) == [True, True, False]
    wake_ups.pass_on()
    assert opened(latches) == [True] * 3
    assert not wake_ups.has_more
    assert ends == []
    wake_ups.pass_on()
    assert ends == ["end"]


def test_one_that_comes_while_others_go_on_is_the_last_of_them() -> None:
    loop, wake_ups, latches, ends = made(2)
    loop.tick()
    late = Latch()
    wake_ups.let_go_on(late)
    assert loop.soon == []
    wake_ups.pass_on()
    wake_ups.pass_on()
    assert opened([*latches, late]) == [True] * 3
    wake_ups.pass_on()
    assert ends == ["end"]
    after = Latch()
    wake_ups.let_go_on(after)
    loop.tick()
    assert after.is_open


def test_a_thread_that_wakes_nobody_is_made_up_for() -> None:
    loop, wake_ups, latches, ends = made(3)
    loop.tick()  # and the first is interrupted before it wakes the next one
    loop.wait()
    assert opened(latches) == [True, False, False]  # there was a step since the answers came
    loop.wait()
    assert opened(latches) == [True, True, False]
    loop.wait()
    assert opened(latches) == [True] * 3
    assert ends == []
    loop.wait()
    assert ends == ["end"]  # in place of the last one: others have handed something over meanwhile
    assert loop.later == []
    after = Latch()
    wake_ups.let_go_on(after)
    for _ in range(2):
        loop.tick()
        loop.wait()
    assert after.is_open


def test_those_that_go_on_by_themselves_are_left_alone() -> None:
    loop, wake_ups, latches, _ = made(4)
    loop.tick()
    for count in (2, 3):
        wake_ups.pass_on()
        loop.wait()
        assert opened(latches).count(True) == count


def test_at_the_end_and_on_other_threads_nobody_waits_for_a_turn() -> None:
    _, wake_ups, latches, _ = made(3)
    other = Latch()
    thread = threading.Thread(target=wake_ups.let_go_on, args=(other,))
    thread.start()
    thread.join(LIMIT)
    assert other.is_open
    assert opened(latches) == [False] * 3
    wake_ups.end()
    assert opened(latches) == [True] * 3
    after = Latch()
    wake_ups.let_go_on(after)
    assert after.is_open


@pytest.mark.parametrize("passed", [0, 1])
def test_an_interrupt_at_any_moment_of_passing_on_leaves_nobody_asleep(passed) -> None:
    for at in itertools.count():
        loop, wake_ups, latches, ends = made(2)
        loop.tick()
        for _ in range(passed):
            wake_ups.pass_on()
        with Moments(at, interrupt, raises=True) as moments, suppress(KeyboardInterrupt):
            wake_ups.pass_on()
        for _ in range(8):
            loop.tick()
            loop.wait()
        assert opened(latches) == [True] * 2, moments.where
        assert ends, moments.where
        assert loop.later == [], moments.where
        if not moments.is_done:
            assert at > 1
            return


def interrupt() -> None:
    raise KeyboardInterrupt


def test_one_that_goes_on_already_keeps_no_other_waiting() -> None:
    loop, wake_ups, latches, _ = made(3)
    latches[0].open()  # its caller was interrupted
    loop.tick()
    assert opened(latches) == [True, True, False]
    wake_ups.pass_on()
    assert opened(latches) == [True] * 3
