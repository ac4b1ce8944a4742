"""The offset that may be committed is never past an unhandled message."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Lock

from hypothesis import given
from hypothesis import strategies as st

from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.wake_up import WakeUp
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage

QUEUE = MessageQueue("T", "broker-a", 0)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def message(offset: int, body: bytes = b"body") -> StoredMessage:
    return StoredMessage(
        topic="T",
        body=body,
        tags=None,
        keys=None,
        properties={},
        sharding_key=None,
        delay_level=0,
        deliver_at=None,
        flag=0,
        wait_store_ok=True,
        queue=QUEUE,
        offset=offset,
        message_id=str(offset),
        offset_message_id=str(offset),
        born_at=EPOCH,
        stored_at=EPOCH,
        born_host="",
        store_host="",
        reconsume_times=0,
        commit_log_offset=offset,
    )


def process_queue(offset: int = 0) -> ProcessQueue:
    return ProcessQueue(QUEUE, offset, WakeUp(Lock()))


def test_the_floor_is_the_first_message_that_is_not_settled():
    held = process_queue(10)
    assert held.floor == 10
    held.add([message(10), message(11), message(12)], 13)
    held.settle([message(11), message(12)])
    assert held.floor == 10
    held.settle([message(10)])
    assert held.floor == 13
    assert (held.held, held.held_bytes) == (0, 0)


def test_an_empty_pull_moves_the_floor_past_what_the_filter_left_out():
    held = process_queue(0)
    held.add([], 50)
    assert held.floor == 50


def test_what_no_handler_has_seen_keeps_the_floor_when_it_is_dropped():
    held = process_queue(0)
    held.add([message(i) for i in range(5)], 5)
    taken = [held.waiting.popleft() for _ in range(2)]
    held.settle(taken[:1])
    held.forget_waiting()
    assert held.floor == 1
    held.settle(taken[1:])
    assert held.floor == 2
    assert held.held == 0


def test_a_fresh_start_forgets_everything():
    held = process_queue(0)
    held.add([message(i) for i in range(5)], 5)
    held.restart(100)
    assert (held.floor, held.next_offset, held.held, held.held_bytes) == (100, 100, 0, 0)
    assert held.epoch == 1
    assert not held.waiting


def test_the_idle_gate_opens_when_the_last_handler_is_done():
    held = process_queue()
    held.in_hand = 2
    event = held.idle_event()
    held.put_down()
    assert not event.is_set
    held.put_down()
    assert event.is_set
    assert process_queue().idle_event().is_set


@given(st.data())
def test_whatever_the_order_of_completions_the_floor_is_right(data):
    held = process_queue(0)
    offset, open_offsets = 0, set()
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            fresh = data.draw(st.integers(0, 5))
            gap = data.draw(st.integers(0, 3))
            held.add([message(offset + i) for i in range(fresh)], offset + fresh + gap)
            open_offsets |= set(range(offset, offset + fresh))
            offset += fresh + gap
        elif open_offsets:
            done = data.draw(st.sampled_from(sorted(open_offsets)))
            held.settle([message(done)])
            open_offsets.remove(done)
        assert held.floor == (min(open_offsets) if open_offsets else held.next_offset)
        assert held.held == len(open_offsets)
        assert held.held_bytes == 4 * len(open_offsets)


def test_the_position_is_what_is_handed_out_next_or_waits_apart() -> None:
    held = ProcessQueue(QUEUE, 3, WakeUp(Lock()))
    assert held.position == 3
    held.add([message(3), message(4), message(7)], 9)
    assert held.position == 3
    held.hold_back(frozenset({"T"}), is_paused=False)
    assert [each.offset for each in held.parked] == [3, 4, 7]
    assert held.position == 3
    held.hold_back(frozenset(), is_paused=False)
    assert [each.offset for each in held.waiting] == [3, 4, 7]
    assert held.parked == []
