"""Foreign consumers of every kind read from the cluster, share it, and try again."""

import time
from collections import Counter
from typing import Any

import pytest
from tests.interop.driver import body_of, message
from tests.real.frames import ask
from tests.real.running import unique

from rocketwire import SimpleConsumer


def send(meeting: Any, topic: str, bodies: list[str], **fields: Any) -> list[dict[str, Any]]:
    producer = meeting.producer()
    return [
        meeting.call("producer.send", producer=producer, message=message(topic, body, **fields))
        for body in bodies
    ]


def bodies_of(found: list[dict[str, Any]]) -> list[str]:
    return [body_of(each).decode() for each in found]


def names(word: str, count: int) -> list[str]:
    return [f"{word}-{number}" for number in range(count)]


def test_a_push_consumer_gets_old_and_new_messages_once(meeting: Any):
    topic = meeting.topic()
    send(meeting, topic, names("old", 20), tags="T", properties={"p": "v"})
    consumer = meeting.consumer("push", topic)
    old = meeting.take(consumer, 20)
    assert sorted(bodies_of(old)) == sorted(names("old", 20))
    assert {each["properties"]["p"] for each in old} == {"v"}
    send(meeting, topic, names("new", 20))
    assert sorted(bodies_of(meeting.take(consumer, 20))) == sorted(names("new", 20))
    assert meeting.take(consumer, 1, seconds=1.0) == []


def test_an_orderly_consumer_keeps_the_order_of_each_queue(meeting: Any):
    topic = meeting.topic()
    consumer = meeting.consumer("push", topic, orderly=True)
    send(meeting, topic, names("m", 60))
    found = meeting.take(consumer, 60)
    assert len(found) == 60
    seen: dict[tuple[str, int], int] = {}
    for each in found:
        queue = (each["broker"], each["queue"])
        assert each["offset"] == seen.get(queue, -1) + 1
        seen[queue] = each["offset"]


def test_two_members_of_a_group_share_the_queues(meeting: Any):
    topic = meeting.topic()
    group = unique("group")
    first = meeting.consumer("push", topic, group)
    second = meeting.consumer("push", topic, group)
    shares: list[set[tuple[str, int]]] = []
    # Both members divide the queues anew whenever one of them has noticed the other.
    for attempt in range(40):
        send(meeting, topic, names(f"round{attempt}", 32))
        both = [meeting.take(member, 32, seconds=1.5) for member in (first, second)]
        shares = [{(each["broker"], each["queue"]) for each in found} for found in both]
        if all(shares) and not shares[0] & shares[1]:
            break
    assert all(shares), "one member got nothing"
    assert not shares[0] & shares[1], "a queue was read by both members"


def test_broadcasting_members_each_get_everything(meeting: Any):
    topic = meeting.topic()
    group = unique("group")
    members = []
    for number in range(2):
        mode: dict[str, Any] = {"model": "broadcasting"}
        if meeting.client.name != "go":
            # Without names of their own, broadcasting members of one process are one member.
            name = unique(f"member{number}")
            mode = {"options": {"messageModel": "BROADCASTING", "instanceName": name}}
        members.append(meeting.consumer("push", topic, group, **mode))
    send(meeting, topic, names("m", 10))
    for member in members:
        assert sorted(set(bodies_of(meeting.take(member, 10)))) == sorted(names("m", 10))


def test_tags_are_filtered(meeting: Any):
    topic = meeting.topic()
    for tag in ("A", "B", "C"):
        send(meeting, topic, names(tag, 4), tags=tag)
    send(meeting, topic, names("none", 2))
    consumer = meeting.consumer("push", topic, tags="A || C")
    found = meeting.take(consumer, 8)
    assert sorted(bodies_of(found)) == sorted(names("A", 4) + names("C", 4))
    assert meeting.take(consumer, 1, seconds=1.0) == []


# A Go consumer notices its retry topic after half a minute, so it is tried on our cluster alone.
@pytest.mark.without("5.3.3/go", "java-4.9.7")
def test_a_message_is_tried_again_until_it_is_accepted(meeting: Any):
    topic = meeting.topic()
    consumer = meeting.consumer("push", topic, fail_first=1)
    (sent,) = send(meeting, topic, ["try again"], keys="key")
    (found,) = meeting.take(consumer, 1)
    assert body_of(found) == b"try again"
    assert found["reconsume_times"] == 1
    assert found["topic"] == topic
    assert found["keys"] == "key"
    assert found["properties"]["UNIQ_KEY"] == sent["msg_id"]
    assert found["properties"]["ORIGIN_MESSAGE_ID"]


