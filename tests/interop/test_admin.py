"""What an operator asks by ``mqadmin`` and the admin clients gets an answer."""

import re
import time
from typing import Any

import pytest
from tests.interop.driver import DriverError, body_of, message
from tests.real.frames import ask
from tests.real.running import unique

pytestmark = pytest.mark.without("go")


def mqadmin(meeting: Any, *words: str) -> str:
    printed = meeting.client.mqadmin(meeting.target.name_server, *words)
    assert "Exception" not in printed, printed
    return str(printed)


def send(meeting: Any, topic: str, body: str, **fields: Any) -> dict[str, Any]:
    return dict(
        meeting.call(
            "producer.send", producer=meeting.producer(), message=message(topic, body, **fields)
        )
    )


def eventually(meeting: Any, wanted: str, *words: str) -> str:
    """Indexes and routes follow a moment after what they describe."""
    deadline = time.monotonic() + 30
    printed = ""
    while time.monotonic() < deadline:
        printed = str(meeting.client.mqadmin(meeting.target.name_server, *words))
        if wanted in printed and "Exception" not in printed:
            return printed
        time.sleep(0.1)
    raise AssertionError(f"{wanted!r} never appeared in:\n{printed}")


def test_the_cluster_is_listed(meeting: Any):
    printed = mqadmin(meeting, "clusterList")
    assert meeting.target.cluster_name in printed
    for name, address in meeting.target.addresses.items():
        assert re.search(rf"{name}\s+0\s+{re.escape(address)}", printed), printed


def test_brokers_show_their_status(meeting: Any):
    address = meeting.target.addresses["broker-a"]
    printed = mqadmin(meeting, "brokerStatus", "-b", address)
    assert "putTps" in printed
    assert "bootTimestamp" in printed


def status_rows(meeting: Any, topic: str) -> list[tuple[str, str, str, str]]:
    """Broker, queue, least and next offset."""
    status = mqadmin(meeting, "topicStatus", "-t", topic)
    return re.findall(r"^(broker-\w)\s+(\d+)\s+(\d+)\s+(\d+)", status, re.MULTILINE)


def test_topics_are_listed_with_route_and_status(meeting: Any):
    topic = meeting.topic(queues=2)
    send(meeting, topic, "one")
    assert topic in mqadmin(meeting, "topicList").split()
    route = mqadmin(meeting, "topicRoute", "-t", topic)
    for name, address in meeting.target.addresses.items():
        assert f'"{name}"' in route
        assert address in route
    # The next offset of a queue follows a moment after the acknowledgement.
    rows = status_rows(meeting, topic)
    for _ in range(100):
        if any(int(end) for *_, end in rows):
            break
        rows = status_rows(meeting, topic)
    assert sorted((name, int(queue)) for name, queue, _, _ in rows) == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
        ("broker-b", 1),
    ]
    assert sum(int(end) for *_, end in rows) == 1
    assert meeting.target.cluster_name in mqadmin(meeting, "topicClusterList", "-t", topic)


def test_a_topic_is_made_changed_and_removed(meeting: Any):
    topic = unique("admin")
    cluster = ("-c", meeting.target.cluster_name, "-t", topic)
    mqadmin(meeting, "updateTopic", *cluster, "-r", "3", "-w", "3")
    eventually(meeting, '"writeQueueNums":3', "topicRoute", "-t", topic)
    mqadmin(meeting, "updateTopic", *cluster, "-r", "5", "-w", "5")
    eventually(meeting, '"writeQueueNums":5', "topicRoute", "-t", topic)
    mqadmin(meeting, "deleteTopic", *cluster)
    assert ask(meeting.target.name_server, 105, {"topic": topic}).code == 17


def test_a_broker_loses_and_regains_write_permission(meeting: Any):
    topic = meeting.topic(queues=1)
    mqadmin(
        meeting,
        "updateTopicPerm",
        "-b",
        meeting.target.addresses["broker-b"],
        "-t",
        topic,
        "-p",
        "4",
    )
    eventually(meeting, '"perm":4', "topicRoute", "-t", topic)
    for _ in range(4):
        assert send(meeting, topic, "x")["broker"] == "broker-a"
    mqadmin(
        meeting,
        "updateTopicPerm",
        "-b",
        meeting.target.addresses["broker-b"],
        "-t",
        topic,
        "-p",
        "6",
    )
    deadline = time.monotonic() + 30
    while '"perm":4' in mqadmin(meeting, "topicRoute", "-t", topic):
        assert time.monotonic() < deadline


