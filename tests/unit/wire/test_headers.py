"""Fields of requests and replies, by Java's names."""

import pytest
from tests.wire_tools import with_long_names

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire import headers
from rocketwire.wire.codes import PullFlag, RequestCode, SystemFlag

SEND = {
    "group": "g",
    "topic": "T",
    "queue_id": 3,
    "born_ms": 1700000000000,
    "properties": "TAGS\x01a\x02",
    "system_flag": 1,
    "flag": -7,
    "broker": "broker-a",
}


def test_a_send_in_letters():
    assert headers.send_v2(**SEND) == {
        "a": "g",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "1",
        "g": "1700000000000",
        "h": "-7",
        "i": "TAGS\x01a\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }


def test_both_versions_of_a_send_say_the_same():
    options = SEND | {"batch": True, "max_reconsume_times": 16, "reconsume_times": 2}
    short = headers.send_v2(**options)
    long = with_long_names(short)
    for codes, ext in (
        ((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE), long),
        (
            (
                RequestCode.SEND_MESSAGE_V2,
                RequestCode.SEND_BATCH_MESSAGE,
                RequestCode.SEND_REPLY_MESSAGE_V2,
            ),
            short,
        ),
    ):
        for code in codes:
            assert headers.decode_send_request(code, ext) == headers.SendRequest(
                group="g",
                topic="T",
                default_topic="TBW102",
                default_queues=4,
                queue_id=3,
                system_flag=1,
                born_ms=1700000000000,
                flag=-7,
                properties="TAGS\x01a\x02",
                reconsume_times=2,
                unit_mode=False,
                max_reconsume_times=16,
                batch=True,
                broker="broker-a",
            )


def test_optional_fields_of_a_send_may_be_absent():
    ext = {"a": "g", "b": "T", "c": "D", "d": "4", "e": "-1", "f": "0", "g": "1", "h": "0"}
    send = headers.decode_send_request(310, ext)
    assert (send.properties, send.reconsume_times, send.max_reconsume_times) == ("", 0, None)
    assert (send.unit_mode, send.batch, send.broker) == (False, False, None)


@pytest.mark.parametrize("name", "abcdefgh")
def test_mandatory_fields_of_a_send_are_missed_by_name(name):
    ext = headers.send_v2(**SEND)
    del ext[name]
    with pytest.raises(RemoteProtocolError, match=f"'{name}' is missing"):
        headers.decode_send_request(310, ext)


def test_nothing_empty_is_ever_sent():
    ext = headers.send_v2(**(SEND | {"properties": "", "broker": None}))
    assert "i" not in ext
    assert "n" not in ext
    assert all(ext.values())


REPLY = {"msgId": "0A00000200002A9F0000000000000400", "queueId": "2", "queueOffset": "5"}


def test_a_send_reply_of_4x():
    assert headers.decode_send_reply(REPLY) == headers.SendReply(
        "0A00000200002A9F0000000000000400", 2, 5, None, "DefaultRegion", None, None
    )


def test_a_send_reply_of_5x():
    more = {
        "transactionId": "U",
        "MSG_REGION": "eu",
        "TRACE_ON": "false",
        "batchUniqId": "B",
        "recallHandle": "H",
    }
    assert headers.decode_send_reply(REPLY | more)[3:] == ("U", "eu", "B", "H")


@pytest.mark.parametrize("name", REPLY)
def test_a_send_reply_without_a_place_is_refused(name):
    ext = dict(REPLY)
    del ext[name]
    with pytest.raises(RemoteProtocolError, match=name):
        headers.decode_send_reply(ext)


@pytest.mark.parametrize(
    "text",
    ["x", "1.0", " 1", "1 ", "1_0", "+1", "0x1", "-", "9" * 5000, str(2**63), str(-(2**63) - 1)],
)
def test_garbled_numbers_are_refused_by_name(text):
    with pytest.raises(RemoteProtocolError, match="'queueOffset' is"):
        headers.decode_send_reply(REPLY | {"queueOffset": text})


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63)])
def test_numbers_of_64_bits_are_read(number):
    assert headers.decode_offset({"offset": str(number)}) == number


