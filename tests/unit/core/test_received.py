"""Messages that are read when somebody looks are the same as those read at once."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import replace
from typing import Any

import pytest

from rocketwire.core.pull import ALL, read_pull, tag_filter
from rocketwire.core.received import Origin, ReceivedMessage, receive, tried_again, weigh
from rocketwire.errors import BrokerError, RemoteProtocolError
from rocketwire.message import MessageQueue, StoredMessage
from rocketwire.wire.batch import encode_batch
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command
from rocketwire.wire.properties import encode_properties_bytes
from rocketwire.wire.stored_message import encode_record

QUEUE = MessageQueue("T", "broker-a", 3)


def record(offset: int, body: bytes = b"body", **how: Any) -> bytes:
    properties = {"UNIQ_KEY": f"id-{offset}", "TAGS": "A", "KEYS": "k", "own": "x"}
    properties |= how.pop("properties", {})
    return encode_record(
        **{
            "topic": "T",
            "body": body,
            "properties": encode_properties_bytes(properties),
            "queue_id": 3,
            "queue_offset": offset,
            "physical_offset": offset * 100,
            "born_ms": 1_700_000_000_000,
            "store_ms": 1_700_000_000_100,
        }
        | how
    )


def pulled(*records: bytes, code: int = 0, **more: str) -> Reply:
    ext = {"nextBeginOffset": "9", "minOffset": "1", "maxOffset": "20"} | more
    command = Command(code, ext, b"".join(records), flag=RESPONSE)
    return Reply(encode_command(command)[4:])


def receive_all(reply: Reply, offset: int = 0, tags: str = "*", **origin: Any):
    where = Origin(b"", QUEUE, 0, None, is_retry=False)._replace(**origin)
    return receive(reply, QUEUE, offset, tag_filter(tags), where)


PLAIN = [record(5), record(6, b""), record(7, b"x" * 5000)]
SPECIAL = {
    "plain": PLAIN,
    "compressed": [record(5, zlib.compress(b"hello"), system_flag=0x301)],
    "IPv6 hosts": [record(5, born_host="[::1]:10", store_host="[::1]:20")],
    "nothing": [],
}


@pytest.mark.parametrize("records", SPECIAL.values(), ids=SPECIAL)
def test_unread_messages_are_those_that_a_reader_gets(records):
    reply = pulled(*records)
    lazy, eager = receive_all(reply), read_pull(reply, QUEUE, 0, ALL)
    assert lazy == eager
    assert [m.body for m in receive_all(reply).messages] == [m.body for m in eager.messages]
    for message in lazy.messages:
        assert type(message) is ReceivedMessage
        assert isinstance(message, StoredMessage)


@pytest.mark.parametrize("name", list(StoredMessage.__slots__))
def test_whatever_is_looked_at_first_is_right(name):
    reply = pulled(*PLAIN)
    for lazy, eager in zip(
        receive_all(reply).messages, read_pull(reply, QUEUE, 0, ALL).messages, strict=True
    ):
        assert getattr(lazy, name) == getattr(eager, name)


def test_long_topics_have_a_layout_of_their_own():
    (message,) = receive_all(pulled(record(5, topic="t" * 200))).messages
    assert message.body == b"body"
    assert message.topic == "t" * 200


def test_nothing_else_is_there():
    (message,) = receive_all(pulled(record(5))).messages
    with pytest.raises(AttributeError):
        message.nonsense  # noqa: B018
    with pytest.raises(AttributeError):
        message.body = b"other"


def test_messages_before_the_offset_are_left_out():
    found = receive_all(pulled(*[record(i) for i in range(4)]), offset=2)
    assert [m.offset for m in found.messages] == [2, 3]


def test_an_offset_delta_is_added():
    found = receive_all(pulled(record(5), offsetDelta="100"))
    assert found.messages[0].offset == 105
    assert found.messages[0].text == "body"
    assert found.messages[0].offset == 105


def test_tags_are_compared_by_their_text():
    reply = pulled(record(1, properties={"TAGS": "Aa"}), record(2, properties={"TAGS": "BB"}))
    assert [m.offset for m in receive_all(reply, tags="BB").messages] == [2]


def test_batches_within_one_record_are_unwrapped():
    body = encode_batch([(b"one", b"a\x011\x02", 0), (b"two", b"a\x012\x02", 0)])
    flag = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH
    found = receive_all(pulled(record(5, body, system_flag=flag)))
    assert [(m.offset, m.body) for m in found.messages] == [(5, b"one"), (6, b"two")]


def test_a_message_that_was_sent_back_has_its_own_topic():
    sent_back = record(5, topic="%RETRY%g", properties={"RETRY_TOPIC": "orders"})
    found = receive_all(pulled(sent_back), is_retry=True)
    assert found.messages[0].topic == "orders"
    assert found.messages[0].queue == QUEUE


def test_namespaces_are_not_shown():
    found = receive_all(pulled(record(5, topic="ns%orders")), namespace="ns")
    assert found.messages[0].topic == "orders"
    by_tag = receive_all(pulled(record(5, topic="ns%orders")), tags="A", namespace="ns")
    assert by_tag.messages[0].topic == "orders"


def test_a_record_cut_short_is_left_out_and_rubbish_is_refused():
    whole, cut = record(5), record(6)
    assert [m.offset for m in receive_all(pulled(whole, cut[:-3])).messages] == [5]
    with pytest.raises(RemoteProtocolError, match="magic number"):
        receive_all(pulled(whole, b"\x00" * 100))


def test_a_refusal_is_raised():
    with pytest.raises(BrokerError):
        receive_all(pulled(code=16))


def test_a_corrected_offset_is_told():
    found = receive_all(pulled(code=21), offset=50)
    assert (found.moved_from, found.next_offset) == (50, 9)


def test_they_can_be_copied_compared_shown_and_pickled():
    (message,) = receive_all(pulled(record(5))).messages
    (plain,) = read_pull(pulled(record(5)), QUEUE, 0, ALL).messages
    assert pickle.loads(pickle.dumps(message)) == plain
    assert replace(message, body=b"new").body == b"new"
    assert repr(message) == repr(plain)
    assert message == plain
    assert plain == message
    assert message != replace(plain, offset=6)
    assert message != "something else"


def test_a_message_tried_again_keeps_its_weight():
    (message,) = receive_all(pulled(record(5))).messages
    again = tried_again(message)
    assert again.reconsume_times == message.reconsume_times + 1
    assert weigh([again]) == weigh([message]) == len(record(5))