def test_a_message_is_found_by_every_id_and_key(meeting: Any):
    topic = meeting.topic()
    key = unique("key")
    sent = send(meeting, topic, "findable", tags="T", keys=f"{key} other")
    by_id = mqadmin(meeting, *by_offset_id(meeting, topic, sent["offset_msg_id"]))
    assert re.search(rf"Topic:\s+{topic}", by_id), by_id
    assert sent["msg_id"] in eventually(
        meeting, sent["msg_id"], "queryMsgByKey", "-t", topic, "-k", key
    )
    unique_found = eventually(
        meeting, topic, "queryMsgByUniqueKey", "-t", topic, "-i", sent["msg_id"]
    )
    assert re.search(rf"Queue ID:\s+{sent['queue']}\b", unique_found), unique_found
    by_offset = mqadmin(
        meeting,
        "queryMsgByOffset",
        *("-t", topic, "-b", sent["broker"], "-i", str(sent["queue"]), "-o", str(sent["offset"])),
    )
    assert sent["msg_id"] in by_offset
    for identity in (sent["msg_id"], sent["offset_msg_id"]):
        viewed = meeting.call("admin.view", topic=topic, id=identity)
        assert body_of(viewed) == b"findable"
    (queried,) = meeting.call("admin.query", topic=topic, key="other")
    assert body_of(queried) == b"findable"


def by_offset_id(meeting: Any, topic: str, identity: str) -> list[str]:
    # 5.x demands the topic, 4.9 does not know the option and would end the process.
    known = ["-t", topic] if meeting.client.name != "java-4.9.7" else []
    return ["queryMsgById", *known, "-i", identity]


def test_a_key_nobody_used_is_not_found(meeting: Any):
    topic = meeting.topic()
    with pytest.raises(DriverError) as caught:
        meeting.call("admin.query", topic=topic, key="nobody")
    assert caught.value.code == 208


# Java commits offsets after ten seconds, and 4.9's tools print the same: one pair is enough.
@pytest.mark.without("go", "java-4.9.7", "5.3.3")
def test_the_progress_of_a_group_is_shown(meeting: Any):
    topic = meeting.topic(queues=1)
    group = unique("group")
    consumer = meeting.consumer("push", topic, group)
    for number in range(3):
        send(meeting, topic, f"m{number}")
    assert len(meeting.take(consumer, 3)) == 3
    eventually(meeting, topic, "consumerProgress", "-g", group)
    eventually(meeting, "Diff Total: 0", "consumerProgress", "-g", group)
    connections = eventually(meeting, topic, "consumerConnection", "-g", group)
    assert "CONSUME_PASSIVELY" in connections


def test_a_group_is_made_and_removed(meeting: Any):
    group = unique("group")
    cluster = ("-c", meeting.target.cluster_name, "-g", group)
    assert "success" in mqadmin(meeting, "updateSubGroup", *cluster)
    assert "success" in mqadmin(meeting, "deleteSubGroup", *cluster)


@pytest.mark.without("go", "java-4.9.7", "5.3.3")
def test_offsets_are_reset_by_time(meeting: Any):
    topic = meeting.topic(queues=1)
    group = unique("group")
    first = meeting.consumer("push", topic, group)
    for number in range(4):
        send(meeting, topic, f"m{number}")
    assert len(meeting.take(first, 4)) == 4
    printed = mqadmin(meeting, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    assert "broker-a" in printed
    again = meeting.take(first, 4)
    assert sorted(body_of(each).decode() for each in again) == ["m0", "m1", "m2", "m3"]


def test_producers_are_shown(meeting: Any):
    topic = meeting.topic()
    producer = meeting.producer()
    send(meeting, topic, "x")
    printed = eventually(meeting, "127.0.0.1", "producerConnection", "-g", producer, "-t", topic)
    assert "JAVA" in printed


@pytest.mark.without("go", "java-4.9.7")
def test_traces_of_a_message_are_shown(meeting: Any):
    topic = meeting.topic()
    producer = meeting.producer(trace=True)
    consumer = meeting.consumer("push", topic, trace=True)
    sent = meeting.call("producer.send", producer=producer, message=message(topic, "traced"))
    assert len(meeting.take(consumer, 1)) == 1
    printed = eventually(meeting, "Sub", "queryMsgTraceById", "-i", sent["msg_id"])
    assert "Pub" in printed
    assert "success" in printed


def test_order_configuration_is_kept_by_the_name_server(meeting: Any):
    topic = meeting.topic()
    words = ("updateOrderConf", "-t", topic)
    mqadmin(meeting, *words, "-m", "put", "-v", "broker-a:4;broker-b:4")
    assert "broker-a:4;broker-b:4" in mqadmin(meeting, *words, "-m", "get")
    mqadmin(meeting, *words, "-m", "delete")


def test_the_name_server_shows_its_configuration(meeting: Any):
    printed = mqadmin(meeting, "getNamesrvConfig")
    port = meeting.target.name_server.rpartition(":")[2]
    assert re.search(rf"listenPort\s*=\s*{port}\b", printed), printed
