"""Tasks cover every offset once; small ranges share a task, large ones are split on request."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rocketwire.message import MessageQueue
from rocketwire.spark.ranges import SMALL, QueueRange, plan_tasks


def ranges_of(*counts, start=0):
    return [
        QueueRange(MessageQueue("t", "b", number), start, start + count)
        for number, count in enumerate(counts)
    ]


def covered(tasks):
    return sorted(
        (part.queue, offset) for task in tasks for part in task for offset in (part.start, part.end)
    )


@given(
    st.lists(st.integers(0, 60_000), max_size=12),
    st.booleans(),
    st.none() | st.integers(1, 50_000),
    st.none() | st.integers(1, 40),
)
def test_every_offset_is_in_one_task(counts, join_small, max_records, min_partitions):
    wanted = ranges_of(*counts, start=7)
    tasks = plan_tasks(
        wanted, join_small=join_small, max_records=max_records, min_partitions=min_partitions
    )
    pieces = sorted(part for task in tasks for part in task)
    for whole in wanted:
        mine = [part for part in pieces if part.queue == whole.queue]
        assert sum(part.rows for part in mine) == whole.rows
        for before, after in itertools.pairwise(mine):
            assert before.end == after.start
        if mine:
            assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
    assert all(part.rows > 0 for part in pieces)
    if max_records is not None:
        assert all(part.rows <= max_records for part in pieces)
    if min_partitions is not None:
        assert len(tasks) >= min(min_partitions, sum(1 for c in counts if c), sum(counts))


def test_a_hundred_messages_make_one_task():
    assert len(plan_tasks(ranges_of(*[13] * 8))) == 1


def test_joining_can_be_turned_off():
    assert len(plan_tasks(ranges_of(*[13] * 8), join_small=False)) == 8


def test_joined_tasks_stay_small():
    tasks = plan_tasks(ranges_of(*[SMALL // 2 - 1] * 10))
    assert [len(task) for task in tasks] == [2] * 5


def test_large_queues_have_tasks_of_their_own():
    tasks = plan_tasks(ranges_of(SMALL, 10, 3 * SMALL, 20))
    assert sorted(sum(part.rows for part in task) for task in tasks) == [30, SMALL, 3 * SMALL]


def test_splitting_by_records_and_by_partitions():
    assert len(plan_tasks(ranges_of(100_000), max_records=30_000)) == 4
    assert len(plan_tasks(ranges_of(100_000), min_partitions=5)) == 5


def test_nothing_to_read_makes_no_task():
    assert plan_tasks(ranges_of(0, 0)) == []
    assert plan_tasks([]) == []
