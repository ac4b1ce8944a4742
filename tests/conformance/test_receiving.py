"""Receive and acknowledge: both shells, on the embedded cluster and on Apache RocketMQ 5."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import eventually, unique_group
from tests.conformance.receivers import RECEIVERS

from rocketwire import (
    Admin,
    BrokerError,
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    Message,
    Producer,
    RocketMQError,
    TopicNotFoundError,
)
from rocketwire.embedded import EmbeddedCluster

#: Apache's brokers bring a message back some seconds late.
BACK = 25.0


@pytest.fixture(scope="module")
def _embedded() -> Iterator[EmbeddedCluster]:
    """A cluster of these tests alone: they put its clock forward."""
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def modern(target) -> Any:
    if target.is_4x:
        pytest.skip("4.9 brokers do not have it; what they are told is tested below")
    return target


@pytest.fixture
def producer(target) -> Iterator[Producer]:
    with Producer(target.name_server, group="feeder") as producer:
        yield producer


@pytest.fixture(params=list(RECEIVERS))
def receiver(request: pytest.FixtureRequest, target) -> Iterator[Callable[..., Any]]:
    """Makes simple consumers, started unless they are to be broken; all are closed in the end."""
    made: list[Any] = []

    def make(group: str, *topics: str, begin: bool = True, **options: Any) -> Any:
        how = {name: options.pop(name) for name in ("tags", "sql") if name in options}
        one = RECEIVERS[request.param](
            target.name_server, group=group, **({"start": "earliest"} | options)
        )
        made.append(one)
        for topic in topics:
            one.subscribe(topic, **how)
        if begin:
            one.start()
        return one

    yield make
    for one in made:
        one.shutdown()


def send(producer: Producer, topic: str, count: int, **more: Any) -> set[str]:
    bodies = [f"m-{number}" for number in range(count)]
    producer.send_many([Message(topic, body, **more) for body in bodies])
    return set(bodies)


def pass_time(target: Any, seconds: float) -> None:
    """Let so much time go by for the brokers."""
    if target.is_embedded:
        target.cluster.clock.advance(seconds)
    else:
        time.sleep(seconds)


def take_all(one: Any, count: int, **how: Any) -> list[Any]:
    """Receive until so many came."""
    found: list[Any] = []
    deadline = time.monotonic() + 40
    while len(found) < count and time.monotonic() < deadline:
        found += one.receive(wait=2.0, **how)
    return found


def test_everything_is_received_once_and_acknowledged(modern, producer, receiver):
    topic = modern.topic()
    bodies = send(producer, topic, 200)
    one = receiver(unique_group(), topic)
    found = take_all(one, 200)
    assert {m.text for m in found} == bodies
    assert len(found) == 200
    assert {(m.topic, m.queue.topic, m.delivery_attempt) for m in found} == {(topic, topic, 1)}
    one.acknowledge(found)
    assert one.receive(wait=0) == []


def test_a_message_that_comes_later_is_waited_for(modern, producer, receiver):
    topic = modern.topic()
    one = receiver(unique_group(), topic)
    assert one.receive(wait=0.2) == []
    timer = threading.Timer(0.5, producer.send, [Message(topic, "late", tags="t", keys="k")])
    timer.start()
    (message,) = one.receive(wait=20)
    timer.join()
    assert (message.text, message.tags, message.keys) == ("late", "t", "k")
    one.do(message, "ack")


def test_members_share_messages_and_not_queues(modern, producer, receiver):
    topic, group = modern.topic(queues=1, brokers=None), unique_group()
    members = [receiver(group, topic) for _ in range(4)]
    bodies = send(producer, topic, 80)
    found: dict[int, list[Any]] = {number: [] for number in range(4)}
    deadline = time.monotonic() + 40
    while sum(map(len, found.values())) < 80 and time.monotonic() < deadline:
        for number, one in enumerate(members):
            found[number] += one.receive(5, wait=0.5)
    texts = [m.text for messages in found.values() for m in messages]
    assert sorted(texts) == sorted(bodies)
    # More members than queues, and each has work.
    assert all(found.values())
    for number, one in enumerate(members):
        one.acknowledge(found[number])


def test_what_is_not_acknowledged_comes_again(modern, producer, receiver):
    topic, group = modern.topic(), unique_group()
    one, two = receiver(group, topic), receiver(group, topic)
    producer.send(Message(topic, "again", properties={"p": "1"}))
    (first,) = take_all(one, 1, invisible=3.0)
    assert two.receive(wait=0) == []
    pass_time(modern, 3)
    deadline = time.monotonic() + BACK
    again: list[Any] = []
    while not again and time.monotonic() < deadline:
        again = two.receive(wait=2.0)
    (second,) = again
    assert (second.text, second.topic, second.delivery_attempt) == ("again", topic, 2)
    assert second.properties["p"] == "1"
    two.do(second, "ack")
    assert first.delivery_attempt == 1


def test_a_message_can_be_kept_longer_and_given_back(modern, producer, receiver):
    topic = modern.topic()
    one = receiver(unique_group(), topic)
    producer.send(Message(topic, "long"))
    (message,) = take_all(one, 1, invisible=4.0)
    one.do(message, "extend", 30)
    before = message._receipt
    pass_time(modern, 6)
    assert one.receive(wait=0) == []
    one.do(message, "release")
    assert message._receipt != before
    deadline = time.monotonic() + BACK
    back: list[Any] = []
    while not back and time.monotonic() < deadline:
        back = one.receive(wait=2.0)
    assert [m.text for m in back] == ["long"]
    one.acknowledge(back)


def test_tags_are_filtered_by_the_broker(modern, producer, receiver):
    topic = modern.topic()
    for number in range(6):
        producer.send(Message(topic, f"{number}", tags="ab"[number % 2]))
    one = receiver(unique_group(), topic, tags=["a"])
    found = take_all(one, 3)
    assert sorted(m.text for m in found) == ["0", "2", "4"]
    one.acknowledge(found)


def test_properties_are_filtered_by_the_broker(modern, producer, receiver):
    topic = modern.topic()
    for number in range(6):
        producer.send(Message(topic, f"{number}", properties={"price": str(number)}))
    one = receiver(unique_group(), topic, sql="price BETWEEN 2 AND 3 OR price = 5")
    found = take_all(one, 3)
    assert sorted(m.text for m in found) == ["2", "3", "5"]
    one.acknowledge(found)


def test_a_wrong_expression_is_an_error_of_start(modern, receiver):
    one = receiver(unique_group(), modern.topic(), sql="price >", begin=False)
    with pytest.raises(ConfigError, match=r"'price >': broker broker-. can't read it: .{20}"):
        one.start()


def test_a_new_group_begins_at_the_end_by_default(modern, producer, receiver):
    topic = modern.topic()
    send(producer, topic, 20)
    time.sleep(0.5)  # Apache's queues follow the log
    one = receiver(unique_group(), topic, start="latest")
    assert one.receive(wait=0.5) == []
    producer.send(Message(topic, "new"))
    (message,) = one.receive(wait=10)
    assert message.text == "new"
    one.do(message, "ack")


def test_several_topics_are_received_together(modern, producer, receiver):
    topics = [modern.topic(), modern.topic()]
    one = receiver(unique_group(), *topics)
    for topic in topics:
        send(producer, topic, 10)
    found = take_all(one, 20)
    assert {m.topic for m in found} == set(topics)
    assert len(found) == 20
    one.acknowledge(found)


def test_a_member_that_is_killed_loses_nothing(modern, producer):
    topic, group = modern.topic(), unique_group()
    bodies = send(producer, topic, 60)
    program = (
        "import sys\n"
        "from rocketwire import SimpleConsumer\n"
        "with SimpleConsumer(sys.argv[1], group=sys.argv[2], start='earliest') as consumer:\n"
        "    consumer.subscribe(sys.argv[3])\n"
        "    got = []\n"
        "    while len(got) < 40:\n"
        "        got += consumer.receive(10, wait=5, invisible=5)\n"
        "    consumer.acknowledge(got[:20])\n"
        "    print(' '.join(m.text for m in got[:20]), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, modern.name_server, group, topic],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    done = set(child.stdout.readline().split())
    os.kill(child.pid, signal.SIGKILL)
    child.communicate(timeout=20)
    assert len(done) == 20
    pass_time(modern, 5)
    one = RECEIVERS["blocking"](modern.name_server, group=group, start="earliest")
    one.subscribe(topic)
    one.start()
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    while not bodies <= seen | done and time.monotonic() < deadline:
        found = one.receive(wait=2.0)
        seen |= {m.text for m in found}
        one.acknowledge(found)
    one.shutdown()
    assert seen | done == bodies
    assert not seen & done


# What is refused


def test_a_broker_that_can_not_do_it_is_named(target, producer, receiver):
    if not target.is_4x:
        pytest.skip("5.x brokers can do it")
    topic = target.topic()
    one = receiver(unique_group(), topic)
    with pytest.raises(BrokerError, match="needs a broker of RocketMQ 5"):
        one.receive(wait=0)


def test_an_unknown_topic_is_an_error_of_start(target, receiver):
    one = receiver(unique_group(), "never-heard-of", begin=False)
    with pytest.raises(TopicNotFoundError, match="never-heard-of"):
        one.start()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"count": 0}, "count"),
        ({"count": "many"}, "count"),
        ({"count": 1025}, "count"),
        ({"wait": -1}, "wait"),
        ({"wait": "soon"}, "wait"),
        ({"invisible": 0}, "invisible"),
        ({"invisible": "1000h"}, "invisible"),
        ({"invisible": None}, "invisible"),
    ],
)
def test_arguments_that_make_no_sense_are_named(target, receiver, arguments, word):
    one = receiver(unique_group(), target.topic())
    with pytest.raises(InvalidMessageError, match=word):
        one.receive(**arguments)


def test_what_was_not_received_can_not_be_acknowledged(target, receiver):
    one = receiver(unique_group(), target.topic())
    with pytest.raises(InvalidMessageError, match="was not received"):
        one.acknowledge([Message("t", "x")])


def test_only_lists_of_what_the_group_has_received_are_acknowledged(modern, producer, receiver):
    """A message has its group's receipt: under another group it would acknowledge something else."""
    topic = modern.topic(queues=1)
    producer.send(Message(topic, "x"))
    one, other = (receiver(unique_group(), topic) for _ in range(2))
    (message,) = one.receive(wait=20)
    for wrong in (None, message, 5):
        with pytest.raises(InvalidMessageError, match="give a list of what receive"):
            one.acknowledge(wrong)
    with pytest.raises(InvalidMessageError, match="was received by group"):
        other.acknowledge([message])
    one.acknowledge(iter([message]))
    (own,) = other.receive(wait=20)
    other.acknowledge((own,))


