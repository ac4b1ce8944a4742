"""What an operator looks at and changes, through both shells and on every cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.members import MEMBERS, eventually, unique_group
from tests.real.running import unique

from rocketwire import (
    BrokerError,
    ClientClosedError,
    GroupNotFoundError,
    InvalidMessageError,
    Message,
    PlainAccount,
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


#: A try that ends too early on a busy machine would store a message twice.
PATIENT: dict[str, Any] = {"send_timeout": 30.0, "attempt_timeout": None}


@pytest.fixture
def producer(target: Any) -> Iterator[Producer]:
    with Producer(target.name_server, group="operators", **PATIENT) as producer:
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
        ({"name": "t", "brokers": 5}, "brokers is 5: give a list"),
        ({"name": "t", "order": "yes"}, "order is 'yes': True or False"),
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


def test_a_topic_is_altered_and_keeps_the_rest(admin: Any, target: Any):
    name = target.topic(queues=2)
    assert admin.alter_topic(name, queues=9, dry_run=True) == ("broker-a", "broker-b")
    assert {b.write_queues for b in admin.topic(name).brokers} == {2}
    assert admin.alter_topic(name, can_write=False, brokers=["broker-b"]) == ("broker-b",)
    soon(lambda: not admin.topic(name).brokers[1].can_write)
    a, b = admin.topic(name).brokers
    assert (a.can_write, b.can_write, b.can_read, b.write_queues) == (True, False, True, 2)
    assert admin.alter_topic(name, queues=3) == ("broker-a", "broker-b")
    soon(lambda: {b.write_queues for b in admin.topic(name).brokers} == {3})
    a, b = admin.topic(name).brokers
    assert (a.read_queues, b.read_queues, b.can_write) == (3, 3, False)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "nothing to change"),
        ({"queues": 0}, "read_queues is 0"),
        ({"can_write": "no"}, "can_write is 'no'"),
        ({"message_type": "LOUD"}, "message_type is 'LOUD'"),
    ],
)
def test_an_alteration_that_makes_no_sense_is_refused(admin: Any, how: dict[str, Any], said: str):
    with pytest.raises(InvalidMessageError, match=said):
        admin.alter_topic("any", **how)


# -- groups


def fill(producer: Producer, topic: str, count: int) -> list[Any]:
    """The same number of messages in every queue."""
    queues = soon(lambda: producer.publish_queues(topic))
    return [producer.send(Message(topic, b"x"), queue=q) for q in queues for _ in range(count)]


def consume_all(target: Any, group: str, topic: str, count: int) -> None:
    """A group that has handled everything and is gone."""
    member = MEMBERS["blocking"](target.name_server, group, topic, start="earliest").start()
    member.seen.wait(lambda seen: len(seen.all) >= count)
    member.stop()


def test_a_group_shows_members_assignment_and_lag(admin: Any, target: Any, producer: Producer):
    topic, group = target.topic(queues=1), unique_group()
    fill(producer, topic, 2)
    member = MEMBERS["blocking"](target.name_server, group, topic, start="earliest").start()
    try:
        member.seen.wait(lambda seen: len(seen.all) >= 4)
        soon(lambda: len(admin.group(group).assignment) >= 2)
        found = admin.group(group)
        assert [m.client_id for m in found.members] == [member.consumer.client_id]
        assert (found.members[0].language, found.members[0].role) == ("PYTHON", "consumer")
        assert found.subscriptions[topic] == "*"
        own = {queue for queue in found.assignment if queue.topic == topic}
        assert own == set(member.assignment())
        assert {found.assignment[queue] for queue in own} == {member.consumer.client_id}
        (connection,) = admin.connections(group)
        assert connection.brokers == ("broker-a", "broker-b")
        with pytest.raises(InvalidMessageError, match="has members"):
            admin.delete_group(group)
    finally:
        member.stop()
    eventually(lambda: set(of_topic(admin.group(group).lag, topic).values()) == {0})
    fill(producer, topic, 3)
    eventually(lambda: set(of_topic(admin.group(group).lag, topic).values()) == {3})
    assert (group, False) in {(g.name, g.is_system) for g in admin.groups()}
    assert admin.group(group).members == ()
    if not target.is_embedded:
        assert "TOOLS_CONSUMER" in {g.name for g in admin.groups() if g.is_system}


def of_topic(table: Any, topic: str) -> dict[Any, int]:
    return {queue: number for queue, number in table.items() if queue.topic == topic}


def test_a_group_is_moved_and_a_dry_run_moves_nothing(admin: Any, target: Any, producer: Producer):
    topic, group = target.topic(queues=1), unique_group()
    sent = fill(producer, topic, 3)
    consume_all(target, group, topic, 6)
    would = admin.reset(group, topic, "earliest", dry_run=True)
    assert [(c.before, c.after) for c in would] == [(3, 0), (3, 0)]
    assert set(of_topic(admin.group(group).lag, topic).values()) == {0}
    assert admin.reset(group, topic, "earliest") == would
    assert set(of_topic(admin.group(group).lag, topic).values()) == {3}
    assert {c.after for c in admin.reset(group, topic, "latest")} == {3}
    queue = sent[0].queue
    (change,) = admin.reset(group, topic, {queue: 1})
    assert (change.queue, change.before, change.after) == (queue, 3, 1)
    assert sorted(of_topic(admin.group(group).lag, topic).values()) == [0, 2]
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    assert {c.after for c in admin.reset(group, topic, long_ago)} == {0}
    assert {c.after for c in admin.reset(group, topic, time.time() + 60)} == {3}


def test_members_of_a_group_go_on_where_they_are_moved(admin: Any, target: Any, producer: Producer):
    topic, group = target.topic(queues=1), unique_group()
    fill(producer, topic, 3)
    member = MEMBERS["asyncio"](
        target.name_server, group, topic, start="earliest", commit_interval=0.5
    ).start()
    try:
        member.seen.wait(lambda seen: len(seen.all) >= 6)
        soon(lambda: admin.group(group).members)
        if target.is_4x:
            # Its brokers tell the members, and refuse while a queue was never committed.
            eventually(lambda: set(of_topic(admin.group(group).lag, topic).values()) == {0})
            queue = next(iter(of_topic(admin.group(group).lag, topic)))
            with pytest.raises(UnsupportedRequestError, match="to a time only, not to offsets"):
                admin.reset(group, topic, {queue: 0})
        admin.reset(group, topic, "earliest")
        fill(producer, topic, 1)  # ends the pulls that wait, with which members learn of it
        member.seen.wait(lambda seen: len(seen.all) >= 14)
    finally:
        member.stop()


def test_a_group_takes_over_where_another_is(admin: Any, target: Any, producer: Producer):
    topic, source, copy = target.topic(queues=1), unique_group(), unique_group()
    fill(producer, topic, 2)
    consume_all(target, source, topic, 4)
    would = admin.clone_offsets(source, copy, topic, dry_run=True)
    assert [(c.before, c.after) for c in would] == [(0, 2), (0, 2)]
    with pytest.raises(GroupNotFoundError, match=copy):
        admin.group(copy)
    assert admin.clone_offsets(source, copy, topic) == would
    assert set(of_topic(admin.group(copy).lag, topic).values()) == {0}
    admin.reset(source, topic, "earliest")  # a position at the beginning is one, too
    assert {c.after for c in admin.clone_offsets(source, copy, topic)} == {0}
    assert set(of_topic(admin.group(copy).lag, topic).values()) == {2}


def test_a_group_is_deleted_with_its_topics(admin: Any, target: Any, producer: Producer):
    topic, group = target.topic(queues=1), unique_group()
    fill(producer, topic, 1)
    consume_all(target, group, topic, 2)
    assert soon(lambda: f"%RETRY%{group}" in {t.name for t in admin.topics()})
    soon(lambda: not admin.group(group).members)
    assert admin.delete_group(group, with_topics=True) == ("broker-a", "broker-b")
    assert group not in {g.name for g in admin.groups()}
    assert f"%RETRY%{group}" not in {t.name for t in admin.topics()}
    with pytest.raises(GroupNotFoundError, match=f"--group {group}"):
        admin.group(group)


def test_an_unknown_group_is_an_error_of_every_question(admin: Any, target: Any):
    topic = target.topic()
    for ask in (
        admin.group,
        admin.delete_group,
        admin.connections,
        lambda name: admin.reset(name, topic, "earliest"),
        lambda name: admin.clone_offsets(name, "other", topic),
    ):
        with pytest.raises(GroupNotFoundError, match="nobody-at-all"):
            ask("nobody-at-all")


def test_a_move_that_makes_no_sense_is_refused(admin: Any, target: Any, producer: Producer):
    topic, group = target.topic(queues=1), unique_group()
    sent = fill(producer, topic, 1)
    consume_all(target, group, topic, 2)
    queue = sent[0].queue
    for to, said in [
        ("sometime", "to is 'sometime'"),
        (datetime(2020, 1, 1), "without a time zone"),
        ({queue: 99}, "to has 99 for .*: give 0 to 1"),
        ({queue: "1"}, "to has"),
        ({queue._replace(id=7): 0}, "no queue of the topic"),
        ({}, "to has no queue"),
    ]:
        with pytest.raises(InvalidMessageError, match=said):
            admin.reset(group, topic, to)
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        admin.reset(group, "nowhere", "earliest")
    with pytest.raises(InvalidMessageError, match="group is 5"):
        admin.group(5)
    with pytest.raises(InvalidMessageError, match="has consumed nothing"):
        admin.clone_offsets(group, "other", target.topic())


def test_producers_are_seen_as_connections(admin: Any, target: Any):
    group = unique_group()
    with Producer(target.name_server, group=group) as producer:
        producer.send(Message(target.topic(), b"x"))
        (found,) = soon(lambda: admin.connections(group))
        assert (found.client_id, found.role) == (producer.client_id, "producer")
        assert found.address.startswith("127.0.0.1:")


# -- brokers and name servers


def test_brokers_are_listed_with_their_release(admin: Any, target: Any):
    brokers = admin.brokers()
    assert [b.name for b in brokers] == ["broker-a", "broker-b"]
    assert {b.version for b in brokers} == {"5.3.1" if target.is_embedded else target.name}
    assert all(b.master and b.started_at and b.error is None for b in brokers)
    assert "putTps" in brokers[0].runtime


def test_settings_of_a_broker_are_read_and_changed(admin: Any):
    before = admin.broker_settings("broker-b")
    assert before["brokerName"] == "broker-b"
    old = before["transactionCheckMax"]
    try:
        was = admin.change_broker_settings("broker-b", {"transactionCheckMax": int(old) + 1})
        assert was == {"transactionCheckMax": old}
        assert admin.broker_settings("broker-b")["transactionCheckMax"] == str(int(old) + 1)
    finally:
        admin.change_broker_settings("broker-b", {"transactionCheckMax": old})


def test_a_setting_that_a_broker_does_not_have_is_refused(admin: Any):
    with pytest.raises(
        InvalidMessageError,
        match=r"broker-a has no setting 'transactionChekMax'.*transactionCheckMax",
    ):
        admin.change_broker_settings("broker-a", {"transactionChekMax": 3})
    with pytest.raises(InvalidMessageError, match=r"did not take transactionCheckMax=many"):
        admin.change_broker_settings("broker-a", {"transactionCheckMax": "many"})
    for changes, said in [
        ({}, "at least one"),
        ("x=1", "give settings by name"),
        ({"a b": 1}, "one word"),
        ({"transactionCheckMax": None}, "transactionCheckMax is None"),
        ({"transactionCheckMax": "1\nbrokerName=x"}, "one line"),
    ]:
        with pytest.raises(InvalidMessageError, match=said):
            admin.change_broker_settings("broker-a", changes)
    with pytest.raises(RouteError, match=r"broker-x.*known: broker-a"):
        admin.broker_settings("broker-x")
    with pytest.raises(InvalidMessageError, match="broker is 7"):
        admin.broker_settings(7)


def test_settings_of_the_name_server_are_read_and_changed(admin: Any, target: Any):
    (known,) = admin.name_server_settings().values()
    assert known["listenPort"] == target.name_server.rpartition(":")[2]
    old = known["orderMessageEnable"]
    new = "false" if old == "true" else "true"
    try:
        was = admin.change_name_server_settings({"orderMessageEnable": new == "true"})
        assert was == {target.name_server: {"orderMessageEnable": old}}
        assert admin.name_server_settings()[target.name_server]["orderMessageEnable"] == new
    finally:
        admin.change_name_server_settings({"orderMessageEnable": old})
    with pytest.raises(InvalidMessageError, match="has no setting 'orderMessages'"):
        admin.change_name_server_settings({"orderMessages": True})


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


def test_more_messages_of_a_key_are_found_than_a_broker_tells_at_a_time(
    admin: Any, target: Any, producer: Producer
):
    topic = target.topic(queues=1)
    producer.send_many([Message(topic, f"{n}", keys="order-42") for n in range(50)])
    time.sleep(1.1)  # the index knows seconds
    producer.send_many([Message(topic, f"{n}", keys="order-42") for n in range(50, 100)])
    assert soon(lambda: len(admin.find(topic, "order-42", max_messages=1000)) == 100)
    found = admin.find(topic, "order-42", max_messages=90)
    assert {str(n) for n in range(50, 100)} <= {m.text for m in found}, "the newest"
    assert [m.stored_at for m in found] == sorted(m.stored_at for m in found)
    assert len(found) == 90


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


def test_the_way_of_a_message_is_told_from_both_ends(admin: Any, target: Any):
    topic, group = target.topic(queues=1), unique_group()
    member = MEMBERS["blocking"](
        target.name_server, group, topic, start="earliest", trace=True
    ).start()
    with Producer(target.name_server, group="tracing", trace=True) as producer:
        sent = producer.send(Message(topic, b"traced"))
        member.seen.wait(lambda seen: len(seen.all) >= 1)
    member.stop()
    soon(lambda: len(admin.trace(sent.message_id)) == 2)
    first, second = admin.trace(sent.message_id)
    assert (first.kind, first.group, first.success) == ("sent", "tracing", True)
    assert first.broker
    assert (second.kind, second.group, second.success) == ("consumed", group, True)
    assert (second.attempt, second.outcome) == (1, "SUCCESS")
    assert second.client == "127.0.0.1"
    assert second.duration is not None
    assert admin.trace("0A000001000078BF00000000AAAA0001") == ()
    with pytest.raises(TopicNotFoundError, match="trace=True on clients"):
        admin.trace(sent.message_id, trace_topic="no-traces-here")


# -- access


def test_a_cluster_without_users_says_what_they_need(admin: Any, target: Any):
    for ask in (
        admin.users,
        admin.policies,
        lambda: admin.create_user("u", "p"),
        lambda: admin.delete_user("u"),
        lambda: admin.set_policy("u", "Topic:t", ["Pub"]),
    ):
        with pytest.raises(UnsupportedRequestError, match=r"broker-a.*(5\.3\.0|keeps no users)"):
            ask()
    for ask in (
        admin.plain_accounts,
        lambda: admin.put_plain_account(PlainAccount("some-account"), "some-secret"),
        lambda: admin.delete_plain_account("some-account"),
    ):
        with pytest.raises(UnsupportedRequestError, match=r"broker-a.*aclEnable=true"):
            ask()


@pytest.mark.parametrize(
    ("method", "args", "said"),
    [
        ("create_user", (5, "p"), "user is 5"),
        ("create_user", ("u", ""), "password is empty"),
        ("change_user", ("u",), "nothing to change"),
        ("set_policy", ("u", "orders", ["Pub"]), "resource is 'orders': give Topic:NAME"),
        ("set_policy", ("u", "Topic:t", ["Shout"]), "actions has 'Shout'"),
        ("set_policy", ("u", "Topic:t", "Pub"), "actions is 'Pub': give a list"),
        ("put_plain_account", ("key", "secret"), "give a PlainAccount"),
        ("put_plain_account", (PlainAccount("short"), "long-enough"), "access_key has too few"),
        (
            "put_plain_account",
            (PlainAccount("some-account", default_topic="X"), "a-secret"),
            "one of PUB",
        ),
        ("trace", (5,), "message_id is 5"),
    ],
)
def test_wrong_rights_are_named(admin: Any, method: str, args: tuple[Any, ...], said: str):
    with pytest.raises(InvalidMessageError, match=said):
        getattr(admin, method)(*args)


# -- life


def test_a_closed_admin_says_so(admin: Any):
    admin.shutdown()
    for ask in (
        admin.topics,
        admin.groups,
        admin.brokers,
        admin.name_server_settings,
        lambda: admin.topic("t"),
        lambda: admin.create_topic("t"),
        lambda: admin.alter_topic("t", queues=1),
        lambda: admin.delete_topic("t"),
        lambda: admin.group("g"),
        lambda: admin.reset("g", "t", "earliest"),
        lambda: admin.clone_offsets("g", "h", "t"),
        lambda: admin.delete_group("g"),
        lambda: admin.connections("g"),
        lambda: admin.broker_settings("b"),
        lambda: admin.change_broker_settings("b", {"x": 1}),
        lambda: admin.change_name_server_settings({"x": 1}),
        lambda: admin.message("id"),
        lambda: admin.find("t", "k"),
        lambda: admin.trace("id"),
        admin.users,
        admin.policies,
        admin.plain_accounts,
        lambda: admin.create_user("u", "p"),
        lambda: admin.change_user("u", password="p"),
        lambda: admin.delete_user("u"),
        lambda: admin.set_policy("u", "*", ["All"]),
        lambda: admin.delete_policy("u"),
        lambda: admin.put_plain_account(PlainAccount("some-account"), "some-secret"),
        lambda: admin.delete_plain_account("some-account"),
    ):
        with pytest.raises(ClientClosedError, match="admin client was shut down"):
            ask()
