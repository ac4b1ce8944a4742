"""Which messages handlers get, and what becomes of the queue."""

from __future__ import annotations

import zlib
from contextlib import nullcontext

import pytest
from tests.unit.core.group.test_process_queue import message

from rocketwire.core.effects import Wait
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.stats import ConsumerCounters
from rocketwire.core.group.workload import SLICE, Limits, Work, Workload
from rocketwire.core.wake_up import WakeUp
from rocketwire.message import MessageQueue
from rocketwire.testing.virtual_clock import VirtualClock
from rocketwire.wire.lazy_message import cut, tried_again
from rocketwire.wire.message_fields import Source
from rocketwire.wire.stored_message import encode_record


class Bench:
    """A workload with queues that are filled by hand."""

    def __init__(self, **options: object) -> None:
        self.clock = VirtualClock(100.0)
        self.workload = Workload(
            lock=nullcontext(), clock=self.clock, **({"ordered": False} | options)
        )
        self.woken = 0
        self.workload.on_ready = self._wake

    def _wake(self) -> None:
        self.woken += 1

    def queue(self, number: int = 0, count: int = 0) -> ProcessQueue:
        found = ProcessQueue(MessageQueue("T", "broker-a", number), 0, WakeUp(nullcontext()))
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


@pytest.mark.parametrize(("batch", "count"), [(1, 3), (4, 9)])
def test_who_takes_work_wakes_the_next_as_long_as_there_is_more(batch, count):
    bench = Bench(batch=batch)
    bench.queue(0, count)
    assert bench.woken == 1
    bench.take()
    assert bench.woken == 2
    bench.take()
    assert bench.woken == 3
    bench.take()
    assert bench.woken == 3, "nothing is left"


def test_who_finishes_an_ordered_queue_looks_for_more_himself():
    bench = Bench(ordered=True)
    bench.queue(0, 2)
    work = bench.take()
    assert bench.woken == 1
    bench.workload.finish(work)
    assert bench.woken == 1
    again = bench.take()
    bench.workload.release(again)
    assert bench.woken == 2, "and who did not do it may not come back"


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
    assert (bench.workload.held_bytes, queue.held, queue.held_bytes) == (0, 0, 0)


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


@pytest.mark.parametrize("batch", [1, 2])
def test_work_that_was_taken_away_is_not_settled_by_its_handler(batch):
    bench = Bench(batch=batch)
    queue = bench.queue(0, batch)
    work = bench.take()
    messages = tuple(work.messages)
    bench.clock.advance(10.0)
    assert bench.workload.overdue(105.0) == {work: messages}
    taken = bench.workload.abandon(work, messages)
    assert tuple(taken.messages) == messages
    assert bench.workload.abandon(work, messages) is None
    assert bench.workload.overdue(105.0) == {}, "it is told once"
    assert bench.workload.go_on(work) is None
    assert not bench.workload.finish(work)
    bench.workload.release(work)
    assert (queue.floor, queue.in_hand, bench.workload.handled) == (0, 1, 0)
    for one in messages:
        bench.workload.settle(taken, one)
    bench.workload.close(taken)
    assert (queue.floor, queue.in_hand, bench.workload.held) == (batch, 0, 0)


# Going on without the lock


def offsets(messages) -> list[int]:
    return [m.offset for m in messages]


def test_a_handler_goes_on_with_its_queue_until_nothing_waits():
    bench = Bench()
    queue = bench.queue(0, 3)
    work = bench.take()
    given = [work.given, bench.workload.go_on(work), bench.workload.go_on(work)]
    assert offsets(given) == [0, 1, 2]
    assert bench.workload.go_on(work) is None
    assert bench.workload.finish(work)
    assert (queue.floor, queue.in_hand, bench.workload.handled) == (3, 0, 3)
    assert bench.take() is None


def test_a_handler_looks_for_other_queues_after_a_moment():
    bench = Bench()
    bench.queue(0, 3)
    bench.queue(1, 1)
    work = bench.take()
    bench.clock.advance(SLICE / 2)
    assert bench.workload.go_on(work).offset == 1
    bench.clock.advance(SLICE / 2)
    assert bench.workload.go_on(work) is None
    bench.workload.finish(work)
    assert bench.take_offsets() == (1, [0])


def test_a_slow_handler_takes_nothing_along_that_others_could_do():
    bench = Bench()
    bench.queue(0, 40)
    stuck = bench.take()
    other = bench.take()
    given = [other.given]
    while (following := bench.workload.go_on(other)) is not None:
        given.append(following)
    assert offsets(given) == list(range(1, 40))
    assert offsets(stuck.messages) == [0]