def test_an_orderly_message_is_tried_again_in_its_place(meeting: Any):
    topic = meeting.topic(queues=1)
    consumer = meeting.consumer("push", topic, orderly=True, fail_first=1)
    producer = meeting.producer()
    queue = {"topic": topic, "broker": "broker-a", "queue": 0}
    for body in names("m", 3):
        meeting.call("producer.send", producer=producer, message=message(topic, body), queue=queue)
    assert bodies_of(meeting.take(consumer, 3)) == names("m", 3)


@pytest.mark.without("go", "java-4.9.7")
def test_a_message_given_up_goes_to_the_dead_letters(meeting: Any):
    topic = meeting.topic()
    group = unique("group")
    limit = {"maxReconsumeTimes": 1}
    consumer = meeting.consumer("push", topic, group, fail_first=100, options=limit)
    send(meeting, topic, ["hopeless"])
    dead_topic = f"%DLQ%{group}"
    deadline = time.monotonic() + 90
    while ask(meeting.target.name_server, 105, {"topic": dead_topic}).code != 0:
        assert time.monotonic() < deadline, f"{dead_topic} was never made"
        time.sleep(0.1)
    dead = meeting.consumer("push", dead_topic)
    (found,) = meeting.take(dead, 1, seconds=90.0)
    assert body_of(found) == b"hopeless"
    assert meeting.take(consumer, 1, seconds=0.1) == []


def test_a_group_goes_on_where_it_stopped(meeting: Any):
    topic = meeting.topic()
    group = unique("group")
    send(meeting, topic, names("before", 10))
    first = meeting.consumer("push", topic, group)
    assert len(meeting.take(first, 10)) == 10
    meeting.stop(first)
    send(meeting, topic, names("after", 10))
    second = meeting.consumer("push", topic, group)
    found: set[str] = set()
    while not set(names("after", 10)) <= found:
        (each,) = bodies_of(meeting.take(second, 1)) or [""]
        assert each, "the consumer stopped short"
        found.add(each)
    # What was not yet committed when the first one stopped may come again, but not everything.
    assert not set(names("before", 10)) <= found


@pytest.mark.without("go")
@pytest.mark.parametrize("assign", [True, False], ids=["assign", "subscribe"])
def test_a_lite_pull_consumer_polls_everything(meeting: Any, assign: bool):
    topic = meeting.topic()
    send(meeting, topic, names("m", 25))
    where = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
    consumer = meeting.consumer("lite", topic, assign=assign, options=where)
    found: Counter[str] = Counter()
    deadline = time.monotonic() + 60
    while len(found) < 25 and time.monotonic() < deadline:
        found.update(bodies_of(meeting.call("lite.poll", consumer=consumer, timeout_ms=1000)))
    assert found == Counter(names("m", 25))


@pytest.mark.without("go")
def test_a_lite_pull_consumer_goes_on_where_it_committed(meeting: Any):
    topic = meeting.topic(queues=1)
    group = unique("group")
    producer = meeting.producer()
    queue = {"topic": topic, "broker": "broker-a", "queue": 0}
    for body in names("m", 5):
        meeting.call("producer.send", producer=producer, message=message(topic, body), queue=queue)
    where = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
    first = meeting.consumer("lite", topic, group, manual_commit=True, options=where)
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < 5 and time.monotonic() < deadline:
        found += bodies_of(meeting.call("lite.poll", consumer=first, timeout_ms=1000))
    meeting.call("lite.commit", consumer=first)
    meeting.stop(first)
    meeting.call("producer.send", producer=producer, message=message(topic, "next"), queue=queue)
    second = meeting.consumer("lite", topic, group, options=where)
    later: list[str] = []
    deadline = time.monotonic() + 60
    while not later and time.monotonic() < deadline:
        later += bodies_of(meeting.call("lite.poll", consumer=second, timeout_ms=1000))
    assert (found, later) == (names("m", 5), ["next"])


