"""Messages that are put into another topic, each once: both shells, all clusters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.interrupted import cut_off_at_every_step, run_without_index

from rocketwire import (
    Admin,
    AsyncAdmin,
    ClientClosedError,
    InvalidMessageError,
    Message,
    Producer,
    Reader,
    RouteError,
    TopicNotFoundError,
)
from rocketwire.core.admin.replay import Replay


@pytest.fixture(params=list(ADMINS))
def admin(request: pytest.FixtureRequest, target: Any) -> Iterator[Any]:
    one = ADMINS[request.param](target.name_server).start()
    yield one
    one.close()


#: A try that ends too early on a busy machine would store a message twice.
PATIENT: dict[str, Any] = {"send_timeout": 30.0, "attempt_timeout": None}


@pytest.fixture
def producer(target: Any) -> Iterator[Producer]:
    with Producer(target.name_server, group="conformance-replay", **PATIENT) as producer:
        yield producer


def fill(producer: Producer, topic: str, count: int) -> list[Any]:
    """Messages of three sharding keys and of none, some of them compressed."""
    results = []
    for n in range(count):
        body = f"{n} " * (2000 if n % 10 == 0 else 1)
        key = f"k{n % 4}" if n % 4 else None
        own = {"n": str(n)}
        results.append(
            producer.send(
                Message(topic, body, tags="t", keys=f"key-{n}", properties=own, sharding_key=key)
            )
        )
    return results


def read(target: Any, topic: str, count: int) -> list[Any]:
    with Reader(target.name_server) as reader:
        for _ in range(100):
            found = list(reader.read(topic))
            if len(found) >= count:
                break
            time.sleep(0.05)
        return found


@pytest.mark.parametrize("keep_order", [False, True])
def test_all_messages_come_once_with_all_that_they_had(target, producer, admin, keep_order):
    topic, into = target.topic(queues=2), target.topic(queues=3)
    sent = fill(producer, topic, 80)
    originals = read(target, topic, 80)
    results = list(admin.replay(originals, into, keep_order=keep_order))
    assert [r.status for r in results] == ["sent"] * 80
    again = list(admin.replay(originals, into, keep_order=keep_order))
    assert [r.status for r in again] == ["already there"] * 80
    assert [(r.queue, r.offset) for r in again] == [(r.queue, r.offset) for r in results]
    copies = read(target, into, 80)

    def what(m: Any) -> Any:
        return (m.message_id, m.body, m.tags, m.keys, m.sharding_key, dict(m.properties), m.flag)

    assert sorted(map(what, copies)) == sorted(map(what, originals))
    assert {m.message_id for m in copies} == {r.message_id for r in sent}
    if keep_order:
        check_order(originals, copies)
    extra = list(admin.replay(originals[:2], into, label="second"))
    assert [r.status for r in extra] == ["sent"] * 2


def check_order(originals: list[Any], copies: list[Any]) -> None:
    """What was in order in a queue, or by a key, is so in a queue again."""
    place = {m.message_id: (m.queue, m.offset) for m in copies}
    before: dict[Any, tuple[Any, int]] = {}
    for message in originals:
        row = message.sharding_key or message.queue
        queue, offset = place[message.message_id]
        if row in before:
            assert before[row][0] == queue
            assert before[row][1] < offset
        before[row] = (queue, offset)


def test_a_message_that_is_given_twice_is_sent_once(target, producer, admin):
    topic, into = target.topic(queues=1), target.topic(queues=1)
    fill(producer, topic, 3)
    originals = read(target, topic, 3)
    found = list(admin.replay([*originals, *originals], into, keep_order=True))
    assert [r.status for r in found] == ["sent"] * 3 + ["already there"] * 3
    assert [(r.queue, r.offset) for r in found[3:]] == [(r.queue, r.offset) for r in found[:3]]
    assert len(read(target, into, 3)) == 3


def test_a_copy_is_found_behind_more_of_the_same_id_than_a_broker_tells_of(target, producer):
    """Brokers give the newest 32; what a repeat looked for was older, and was sent again."""
    topic, into = target.topic(queues=1), target.topic(queues=1)
    fill(producer, topic, 1)
    originals = read(target, topic, 1)
    with Admin(target.name_server) as admin:
        for number in range(40):
            if number == 20:
                time.sleep(1.1)  # the index knows seconds
            (done,) = admin.replay(originals, into, label=f"{number}")
            assert done.status == "sent"
        assert [r.status for r in admin.replay(originals, into, label="0")] == ["already there"]


def test_what_can_not_be_replayed_is_told(target, producer, admin):
    topic = target.topic(queues=1)
    fill(producer, topic, 2)
    originals = read(target, topic, 2)
    with pytest.raises(InvalidMessageError, match="into itself"):
        list(admin.replay(originals, topic))
    with pytest.raises(TopicNotFoundError, match="topic create"):
        list(admin.replay(originals, "no-such-topic-to-replay"))
    into = target.topic(queues=1)
    with pytest.raises(InvalidMessageError, match="give StoredMessages"):
        list(admin.replay([Message(topic, "x")], into))
    for wrong in (None, 5, originals[0], "text"):
        with pytest.raises(InvalidMessageError, match="give several StoredMessages"):
            list(admin.replay(wrong, into))
    with pytest.raises(InvalidMessageError, match="batch is 0"):
        admin.replay(originals, into, batch=0)
    with pytest.raises(InvalidMessageError, match="label"):
        list(admin.replay(originals, into, label=5))
    with pytest.raises(InvalidMessageError, match="topic"):
        list(admin.replay(originals, 5))
    assert read(target, into, 0) == []
    admin.shutdown()
    with pytest.raises(ClientClosedError):
        list(admin.replay(originals, into))


@pytest.mark.parametrize("keep_order", [False, True])
def test_a_replay_that_ends_at_any_step_is_made_good_by_the_next(target, producer, keep_order):
    if not target.is_embedded:
        pytest.skip("its steps are the same everywhere, and every one takes its time")
    topic, into = target.topic(queues=1), target.topic(queues=1)
    for number in range(120):
        producer.send(Message(topic, f"{number}"))
    originals = read(target, topic, 120)
    parts = [originals[at : at + 5] for at in range(0, 120, 5)]
    rest = iter(parts)
    used: list[Any] = []
    with Admin(target.name_server) as admin:

        def make() -> Any:
            used.append(next(rest))
            run = Replay(
                admin._instance, into, keep_order=keep_order, label="", group="admin", timeout=5.0
            )
            admin._run(run.begin())
            return run.put(used[-1])

        steps = 0
        for _ in cut_off_at_every_step(admin._run, make):
            results = list(admin.replay(used[-1], into, keep_order=keep_order))
            assert {r.status for r in results} <= {"sent", "already there"}
            steps += 1
        assert steps >= 6
    wanted = [message.text for part in used for message in part]
    assert sorted(m.text for m in read(target, into, len(wanted))) == sorted(wanted)


def test_brokers_without_an_index_are_noticed_before_much_is_sent(target, producer):
    if not target.is_embedded:
        pytest.skip("the others' tests need their index")
    topic, into = target.topic(queues=1), target.topic(queues=1)
    producer.send_many([Message(topic, f"{n}") for n in range(40)])
    with Admin(target.name_server) as admin:
        run = Replay(admin._instance, into, keep_order=False, label="", group="admin", timeout=5.0)
        admin._run(run.begin())
        with pytest.raises(RouteError, match="messageIndexEnable=true"):
            run_without_index(admin._run, run.put(list(admin.read(topic))[:10]))
        assert len(list(admin.read(into))) == 10


def test_asyncio_replays_what_its_reader_gives(target, producer):
    if not target.is_embedded:
        pytest.skip("where messages come from makes no difference to brokers")
    topic, into = target.topic(queues=2), target.topic(queues=2)
    fill(producer, topic, 40)

    async def replay() -> list[str]:
        async with AsyncAdmin(target.name_server) as admin:
            found = admin.read(topic)
            return [result.status async for result in admin.replay(found, into, batch=7)]

    assert asyncio.run(replay()) == ["sent"] * 40
    assert asyncio.run(replay()) == ["already there"] * 40