def test_a_pull():
    ext = headers.pull(
        group="g",
        topic="T",
        queue_id=1,
        offset=100,
        max_messages=32,
        system_flag=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION,
        suspend_ms=15000,
        broker="b",
    )
    assert ext == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "1",
        "queueOffset": "100",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        "bname": "b",
    }


def test_a_pull_reply():
    ext = {
        "suggestWhichBrokerId": "1",
        "nextBeginOffset": "7",
        "minOffset": "0",
        "maxOffset": "9",
        "offsetDelta": "3",
    }
    assert headers.decode_pull_reply(ext) == headers.PullReply(7, 0, 9, 1, 3)
    del ext["suggestWhichBrokerId"], ext["offsetDelta"]
    assert headers.decode_pull_reply(ext) == headers.PullReply(7, 0, 9, 0, 0)
    del ext["maxOffset"]
    with pytest.raises(RemoteProtocolError, match="maxOffset"):
        headers.decode_pull_reply(ext)


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        (
            headers.query_message(topic="T", key="k", max_messages=32, end_ms=9, unique=True),
            {
                "topic": "T",
                "key": "k",
                "maxNum": "32",
                "beginTimestamp": "0",
                "endTimestamp": "9",
                "_UNIQUE_KEY_QUERY": "true",
            },
        ),
        (headers.view_message(1024), {"offset": "1024"}),
        (
            headers.view_message(0, topic="T", broker="b"),
            {"topic": "T", "offset": "0", "bname": "b"},
        ),
        (headers.queue("T", 0, broker="b"), {"topic": "T", "queueId": "0", "bname": "b"}),
        (
            headers.search_offset("T", 1, 99, boundary="UPPER", broker="b"),
            {
                "topic": "T",
                "queueId": "1",
                "timestamp": "99",
                "boundaryType": "UPPER",
                "bname": "b",
            },
        ),
        (
            headers.query_consumer_offset("g", "T", 1, zero_if_not_found=False, broker="b"),
            {
                "consumerGroup": "g",
                "topic": "T",
                "queueId": "1",
                "setZeroIfNotFound": "false",
                "bname": "b",
            },
        ),
        (
            headers.update_consumer_offset("g", "T", 1, 55, broker="b"),
            {
                "consumerGroup": "g",
                "topic": "T",
                "queueId": "1",
                "commitOffset": "55",
                "bname": "b",
            },
        ),
        (headers.route("T"), {"topic": "T", "acceptStandardJsonOnly": "true"}),
        (
            headers.create_topic(
                "T", read_queues=4, write_queues=2, attributes={"queue.type": "BatchCQ"}
            ),
            {
                "topic": "T",
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "2",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "+queue.type=BatchCQ",
            },
        ),
        (headers.topic_only("T"), {"topic": "T"}),
        (headers.topic_only("T", cluster="C"), {"topic": "T", "clusterName": "C"}),
        (
            headers.unregister_client("id", producer_group="p"),
            {"clientID": "id", "producerGroup": "p"},
        ),
        (headers.consumer_list("g"), {"consumerGroup": "g"}),
        (
            headers.send_message_back(
                group="g", offset=7, delay_level=0, origin_message_id="M", max_reconsume_times=16
            ),
            {
                "offset": "7",
                "group": "g",
                "delayLevel": "0",
                "originMsgId": "M",
                "unitMode": "false",
                "maxReconsumeTimes": "16",
            },
        ),
        (
            headers.end_transaction(
                group="g",
                topic="T",
                queue_offset=1,
                commit_log_offset=2,
                decision=SystemFlag.TRANSACTION_COMMIT,
                message_id="M",
                transaction_id="X",
            ),
            {
                "topic": "T",
                "producerGroup": "g",
                "tranStateTableOffset": "1",
                "commitLogOffset": "2",
                "commitOrRollback": "8",
                "fromTransactionCheck": "false",
                "msgId": "M",
                "transactionId": "X",
            },
        ),
        (
            headers.recall_message(group="g", topic="T", handle="H", broker="b"),
            {"producerGroup": "g", "topic": "T", "recallHandle": "H", "bname": "b"},
        ),
    ],
)
def test_fields_of_other_requests(ext, expected):
    assert ext == expected


def test_a_query_that_will_be_signed_leaves_the_odd_field_out():
    ext = headers.query_message(topic="T", key="k", max_messages=32)
    assert headers.UNIQUE_KEY_QUERY not in ext
