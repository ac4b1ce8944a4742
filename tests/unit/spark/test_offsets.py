"""Offsets of a stream are stable as text, remember where they began, and share a limit fairly."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark.offsets import (
    StreamOffset,
    admit,
    batch_begin,
    batch_end,
    flatten,
    nest,
)

A, B, C = (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0))
queues = st.builds(
    MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 12)
)
offsets = st.dictionaries(queues, st.integers(0, 10**6), min_size=1, max_size=8)


def text_of(offset):
    return json.dumps(offset.to_json())


@given(offsets, offsets, st.booleans(), st.randoms())
def test_the_text_depends_on_the_offsets_only(places, begins, is_initial, random):
    shuffled = list(places.items())
    random.shuffle(shuffled)
    one = StreamOffset(places, begins, is_initial)
    other = StreamOffset(dict(shuffled), begins, is_initial)
    assert text_of(one) == text_of(other)
    assert StreamOffset.from_json(json.loads(text_of(one))) == one


def test_the_json_is_topic_broker_queue():
    assert text_of(StreamOffset({B: 5, A: 3})) == (
        '{"v": 1, "offsets": {"t": {"a": {"0": 3, "1": 5}}}}'
    )


@given(offsets)
def test_nesting_loses_nothing(places):
    assert flatten(nest(places)) == places


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"offsets": {}}, "version None"),
        ({"v": 2, "offsets": {}}, "version 2"),
        ({"v": 1}, "can't be read"),
        ({"v": 1, "offsets": {"t": {"a": {"x": 1}}}}, "can't be read"),
    ],
)
def test_foreign_checkpoints_are_refused(value, words):
    with pytest.raises(ConfigError, match=words):
        StreamOffset.from_json(value)


@given(offsets, st.data())
def test_a_limit_is_used_up_exactly_and_never_exceeded(start, data):
    waiting = {q: data.draw(st.integers(0, 1000)) for q in start}
    ends = {q: start[q] + n for q, n in waiting.items()}
    limit = data.draw(st.integers(1, 3000))
    taken = {q: end - start[q] for q, end in admit(start, ends, limit).items()}
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    for queue, count in taken.items():
        assert 0 <= count <= waiting[queue]
        share = waiting[queue] * limit / max(1, sum(waiting.values()))
        assert count >= min(waiting[queue], int(share))


def test_an_end_below_the_start_takes_nothing():
    assert admit({A: 10}, {A: 3}, None) == {A: 10}


def test_nothing_new_gives_the_very_same_offset():
    start = StreamOffset({A: 5, B: 5}, {A: 0})
    assert batch_end(start, {}, {A: 5, B: 5}, None) is start


def test_a_first_batch_remembers_where_it_began():
    start = StreamOffset({A: 100, B: 7}, is_initial=True)
    end = batch_end(start, {}, {A: 110, B: 7}, None)
    assert end == StreamOffset({A: 110, B: 7}, {A: 100, B: 7})
    # After a crash Spark asks for the initial offset again, and "latest" has moved on.
    moved = StreamOffset({A: 500, B: 9}, is_initial=True)
    assert batch_begin(moved, end) == {A: 100, B: 7}


def test_a_second_batch_begins_where_the_first_ended():
    first = StreamOffset({A: 110, B: 7}, {A: 100, B: 7})
    second = batch_end(first, {}, {A: 120, B: 9}, None)
    assert second == StreamOffset({A: 120, B: 9})
    assert batch_begin(first, second) == {A: 110, B: 7}


def test_a_new_queue_starts_where_it_is_told_and_that_is_remembered():
    start = StreamOffset({A: 5})
    end = batch_end(start, {C: 2}, {A: 5, C: 9}, None)
    assert end == StreamOffset({A: 5, C: 9}, {C: 2})
    assert batch_begin(start, end) == {A: 5, C: 2}


def test_a_new_queue_without_messages_makes_no_batch():
    start = StreamOffset({A: 5})
    assert batch_end(start, {C: 0}, {A: 5, C: 0}, None) is start


def test_a_queue_that_cannot_be_read_keeps_its_place():
    start = StreamOffset({A: 5, C: 8})
    assert batch_end(start, {}, {A: 6}, None).offsets == {A: 6, C: 8}


def test_a_limit_covers_new_queues_too():
    end = batch_end(StreamOffset({A: 0}), {C: 0}, {A: 50, C: 50}, 10)
    assert end.offsets == {A: 5, C: 5}
