"""Codecs against everything that hypothesis can think of: what goes in comes out again."""

import json
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.wire_tools import (
    available,
    decode_message_id,
    encode_batch,
    encode_trace,
    offset_message_id,
    utc_month,
    with_long_names,
)

from rocketwire.message import MessageQueue
from rocketwire.stored_message import FIRST_MS, LAST_MS, utc_from_ms
from rocketwire.wire import headers
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.compression import compress, decompress
from rocketwire.wire.java_hash import hash_index, java_hash, java_string_hash
from rocketwire.wire.lazy_message import whole_records
from rocketwire.wire.lenient_json import Pairs, dumps, loads, loads_tolerant
from rocketwire.wire.message_id import MessageIdMaker, decode_offset_message_id, host_text
from rocketwire.wire.properties import (
    decode_properties,
    decode_properties_bytes,
    property_in,
    rewritten,
)
from rocketwire.wire.route import (
    BrokerData,
    ClusterInfo,
    QueueData,
    QueueMapping,
    TopicRoute,
    decode_cluster_info,
    decode_route,
    encode_cluster_info,
    encode_route,
    publish_queues,
)
from rocketwire.wire.stored_message import decode_record, encode_record, pack_host, unpack_host
from rocketwire.wire.trace_record import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    decode_trace,
)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Text that UTF-8 can carry.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAME = TEXT.filter(bool)
# Text without the separators of properties and of trace records.
PLAIN = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=40
)
PROPERTIES = st.dictionaries(PLAIN.filter(bool), PLAIN, max_size=8)
BODY = st.binary(max_size=200)
HOST = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))


@given(PROPERTIES)
def test_properties(properties):
    expected = {name: value for name, value in properties.items() if value}
    text = rewritten(properties)
    assert decode_properties(text) == expected
    # Releases that leave the last separator out are read all the same.
    assert decode_properties(text[:-1]) == expected
    assert decode_properties_bytes(rewritten(properties).encode()) == expected


