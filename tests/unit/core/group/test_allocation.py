"""Queues are split as Apache's Java client splits them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketwire.core.group.allocation import (
    allocation_named,
    average,
    average_by_circle,
    java_order,
    on_hash_ring,
)
from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue

VECTORS = Path(__file__).parents[3] / "vectors" / "allocation.tsv"
STRATEGIES = {
    "AVG": average,
    "AVG_BY_CIRCLE": average_by_circle,
    "CONSISTENT_HASH": on_hash_ring,
}


def group_of(members: int, queues: int) -> tuple[list[str], list[MessageQueue]]:
    """The same names as the Java program that made the vectors."""
    ids = [f"10.0.0.{i * 7 % 11}@{100 + i * 13}#{999 - i}" for i in range(members)]
    every = [MessageQueue("orders", "broker-" + "abc"[i % 3], i // 3) for i in range(queues)]
    return sorted(ids, key=java_order), sorted(every)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_splits_are_those_of_the_java_client(strategy):
    rows = [line.split("\t") for line in VECTORS.read_text().splitlines()]
    own = [row for row in rows if row[0] == strategy]
    assert len(own) == 29
    for _, members, queues, member, expected in own:
        ids, every = group_of(int(members), int(queues))
        found = STRATEGIES[strategy](member, every, ids)
        assert [every.index(queue) for queue in found] == [int(i) for i in expected.split()]


@pytest.mark.parametrize("strategy", STRATEGIES.values())
@given(members=st.integers(1, 20), queues=st.integers(0, 60))
def test_every_queue_has_exactly_one_owner(strategy, members, queues):
    ids, every = group_of(members, queues)
    given_out = [queue for member in ids for queue in strategy(member, every, ids)]
    assert sorted(given_out) == every


@given(members=st.integers(2, 12), queues=st.integers(1, 60))
def test_a_consistent_hash_moves_only_the_queues_of_the_one_who_left(members, queues):
    ids, every = group_of(members, queues)
    before = {member: set(on_hash_ring(member, every, ids)) for member in ids}
    left = ids[1:]
    for member in left:
        assert before[member] <= set(on_hash_ring(member, every, left))


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_a_stranger_gets_nothing(strategy):
    ids, every = group_of(3, 8)
    assert tuple(strategy("nobody", every, ids)) == ()


def test_strategies_have_names_and_may_be_functions():
    assert allocation_named("average") is average
    assert allocation_named("average_by_circle") is average_by_circle
    assert allocation_named("Consistent-Hash") is on_hash_ring
    assert allocation_named(average) is average
    with pytest.raises(ConfigError, match="allocation is 'fair': one of average, "):
        allocation_named("fair")
