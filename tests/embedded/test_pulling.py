"""Pulls over the wire: every status, long polling, tags, limits; offsets and times."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.wire_tools import iter_records
from wire_client import WireClient, heartbeat, pull_ext

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode, ResponseCode


def bodies(reply) -> list[bytes]:
    return [record.body for record in iter_records(reply.body)]


def fill(client: WireClient, topic: str, count: int, **more) -> None:
    for n in range(count):
        assert client.send_message(topic, b"%d" % n, **more).code == 0


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_a_pull_says_where_to_go_on(client: WireClient, topic: str, code: int) -> None:
    fill(client, topic, 5)
    reply = client.call(code, pull_ext(topic, 0, 1, count=3))
    assert bodies(reply) == [b"1", b"2", b"3"]
    assert reply.remark == "FOUND"
    wanted = {"nextBeginOffset": "4", "minOffset": "0", "maxOffset": "5"}
    assert wanted.items() <= reply.ext.items()
    assert reply.ext["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    ("offset", "code", "following", "remark"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "3", "OFFSET_OVERFLOW_ONE"),
        (4, ResponseCode.PULL_OFFSET_MOVED, "3", "OFFSET_OVERFLOW_BADLY"),
        (-7, ResponseCode.PULL_OFFSET_MOVED, "0", "OFFSET_TOO_SMALL"),
    ],
)
def test_offsets_outside_of_the_queue(
    client: WireClient, topic: str, offset: int, code: int, following: str, remark: str
) -> None:
    fill(client, topic, 3)
    reply = client.pull(topic, 0, offset)
    assert (reply.code, reply.ext["nextBeginOffset"], reply.remark) == (code, following, remark)


def test_a_queue_that_never_had_a_message(client: WireClient, topic: str) -> None:
    assert client.pull(topic, 2, 0).code == ResponseCode.PULL_NOT_FOUND
    moved = client.pull(topic, 2, 9)
    assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": "|| ||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "XPATH"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"maxMsgNums": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_is_refused_and_how(client: WireClient, topic: str, changes, code: int) -> None:
    reply = client.call(RequestCode.PULL_MESSAGE, pull_ext(topic) | changes)
    assert reply.code == code
    assert reply.remark


def test_a_topic_that_may_not_be_read(client: WireClient, shared: EmbeddedCluster) -> None:
    shared.create_topic("write-only", queues=1, permission=2)
    reply = client.pull("write-only")
    assert (reply.code, reply.ext["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "3")


def test_a_group_that_may_not_consume(client: WireClient, topic: str) -> None:
    config = {"groupName": "barred", "consumeEnable": False}
    client.call(200, {}, json.dumps(config).encode())
    reply = client.pull(topic, group="barred")
    assert (reply.code, reply.ext["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "2")


def test_limits_of_count_and_size(client: WireClient, topic: str) -> None:
    fill(client, topic, 40)
    assert len(bodies(client.pull(topic, count=1000))) == 32
    assert len(bodies(client.pull(topic, count=0))) == 1
    for _ in range(4):
        client.send_message(topic, b"x" * 100_000, queue=1)
    assert len(bodies(client.pull(topic, 1))) == 2
    client.send_message(topic, b"x" * 400_000, queue=2)
    assert len(bodies(client.pull(topic, 2))) == 1
    assert len(bodies(client.pull(topic, count=32, maxMsgBytes=500))) == 2


def test_tags_are_filtered_and_filtered_messages_are_passed_over(
    client: WireClient, topic: str
) -> None:
    for n in range(9):
        client.send_message(topic, b"%d" % n, properties=f"TAGS\x01{'abc'[n % 3]}\x02")
    both = client.pull(topic, tags=" a || c ")
    assert bodies(both) == [b"0", b"2", b"3", b"5", b"6", b"8"]
    assert both.ext["nextBeginOffset"] == "9"
    none = client.pull(topic, tags="zzz")
    assert (none.code, none.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "9")


# Long polling


def test_a_held_pull_is_woken_by_its_own_queue_only(
    connect: Callable[[], WireClient], topic: str
) -> None:
    reader, writer = connect(), connect()
    fill(writer, topic, 1)
    opaque = reader.send(RequestCode.PULL_MESSAGE, pull_ext(topic, 0, 1, wait_ms=20_000))
    writer.send_message(topic, b"elsewhere", queue=1)
    writer.send_message(topic, b"here", queue=0)
    reply = reader.receive()
    assert reply.opaque == opaque
    assert bodies(reply) == [b"here"]


def test_a_held_pull_ignores_tags_it_did_not_ask_for(
    connect: Callable[[], WireClient], topic: str
) -> None:
    reader, writer = connect(), connect()
    reader.send(RequestCode.PULL_MESSAGE, pull_ext(topic, 0, 0, wait_ms=20_000, tags="yes"))
    for tag in ("no", "no", "yes"):
        writer.send_message(topic, tag.encode(), properties=f"TAGS\x01{tag}\x02")
    assert bodies(reader.receive()) == [b"yes"]


def test_a_held_pull_that_gets_nothing_is_answered_when_its_time_is_up(
    client: WireClient, topic: str
) -> None:
    fill(client, topic, 1)
    held = client.send(RequestCode.PULL_MESSAGE, pull_ext(topic, 0, 1, wait_ms=400))
    later = client.send(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    assert client.receive().opaque == later
    reply = client.receive()
    assert (reply.opaque, reply.code) == (held, ResponseCode.PULL_NOT_FOUND)


def test_one_connection_may_hold_many_pulls(connect: Callable[[], WireClient], topic: str) -> None:
    reader, writer = connect(), connect()
    waiting = {
        reader.send(RequestCode.PULL_MESSAGE, pull_ext(topic, n, 0, wait_ms=20_000)): b"%d" % n
        for n in range(4)
    }
    for n in (2, 0, 3, 1):
        writer.send_message(topic, b"%d" % n, queue=n)
    for _ in range(4):
        reply = reader.receive()
        assert bodies(reply) == [waiting.pop(reply.opaque)]


def test_many_pulls_wait_for_one_message(connect: Callable[[], WireClient], topic: str) -> None:
    readers = [connect() for _ in range(5)]
    for reader in readers:
        reader.send(RequestCode.PULL_MESSAGE, pull_ext(topic, 0, 0, wait_ms=20_000))
    connect().send_message(topic, b"for all")
    assert [bodies(reader.receive()) for reader in readers] == [[b"for all"]] * 5


def test_beyond_the_limit_pulls_are_not_held() -> None:
    with EmbeddedCluster(held_pulls=1) as cluster:
        cluster.create_topic("t", queues=1)
        address = cluster.broker("broker-a").address
        with WireClient(address) as first, WireClient(address) as second:
            first.send(RequestCode.PULL_MESSAGE, pull_ext("t", wait_ms=20_000))
            cluster.journal.wait_for(lambda entries: any(e.code == 11 for e in entries))
            reply = second.pull("t", wait_ms=20_000)
            assert reply.code == ResponseCode.PULL_NOT_FOUND
            second.send_message("t", b"x")
            assert bodies(first.receive()) == [b"x"]


def test_a_reader_that_goes_away_leaves_no_held_pull(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", queues=1)
    held = cluster._brokers["broker-a"].pulls
    with WireClient(cluster.broker("broker-a").address) as reader:
        reader.send(RequestCode.PULL_MESSAGE, pull_ext("t", wait_ms=60_000))
        _until(lambda: len(held) == 1)
    _until(lambda: len(held) == 0)


def _until(condition: Callable[[], bool]) -> None:
    ended = threading.Event()
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        ended.wait(0.005)


# Offsets


def test_the_ends_of_a_queue(client: WireClient, topic: str) -> None:
    assert client.call(30, {"topic": topic, "queueId": 0}).ext == {"offset": "0"}
    assert client.call(31, {"topic": topic, "queueId": 0}).ext == {"offset": "-1"}
    assert client.call(32, {"topic": topic, "queueId": 0}).ext == {"timestamp": "-1"}
    before = int(time.time() * 1000)
    fill(client, topic, 3)
    assert client.call(30, {"topic": topic, "queueId": 0}).ext == {"offset": "3"}
    assert client.call(31, {"topic": topic, "queueId": 0}).ext == {"offset": "0"}
    stored = int(client.call(32, {"topic": topic, "queueId": 0}).ext["timestamp"])
    assert before - 1 <= stored <= int(time.time() * 1000)


def test_offsets_by_time(client: WireClient, topic: str) -> None:
    fill(client, topic, 3)
    stored = [r.store_ms for r in iter_records(client.pull(topic).body)]

    def search(moment: int, boundary: str = "LOWER") -> int:
        ext = {"topic": topic, "queueId": 0, "timestamp": moment, "boundaryType": boundary}
        return int(client.call(29, ext).ext["offset"])

    assert search(stored[0] - 1000) == 0
    assert search(stored[-1] + 1) == 3
    assert search(stored[-1] + 1, "UPPER") == 2
    assert search(stored[0] - 1000, "UPPER") == 0
    assert search(stored[1]) == stored.index(stored[1])


def test_what_a_group_has_consumed(client: WireClient, topic: str) -> None:
    key = {"consumerGroup": "g-offsets", "topic": topic, "queueId": 1}
    assert client.call(14, key).ext == {"offset": "0"}
    unset = client.call(14, key | {"setZeroIfNotFound": "false"})
    assert unset.code == ResponseCode.QUERY_NOT_FOUND
    assert client.call(15, key | {"commitOffset": 42}).code == 0
    assert client.call(14, key).ext == {"offset": "42"}
    unknown = client.call(15, key | {"topic": "nowhere", "commitOffset": 1})
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    assert client.call(15, key | {"commitOffset": -1}).code == ResponseCode.INVALID_PARAMETER


def test_a_pull_may_report_progress(client: WireClient, topic: str) -> None:
    client.pull(topic, group="g-commit", flags=4 | 1, commitOffset=7)
    key = {"consumerGroup": "g-commit", "topic": topic, "queueId": 0}
    assert client.call(14, key).ext == {"offset": "7"}


def test_progress_survives_a_proper_end(tmp_path) -> None:
    key = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    for expected in (None, "5"):
        with EmbeddedCluster(folder=tmp_path) as cluster:
            cluster.create_topic("t", queues=1)
            with WireClient(cluster.broker("broker-a").address) as client:
                if expected is None:
                    client.call(15, key | {"commitOffset": 5})
                else:
                    assert client.call(14, key).ext == {"offset": expected}


# Single messages


def test_a_message_by_its_place(client: WireClient, topic: str) -> None:
    sent = client.send_message(topic, b"here")
    place = int(sent.ext["msgId"][16:], 16)
    assert bodies(client.call(33, {"topic": topic, "offset": place})) == [b"here"]
    assert client.call(33, {"offset": place + 1}).code == ResponseCode.SYSTEM_ERROR
    assert client.call(33, {"offset": -1}).code == ResponseCode.SYSTEM_ERROR


def test_messages_by_key_and_by_unique_id(client: WireClient, topic: str) -> None:
    for n in range(5):
        text = f"KEYS\x01key{n} both\x02UNIQ_KEY\x01UNIQUE{n}\x02"
        client.send_message(topic, b"%d" % n, properties=text)
    span = {"beginTimestamp": 0, "endTimestamp": 2**62, "maxNum": 32, "topic": topic}
    assert bodies(client.call(12, span | {"key": "key3"})) == [b"3"]
    assert bodies(client.call(12, span | {"key": "both"})) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(bodies(client.call(12, span | {"key": "both", "maxNum": 2}))) == 2
    unique = client.call(12, span | {"key": "UNIQUE2", "_UNIQUE_KEY_QUERY": "true"})
    assert bodies(unique) == [b"2"]
    assert int(unique.ext["indexLastUpdatePhyoffset"]) > 0
    assert client.call(12, span | {"key": "nothing"}).code == ResponseCode.QUERY_NOT_FOUND


# SQL92


def send_numbers(client: WireClient, topic: str) -> None:
    for n in range(100):
        assert client.send_message(topic, b"%d" % n, properties=f"n\x01{n}\x02").code == 0


def test_sql_filters_messages_and_goes_on_behind_those_left_out(
    client: WireClient, topic: str
) -> None:
    send_numbers(client, topic)
    reply = client.pull(topic, tags="n BETWEEN 40 AND 42", expressionType="SQL92")
    assert (bodies(reply), reply.ext["nextBeginOffset"]) == ([b"40", b"41", b"42"], "100")
    none = client.pull(topic, tags="n > 500", expressionType="SQL92")
    assert (none.code, none.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "100")


def test_a_group_subscribes_by_sql(client: WireClient, topic: str) -> None:
    send_numbers(client, topic)
    heartbeat(client, "one", "g-sql", topic, "n IN ('7', '70')", kind="SQL92")
    reply = client.pull(topic, group="g-sql", flags=0, subVersion=1)
    assert bodies(reply) == [b"7", b"70"]
    late = client.pull(topic, group="g-sql", flags=0, subVersion=2)
    assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    heartbeat(client, "one", "g-sql", topic, "n >", version=2, kind="SQL92")
    wrong = client.pull(topic, group="g-sql", flags=0, subVersion=2)
    assert wrong.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "Your expression may be wrong" in (wrong.remark or "")


def test_a_held_pull_is_woken_by_what_it_wants(connect: Any, topic: str) -> None:
    reader, writer = connect(), connect()
    opaque = reader.send(
        RequestCode.PULL_MESSAGE,
        pull_ext(topic, wait_ms=8000, tags="n = 5", expressionType="SQL92"),
    )
    for n in (3, 4, 5):
        writer.send_message(topic, b"%d" % n, properties=f"n\x01{n}\x02")
    reply = reader.receive()
    assert (reply.opaque, bodies(reply)) == (opaque, [b"5"])


def check_expression(client: WireClient, expression: str, kind: str = "SQL92") -> Any:
    data = {"topic": "t", "subString": expression, "expressionType": kind}
    body = {"clientId": "c", "group": "g", "subscriptionData": data}
    return client.call(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())


def test_an_expression_is_checked_before_it_is_used(client: WireClient) -> None:
    assert check_expression(client, "price > 10").code == 0
    assert check_expression(client, "||", "TAG").code == 0
    wrong = check_expression(client, "price > 10 AND")
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert wrong.remark == (
        "Invalid MessageSelector: a property, a number or a text in single quotes is expected, "
        "at position 15, at its end"
    )


def test_filters_can_be_switched_off_as_they_are_with_apache() -> None:
    with EmbeddedCluster(property_filter=False) as cluster:
        cluster.create_topic("t")
        with WireClient(cluster.broker("broker-a").address) as client:
            for reply in (
                check_expression(client, "price > 10"),
                client.pull("t", tags="price > 10", expressionType="SQL92"),
            ):
                assert reply.code == ResponseCode.SYSTEM_ERROR
                assert reply.remark == (
                    "The broker does not support consumer to filter message by SQL92"
                )