def test_a_consumer_that_is_closed_or_wants_nothing_says_so(target, receiver):
    idle = receiver(unique_group())
    with pytest.raises(ConfigError, match="subscribe"):
        idle.receive(wait=0)
    new = receiver(unique_group(), begin=False)
    with pytest.raises(ClientClosedError, match="not started"):
        new.receive(wait=0)


@pytest.mark.parametrize(
    "how", [{"tags": "a", "sql": "b = 1"}, {"tags": " || "}, {"tags": 5}, {"sql": " "}]
)
def test_a_subscription_that_makes_no_sense_is_refused(target, receiver, how):
    one = receiver(unique_group(), begin=False)
    with pytest.raises(InvalidMessageError, match=r"tags|sql"):
        one.subscribe("t", **how)


def test_a_group_is_needed(target, receiver):
    with pytest.raises(ConfigError, match="group"):
        receiver("")


def test_operators_see_who_receives_and_when_they_are_gone(modern, producer, receiver):
    topic, group = modern.topic(), unique_group()
    one, two = receiver(group, topic, tags="a || b"), receiver(group, topic, tags="a || b")

    def members() -> set[str]:
        with Admin(modern.name_server) as admin:
            try:
                return {member.client_id for member in admin.group(group).members}
            except RocketMQError:  # nobody has heard of it yet
                return set()

    eventually(lambda: members() == {one.consumer.client_id, two.consumer.client_id})
    gone = two.consumer.client_id
    two.shutdown()
    eventually(lambda: gone not in members())
    assert members() == {one.consumer.client_id}
