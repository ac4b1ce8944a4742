"""Requests from brokers to clients."""

import pytest

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.broker_requests import (
    PushedReply,
    decode_group_changed,
    decode_pushed_reply,
    decode_reset_offsets,
    decode_transaction_check,
)


def test_a_transaction_check():
    ext = {"tranStateTableOffset": "1", "commitLogOffset": "2", "msgId": "M", "bname": "b"}
    assert decode_transaction_check(ext) == (1, 2, "M", None, None, "b")
    with pytest.raises(RemoteProtocolError, match="commitLogOffset"):
        decode_transaction_check({"tranStateTableOffset": "1"})


PUSHED = {
    "producerGroup": "g",
    "topic": "C_REPLY_TOPIC",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "1",
    "bornTimestamp": "10",
    "flag": "-2",
    "properties": "CORRELATION_ID\x01c-1\x02MSG_TYPE\x01reply\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "bornHost": "10.0.0.1:5",
    "storeHost": "10.0.0.2:6",
    "storeTimestamp": "20",
}


def test_a_pushed_reply():
    assert decode_pushed_reply(PUSHED) == PushedReply(
        group="g",
        topic="C_REPLY_TOPIC",
        queue_id=0,
        system_flag=1,
        born_ms=10,
        flag=-2,
        properties={"CORRELATION_ID": "c-1", "MSG_TYPE": "reply"},
        reconsume_times=0,
        born_host="10.0.0.1:5",
        store_host="10.0.0.2:6",
        store_ms=20,
    )


@pytest.mark.parametrize("name", ["topic", "bornHost", "storeHost", "storeTimestamp", "queueId"])
def test_a_pushed_reply_misses_fields_by_name(name):
    ext = dict(PUSHED)
    del ext[name]
    with pytest.raises(RemoteProtocolError, match=name):
        decode_pushed_reply(ext)


def test_a_changed_group():
    assert decode_group_changed({"consumerGroup": "g"}) == "g"
    with pytest.raises(RemoteProtocolError, match="consumerGroup"):
        decode_group_changed({})


FIELDS = {"topic": "T", "group": "g", "timestamp": "5", "isForce": "true"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}',
        b'{"offsetTable":[{"brokerName":"b","queueId":1,"topic":"T","offset":7}]}',
    ],
)
def test_offsets_set_by_hand(body):
    told = decode_reset_offsets(FIELDS, body)
    assert (told.topic, told.group) == ("T", "g")
    assert told.offsets == {MessageQueue("T", "b", 1): 7}


@pytest.mark.parametrize("body", [b"{}", b'{"offsetTable":{}}', b'{"offsetTable":[]}', b"[]"])
def test_no_offsets_set_by_hand(body):
    assert decode_reset_offsets(FIELDS, body).offsets == {}


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b'{"offsetTable":5}',
        b'{"offsetTable":[5]}',
        b'{"offsetTable":{"a":5}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:"7"}}',
        b'{"offsetTable":[{"brokerName":"b","queueId":1,"topic":"T"}]}',
    ],
)
def test_garbled_offsets_are_refused(body):
    with pytest.raises(RemoteProtocolError):
        decode_reset_offsets(FIELDS, body)