def test_what_is_done_counts_while_the_handler_is_at_the_next_one():
    bench = Bench()
    queue = bench.queue(0, 5)
    work = bench.take()
    bench.workload.go_on(work)
    bench.workload.go_on(work)
    assert bench.workload.floors([queue]) == {queue.queue: 2}
    assert (bench.workload.handled, bench.workload.held) == (2, 3)
    bench.workload.finish(work)
    assert (queue.floor, bench.workload.handled, bench.workload.held) == (3, 3, 2)


def test_a_queue_is_not_full_of_what_is_done():
    bench = Bench(limits=Limits(queue_messages=3))
    queue = bench.queue(0, 3)
    work = bench.take()
    bench.workload.go_on(work)
    assert bench.workload.full(queue) is None


def test_a_handler_that_hangs_loses_its_message_and_keeps_what_it_has_done():
    bench = Bench()
    queue = bench.queue(0, 4)
    work = bench.take()
    bench.workload.go_on(work)
    bench.clock.advance(10.0)
    ((late, messages),) = bench.workload.overdue(105.0).items()
    assert (late, offsets(messages)) == (work, [1])
    taken = bench.workload.abandon(work, messages)
    assert offsets(taken.messages) == [1]
    assert (queue.floor, bench.workload.handled) == (1, 1)
    assert bench.workload.go_on(work) is None, "it has come back, too late"
    assert not bench.workload.finish(work)
    assert bench.take_offsets() == (0, [2]), "the others were not behind it"


def test_bytes_count_as_stored_while_they_wait_and_as_they_are_once_decompressed():
    bench = Bench(limits=Limits(queue_bytes=5000, bytes=9000))
    queue, other = bench.queue(0), bench.queue(1)
    packed = zlib.compress(bytes(6000))
    source = Source(
        b"".join(
            encode_record(topic="T", body=packed, queue_offset=number, system_flag=1)
            for number in range(4)
        ),
        queue.queue,
    )
    bench.workload.put(queue, cut(source).messages, 4)
    bench.workload.put(other, [message(0)], 1)
    assert bench.workload.full(queue) is None
    first = bench.take()
    assert len(first.messages[0].body) == 6000
    assert "bytes are held of it" in bench.workload.full(queue)
    assert bench.workload.full(other) is None
    bench.take()
    second = bench.take()
    assert len(second.messages[0].body) == 6000
    assert "bytes are held altogether" in bench.workload.full(other)
    record = (bench.workload.held_bytes - len(b"body")) // 4
    told = bench.workload.held_bytes + 2 * (6000 - record)
    assert bench.workload.full(other) == f"{told} bytes are held altogether"
    for work in (first, second):
        bench.workload.finish(work)
    assert bench.workload.full(queue) is None
    assert bench.workload.full(other) is None


def test_a_message_that_a_handler_has_just_begun_is_not_taken_from_it():
    """It was looked for while the handler hung, and taken after it had gone on: the wrong one."""
    bench = Bench()
    queue = bench.queue(0, 3)
    work = bench.take()
    work.until = 1000.0
    bench.clock.advance(10.0)
    ((late, messages),) = bench.workload.overdue(105.0).items()
    assert (late, offsets(messages)) == (work, [0])
    assert bench.workload.go_on(work).offset == 1
    assert bench.workload.abandon(work, messages) is None
    assert offsets(work.messages) == [1]
    assert bench.workload.go_on(work).offset == 2
    assert bench.workload.finish(work)
    assert (queue.floor, queue.in_hand, bench.workload.handled) == (3, 0, 3)


def test_messages_that_nobody_could_care_for_are_handed_out_again():
    bench = Bench(batch=3)
    queue = bench.queue(0, 3)
    work = bench.take()
    bench.workload.settle(work, work.messages[1])
    bench.workload.hand_out_again(work)
    assert (queue.in_hand, queue.held) == (0, 2)
    assert bench.take_offsets() == (0, [0, 2])


def test_a_handler_is_not_overdue_because_of_what_it_did_before():
    bench = Bench()
    bench.queue(0, 2)
    work = bench.take()
    work.until = 200.0
    bench.clock.advance(10.0)
    bench.workload.go_on(work)
    assert bench.workload.overdue(105.0) == {}


def test_a_failed_message_is_the_only_one_of_its_work_that_comes_again():
    bench = Bench()
    queue = bench.queue(0, 4)
    work = bench.take()
    bench.workload.go_on(work)
    assert offsets(work.messages) == [1]
    bench.workload.put_back(work, work.messages)
    bench.workload.close(work)
    assert (queue.floor, bench.workload.handled, queue.in_hand) == (1, 1, 0)
    assert bench.take_offsets() == (0, [1])


def test_a_dropped_queue_gives_a_handler_nothing_more():
    bench = Bench()
    queue = bench.queue(0, 5)
    work = bench.take()
    bench.workload.go_on(work)
    bench.workload.drop(queue)
    assert bench.workload.go_on(work) is None
    bench.workload.finish(work)
    assert (queue.floor, queue.in_hand, bench.workload.held) == (2, 0, 0)


