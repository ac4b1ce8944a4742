"""Doing things later."""

from __future__ import annotations

import asyncio
import time

from rocketwire.embedded.delays import Delays


def test_what_is_due_is_done_in_its_order_when_timers_end_early(monkeypatch) -> None:
    # It was not: each waited once more by itself, and those whose timers were late went first.
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    done: list[int] = []

    async def run() -> None:
        nonlocal now
        delays = Delays()
        for number in range(5):
            delays.after(0.0001 * (number + 1), lambda number=number: done.append(number))
        now = 100.00009  # a timer ends before the first moment
        delays._run_due()
        assert done == []
        now = 100.00035  # and the next one late
        delays._run_due()
        assert done == [0, 1, 2]
        now = 101.0
        while len(done) < 5:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert done == [0, 1, 2, 3, 4]


def test_one_moment_keeps_the_order_of_the_calls_and_no_delay_waits_for_nobody(monkeypatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    done: list[str] = []

    async def run() -> None:
        delays = Delays()
        for name in "abc":
            delays.after(1.0, lambda name=name: done.append(name))
        delays.after(0.0, lambda: done.append("now"))
        monkeypatch.setattr(time, "monotonic", lambda: 101.0)
        delays._run_due()

    asyncio.run(run())
    assert done == ["now", "a", "b", "c"]


def test_one_that_fails_or_delays_something_else_keeps_nobody() -> None:
    done = asyncio.Event()

    async def run() -> None:
        delays = Delays()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        delays.after(0.001, lambda: 1 / 0)
        delays.after(0.002, lambda: delays.after(0.001, done.set))
        await asyncio.wait_for(done.wait(), 30)

    asyncio.run(run())


def test_what_is_forgotten_is_not_done() -> None:
    done: list[str] = []

    async def run() -> None:
        delays = Delays()
        delays.after(0.001, lambda: done.append("it was to be forgotten"))
        delays.forget()
        over = asyncio.Event()
        delays.after(0.005, over.set)
        await asyncio.wait_for(over.wait(), 30)

    asyncio.run(run())
    assert done == []
