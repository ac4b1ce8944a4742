"""Consumers share queues, miss nothing, and retry what failed: both shells, all clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, Seen, eventually, shared, unique_group

from rocketwire import Message, MessageQueue, Producer


@pytest.fixture
def producer(target) -> Iterator[Producer]:
    with Producer(target.name_server, group="feeder") as producer:
        yield producer


@pytest.fixture(params=list(MEMBERS))
def member(request: pytest.FixtureRequest, target) -> Iterator[Callable[..., Any]]:
    """Starts members; all are stopped in the end."""
    started: list[Any] = []

    def start(group: str, *topics: str, **options: Any) -> Any:
        options = {"start": "earliest", "seen": seen, "label": str(len(started))} | options
        one = MEMBERS[request.param](target.name_server, group, *topics, **options).start()
        started.append(one)
        return one

    seen = Seen()
    start.seen = seen
    yield start
    for one in started:
        one.stop()


def queues_of(topic: str, brokers: tuple[str, ...], count: int = 4) -> list[MessageQueue]:
    return sorted(MessageQueue(topic, broker, i) for broker in brokers for i in range(count))


def send(producer: Producer, topic: str, bodies: list[str]) -> None:
    queues = producer.publish_queues(topic)
    for number, body in enumerate(bodies):
        producer.send(Message(topic, body), queue=queues[number % len(queues)])


def test_a_member_alone_gets_everything(target, producer, member):
    topic, group = target.topic(), unique_group()
    early = [f"early-{i}" for i in range(50)]
    send(producer, topic, early)
    one = member(group, topic)
    late = [f"late-{i}" for i in range(50)]
    send(producer, topic, late)
    member.seen.wait_for_bodies({*early, *late})
    assert sorted(member.seen.bodies()) == sorted([*early, *late])
    assert len(one.assignment()) == 8


def test_two_members_share_the_queues_without_overlap_or_gap(target, producer, member):
    topic, group = target.topic(), unique_group()
    one, two = member(group, topic), member(group, topic)
    everything = sorted(producer.publish_queues(topic))
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 4)
    assert shared(one, two) == everything
    bodies = [str(i) for i in range(80)]
    send(producer, topic, bodies)
    member.seen.wait_for_bodies(set(bodies))
    assert sorted(member.seen.bodies()) == sorted(bodies)
    assert member.seen.bodies("0")
    assert member.seen.bodies("1")


def test_a_member_that_leaves_hands_its_queues_over(target, producer, member):
    topic, group = target.topic(), unique_group()
    one, two = member(group, topic), member(group, topic)
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 4)
    one.consumer.stop()
    eventually(lambda: len(two.assignment()) == 8)
    bodies = [str(i) for i in range(40)]
    send(producer, topic, bodies)
    member.seen.wait_for_bodies(set(bodies))
    assert sorted(member.seen.bodies("1")) == sorted(bodies)


def test_a_restarted_group_goes_on_where_it_was(target, producer, member):
    topic, group = target.topic(), unique_group()
    send(producer, topic, [f"a{i}" for i in range(40)])
    one = member(group, topic)
    member.seen.wait_for_bodies({f"a{i}" for i in range(40)})
    one.stop()
    send(producer, topic, [f"b{i}" for i in range(40)])
    two = member(group, topic)
    member.seen.wait_for_bodies({f"b{i}" for i in range(40)})
    assert sorted(member.seen.bodies("1")) == sorted(f"b{i}" for i in range(40))
    eventually(lambda: not any(two.lag().values()))
