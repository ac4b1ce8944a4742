"""What an operator looks at and changes, through both shells and on every cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.members import eventually
from tests.real.running import unique

from rocketwire import (
    BrokerError,
    ClientClosedError,
    InvalidMessageError,
    Message,
    Producer,
    RocketMQError,
    RouteError,
    TopicNotFoundError,
    UnsupportedRequestError,
)


@pytest.fixture(params=list(ADMINS))
def admin(request: pytest.FixtureRequest, target: Any) -> Iterator[Any]:
    made = ADMINS[request.param](target.name_server)
    made.start()
    yield made
    made.close()


@pytest.fixture
def producer(target: Any) -> Iterator[Producer]:
    with Producer(target.name_server, group="operators") as producer:
        yield producer


def soon(look: Callable[[], Any], limit: float = 30.0) -> Any:
    """What a look gives once there is something: indexes and routes follow after a moment."""
    end = time.monotonic() + limit
    while True:
        try:
            found = look()
        except RocketMQError:
            if time.monotonic() > end:
                raise
            found = None
        if found or time.monotonic() > end:
            return found
        time.sleep(0.05)


# -- topics


def test_a_topic_is_made_shown_listed_and_deleted(admin: Any, target: Any, producer: Producer):
    name = unique("admin")
    assert admin.create_topic(name, 2) == ("broker-a", "broker-b")
    producer.send(Message(name, b"x"), queue=soon(lambda: producer.publish_queues(name))[0])
    soon(lambda: len(admin.topic(name).brokers) == 2)
    eventually(lambda: admin.topic(name).messages == 1)
    topic = admin.topic(name)
    assert (topic.name, topic.kind, topic.order) == (name, "normal", False)
    assert [(b.broker, b.read_queues, b.write_queues) for b in topic.brokers] == [
        ("broker-a", 2, 2),
        ("broker-b", 2, 2),
    ]
    assert all(b.can_read and b.can_write and b.master for b in topic.brokers)
    assert [(s.queue.broker, s.queue.id) for s in topic.queues] == [
        ("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1),
    ]  # fmt: skip
    assert [s.messages for s in topic.queues] == [1, 0, 0, 0]
    assert topic.queues[0].updated_at is not None
    assert topic.queues[1].updated_at is None
    assert admin.delete_topic(name) == ("broker-a", "broker-b")
    assert name not in {topic.name for topic in admin.topics()}
    with pytest.raises(TopicNotFoundError, match=f"topic create {name}"):
        admin.topic(name)


def test_topics_tell_what_they_are_for(admin: Any, target: Any):
    name = target.topic()
    kinds = {topic.name: topic.kind for topic in admin.topics()}
    assert kinds[name] == "normal"
    assert kinds["broker-a"] == kinds["SELF_TEST_TOPIC"] == kinds["SCHEDULE_TOPIC_XXXX"] == "system"


def test_a_topic_is_made_on_chosen_brokers(admin: Any):
    name = unique("admin")
    assert admin.create_topic(name, 1, brokers=["broker-b"]) == ("broker-b",)
    assert [b.broker for b in soon(lambda: admin.topic(name).brokers)] == ["broker-b"]
    admin.delete_topic(name)


def test_a_topic_is_made_for_one_type_of_message_where_brokers_know_types(admin: Any, target: Any):
    name = unique("admin")
    if target.is_4x:
        with pytest.raises(UnsupportedRequestError, match=r"broker-a.*5\.0\.0 or later.*4\.9\.7"):
            admin.create_topic(name, 1, message_type="FIFO")
        with pytest.raises(TopicNotFoundError):
            admin.topic(name)
        return
    admin.create_topic(name, 1, message_type="fifo")
    topic = soon(lambda: admin.topic(name))
    assert topic.message_type == "FIFO"
    assert topic.brokers[0].attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"name": "no topic"}, "letters, digits"),
        ({"name": 5}, "topic is 5"),
        ({"name": "t", "queues": 0}, "queues is 0"),
        ({"name": "t", "queues": "4"}, "queues is '4'"),
        ({"name": "t", "queues": True}, "queues is True"),
        ({"name": "t", "message_type": "LOUD"}, "message_type is 'LOUD': one of NORMAL"),
        ({"name": "t", "brokers": "broker-a"}, "brokers is 'broker-a': give a list"),
        ({"name": "t", "brokers": []}, "brokers is"),
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(admin: Any, how: dict[str, Any], said: str):
    with pytest.raises(InvalidMessageError, match=said):
        admin.create_topic(**how)


def test_a_broker_that_nobody_knows_is_named(admin: Any):
    with pytest.raises(RouteError, match=r"broker-x.*known: broker-a, broker-b"):
        admin.create_topic(unique("admin"), brokers=["broker-a", "broker-x"])


def test_an_unknown_topic_is_an_error_of_every_question(admin: Any):
    for ask in (admin.topic, admin.delete_topic):
        with pytest.raises(TopicNotFoundError, match="nowhere does not exist"):
            ask("nowhere")
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        admin.find("nowhere", "key")
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        admin.message("7F00000100002A9F0000000000000000", "nowhere")


# -- messages


def test_a_message_is_found_by_both_of_its_ids_and_by_its_key(
    admin: Any, target: Any, producer: Producer
):
    topic, key = target.topic(), unique("key")
    sent = producer.send(Message(topic, "findable", keys=[key, "other"]))
    by_offset = soon(lambda: admin.message(sent.offset_message_id))
    assert (by_offset.text, by_offset.queue) == ("findable", sent.queue)
    assert soon(lambda: admin.message(sent.message_id, topic)).queue == sent.queue
    assert soon(lambda: admin.message(sent.message_id)).text == "findable"
    for word in (key, "other", sent.message_id):
        (found,) = soon(lambda word=word: admin.find(topic, word))
        assert found.message_id == sent.message_id
    at = by_offset.stored_at.timestamp()
    assert len(admin.find(topic, key, since=at - 60, until=at + 60)) == 1
    assert admin.find(topic, key, until=at - 60) == ()


def test_a_message_that_is_not_there_is_an_error(admin: Any, target: Any, producer: Producer):
    topic = target.topic()
    sent = producer.send(Message(topic, "x"))
    with pytest.raises(InvalidMessageError, match=f"topic {topic} has"):
        admin.message("0A000001000078BF00000000AAAA0001", topic)
    with pytest.raises(InvalidMessageError, match=r"none of .* topics has"):
        admin.message("0A000001000078BF00000000AAAA0001")
    beyond = sent.offset_message_id[:16] + "0" * 8 + "7FFFFFF0"
    with pytest.raises((BrokerError, InvalidMessageError)):
        admin.message(beyond)
    assert admin.find(topic, "nobody") == ()


@pytest.mark.parametrize(
    ("method", "args", "said"),
    [
        ("message", (5,), "message_id is 5"),
        ("message", ("",), "message_id is ''"),
        ("find", ("t", 5), "key is 5"),
        ("find", (None, "k"), "topic is None"),
        ("topic", (7,), "topic is 7"),
    ],
)
def test_wrong_types_are_named(admin: Any, method: str, args: tuple[Any, ...], said: str):
    with pytest.raises(InvalidMessageError, match=said):
        getattr(admin, method)(*args)


# -- life


def test_a_closed_admin_says_so(admin: Any):
    admin.shutdown()
    for ask in (admin.topics, lambda: admin.topic("t"), lambda: admin.create_topic("t")):
        with pytest.raises(ClientClosedError, match="admin client was shut down"):
            ask()
