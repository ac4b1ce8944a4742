"""Sends over the wire: what is stored, what is refused and with which code."""

from __future__ import annotations

import pytest
from tests.wire_tools import iter_records, offset_id_of
from wire_client import WireClient, batch_item, send_ext

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import JSON
from rocketwire.wire.stored_message import Record

V1_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "m": "batch",
}  # fmt: skip


def stored(client: WireClient, topic: str, queue: int = 0) -> list[Record]:
    return list(iter_records(client.pull(topic, queue).body))


@pytest.mark.parametrize("header", [JSON, 1])
def test_both_versions_of_the_header_in_both_encodings(
    client: WireClient, topic: str, header: int
) -> None:
    new = send_ext(topic, queue=1, properties="TAGS\x01a\x02", h=77)
    old = {V1_NAMES[k]: v for k, v in new.items()}
    first = client.call(RequestCode.SEND_MESSAGE, old, b"one", header=header)
    second = client.call(RequestCode.SEND_MESSAGE_V2, new, b"two", header=header)
    assert (first.code, second.code) == (0, 0)
    assert (first.header, second.header) == (header, header)
    records = stored(client, topic, 1)
    assert [(r.body, r.flag, r.queue_id) for r in records] == [(b"one", 77, 1), (b"two", 77, 1)]
    assert records[0].born_ms == int(new["g"])
    assert records[0].born_host.startswith("127.0.0.1:")


def test_answers_can_always_be_json_as_in_5x() -> None:
    with (
        EmbeddedCluster(reply_header="json") as cluster,
        WireClient(cluster.broker("broker-a").address) as client,
    ):
        assert client.send_message("t").header == JSON


def test_a_oneway_send_is_stored_and_not_answered(client: WireClient, topic: str) -> None:
    client.send(RequestCode.SEND_MESSAGE_V2, send_ext(topic), b"quiet", flag=2)
    assert [r.body for r in stored(client, topic)] == [b"quiet"]


def test_the_answer_names_the_place_of_the_message(client: WireClient, topic: str) -> None:
    client.send_message(topic, queue=2)
    reply = client.send_message(topic, queue=2, properties="UNIQ_KEY\x01MYID\x02")
    assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("2", "1")
    assert reply.ext["transactionId"] == "MYID"
    assert reply.ext["MSG_REGION"] == "DefaultRegion"
    record = stored(client, topic, 2)[1]
    assert offset_id_of(record) == reply.ext["msgId"]


def test_a_message_without_an_id_gets_one(client: WireClient, topic: str) -> None:
    reply = client.send_message(topic, properties="TAGS\x01x")
    record = stored(client, topic)[0]
    assert len(record.properties["UNIQ_KEY"]) == 32
    assert record.properties["UNIQ_KEY"] == reply.ext["transactionId"]
    assert record.properties["TAGS"] == "x"


def test_broker_properties_are_added_and_private_ones_removed(
    client: WireClient, topic: str
) -> None:
    text = "POP_CK\x01x\x02__RMQ.TRANSIENT.a\x01b\x02user\x01kept\x02"
    client.send_message(topic, properties=text)
    properties = stored(client, topic)[0].properties
    assert properties["user"] == "kept"
    assert properties["CLUSTER"] == "DefaultCluster"
    assert properties["MSG_REGION"] == "DefaultRegion"
    assert properties["TRACE_ON"] == "true"
    assert "POP_CK" not in properties
    assert "__RMQ.TRANSIENT.a" not in properties


