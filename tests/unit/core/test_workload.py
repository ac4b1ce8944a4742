"""Which messages handlers get, and what becomes of the queue."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from tests.unit.core.test_process_queue import message

from rocketwire.core.bell import Bell
from rocketwire.core.process_queue import ProcessQueue
from rocketwire.core.received import tried_again
from rocketwire.core.workload import Limits, Work, Workload
from rocketwire.message import MessageQueue
from rocketwire.testing.virtual_clock import VirtualClock


class Bench:
    """A workload with queues that are filled by hand."""

    def __init__(self, **options: object) -> None:
        self.clock = VirtualClock(100.0)
        self.workload = Workload(
            lock=nullcontext(), clock=self.clock, **({"ordered": False} | options)
        )
        self.woken: list[int] = []
        self.workload.on_ready = self.woken.append

    def queue(self, number: int = 0, count: int = 0) -> ProcessQueue:
        found = ProcessQueue(MessageQueue("T", "broker-a", number), 0, Bell(nullcontext()))
        found.locked_until = 1000.0
        if count:
            self.put(found, count)
        return found

    def put(self, queue: ProcessQueue, count: int) -> None:
        start = queue.next_offset
        self.workload.put(queue, [message(start + i) for i in range(count)], start + count)

    def take(self) -> Work | None:
        return self.workload.next_work()

    def take_offsets(self) -> tuple[int, list[int]] | None:
        work = self.take()
        if work is None:
            return None
        return work.process_queue.queue.id, [m.offset for m in work.messages]


def test_queues_take_turns():
    bench = Bench()
    bench.queue(0, 2)
    bench.queue(1, 2)
    order = [bench.take_offsets() for _ in range(5)]
    assert order == [(0, [0]), (1, [0]), (0, [1]), (1, [1]), None]


def test_batches_are_of_one_queue_and_not_too_large():
    bench = Bench(batch=3)
    bench.queue(0, 4)
    bench.queue(1, 2)
    taken = [bench.take_offsets() for _ in range(4)]
    assert taken == [(0, [0, 1, 2]), (1, [0, 1]), (0, [3]), None]


def test_workers_are_woken_for_as_many_batches_as_there_are():
    bench = Bench(batch=4)
    bench.queue(0, 9)
    assert bench.woken == [3]


def test_completions_out_of_order_commit_nothing_past_the_first_open_one():
    bench = Bench()
    queue = bench.queue(0, 3)
    first, second, third = bench.take(), bench.take(), bench.take()
    bench.workload.finish(third)
    bench.workload.finish(second)
    assert queue.floor == 0
    bench.workload.finish(first)
    assert queue.floor == 3
    assert (bench.workload.handled, bench.workload.held, bench.workload.in_hand) == (3, 0, 0)


def test_an_ordered_queue_is_in_one_hand_at_a_time():
    bench = Bench(ordered=True)
    bench.queue(0, 3)
    bench.queue(1, 1)
    first = bench.take()
    assert bench.take_offsets() == (1, [0])
    assert bench.take() is None
    bench.workload.finish(first)
    assert bench.take_offsets() == (0, [1])
    assert bench.take() is None


def test_an_ordered_queue_without_its_lock_is_not_handed_out():
    bench = Bench(ordered=True)
    queue = bench.queue(0)
    queue.locked_until = 50.0
    bench.put(queue, 1)
    assert bench.take() is None
    queue.locked_until = 200.0
    bench.workload.look_again(queue)
    assert bench.take_offsets() == (0, [0])


def test_a_lock_that_ran_out_stops_a_queue_that_was_in_line():
    bench = Bench(ordered=True)
    queue = bench.queue(0, 1)
    queue.locked_until = 110.0
    bench.clock.advance(10.0)
    assert bench.take() is None


def test_a_failed_ordered_message_comes_first_again_after_its_rest():
    bench = Bench(ordered=True)
    queue = bench.queue(0, 2)
    work = bench.take()
    bench.workload.put_back(work, [tried_again(m) for m in work.messages], 101.0)
    bench.workload.close(work)
    assert bench.take() is None
    bench.clock.advance(1.0)
    bench.workload.resume(queue, 101.0)
    again = bench.take()
    assert [(m.offset, m.reconsume_times) for m in again.messages] == [(0, 1)]


def test_a_rest_is_over_when_its_timer_says_so_be_the_clock_a_little_behind():
    """A timer may come a fraction early; a queue slept until its next pull because of it."""
    bench = Bench(ordered=True)
    queue = bench.queue(0, 1)
    work = bench.take()
    bench.workload.put_back(work, work.messages, 101.0)
    bench.workload.close(work)
    bench.clock.advance(0.9995)
    bench.workload.resume(queue, 101.0)
    assert bench.take_offsets() == (0, [0])


def test_a_longer_rest_is_not_ended_by_the_timer_of_a_shorter_one():
    bench = Bench(ordered=True)
    queue = bench.queue(0, 1)
    work = bench.take()
    bench.workload.put_back(work, work.messages, 105.0)
    bench.workload.close(work)
    bench.workload.resume(queue, 101.0)
    assert bench.take() is None


def test_a_dropped_queue_hands_out_nothing_and_frees_what_waited():
    bench = Bench()
    queue = bench.queue(0, 5)
    work = bench.take()
    bench.workload.drop(queue)
    assert bench.take() is None
    assert bench.workload.held == 1
    bench.put(queue, 3)
    assert bench.workload.held == 1
    bench.workload.finish(work)
    assert (queue.floor, bench.workload.held, bench.workload.held_bytes) == (1, 0, 0)


def test_messages_put_back_into_a_dropped_queue_are_let_go():
    bench = Bench()
    queue = bench.queue(0, 1)
    work = bench.take()
    bench.workload.drop(queue)
    bench.workload.release(work)
    assert (bench.workload.held, queue.in_hand, queue.floor) == (0, 0, 0)


def test_work_from_before_a_fresh_start_counts_no_more():
    bench = Bench(ordered=True)
    queue = bench.queue(0, 2)
    work = bench.take()
    bench.workload.restart(queue, 500)
    bench.put(queue, 1)
    assert bench.take() is None, "the old handler is still at it"
    bench.workload.finish(work)
    assert queue.floor == 500
    assert bench.take_offsets() == (0, [500])


def test_released_work_is_handed_out_again():
    bench = Bench()
    bench.queue(0, 2)
    work = bench.take()
    bench.workload.release(work)
    assert bench.take_offsets() == (0, [0])
    assert bench.take_offsets() == (0, [1])


def test_work_that_was_taken_away_is_not_settled_by_its_handler():
    bench = Bench()
    queue = bench.queue(0, 1)
    work = bench.take()
    bench.clock.advance(10.0)
    assert bench.workload.overdue(105.0) == [work]
    assert bench.workload.abandon(work)
    assert not bench.workload.abandon(work)
    assert not bench.workload.finish(work)
    assert queue.floor == 0
    assert bench.workload.handled == 0


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(queue_messages=3), "3 messages are held of it"),
        (Limits(queue_bytes=12), "12 bytes are held of it"),
        (Limits(queue_span=2), "its first message is not handled, 2 offsets back"),
        (Limits(messages=3), "3 messages are held altogether"),
        (Limits(bytes=12), "12 bytes are held altogether"),
    ],
)
def test_a_queue_is_not_pulled_beyond_its_limits(limits, why):
    bench = Bench(limits=limits)
    queue = bench.queue(0, 3)
    assert bench.workload.full(queue) == why
    assert queue.is_full
    while (work := bench.take()) is not None:
        bench.workload.finish(work)
    assert not queue.is_full
    assert bench.workload.full(queue) is None


def test_a_queue_that_holds_nothing_is_pulled_whatever_others_hold():
    bench = Bench(limits=Limits(messages=3))
    bench.queue(0, 5)
    assert bench.workload.full(bench.queue(1)) is None


def test_the_span_of_an_ordered_queue_is_no_limit():
    bench = Bench(ordered=True, limits=Limits(queue_span=2))
    assert bench.workload.full(bench.queue(0, 5)) is None
