"""What operators' tools ask a broker for."""

from __future__ import annotations

import json
from typing import Any

from test_groups import heartbeat
from tests.wire_tools import iter_records
from wire_client import WireClient

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.lenient_json import Pairs, loads
from rocketwire.wire.route import decode_route


def topic_ext(name: str, **more: Any) -> dict[str, Any]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 2,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    } | more  # fmt: skip


def test_a_topic_made_by_an_operator_is_routed_when_the_answer_comes(
    client: WireClient, shared: EmbeddedCluster
) -> None:
    assert client.call(17, topic_ext("made", attributes="+a=b,+c=d")).code == 0
    with WireClient(shared.name_server) as names:
        route = decode_route(names.call(105, {"topic": "made"}).body)
    (queues,) = route.queues
    assert (queues.read_queues, queues.write_queues, queues.permission) == (3, 2, 6)
    config = json.loads(client.call(351, {"topic": "made"}).body)
    assert config["attributes"] == {"a": "b", "c": "d"}
    assert client.call(17, topic_ext("made", writeQueueNums=5, attributes="-a")).code == 0
    config = json.loads(client.call(351, {"topic": "made"}).body)
    assert (config["writeQueueNums"], config["attributes"]) == (5, {"c": "d"})
    everything = json.loads(client.call(21).body)
    assert everything["topicConfigTable"]["made"] == config