def test_a_fresh_start_gives_a_handler_from_before_nothing_more():
    """It would settle new messages as old ones, and their queue would stand still."""
    bench = Bench()
    queue = bench.queue(0, 5)
    work = bench.take()
    bench.workload.restart(queue, 500)
    bench.put(queue, 2)
    assert bench.workload.go_on(work) is None
    bench.workload.finish(work)
    assert queue.floor == 500
    fresh = bench.take()
    bench.workload.go_on(fresh)
    bench.workload.go_on(fresh)
    bench.workload.finish(fresh)
    assert (queue.floor, bench.workload.held, queue.in_hand) == (502, 0, 0)


def test_an_ordered_queue_stays_in_the_hand_that_goes_on():
    bench = Bench(ordered=True)
    queue = bench.queue(0, 3)
    work = bench.take()
    assert bench.workload.go_on(work).offset == 1
    assert bench.take() is None
    bench.clock.advance(SLICE)
    assert bench.workload.go_on(work) is None
    assert bench.take() is None, "it is not finished yet"
    bench.workload.finish(work)
    assert queue.floor == 2
    assert bench.take_offsets() == (0, [2])


def test_nobody_goes_on_with_an_ordered_queue_whose_lock_was_lost():
    bench = Bench(ordered=True)
    queue = bench.queue(0, 3)
    work = bench.take()
    queue.locked_until = 100.0
    assert bench.workload.go_on(work) is None
    bench.workload.finish(work)
    assert queue.floor == 1
    assert bench.take() is None


def test_lists_are_finished_one_by_one():
    bench = Bench(batch=2)
    queue = bench.queue(0, 4)
    work = bench.take()
    assert offsets(work.given) == [0, 1]
    assert bench.workload.go_on(work) is None
    bench.workload.finish(work)
    assert (queue.floor, bench.workload.handled) == (2, 2)


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


def test_a_new_consumer_has_counted_nothing():
    assert not any(vars(ConsumerCounters()).values())


def test_what_a_queue_has_decompressed_counts_among_all_bytes():
    bench = Bench(limits=Limits(queue_bytes=50_000, bytes=6000))
    queue = bench.queue(0)
    packed = encode_record(topic="T", body=zlib.compress(bytes(6000)), system_flag=1)
    bench.workload.put(queue, cut(Source(packed, queue.queue)).messages, 1)
    bench.put(queue, 1)
    assert bench.workload.full(queue) is None
    assert len(bench.take().messages[0].body) == 6000
    assert bench.workload.full(queue) == f"{6000 + len(b'body')} bytes are held altogether"


def is_rung(queue: ProcessQueue) -> bool:
    """Whether the loop that pulls a queue was woken."""
    effect = next(queue.wake_up.wait(0.0))
    assert isinstance(effect, Wait)
    return effect.event.is_set


@pytest.mark.parametrize(
    ("limits", "count", "rung_at"),
    [
        (Limits(queue_messages=8), 8, 4),
        (Limits(queue_messages=9), 9, 4),
        (Limits(queue_span=8), 9, 5),
        (Limits(messages=8), 8, 4),
        (Limits(queue_bytes=32), 8, 4),  # of four bytes each
    ],
)
def test_a_full_queue_is_pulled_again_when_it_is_half_empty(limits, count, rung_at):
    bench = Bench(limits=limits)
    queue = bench.queue(0, count)
    assert bench.workload.full(queue) is not None
    left = count
    while not is_rung(queue):
        work = bench.take()
        bench.workload.finish(work)
        left -= 1
    assert left == rung_at
    assert not queue.is_full


def test_a_queue_that_is_not_full_is_not_woken_by_what_is_handled():
    bench = Bench(limits=Limits(queue_messages=8))
    queue = bench.queue(0, 4)
    assert bench.workload.full(queue) is None
    for _ in range(4):
        bench.workload.finish(bench.take())
    assert not is_rung(queue)


def test_a_full_queue_that_holds_nothing_more_is_pulled_whatever_others_hold():
    bench = Bench(limits=Limits(messages=4))
    one, other = bench.queue(0, 1), bench.queue(1, 4)
    assert bench.workload.full(one) is not None
    work = bench.take()
    assert work.process_queue is one
    bench.workload.finish(work)
    assert is_rung(one)
    assert not is_rung(other)


@pytest.mark.parametrize(("held", "others", "room"), [(0, 0, 10), (4, 0, 6), (4, 9, 2), (4, 40, 1)])
def test_the_room_of_a_queue_is_what_the_tighter_limit_leaves(held, others, room):
    bench = Bench(limits=Limits(queue_messages=10, messages=15))
    queue = bench.queue(0, held)
    bench.queue(1, others)
    assert bench.workload.room(queue) == room