@pytest.mark.without("go")
def test_a_pull_consumer_finds_its_way_by_offset_and_time(meeting: Any):
    topic = meeting.topic(queues=1)
    consumer = meeting.consumer("pull", topic)
    producer = meeting.producer()
    queue = {"topic": topic, "broker": "broker-a", "queue": 0}
    for body in names("m", 10):
        meeting.call("producer.send", producer=producer, message=message(topic, body), queue=queue)
    where = {"consumer": consumer, "queue": queue}
    first = meeting.call("pull.pull", offset=0, max=4, block=True, **where)
    while first["next"] < 4:  # the broker shows messages a moment after acknowledging them
        first = meeting.call("pull.pull", offset=0, max=4, block=True, **where)
    assert bodies_of(first["messages"]) == names("m", 4)
    rest = meeting.call("pull.pull", offset=4, max=32, block=True, **where)
    while rest["next"] < 10:
        rest = meeting.call("pull.pull", offset=4, max=32, block=True, **where)
    assert bodies_of(rest["messages"]) == names("m", 10)[4:]
    none = meeting.call("pull.pull", offset=10, **where)
    assert (none["status"], none["next"]) == ("NO_NEW_MSG", 10)
    beyond = meeting.call("pull.pull", offset=99, **where)
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 10)
    assert meeting.call("pull.queues", consumer=consumer, topic=topic)
    meeting.call("pull.commit", offset=6, **where)
    offsets = meeting.call("pull.offsets", time_ms=0, **where)
    assert offsets == {"min": 0, "max": 10, "committed": 6, "at_time": 0}
    middle = rest["messages"][0]["stored"]
    at_time = meeting.call("pull.offsets", time_ms=middle, **where)["at_time"]
    # Several messages may have been stored in the same millisecond.
    assert at_time <= 4
    assert (first["messages"] + rest["messages"])[at_time]["stored"] == middle


@pytest.mark.without("go")
def test_a_waiting_pull_is_answered_when_a_message_comes(meeting: Any):
    topic = meeting.topic(queues=1)
    consumer = meeting.consumer("pull", topic)
    queue = {"topic": topic, "broker": "broker-b", "queue": 0}
    waiting = meeting.client.begin(
        "pull.pull",
        consumer=consumer,
        queue=queue,
        offset=0,
        block=True,
        name_server=meeting.target.name_server,
    )
    producer = meeting.producer()
    meeting.call("producer.send", producer=producer, message=message(topic, "woken"), queue=queue)
    assert bodies_of(waiting.result(40)["messages"]) == ["woken"]


def test_sql_filters_on_properties(meeting: Any):
    topic = meeting.topic()
    for number in range(6):
        send(meeting, topic, [f"m-{number}"], properties={"number": str(number)})
    consumer = meeting.consumer("push", topic, sql="number > 3")
    assert sorted(bodies_of(meeting.take(consumer, 2))) == ["m-4", "m-5"]


@pytest.mark.without("go", "java-4.9.7")
def test_members_that_receive_share_messages_with_ours(meeting: Any):
    topic, group = meeting.topic(), unique("group")
    printed = meeting.client.mqadmin(
        meeting.target.name_server, "setConsumeMode", "-c", meeting.target.cluster_name,
        "-t", topic, "-g", group, "-m", "POP", "-q", "8",
    )  # fmt: skip
    assert "success" in printed, printed
    consumer = meeting.consumer("push", topic, group, options={"clientRebalance": False})
    bodies = names("m", 200)
    ours: list[str] = []
    theirs: list[str] = []
    with SimpleConsumer(meeting.target.name_server, group=group, start="earliest") as simple:
        simple.subscribe(topic)
        for part in range(20):
            send(meeting, topic, bodies[part * 10 : part * 10 + 10])
            received = simple.receive(4, wait=0.3)
            simple.acknowledge(received)
            ours += [found.text for found in received]
        while len(ours) + len(theirs) < len(bodies):
            taken = bodies_of(meeting.take(consumer, len(bodies), seconds=1.0))
            received = simple.receive(wait=1)
            simple.acknowledge(received)
            ours += [found.text for found in received]
            theirs += taken
            if not taken and not received:
                break
    assert sorted(ours + theirs) == sorted(bodies)
    assert ours
    assert theirs