def test_names_and_numbers_that_are_refused(client: WireClient) -> None:
    for changes in (
        {"topic": "TBW102"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "rmq_sys_anything"},
        {"topic": "a b"},
        {"topic": "x" * 200},
        {"writeQueueNums": 0},
        {"readQueueNums": 10**6},
    ):
        reply = client.call(17, topic_ext("fine") | changes)
        assert reply.code == ResponseCode.INVALID_PARAMETER, changes
        assert reply.remark
    wrong = client.call(17, topic_ext("fine", attributes="neither"))
    assert wrong.code == ResponseCode.SYSTEM_ERROR
    assert client.call(351, {"topic": "fine"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_deleted_topic_and_its_messages_are_gone(client: WireClient) -> None:
    client.call(17, topic_ext("doomed"))
    client.send_message("doomed")
    assert client.call(215, {"topic": "doomed"}).code == 0
    assert client.pull("doomed").code == ResponseCode.TOPIC_NOT_EXIST
    client.call(17, topic_ext("doomed"))
    assert client.call(30, {"topic": "doomed", "queueId": 0}).ext == {"offset": "0"}
    assert client.call(215, {"topic": "TBW102"}).code == ResponseCode.INVALID_PARAMETER


def test_topic_statistics_have_objects_as_keys(client: WireClient, topic: str) -> None:
    client.send_message(topic, queue=1)
    raw = client.call(202, {"topic": topic}).body
    table = loads(raw)["offsetTable"]
    assert isinstance(table, Pairs)
    found = {key["queueId"]: value for key, value in table}
    assert [found[n]["maxOffset"] for n in range(4)] == [0, 1, 0, 0]
    assert found[1]["lastUpdateTimestamp"] > 0
    assert client.call(202, {"topic": "none"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_broker_figures(client: WireClient, shared: EmbeddedCluster) -> None:
    client.send_message("figures")
    table = json.loads(client.call(28).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerActive"] == "true"
    assert table["brokerVersionDesc"].startswith("V5")
    assert int(table["msgPutTotalTodayNow"]) > 0
    assert int(table["commitLogMaxOffset"]) > 0
    # What clusterList parses without looking first.
    for name in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum"):
        assert int(table[name]) >= 0
    assert len(table["putTps"].split()) == 3
    config = client.call(26).body.decode()
    assert "brokerName=broker-a\n" in config
    assert f"listenPort={shared.broker('broker-a').port}\n" in config


def test_who_is_connected(client: WireClient, topic: str) -> None:
    heartbeat(client, "member-1", "g-connected", topic, tags="a || b")
    client._buffer = b""
    body = json.loads(client.call(203, {"consumerGroup": "g-connected"}).body)
    (member,) = body["connectionSet"]
    assert member["clientId"] == "member-1"
    assert member["language"] == "PYTHON"
    assert member["clientAddr"].startswith("127.0.0.1:")
    assert body["subscriptionTable"][topic]["subString"] == "a || b"
    assert body["consumeType"] == "CONSUME_PASSIVELY"
    producers = json.loads(client.call(204, {"producerGroup": "CLIENT_INNER_PRODUCER"}).body)
    assert "member-1" in [item["clientId"] for item in producers["connectionSet"]]
    offline = client.call(203, {"consumerGroup": "nobody"})
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert client.call(204, {"producerGroup": "nobody"}).code == ResponseCode.SYSTEM_ERROR
    groups = json.loads(client.call(300, {"topic": topic}).body)["groupList"]
    assert groups == ["g-connected"]


def progress(client: WireClient, group: str, topic: str) -> dict[int, tuple[int, int]]:
    body = loads(client.call(208, {"consumerGroup": group}).body)
    return {
        key["queueId"]: (value["brokerOffset"], value["consumerOffset"])
        for key, value in body["offsetTable"]
        if key["topic"] == topic
    }


def test_progress_of_a_group(client: WireClient, topic: str) -> None:
    for _ in range(5):
        client.send_message(topic, queue=2)
    key = {"consumerGroup": "g-progress", "topic": topic, "queueId": 2}
    client.call(15, key | {"commitOffset": 3})
    assert progress(client, "g-progress", topic)[2] == (5, 3)
    empty = loads(client.call(208, {"consumerGroup": "never-was"}).body)
    assert empty["offsetTable"] == {}


def test_a_reset_moves_a_group_with_its_next_pull(client: WireClient, topic: str) -> None:
    for _ in range(5):
        client.send_message(topic)
    group, key = "g-reset", {"consumerGroup": "g-reset", "topic": topic, "queueId": 0}
    client.pull(topic, group=group)
    client.call(15, key | {"commitOffset": 5})
    ask = {"topic": topic, "group": group, "timestamp": 0, "isForce": "true"}
    reply = client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ask)
    assert reply.code == 0
    moved = {item["queueId"]: offset for item, offset in loads(reply.body)["offsetTable"]}
    assert moved == {0: 0, 1: 0, 2: 0, 3: 0}
    # A member that has not heard of it may not undo it.
    client.call(15, key | {"commitOffset": 5})
    assert client.call(14, key).ext == {"offset": "0"}
    told = client.pull(topic, 0, 5, group=group)
    assert (told.code, told.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    assert told.remark == "OFFSET_RESET"
    client.call(15, key | {"commitOffset": 2})
    assert client.call(14, key).ext == {"offset": "2"}


def test_a_reset_of_one_queue_to_an_offset(client: WireClient, topic: str) -> None:
    for _ in range(5):
        client.send_message(topic)
    client.pull(topic, group="g-one")
    ask = {"topic": topic, "group": "g-one", "timestamp": -1, "queueId": 0, "offset": 3}
    reply = client.call(222, ask)
    assert [offset for _, offset in loads(reply.body)["offsetTable"]] == [3]
    assert client.call(222, ask | {"offset": 99}).code == ResponseCode.SYSTEM_ERROR
    assert client.call(222, ask | {"topic": "none"}).code == ResponseCode.TOPIC_NOT_EXIST
    unknown = client.call(222, ask | {"group": "none"})
    assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_groups_can_be_configured_and_deleted(client: WireClient) -> None:
    config = {"groupName": "g-config", "retryMaxTimes": 3}
    assert client.call(200, {}, json.dumps(config).encode()).code == 0
    found = json.loads(client.call(352, {"group": "g-config"}).body)
    assert (found["retryMaxTimes"], found["retryQueueNums"]) == (3, 1)
    assert "g-config" in json.loads(client.call(201).body)["subscriptionGroupTable"]
    assert client.call(207, {"groupName": "g-config", "cleanOffset": "true"}).code == 0
    gone = client.call(352, {"group": "g-config"})
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_question_for_a_consumer_is_passed_on(connect, topic: str) -> None:
    from test_parked import _answer

    consumer, operator = connect(), connect()
    heartbeat(consumer, "answers", "g-ask", topic)
    consumer._buffer = b""
    ext = {"consumerGroup": "g-ask", "clientId": "answers"}
    operator.send(307, ext)
    question = consumer.receive()
    while question.code != 307:
        question = consumer.receive()
    _answer(consumer, question.opaque, 0)
    assert operator.receive().code == 0
    assert operator.call(307, ext | {"clientId": "absent"}).code == ResponseCode.SYSTEM_ERROR


def test_a_message_to_be_handled_directly_comes_with_the_question(connect, topic: str) -> None:
    from test_parked import _answer

    consumer, operator = connect(), connect()
    heartbeat(consumer, "handles", "g-direct", topic)
    stored = operator.send_message(topic, b"this one").ext["msgId"]
    ext = {"consumerGroup": "g-direct", "clientId": "handles", "msgId": stored}
    operator.send(309, ext)
    question = consumer.receive()
    while question.code != 309:
        question = consumer.receive()
    (record,) = iter_records(question.body)
    assert (record.topic, record.body) == (topic, b"this one")
    assert question.ext["brokerName"] == "broker-a"
    _answer(consumer, question.opaque, 0)
    assert operator.receive().code == 0
    missing = operator.call(309, ext | {"msgId": stored[:16] + "0000000000FFFFFF"})
    assert (missing.code, "there is no message" in missing.remark) == (1, True)


def test_offsets_and_delays_can_be_copied(client: WireClient, topic: str) -> None:
    key = {"consumerGroup": "g-copy", "topic": topic, "queueId": 0, "commitOffset": 4}
    client.call(15, key)
    offsets = loads(client.call(43).body)["offsetTable"]
    assert offsets[f"{topic}@g-copy"] == {"0": 4}
    assert "offsetTable" in loads(client.call(45).body)
    assert "TBW102" in json.loads(client.call(305).body)["topicList"]


def test_settings_change_what_the_broker_does(client: WireClient) -> None:
    try:
        assert client.call(25, body=b"maxMessageSize=10\n").code == 0
        assert b"maxMessageSize=10\n" in client.call(26).body
        assert client.send_message("settings", b"x" * 11).code == ResponseCode.MESSAGE_ILLEGAL
        # As Apache does with what it can't read: kept, and no word of it.
        assert client.call(25, body=b"maxMessageSize=ten\n").code == 0
        assert b"maxMessageSize=10\n" in client.call(26).body
        refused = client.call(25, body=b"listenPort=1\n")
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "listenPort" in (refused.remark or "")
    finally:
        client.call(25, body=b"maxMessageSize=4194304\n")


def test_a_broker_that_may_not_be_written_to_says_so_in_routes(
    client: WireClient, shared: EmbeddedCluster
) -> None:
    assert client.call(17, topic_ext("perms")).code == 0
    try:
        assert client.call(25, body=b"brokerPermission=4\n").code == 0
        with WireClient(shared.name_server) as names:
            for _ in range(200):
                (queues,) = decode_route(names.call(105, {"topic": "perms"}).body).queues
                if queues.permission == 4:
                    break
        assert queues.permission == 4
        assert client.send_message("perms", b"x").code == ResponseCode.NO_PERMISSION
    finally:
        client.call(25, body=b"brokerPermission=6\n")


def test_a_deleted_group_is_not_moved_by_an_old_reset(client: WireClient) -> None:
    assert client.call(17, topic_ext("moved")).code == 0
    offset = {"consumerGroup": "gone", "topic": "moved", "queueId": 0}
    assert client.call(15, offset | {"commitOffset": 0}).code == 0
    reset = {"group": "gone", "topic": "moved", "timestamp": 0, "isForce": "true"}
    assert client.call(222, reset).code == 0
    assert client.call(207, {"groupName": "gone", "cleanOffset": "true"}).code == 0
    assert client.call(15, offset | {"commitOffset": 1}).remark in {None, ""}
