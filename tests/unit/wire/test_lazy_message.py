"""Messages over raw bytes: every field is what its record says, whichever is asked for first."""

from __future__ import annotations

import copy
import pickle
import zlib
from dataclasses import replace
from typing import Any

import pytest
from tests.wire_tools import encode_batch, offset_id_of

from rocketwire.core.reading.pull import read_pull, tag_filter
from rocketwire.errors import BrokerError, RemoteProtocolError
from rocketwire.message import Message, MessageQueue
from rocketwire.stored_message import STORED_FIELDS, StoredMessage, utc_from_ms
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command
from rocketwire.wire.compression import decompress
from rocketwire.wire.lazy_message import (
    broker_property,
    grown_by,
    messages_in,
    tried_again,
    weigh,
)
from rocketwire.wire.properties import rewritten
from rocketwire.wire.property_shapes import shapes_of
from rocketwire.wire.stored_message import decode_record, encode_record

QUEUE = MessageQueue("T", "broker-a", 3)


def record(offset: int, body: bytes = b"body", **how: Any) -> bytes:
    properties = {"UNIQ_KEY": f"id-{offset}", "TAGS": "A", "KEYS": "k", "own": "x"}
    properties |= how.pop("properties", {})
    return encode_record(
        **{
            "topic": "T",
            "body": body,
            "properties": rewritten(properties).encode(),
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
    return read_pull(reply, QUEUE, offset, tag_filter(tags), **origin)


def expected(record: bytes, body: bytes) -> StoredMessage:
    """What the strict decoder finds, put together by the constructor."""
    found, _ = decode_record(record)
    return StoredMessage(
        topic="T",
        body=body,
        tags="A",
        keys="k",
        properties={"own": "x"},
        sharding_key=None,
        delay_level=0,
        deliver_at=None,
        flag=0,
        wait_store_ok=True,
        queue=QUEUE,
        offset=found.queue_offset,
        message_id=f"id-{found.queue_offset}",
        offset_message_id=offset_id_of(found),
        born_at=utc_from_ms(found.born_ms),
        stored_at=utc_from_ms(found.store_ms),
        born_host=found.born_host,
        store_host=found.store_host,
        reconsume_times=0,
        commit_log_offset=found.physical_offset,
    )


BODIES = [b"body", b"", b"x" * 5000, b"hello"]
RECORDS = [
    record(5),
    record(6, b""),
    record(7, b"x" * 5000),
    record(8, zlib.compress(b"hello"), system_flag=0x301),
]
WIDE = [
    record(5, born_host="[::1]:10", store_host="[::2]:20"),
    record(6, b"", store_host="[::2]:20"),
    record(7, b"x" * 5000, born_host="[::1]:10"),
    record(8, zlib.compress(b"hello"), system_flag=0x301, store_host="[::2]:20"),
]


@pytest.mark.parametrize("records", [RECORDS, WIDE], ids=["IPv4", "IPv6"])
def test_messages_are_what_their_records_say(records):
    found = receive_all(pulled(*records)).messages
    assert list(found) == [expected(*pair) for pair in zip(records, BODIES, strict=True)]
    assert [m.body for m in receive_all(pulled(*records)).messages] == BODIES


@pytest.mark.parametrize("records", [RECORDS, WIDE], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("name", STORED_FIELDS)
def test_whatever_is_looked_at_first_is_right(name, records):
    pairs = zip(records, BODIES, strict=True)
    for lazy, pair in zip(receive_all(pulled(*records)).messages, pairs, strict=True):
        assert getattr(lazy, name) == getattr(expected(*pair), name)


def test_an_answer_without_messages_has_none():
    assert receive_all(pulled()).messages == ()


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


def test_a_batch_before_a_record_that_is_cut_is_asked_for_again():
    """It takes the offsets up to the next record. Taken for one offset, it was handed over raw, and its first message lost."""
    flags = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH
    batch = encode_batch([(b"one", b"", 0), (b"two", b"", 0), (b"three", b"", 0)])
    records = [record(0), record(1, batch, system_flag=flags), record(4)]
    whole = receive_all(pulled(*records, nextBeginOffset="5"))
    assert [m.body for m in whole.messages] == [b"body", b"one", b"two", b"three", b"body"]
    for kept in (1, 8, 100, len(records[2]) - 1):
        fetched = receive_all(pulled(*records[:2], records[2][:kept], nextBeginOffset="5"))
        assert [m.body for m in fetched.messages] == [b"body"]
        assert fetched.next_offset == 1
        rest = receive_all(pulled(*records[1:], nextBeginOffset="5"), offset=1)
        assert [m.offset for m in rest.messages] == [1, 2, 3, 4]


@pytest.mark.parametrize("size", [70_000_000, 9_000_000])
def test_many_compressed_batches_keep_an_event_loop_no_longer_than_one(monkeypatch, size):
    """Each was decompressed at once, to 64 MiB: an answer of a few KB kept its loop for seconds."""
    inflated = []

    def counted(body: bytes, flag: int, limit: int) -> bytes:
        inflated.append(limit)
        return decompress(body, flag, limit)

    monkeypatch.setattr("rocketwire.wire.stored_message.decompress", counted)
    flags = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH | 0x301
    good = zlib.compress(encode_batch([(b"one", b"", 0)]))
    bomb = zlib.compress(bytes(size))
    records = [record(0, good, system_flag=flags)]
    records += [record(n, bomb, system_flag=flags) for n in range(1, 8)]
    messages = receive_all(pulled(*records, nextBeginOffset="8")).messages
    assert [m.offset for m in messages] == list(range(8))
    assert messages[0].body == b"one"
    assert all("marked as a batch" in m.undecodable for m in messages[1:])
    assert len(inflated) == 8
    assert sum(inflated[1:]) <= 8 * 1024 * 1024


def _damaged(whole: bytes) -> bytes:
    return whole[:-1] + bytes([whole[-1] ^ 1])


@pytest.mark.parametrize("kind", ["zlib", "zstd"])
def test_many_short_batches_that_fail_late_are_taken_apart_no_further_than_one(monkeypatch, kind):
    """What is short may become 350 KB with zlib, and 10 MB with zstd; it was believed to cost nothing."""
    if kind == "zlib":
        bomb, packed = _damaged(zlib.compress(bytes(350_000), 9)), 0x301
    else:
        bomb, packed = pytest.importorskip("zstandard").compress(bytes(10_000_000)), 0x201
    assert len(bomb) < 400
    inflated = []

    def counted(body: bytes, flag: int, limit: int) -> bytes:
        inflated.append(min(limit, 350_000 if kind == "zlib" else 10_000_000))
        return decompress(body, flag, limit)

    monkeypatch.setattr("rocketwire.wire.stored_message.decompress", counted)
    flags = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH | packed
    records = [record(n, bomb, system_flag=flags) for n in range(100)]
    messages = receive_all(pulled(*records, nextBeginOffset="100")).messages
    assert [m.offset for m in messages] == list(range(100))
    assert sum(inflated) <= 8 * 1024 * 1024


def test_compressed_batches_of_properties_only_have_a_limit_too(monkeypatch):
    """Only bodies were counted, so that each of these was taken apart whole."""
    limits = []

    def counted(body: bytes, flag: int, limit: int) -> bytes:
        limits.append(limit)
        return decompress(body, flag, limit)

    monkeypatch.setattr("rocketwire.wire.stored_message.decompress", counted)
    flags = SystemFlag.NEED_UNWRAP | SystemFlag.INNER_BATCH | 0x301
    batch = encode_batch([(b"", b"a\x01%s\x02" % bytes(30_000), 0)] * 100)
    records = [record(n * 100, zlib.compress(batch), system_flag=flags) for n in range(3)]
    receive_all(pulled(*records, nextBeginOffset="300"))
    limit = 8 * 1024 * 1024
    assert limits == [limit, limit - len(batch), limit - 2 * len(batch)]


def test_an_answer_to_a_look_up_has_batches_of_several_queues():
    # The record behind a batch may be of another queue, and its offset a smaller one.
    body = encode_batch([(b"0", b"", 0), (b"1", b"", 0)])
    flags = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
    batch = encode_record(topic="T", body=body, queue_id=1, queue_offset=70, system_flag=flags)
    other = encode_record(topic="T", body=b"2", queue_id=0, queue_offset=5)
    found = messages_in(batch + other, broker="b")
    places = [(message.queue.id, message.offset, message.body) for message in found]
    assert places == [(1, 70, b"0"), (1, 71, b"1"), (0, 5, b"2")]
    # Of one queue, in an order that no broker has: there is no room for what is in it.
    wrong = encode_record(topic="T", body=b"2", queue_id=1, queue_offset=5)
    assert [message.offset for message in messages_in(batch + wrong, broker="b")] == [70, 5]


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


def test_they_can_be_copied_compared_shown_hashed_and_pickled():
    (message,) = receive_all(pulled(record(5))).messages
    plain = expected(record(5), b"body")
    assert pickle.loads(pickle.dumps(message)) == plain
    assert copy.copy(message) == plain
    assert replace(message, body=b"new").body == message.replace(body=b"new").body == b"new"
    assert repr(message) == repr(plain)
    assert message == plain
    assert plain == message
    assert {message: 1}[plain] == 1
    assert message != replace(plain, offset=6)
    assert message != "something else"


def test_a_message_tried_again_keeps_its_weight_and_forgets_its_body():
    body = bytes(10_000)
    (message,) = receive_all(pulled(record(5, zlib.compress(body), system_flag=1))).messages
    assert grown_by([message]) == 0
    assert message.body == body
    assert grown_by([message]) == 10_000 - weigh([message])
    again = tried_again(message)
    assert again.reconsume_times == message.reconsume_times + 1
    assert weigh([again]) == weigh([message]) > 0
    assert grown_by([again]) == 0
    assert again.body == body
    assert tried_again(again).reconsume_times == 2
    own = expected(record(5), b"body")
    assert tried_again(own).reconsume_times == 1
    assert (weigh([own]), grown_by([own])) == (4, 0)


def test_what_a_broker_noted_is_found():
    noted = record(5, properties={"MSG_REGION": "r"})
    (message,) = receive_all(pulled(noted)).messages
    assert broker_property(message, "MSG_REGION") == "r"
    assert broker_property(message, "TRACE_ON") is None
    assert broker_property(expected(noted, b"body"), "MSG_REGION") is None


def test_a_message_can_be_sent_again_without_what_only_brokers_set():
    more = {"DELAY": "3", "RETRY_TOPIC": "x", "__SHARDINGKEY": "s", "WAIT": "false"}
    (message,) = receive_all(pulled(record(5, flag=7, properties=more))).messages
    again = message.to_message()
    assert again == Message(
        "T",
        b"body",
        tags="A",
        keys="k",
        properties={"own": "x"},
        sharding_key="s",
        flag=7,
        wait_store_ok=False,
    )
    assert message.to_message("other").topic == "other"


ORDERS = [
    {"TAGS": "A", "KEYS": "k", "own": "x", "UNIQ_KEY": "u"},
    {"own": "x", "TAGS": "A", "other": "y", "KEYS": "k", "UNIQ_KEY": "u"},
    {"__RMQ.TRANSIENT.a": "1", "WAIT": "true"},
    {"KEYS": "k"},
    {},
    # Names that no variable of Python can have, side by side and with others between.
    {"x-own": "1", "2nd": "ä", "TAGS": "A"},
    {"x-own": "1", "KEYS": "k", "own": "x", "TAGS": "A", "(?P<a>b)": "[^c]++"},
    {"class": "a", "größe": "b", "_": "c", "TRACE_ON": "true"},
]
OWN = {"own", "other", "x-own", "2nd", "(?P<a>b)", "class", "größe", "_"}


@pytest.mark.parametrize("often", [1, 4])
def test_properties_are_the_same_whether_their_order_was_seen_before(often):
    """An order that has come twice is read by a pattern from then on."""
    for properties in ORDERS * 2:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        for _ in range(often):
            for raw in (text, text[:-1]):
                data = encode_record(topic="T", body=b"b", properties=raw)
                (message,) = receive_all(pulled(data)).messages
                assert message.tags == properties.get("TAGS")
                assert message.keys == properties.get("KEYS")
                own = {n: v for n, v in properties.items() if n in OWN}
                assert message.properties == own
                assert list(message.properties) == list(own)
                assert broker_property(message, "UNIQ_KEY") == properties.get("UNIQ_KEY")


def test_orders_that_take_turns_are_each_known_once_they_have_come_twice():
    """A message whose block was taken apart the general way keeps all its properties."""
    kinds = [{"a": "1"}, {"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "1", "b": "2", "c": "3"}]
    texts = [rewritten(kind).encode() for kind in kinds]
    records = [encode_record(topic="turns", body=b"", properties=text) for text in texts * 3]
    queue = MessageQueue("turns", "broker-a", 0)
    found = read_pull(pulled(*records), queue, 0, tag_filter("*")).messages
    assert [m.properties for m in found] == kinds * 3
    assert [list(m.properties) for m in found] == [list(kind) for kind in kinds * 3]
    taken_apart = ["_all" in m.__dict__ for m in found]
    # Of the two with as many properties, the one that came last is tried.
    assert taken_apart == [True] * 8 + [False, True, True, False]


def test_ever_new_orders_are_taken_apart_and_not_remembered_for_ever():
    records = [
        encode_record(topic="ever-new", body=b"", properties=f"name-{n % 500}\x01v\x02".encode())
        for n in range(1500)
    ]
    queue = MessageQueue("ever-new", "broker-a", 0)
    found = read_pull(pulled(*records), queue, 0, tag_filter("*")).messages
    assert [m.properties for m in found] == [{f"name-{n % 500}": "v"} for n in range(1500)]
    known = shapes_of("ever-new")
    assert len(known._learned) <= 32
    assert len(known._seen) <= 64


def test_a_known_order_is_not_seen_where_separators_are_astray():
    regular = b"a\x011\x02b\x012\x02"
    astray = b"a\x011\x01b\x022\x02"
    records = [encode_record(topic="T", body=b"", properties=p) for p in [regular] * 3 + [astray]]
    found = receive_all(pulled(*records)).messages
    assert [m.properties for m in found] == [{"a": "1", "b": "2"}] * 3 + [{"a": "1\x01b"}]
