"""Heartbeats, members, notices, locks, and messages that a consumer gives back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.wire_tools import iter_records
from wire_client import WireClient, heartbeat, lock, pull_ext, send_ext

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode, ResponseCode


def members(client: WireClient, group: str) -> list[str]:
    reply = client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return json.loads(reply.body)["consumerIdList"] if reply.code == 0 else []


def test_a_group_knows_its_members_and_tells_them_of_changes(
    connect: Callable[[], WireClient], topic: str
) -> None:
    first, second = connect(), connect()
    heartbeat(first, "one", "g-members", topic)
    assert members(first, "g-members") == ["one"]
    reply, _ = heartbeat(second, "two", "g-members", topic)
    assert reply.version >= 401
    notice = first.receive()
    assert (notice.code, notice.ext) == (
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        {"consumerGroup": "g-members"},
    )
    assert notice.is_oneway
    assert sorted(members(first, "g-members")) == ["one", "two"]
    second.close()
    assert first.receive().code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert members(first, "g-members") == ["one"]
    first.call(35, {"clientID": "one", "consumerGroup": "g-members"})
    assert members(first, "g-members") == []


def test_a_heartbeat_without_change_tells_nobody(
    connect: Callable[[], WireClient], topic: str
) -> None:
    client = connect()
    heartbeat(client, "one", "g-quiet", topic)
    for _ in range(3):
        reply, notices = heartbeat(client, "one", "g-quiet", topic)
        assert reply.ext["IS_SUB_CHANGE"] == "false"
        assert notices == []


def test_broadcasting_members_are_not_told(connect: Callable[[], WireClient], topic: str) -> None:
    first, second = connect(), connect()
    heartbeat(first, "one", "g-broadcast", topic, model="BROADCASTING")
    heartbeat(second, "two", "g-broadcast", topic, model="BROADCASTING")
    assert first.call(30, {"topic": topic, "queueId": 0}).code == 0


def test_a_pull_uses_the_subscription_of_the_heartbeat(client: WireClient, topic: str) -> None:
    for tag in ("a", "b"):
        client.send_message(topic, tag.encode(), properties=f"TAGS\x01{tag}\x02")
    ext = pull_ext(topic, group="g-sub", flags=0, subVersion=5)
    assert client.call(11, ext).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    heartbeat(client, "one", "g-sub", topic, tags="b", version=4)
    _drain_notice(client)
    assert client.call(11, ext).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    heartbeat(client, "one", "g-sub", topic, tags="b", version=5)
    assert [r.body for r in iter_records(client.call(11, ext).body)] == [b"b"]


def _drain_notice(client: WireClient) -> None:
    """The first member of a group gets a notice, too; it comes before the answer or with it."""
    client._buffer = b""


def test_a_heartbeat_makes_the_retry_topic(
    client: WireClient, shared: EmbeddedCluster, topic: str
) -> None:
    heartbeat(client, "one", "g-retry-topic", topic)
    assert "%RETRY%g-retry-topic" in shared.broker("broker-a").topics


def test_nonsense_in_a_heartbeat_is_named(client: WireClient) -> None:
    for body, named in (
        (b"[]", "not a JSON object"),
        (b"{}", "clientID"),
        (b'{"clientID":"x","producerDataSet":7}', "producerDataSet"),
        (b'{"clientID":"x","consumerDataSet":[{}]}', "groupName"),
        (b"\xff\xfe", "JSON"),
        (b"", "JSON"),
    ):
        reply = client.call(RequestCode.HEART_BEAT, {}, body)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert named.lower() in (reply.remark or "").lower()


# Locks


def test_a_queue_has_one_owner_until_it_is_unlocked(client: WireClient, topic: str) -> None:
    assert lock(client, 41, "one", topic, [0, 1]) == [0, 1]
    assert lock(client, 41, "one", topic, [0, 1]) == [0, 1]
    assert lock(client, 41, "two", topic, [0, 1, 2]) == [2]
    lock(client, 42, "two", topic, [0])
    assert lock(client, 41, "two", topic, [0]) == []
    lock(client, 42, "one", topic, [0])
    assert lock(client, 41, "two", topic, [0]) == [0]


# Messages given back


def give_back(client: WireClient, group: str, place: int, **more: Any):
    ext = {"group": group, "offset": place, "delayLevel": 1, "originTopic": "t"} | more
    return client.call(RequestCode.CONSUMER_SEND_MESSAGE_BACK, ext)


def wait_pull(client: WireClient, topic: str, offset: int = 0):
    reply = client.pull(topic, 0, offset, wait_ms=10_000, group="reader-of-retries")
    assert reply.code == 0, reply
    return next(iter_records(reply.body))


def test_a_message_given_back_comes_again_through_the_retry_topic(
    client: WireClient, topic: str
) -> None:
    heartbeat(client, "one", "g-back", topic)
    client._buffer = b""
    sent = client.send_message(topic, b"again", properties="KEYS\x01k\x02TAGS\x01t\x02")
    place = int(sent.ext["msgId"][16:], 16)
    assert give_back(client, "g-back", place).code == 0
    record = wait_pull(client, "%RETRY%g-back")
    assert record.body == b"again"
    assert record.reconsume_times == 1
    assert record.properties["RETRY_TOPIC"] == topic
    assert record.properties["ORIGIN_MESSAGE_ID"] == sent.ext["msgId"]
    assert record.properties["REAL_TOPIC"] == "%RETRY%g-back"
    assert record.properties["DELAY"] == "1"
    assert record.properties["TAGS"] == "t"
    # And once more: the origin stays the same.
    assert give_back(client, "g-back", record.physical_offset, delayLevel=1).code == 0
    second = wait_pull(client, "%RETRY%g-back", 1)
    assert second.reconsume_times == 2
    assert second.properties["ORIGIN_MESSAGE_ID"] == sent.ext["msgId"]


def test_a_message_given_back_too_often_goes_to_the_dead_letters(
    client: WireClient, topic: str
) -> None:
    heartbeat(client, "one", "g-dead", topic)
    client._buffer = b""
    sent = client.send_message(topic, b"hopeless")
    place = int(sent.ext["msgId"][16:], 16)
    assert give_back(client, "g-dead", place, maxReconsumeTimes=0).code == 0
    assert wait_pull(client, "%DLQ%g-dead").body == b"hopeless"
    assert give_back(client, "g-dead", place, delayLevel=-1).code == 0
    assert wait_pull(client, "%DLQ%g-dead", 1).body == b"hopeless"


def test_giving_back_what_is_not_there(client: WireClient, topic: str) -> None:
    reply = give_back(client, "never-heard-of", 0)
    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    heartbeat(client, "one", "g-nothing", topic)
    client._buffer = b""
    assert give_back(client, "g-nothing", 10**15).code == ResponseCode.SYSTEM_ERROR
    config = {"groupName": "g-nothing", "retryQueueNums": 0}
    client.call(200, {}, json.dumps(config).encode())
    assert give_back(client, "g-nothing", 10**15).code == 0


def test_a_send_to_a_retry_topic_beyond_its_limit_goes_to_the_dead_letters(
    client: WireClient, topic: str
) -> None:
    heartbeat(client, "one", "g-direct", topic)
    client._buffer = b""
    for tries in (2, 3):
        ext = send_ext("%RETRY%g-direct", j=tries, l=2, group="CLIENT_INNER_PRODUCER")
        assert client.call(310, ext, b"%d" % tries).code == 0
    assert wait_pull(client, "%RETRY%g-direct").body == b"2"
    assert wait_pull(client, "%DLQ%g-direct").body == b"3"
