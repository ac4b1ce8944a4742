"""One timer for all waits of a loop: each is told in time, and none that has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rocketwire.aio.deadlines import Deadlines


class Handle:
    def __init__(self, moment: float, call: Any) -> None:
        self.moment, self.call, self.is_cancelled = moment, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop whose time passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []

    def call_later(self, delay: float, call: Any) -> Handle:
        self.handles.append(Handle(self.now + delay, call))
        return self.handles[-1]

    def pass_time(self, until: float, *, early: float = 0.0) -> None:
        """Run the timers, each of them ``early``."""
        while due := [h for h in self.handles if not h.is_cancelled and h.moment <= until]:
            first = min(due, key=lambda handle: handle.moment)
            self.handles.remove(first)
            self.now = max(self.now, first.moment - early)
            first.call()
        self.now = until


class Waiting:
    def __init__(self, deadline: float, told: list[float], then: Any = None) -> None:
        self.deadline, self._told, self._then = deadline, told, then

    def overdue(self) -> None:
        self._told.append(self.deadline)
        if self._then is not None:
            self._then()


def made() -> tuple[Loop, Deadlines]:
    loop = Loop()
    return loop, Deadlines(cast("Any", loop), lambda: loop.now)


def test_each_is_told_when_its_time_has_come_and_one_timer_is_set() -> None:
    loop, deadlines = made()
    told: list[float] = []
    for deadline in (103.0, 101.0, 102.0):
        deadlines.add(Waiting(deadline, told))
    assert len([h for h in loop.handles if not h.is_cancelled]) == 1
    loop.pass_time(101.5)
    assert told == [101.0]
    loop.pass_time(110.0)
    assert told == [101.0, 102.0, 103.0]
    assert not [h for h in loop.handles if not h.is_cancelled]


def test_one_that_has_ended_is_not_told() -> None:
    loop, deadlines = made()
    told: list[float] = []
    ended, other = Waiting(101.0, told), Waiting(102.0, told)
    deadlines.add(ended)
    deadlines.add(other)
    deadlines.take_back(ended)
    deadlines.take_back(ended)
    loop.pass_time(110.0)
    assert told == [102.0]


def test_a_timer_that_comes_early_is_set_again() -> None:
    loop, deadlines = made()
    told: list[float] = []
    deadlines.add(Waiting(101.0, told))
    loop.pass_time(100.9995, early=0.0009)
    assert told == []
    loop.pass_time(101.1, early=0.0005)
    assert told == [101.0]


def test_what_one_ends_or_begins_meanwhile_counts() -> None:
    loop, deadlines = made()
    told: list[float] = []
    beside, later = Waiting(101.0, told), Waiting(101.4, told)

    def interfere() -> None:
        deadlines.take_back(beside)
        deadlines.add(later)

    deadlines.add(Waiting(101.0, told, interfere))
    deadlines.add(beside)
    deadlines.add(Waiting(105.0, told))
    loop.pass_time(101.2)
    assert told == [101.0]
    loop.pass_time(104.0)
    assert told == [101.0, 101.4]
    loop.pass_time(106.0)
    assert told == [101.0, 101.4, 105.0]


def test_one_that_raises_keeps_no_other_waiting() -> None:
    loop, deadlines = made()
    told: list[float] = []

    def end_program() -> None:
        raise SystemExit

    deadlines.add(Waiting(101.0, told, end_program))
    deadlines.add(Waiting(101.0, told))
    deadlines.add(Waiting(102.0, told))
    with pytest.raises(SystemExit):
        loop.pass_time(101.5)
    loop.pass_time(101.5)
    assert told == [101.0, 101.0]
    loop.pass_time(102.5)
    assert told == [101.0, 101.0, 102.0]