def test_a_negative_queue_lets_the_broker_choose(client: WireClient, topic: str) -> None:
    chosen = {client.send_message(topic, queue=-1).ext["queueId"] for _ in range(60)}
    assert chosen == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"b": "bad topic!"}, ResponseCode.INVALID_PARAMETER),
        ({"b": "../../etc/passwd"}, ResponseCode.INVALID_PARAMETER),
        ({"b": "x" * 128}, ResponseCode.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"b": "OFFSET_MOVED_EVENT"}, ResponseCode.NO_PERMISSION),
        ({"b": "unheard-of", "c": "no-template"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"e": 4}, ResponseCode.INVALID_PARAMETER),
        ({"e": 2**31 - 1}, ResponseCode.INVALID_PARAMETER),
        ({"e": "many"}, ResponseCode.SYSTEM_ERROR),
        ({"g": ""}, ResponseCode.SYSTEM_ERROR),
        ({"i": "x" * 32768}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_what_is_refused_and_how(
    client: WireClient, topic: str, changes: dict[str, object], code: int
) -> None:
    reply = client.call(RequestCode.SEND_MESSAGE_V2, send_ext(topic, **changes), b"x")
    assert reply.code == code
    assert reply.remark


def test_a_body_beyond_the_limit_is_illegal(client: WireClient, topic: str) -> None:
    limit = 4 * 1024 * 1024
    assert client.send_message(topic, b"x" * (limit + 1)).code == ResponseCode.MESSAGE_ILLEGAL
    assert client.send_message(topic, b"x" * limit).code == ResponseCode.SUCCESS


def test_a_topic_is_made_with_the_smaller_number_of_queues() -> None:
    with (
        EmbeddedCluster(queues=6) as cluster,
        WireClient(cluster.broker("broker-a").address) as client,
    ):
        for name, wanted, made in (("small", 2, 2), ("large", 100, 6)):
            assert client.send_message(name, d=wanted).code == 0
            assert client.send_message(name, queue=made).code == ResponseCode.INVALID_PARAMETER
            assert client.send_message(name, queue=made - 1).code == 0


def test_without_automatic_topics_an_unknown_one_is_refused(tmp_path) -> None:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        with WireClient(cluster.broker("broker-a").address) as client:
            assert client.send_message("new").code == ResponseCode.TOPIC_NOT_EXIST
            cluster.create_topic("new", queues=1)
            assert client.send_message("new").code == ResponseCode.SUCCESS
        with WireClient(cluster.name_server) as client:
            assert client.call(105, {"topic": "TBW102"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_topics_survive_a_restart(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("kept", queues=3)
    cluster.broker("broker-a").kill()
    cluster.broker("broker-a").restart()
    with WireClient(cluster.broker("broker-a").address) as client:
        assert client.send_message("kept", queue=2, c="none").code == 0
        assert client.send_message("kept", queue=3).code == ResponseCode.INVALID_PARAMETER


# Batches


def test_a_batch_keeps_the_messages_own_ids_and_tags(client: WireClient, topic: str) -> None:
    items = b"".join(
        batch_item(b"%d" % n, f"UNIQ_KEY\x01ID{n}\x02TAGS\x01t{n % 2}".encode(), flag=n)
        for n in range(6)
    )
    outer = "UNIQ_KEY\x01OUTER\x02WAIT\x01true\x02"
    ext = send_ext(topic, queue=3, properties=outer, m="true")
    reply = client.call(RequestCode.SEND_BATCH_MESSAGE, ext, items)
    assert reply.ext["queueOffset"] == "0"
    records = stored(client, topic, 3)
    assert [r.properties["UNIQ_KEY"] for r in records] == [f"ID{n}" for n in range(6)]
    assert [r.flag for r in records] == list(range(6))
    assert {r.properties["CLUSTER"] for r in records} == {"DefaultCluster"}
    even = client.pull(topic, 3, tags="t0")
    assert [r.body for r in iter_records(even.body)] == [b"0", b"2", b"4"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0\5hello",
        batch_item(b"x")[:-1],
        batch_item(b"x") + b"\0",
        batch_item(b"x") + b"\xff" * 30,
        batch_item(b"x", b"p" * 32767),
        b"\0\0\0\x16" + b"\0" * 12 + b"\xff\xff\xff\xff" + b"\0\0",
    ],
)
def test_a_malformed_batch_is_illegal_and_stores_nothing(
    client: WireClient, topic: str, body: bytes
) -> None:
    reply = client.call(RequestCode.SEND_BATCH_MESSAGE, send_ext(topic, m="true"), body)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert client.call(30, {"topic": topic, "queueId": 0}).ext["offset"] == "0"


def test_a_batch_to_a_retry_topic_is_illegal(client: WireClient) -> None:
    ext = send_ext("%RETRY%g", m="true")
    reply = client.call(RequestCode.SEND_BATCH_MESSAGE, ext, batch_item(b"x"))
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_large_even_batch_is_stored_like_a_small_uneven_one(
    client: WireClient, topic: str
) -> None:
    even = [(b"%04d" % n, b"KEYS\x01k%04d\x02TAGS\x01t\x02" % n) for n in range(500)]
    odd = [(b"%d" % n, b"KEYS\x01k%d\x02TAGS\x01t\x02" % n) for n in range(500)]
    for queue, batch in enumerate((even, odd)):
        ext = send_ext(topic, queue=queue, m="true")
        body = b"".join(batch_item(*item) for item in batch)
        assert client.call(RequestCode.SEND_BATCH_MESSAGE, ext, body).code == 0
        found: list[Record] = []
        while len(found) < 500:
            part = client.pull(topic, queue, len(found), tags="t")
            found += iter_records(part.body)
        assert [r.body for r in found] == [body for body, _ in batch]
        assert [r.properties["KEYS"].encode() for r in found] == [p[5:-8] for _, p in batch]
        assert [r.queue_offset for r in found] == list(range(500))
