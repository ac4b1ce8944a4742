"""What ``test_hostile_bytes`` does with the decoders of conversations, columns and operators' answers.

Fields of headers are given as text, one behind the other with a bar between, so that what is changed is a
field that is longer, missing or something else.
"""

import json
import pickle
import zlib

from rocketwire.columns.decode import RecordDecoder
from rocketwire.columns.record_starts import PullBody
from rocketwire.columns.schema import ALL_COLUMNS, select_columns
from rocketwire.embedded.register_body import decode_register_body, encode_register_body
from rocketwire.message import MessageQueue
from rocketwire.wire import access_bodies, admin_bodies, headers, pop
from rocketwire.wire.broker_requests import decode_group_changed, decode_transaction_check
from rocketwire.wire.client_bodies import decode_cleanup_policy
from rocketwire.wire.command import Command
from rocketwire.wire.lazy_message import messages_in
from rocketwire.wire.lenient_json import loads
from rocketwire.wire.pushed_reply import read_reply

QUEUE = MessageQueue("T", "b", 0)
RECEIPT = "40 1700000000123 60000 3 0 broker-a 2 42"


def fields(decode, **seed):
    """A decoder of header fields, and what it is given."""
    names = list(seed)

    def read(data):
        values = data.decode("latin-1").split("|")
        return decode(dict(zip(names, values, strict=False)))

    return read, ["|".join(seed.values()).encode("latin-1")]


def body(decode, *values):
    """A decoder of bodies in JSON, and what it is given."""
    return decode, [json.dumps(value).encode() for value in values]


def look_at_all(data):
    """Whatever a handler, a log or a pipe to another process might ask of a message."""
    for message in messages_in(data, broker="b"):
        assert isinstance(message.body, bytes)
        assert message.undecodable is None or isinstance(message.undecodable, str)
        assert message.born_at <= message.born_at.max.replace(tzinfo=message.born_at.tzinfo)
        repr(message)
        assert pickle.loads(pickle.dumps(message)).body == message.body
        assert message.message_id is not None
        hash(
            (
                message.keys,
                message.tags,
                message.offset_message_id,
                message.stored_at,
                message.born_host,
            )
        )


def read_columns(data):
    decoder = RecordDecoder(select_columns(ALL_COLUMNS), properties="all")
    for batch in decoder.decode([PullBody(QUEUE, data)]):
        batch.validate(full=True)


def read_pushed(ext):
    return read_reply(Command(326, ext, b"body"), "b")


def read_registration(data):
    return decode_register_body(data, compressed=False, request_version=475)


def read_packed_registration(data):
    return decode_register_body(zlib.compress(data, 1), compressed=True, request_version=475)


_QUEUE_KEY = '{"brokerName":"b","queueId":1,"topic":"T"}'
_TOPIC = {
    "topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0,
    "order": False, "attributes": {"cleanup.policy": "DELETE"},
}  # fmt: skip
_LINE = b"T 4 4 6 SINGLE_TAG"
_VERSION = b'{"counter":1}'
MORE_DECODERS = {
    "receipt": (lambda data: pop.decode_receipt(data.decode("latin-1")), [RECEIPT.encode()]),
    "pop reply": fields(
        lambda ext: pop.decode_pop_reply(ext).receipt("T", "b", 2, 42),
        popTime="1700000000123", invisibleTime="60000", reviveQid="3",
        startOffsetInfo="0 2 40;1 0 7", msgOffsetInfo="0 2 40,42;1 0 7,9",
    ),
    "change of a receipt": fields(
        lambda ext: pop.decode_change_reply(ext, pop.decode_receipt(RECEIPT)),
        popTime="1700000000123", invisibleTime="60000", reviveQid="3",
    ),
    "pop request": fields(
        pop.decode_pop_request,
        consumerGroup="g", topic="T", queueId="-1", maxMsgNums="32", invisibleTime="60000",
        pollTime="0", initMode="0", exp="*", expType="TAG",
    ),
    "batch of acks": body(
        lambda data: pop.decode_batch_ack(loads(data)),
        {"brokerName": "b", "acks": [
            {"c": "g", "t": "T", "r": "0", "so": 4, "q": 2, "rq": 3, "pt": 17, "it": 60, "b": "BQAC"},
        ]},
    ),
    "transaction check": fields(
        decode_transaction_check,
        tranStateTableOffset="1", commitLogOffset="2", msgId="M", transactionId="X",
        offsetMsgId="O", bname="b",
    ),
    "pushed reply": fields(
        read_pushed,
        producerGroup="g", topic="T", queueId="0", sysFlag="0", bornTimestamp="17", flag="0",
        properties="CORRELATION_ID\x01c\x02", reconsumeTimes="0", bornHost="/10.0.0.1:5000",
        storeHost="10.0.0.2:10911", storeTimestamp="18",
    ),
    "group changed": fields(decode_group_changed, consumerGroup="g"),
    "offset": fields(headers.decode_offset, offset="17"),
    "topic settings": body(admin_bodies.decode_topic_settings, _TOPIC),
    "all topic settings": body(admin_bodies.decode_all_topic_settings, {"topicConfigTable": {"T": _TOPIC}}),
    "cleanup policy": body(decode_cleanup_policy, _TOPIC),
    "runtime": body(admin_bodies.decode_runtime, {"table": {"putTps": "1 2 3", "x": 4}}),
    "group names": body(admin_bodies.decode_group_names, {"subscriptionGroupTable": {"g": {}}}),
    "connections": body(
        admin_bodies.decode_connections,
        {"connectionSet": [{"clientId": "c", "clientAddr": "a:1", "language": "JAVA", "version": 475}],
         "subscriptionTable": {"T": {"subString": "*"}}},
    ),
    "consume statistics": (
        admin_bodies.decode_consume_stats,
        [b'{"offsetTable":{%s:{"brokerOffset":9,"consumerOffset":7,"lastTimestamp":17}}}' % _QUEUE_KEY.encode()],
    ),
    "running queues": (admin_bodies.decode_running_queues, [b'{"mqTable":{%s:{}}}' % _QUEUE_KEY.encode()]),
    "server settings": (admin_bodies.decode_settings, [b"a=1\nb = 2\n#c=3\n"]),
    "users": body(access_bodies.decode_users, [{"username": "u", "userType": "Super", "userStatus": "enable"}]),
    "policies": body(
        access_bodies.decode_policies,
        [{"subject": "User:u", "policies": [{"entries": [
            {"resource": "Topic:T", "actions": ["Pub"], "sourceIps": ["1.2.3.4"], "decision": "Allow"}]}]}],
    ),
    "plain accounts": body(
        access_bodies.decode_plain_accounts,
        {"plainAccessConfigs": [{"accessKey": "k", "admin": False, "topicPerms": ["T=PUB"], "groupPerms": []}]},
    ),
    "registration": (
        read_registration,
        [encode_register_body({"counter": 1}, {"T": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}})],
    ),
    "packed registration": (
        read_packed_registration,
        [len(_VERSION).to_bytes(4, "big") + _VERSION + b"\0\0\0\1" + len(_LINE).to_bytes(4, "big") + _LINE],
    ),
}  # fmt: skip
