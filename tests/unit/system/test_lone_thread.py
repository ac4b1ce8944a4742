"""A thread is there once, and gone when it was waited for, whatever interrupts its start."""

from __future__ import annotations

import threading

import pytest
from tests.unit.sync.moments import Moments, run_bounded

from rocketwire.system.lone_thread import LoneThread

LIMIT = 20.0


class Work:
    """Counts how many threads are at it, until it is told to end."""

    def __init__(self) -> None:
        self.begun = 0
        self.over = threading.Event()

    def __call__(self) -> None:
        self.begun += 1
        self.over.wait(LIMIT)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("again", [False, True], ids=["ended", "started again"])
def test_an_interrupt_at_any_moment_of_the_start_leaves_no_thread_behind(again: bool) -> None:
    at, tried = 0, 0
    while True:
        lone, work = LoneThread("lone"), Work()
        moments = Moments(at, interrupt, raises=True)

        def start(moments: Moments = moments, lone: LoneThread = lone, work: Work = work) -> None:
            with moments:
                lone.start(work)

        problem = run_bounded(start, LIMIT)
        assert problem is None or isinstance(problem, KeyboardInterrupt), moments.where
        if again:
            lone.start(work)
        work.over.set()
        is_retired = lone.retire()
        lone.join(LIMIT)
        assert not lone.is_alive(), moments.where
        assert work.begun + is_retired == 1, moments.where
        if not moments.is_done:
            break
        tried += 1
        at += 1
    assert tried > 5


def test_one_that_was_retired_never_works() -> None:
    lone, work = LoneThread("lone"), Work()
    assert lone.retire()
    assert not lone.retire()
    lone.start(work)
    lone.join(LIMIT)
    assert not lone.is_alive()
    assert not work.begun
    assert not lone.is_begun


def test_a_start_for_which_the_system_has_no_thread_can_be_repeated(monkeypatch) -> None:
    lone, work = LoneThread("lone"), Work()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            lone.start(work)
    assert not lone.is_made
    lone.start(work)
    assert lone.is_made
    assert lone.is_alive()
    work.over.set()
    lone.join(LIMIT)
    assert work.begun == 1


def test_what_the_caller_deals_with_is_not_taken_for_an_interrupt(monkeypatch) -> None:
    """Python chains every error to the one that is handled: that one says nothing of the thread."""
    lone, work = LoneThread("lone"), Work()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        try:
            raise KeyError("the caller's own")
        except KeyError:
            with pytest.raises(RuntimeError, match="can't start"):
                lone.start(work)
    assert not lone.is_made
    lone.start(work)
    work.over.set()
    lone.join(LIMIT)
    assert work.begun == 1


def test_it_knows_its_own_thread_and_no_later_one_of_the_same_number() -> None:
    lone, seen = LoneThread("lone"), []
    lone.start(lambda: seen.append((lone.is_current(), lone._ident, lone.join(0))))
    lone.join(LIMIT)
    ((was_current, number, _),) = seen
    assert was_current
    assert number
    assert lone._ident == 0
    assert not lone.is_current()