PIECES = st.sampled_from(
    [b"ID", b"a", b"\x01", b"\x02", b"ID\x01", b"\x02ID\x01", b"xID\x01", b"v", "\u00e4".encode(), b"\xe6\x97"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(b"".join), st.binary(max_size=3), st.binary(max_size=3))
def test_one_property_is_what_taking_all_of_them_apart_gives(block, before, after):
    data, stop = before + block + after, len(before) + len(block)
    found = property_in(data, len(before), stop, b"ID\x01")
    assert found == decode_properties_bytes(block).get("ID")


@given(st.one_of(INT64, st.integers(-(10**13), 10**13)))
@example(3_999_999_999_999)
@example(4_000_000_000_000)
@example(-1)
def test_moments_are_exact_to_the_millisecond(milliseconds):
    moment = utc_from_ms(milliseconds)
    expected = min(max(milliseconds, FIRST_MS), LAST_MS)
    assert moment - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(milliseconds=expected)
    assert moment.utcoffset() == timedelta(0)


@given(st.lists(st.tuples(BODY, BODY, INT32), max_size=10))
def test_batches(items):
    assert list(decode_batch(encode_batch(items))) == items


records = st.fixed_dictionaries(
    {
        "topic": st.one_of(TEXT, st.text(st.characters(codec="ascii"), min_size=120, max_size=200)),
        "body": BODY,
        "properties": BODY,
        "queue_id": INT32,
        "queue_offset": INT64,
        "physical_offset": INT64,
        "born_ms": INT64,
        "born_host": st.builds(lambda ip, port: ip + port, HOST, st.binary(min_size=4, max_size=4)),
        "store_ms": INT64,
        "store_host": st.builds(
            lambda ip, port: ip + port, HOST, st.binary(min_size=4, max_size=4)
        ),
        "flag": INT32,
        "system_flag": INT32,
        "reconsume_times": INT32,
        "prepared_offset": INT64,
    }
)


@given(records)
def test_records(fields):
    raw = encode_record(**fields)
    record, end = decode_record(raw, 0)
    assert end == len(raw) == record.size
    assert record.born_host == unpack_host(fields["born_host"])
    assert pack_host(record.store_host) == fields["store_host"]
    assert record.properties_raw == fields["properties"]
    assert record.system_flag & ~0x30 == fields["system_flag"] & ~0x30
    assert record.body_crc == zlib.crc32(fields["body"]) & 0x7FFFFFFF
    for name in fields.keys() - {"born_host", "store_host", "properties", "system_flag"}:
        assert getattr(record, name) == fields[name]
    # Text for hosts, as a reader has it, makes the same record.
    assert raw == encode_record(
        **(fields | {"born_host": record.born_host, "store_host": record.store_host})
    )


@given(st.lists(records, max_size=5), st.data())
def test_a_pull_body_cut_anywhere_gives_its_whole_records(fields, data):
    parts = [encode_record(**item) for item in fields]
    body = b"".join(parts)
    kept = data.draw(st.integers(0, len(body)))
    whole, position = 0, 0
    for part in parts:
        position += len(part)
        whole += position <= kept
    assert whole_records(body[:kept])[0] == whole


@given(st.sampled_from(available()), st.one_of(BODY, BODY.map(lambda body: body * 50)))
def test_compression(kind, body):
    packed, flag = compress(body, kind, 3)
    assert decompress(packed, flag, len(body)) == body


@given(HOST, INT32, INT32, st.integers(0, 2**41), st.integers(0, 2**20))
def test_unique_ids(ip, pid, salt, now, start):
    text = MessageIdMaker(ip, pid, salt, lambda: now, start, month=utc_month).next()
    parts = decode_message_id(text)
    assert parts.host == host_text(ip)
    assert (parts.pid, parts.salt, parts.counter) == (pid & 0xFFFF, salt, start & 0xFFFF)
    assert utc_month(now)[0] + parts.month_ms == now


@given(HOST, st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_offset_ids(ip, port, offset):
    text = offset_message_id(ip, port, offset)
    assert decode_offset_message_id(text) == (host_text(ip), port, offset)


@given(st.text(max_size=300))
def test_hash_of_text_by_its_definition(text):
    result = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(data), 2):
        result = (31 * result + int.from_bytes(data[i : i + 2], "big")) % 2**32
    assert java_string_hash(text) == (result - 2**32 if result >= 2**31 else result)


keys = st.recursive(
    st.one_of(TEXT, INT64, st.booleans(), st.floats(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(TEXT, inner, max_size=4),
        st.frozensets(TEXT, max_size=4),
    ),
    max_leaves=10,
)


@given(keys, st.integers(1, 1000))
def test_every_hash_is_an_int32_and_every_index_a_queue(key, number):
    assume(key is not None)
    assert -(2**31) <= java_hash(key) < 2**31
    assert 0 <= hash_index(key, number) < number


@given(st.lists(TEXT, max_size=6), st.randoms(use_true_random=False))
def test_sets_hash_alike_in_any_order(items, random):
    shuffled = list(items)
    random.shuffle(shuffled)
    assert java_hash(set(items)) == java_hash(set(shuffled))
    assert java_hash(dict.fromkeys(items, 1)) == java_hash(dict.fromkeys(shuffled, 1))


documents = st.recursive(
    st.one_of(
        st.none(), st.booleans(), INT64, st.floats(allow_nan=False, allow_infinity=False), TEXT
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXT, inner, max_size=5)),
    max_leaves=20,
)


@given(documents, st.sampled_from([None, 1]), st.booleans())
def test_the_tolerant_reader_reads_all_of_json(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert loads_tolerant(text) == value
    assert loads(text.encode()) == value


@given(documents, st.booleans())
def test_what_we_write_both_readers_read(value, standard):
    data = dumps(value, standard=standard)
    assert loads(data) == loads_tolerant(data.decode()) == value
    if standard:
        assert json.loads(data) == value


@given(st.dictionaries(st.integers(0, 2**63), TEXT, max_size=5), documents)
def test_odd_keys(numbers, value):
    assert loads(dumps(numbers, standard=False)) == {str(k): v for k, v in numbers.items()}
    table = Pairs([({"q": 1}, value), ({"q": 2}, numbers)])
    (_, first), (_, second) = loads(dumps(table, standard=False))
    assert first == value
    assert second == {str(k): v for k, v in numbers.items()}


brokers = st.builds(
    BrokerData,
    NAME,
    NAME,
    st.dictionaries(st.integers(0, 2**63 - 1), TEXT, max_size=3),
    st.none() | TEXT,
    st.booleans(),
)
routes = st.builds(
    TopicRoute,
    st.lists(
        st.builds(
            QueueData,
            NAME,
            st.integers(0, 20),
            st.integers(0, 20),
            st.integers(0, 7),
            st.integers(0, 2**31 - 1),
        ),
        max_size=5,
    ).map(tuple),
    st.lists(brokers, max_size=5).map(tuple),
    st.none() | TEXT,
    st.dictionaries(
        NAME,
        st.builds(
            QueueMapping,
            TEXT,
            NAME,
            st.integers(0, 20),
            NAME,
            st.integers(0, 2**63 - 1),
            st.dictionaries(st.integers(0, 20), st.integers(0, 20), max_size=3),
        ),
        max_size=2,
    ),
)


@given(routes, st.booleans(), st.randoms(use_true_random=False))
def test_routes(route, standard, random):
    assert decode_route(encode_route(route, standard=standard)) == route
    queues, others = list(route.queues), list(route.brokers)
    random.shuffle(queues)
    random.shuffle(others)
    assert TopicRoute(tuple(queues), tuple(others), route.order_conf, route.mappings) == route


@given(st.lists(st.tuples(NAME, st.integers(0, 5), st.integers(0, 7)), unique_by=lambda q: q[0]))
def test_queues_are_those_of_writable_brokers_in_order(parts):
    route = TopicRoute(
        tuple(QueueData(name, 1, number, permission) for name, number, permission in parts),
        tuple(BrokerData("C", name, {0: "a:1"}) for name, _, _ in parts),
    )
    queues = publish_queues("T", route)
    expected = Counter({name: number for name, number, permission in parts if permission & 2})
    assert Counter(queue.broker for queue in queues) == +expected
    order = [(queue.broker.encode("utf-16-be"), queue.id) for queue in queues]
    assert order == sorted(order)
    assert len(set(queues)) == len(queues)
    assert all(type(queue) is MessageQueue for queue in queues)


@given(st.dictionaries(NAME, brokers, max_size=4), st.dictionaries(NAME, st.lists(NAME).map(tuple)))
def test_cluster_info(table, clusters):
    info = ClusterInfo(table, clusters)
    assert decode_cluster_info(encode_cluster_info(info)) == info


# "null" and nothing are the same in a trace.
WORD = PLAIN.filter(lambda text: text not in {"", "null"})
MAYBE = st.none() | WORD
NUMBER = st.integers(-(2**63), 2**63 - 1)
pub = st.builds(
    PubRecord,
    start_ms=NUMBER,
    region=MAYBE,
    group=MAYBE,
    topic=WORD,
    message_id=MAYBE,
    tags=MAYBE,
    keys=MAYBE,
    store_host=MAYBE,
    body_length=NUMBER,
    cost_ms=NUMBER,
    message_type=NUMBER,
    offset_message_id=MAYBE,
    success=st.booleans(),
    client_host=MAYBE,
)
sub_before = st.builds(
    SubBeforeRecord,
    time_ms=NUMBER,
    region=MAYBE,
    group=MAYBE,
    request_id=WORD,
    message_id=WORD,
    retry_times=NUMBER,
    keys=MAYBE,
)
sub_after = st.builds(
    SubAfterRecord,
    request_id=WORD,
    message_id=WORD,
    cost_ms=NUMBER,
    success=st.booleans(),
    keys=MAYBE,
    context_code=NUMBER,
    time_ms=NUMBER,
    group=MAYBE,
)
end_transaction = st.builds(
    EndTransactionRecord,
    time_ms=NUMBER,
    region=MAYBE,
    group=MAYBE,
    topic=WORD,
    message_id=WORD,
    tags=MAYBE,
    keys=MAYBE,
    store_host=MAYBE,
    message_type=NUMBER,
    transaction_id=MAYBE,
    state=WORD,
    from_check=st.booleans(),
)
recall = st.builds(
    RecallRecord,
    time_ms=NUMBER,
    region=MAYBE,
    group=MAYBE,
    topic=WORD,
    message_id=MAYBE,
    success=st.booleans(),
)


@settings(deadline=None)
@given(st.lists(st.one_of(pub, sub_before, sub_after, end_transaction, recall), max_size=4))
def test_traces(trace):
    assert decode_trace(encode_trace(trace)) == trace


def send_v1(**fields):
    return with_long_names(headers.send_v2(**fields))


@pytest.mark.parametrize(("build", "code"), [(send_v1, 10), (headers.send_v2, 310)])
@given(data=st.data())
def test_sends(build, code, data):
    fields = {
        "group": data.draw(NAME),
        "topic": data.draw(NAME),
        "queue_id": data.draw(INT32),
        "born_ms": data.draw(INT64),
        "properties": data.draw(TEXT),
        "system_flag": data.draw(INT32),
        "flag": data.draw(INT32),
        "default_topic": data.draw(NAME),
        "default_queues": data.draw(INT16),
        "reconsume_times": data.draw(INT32),
        "max_reconsume_times": data.draw(st.none() | INT32),
        "unit_mode": data.draw(st.booleans()),
        "batch": data.draw(st.booleans()),
        "broker": data.draw(st.none() | NAME),
    }
    assert headers.decode_send_request(code, build(**fields))._asdict() == fields
