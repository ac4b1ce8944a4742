"""JSON bodies between clients and brokers. Exact bytes are in test_java_vectors."""

import json

import pytest

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.client_bodies import (
    ConsumerData,
    Subscription,
    decode_consumer_list,
    decode_lock_reply,
    decode_queue,
    decode_topic_list,
    decode_topic_stats,
    heartbeat_body,
    lock_body,
    queue_json,
)
from rocketwire.wire.java_hash import java_string_hash


def test_a_producers_heartbeat():
    assert json.loads(heartbeat_body("id", ["p1", "p2"])) == {
        "clientID": "id",
        "producerDataSet": [{"groupName": "p1"}, {"groupName": "p2"}],
        "consumerDataSet": [],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }


def test_a_consumers_heartbeat():
    consumer = ConsumerData(
        "g",
        [Subscription("T", "*", 7), Subscription("S", "a > 1", 8, "SQL92")],
        consume_type="CONSUME_ACTIVELY",
        from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    (told,) = json.loads(heartbeat_body("id", [], [consumer]))["consumerDataSet"]
    assert told["groupName"] == "g"
    assert told["consumeType"] == "CONSUME_ACTIVELY"
    assert told["messageModel"] == "CLUSTERING"
    everything, chosen = told["subscriptionDataSet"]
    assert (everything["subString"], everything["tagsSet"], everything["codeSet"]) == ("*", [], [])
    assert (chosen["expressionType"], chosen["subString"]) == ("SQL92", "a > 1")
    assert (chosen["tagsSet"], chosen["subVersion"]) == ([], 8)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("*", ()),
        ("", ()),
        ("a", ("a",)),
        ("a||b", ("a", "b")),
        (" a || b ||a|| ", ("a", "b")),
        ("a|b", ("a|b",)),
    ],
)
def test_tags_of_an_expression(expression, tags):
    subscription = Subscription("T", expression)
    assert subscription.tags == tags
    assert subscription.as_json()["codeSet"] == sorted(java_string_hash(tag) for tag in tags)


def test_locks():
    queue = MessageQueue("T", "b", 1)
    sent = json.loads(lock_body("id", "g", [queue]))
    assert sent["mqSet"] == [queue_json(queue)]
    assert decode_queue(sent["mqSet"][0]) == queue
    reply = json.dumps({"lockOKMQSet": [queue_json(queue)]}).encode()
    assert decode_lock_reply(reply) == {queue}
    assert decode_lock_reply(b"{}") == frozenset()


def test_lists():
    assert decode_consumer_list(b'{"consumerIdList":["a","b"]}') == ("a", "b")
    assert decode_topic_list(b'{"topicList":["T"],"brokerAddr":null}') == ("T",)
    assert decode_topic_list(b"{}") == ()


def test_statistics_of_an_empty_topic():
    assert decode_topic_stats(b'{"offsetTable":{},"topicPutTps":0.0}') == {}


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (decode_consumer_list, b"[]"),
        (decode_consumer_list, b'{"consumerIdList":5}'),
        (decode_consumer_list, b'{"consumerIdList":[5]}'),
        (decode_topic_list, b"nonsense"),
        (decode_lock_reply, b'{"lockOKMQSet":[1]}'),
        (decode_lock_reply, b'{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":"1"}]}'),
        (decode_lock_reply, b'{"lockOKMQSet":[{"topic":"T","brokerName":null,"queueId":1}]}'),
        (decode_topic_stats, b'{"offsetTable":[1]}'),
        (decode_topic_stats, b'{"offsetTable":{"a":1}}'),
        (decode_topic_stats, b'{"offsetTable":{{"topic":"T","brokerName":"b","queueId":1}:5}}'),
        (
            decode_topic_stats,
            b'{"offsetTable":{{"topic":"T","brokerName":"b","queueId":1}:{"minOffset":1}}}',
        ),
    ],
)
def test_other_bodies_are_refused(decode, body):
    with pytest.raises(RemoteProtocolError):
        decode(body)
