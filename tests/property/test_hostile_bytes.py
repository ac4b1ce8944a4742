"""Decoders against random and mutated bytes: they give a value or our protocol error, nothing else.

Some ten thousand inputs in an ordinary run; ROCKETWIRE_FUZZ=1000000 makes it a million.
"""

import contextlib
import os
import random
import re
import tracemalloc
from pathlib import Path

import pytest
from tests.property.more_decoders import MORE_DECODERS, look_at_all, read_columns
from tests.wire_tools import available, iter_records, to_stored_message

from rocketwire.errors import ProtocolError
from rocketwire.wire import headers
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.broker_requests import decode_reset_offsets
from rocketwire.wire.client_bodies import (
    decode_consumer_list,
    decode_lock_reply,
    decode_topic_list,
    decode_topic_stats,
)
from rocketwire.wire.command import Reply, decode_command
from rocketwire.wire.compression import decompress
from rocketwire.wire.framing import FrameBuffer
from rocketwire.wire.lenient_json import loads, loads_tolerant
from rocketwire.wire.message_id import (
    decode_offset_message_id,
    decode_recall_handle,
)
from rocketwire.wire.properties import decode_properties_bytes
from rocketwire.wire.route import (
    decode_cluster_info,
    decode_route,
    publish_queues,
    subscribe_queues,
)
from rocketwire.wire.stored_message import decode_record, encode_record, unwrap_inner_batch
from rocketwire.wire.trace_record import decode_trace

TOTAL = int(os.environ.get("ROCKETWIRE_FUZZ", "30000"))
LIMIT = 64 * 1024
_FILE = Path(__file__).parents[1] / "vectors" / "java" / "java.tsv"
VECTORS = dict(line.split("\t", 1) for line in _FILE.read_text("utf-8").splitlines())


def vector(*names):
    return [bytes.fromhex(VECTORS[name]) for name in names]


RECORDS = vector(
    *(f"record.{kind}" for kind in ("v1", "born6", "store6", "both6", "zlib", "lz4", "zstd"))
)
INNER = encode_record(topic="T" * 200, body=vector("batch")[0], system_flag=0xC0)


def json_frame(header, body=b""):
    """By hand: the length of all that follows, the kind and the header's length, header, body."""
    lengths = (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big")
    return lengths + header + body


FRAMES = [
    bytes.fromhex(
        "00000025 01000021 0069 03 01db 00000007 00000000 00000000 0000000c 0005746f706963"
        "0000000154"
    ),
    json_frame(
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":7,'
        b'"version":475}'
    ),
    json_frame(
        b'{"code":0,"extFields":{"msgId":"M","queueId":"1","queueOffset":"2"},"flag":1,'
        b'"language":"JAVA","opaque":7,"remark":"x","version":475}',
        b"hello",
    ),
]


def read_records(data):
    for record in iter_records(data):
        for inner in unwrap_inner_batch(record, limit=LIMIT):
            message = to_stored_message(inner, broker="b", limit=LIMIT)
            assert len(message.body) <= max(LIMIT, len(data))


def read_route(data):
    route = decode_route(data)
    publish_queues("T", route)
    subscribe_queues("T", route)


def unpack(flag):
    def read(data):
        assert len(decompress(data, flag, LIMIT)) <= LIMIT

    return read


def read_frames(data):
    middle = len(data) // 2
    buffer = FrameBuffer(LIMIT)
    for frame in (*buffer.feed(data[:middle]), *buffer.feed(data[middle:])):
        decode_command(frame)


def read_replies(data):
    for frame in FrameBuffer(LIMIT).feed(data):
        reply = Reply(frame)
        assert reply.remark is None or isinstance(reply.remark, str)
        headers.decode_send_reply(reply.ext)


def read_fields(data):
    names = [
        "msgId",
        "queueId",
        "queueOffset",
        "nextBeginOffset",
        "minOffset",
        "maxOffset",
        *"abcdefghijklmn",
    ]
    values = data.decode("latin-1").split(",")
    ext = dict(zip(names, values, strict=False))
    for decode in (
        headers.decode_send_reply,
        headers.decode_pull_reply,
        lambda ext: headers.decode_send_request(310, ext),
    ):
        try:
            decode(ext)
        except ProtocolError:
            continue


def text(decode):
    return lambda data: decode(data.decode("latin-1"))


PULLED = [*RECORDS, INNER, b"".join(RECORDS), INNER + RECORDS[0]]
FLAGS = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}
DECODERS = {
    "record": (lambda data: decode_record(data, 0), RECORDS[:4]),
    "pull body": (read_records, PULLED),
    "messages": (look_at_all, PULLED),
    "columns": (read_columns, PULLED),
    "batch": (lambda data: list(decode_batch(data)), vector("batch")),
    "properties": (decode_properties_bytes, vector("properties")),
    "json": (loads, vector("topic_stats", "route.bare", "heartbeat")),
    "tolerant json": (text(loads_tolerant), vector("topic_stats", "route.bare", "heartbeat")),
    "route": (read_route, vector("route.bare", "route.standard", "route.static")),
    "cluster info": (decode_cluster_info, vector("cluster_info")),
    "topic statistics": (decode_topic_stats, vector("topic_stats")),
    "topic list": (decode_topic_list, [b'{"topicList":["A","B"]}']),
    "consumer list": (decode_consumer_list, [b'{"consumerIdList":["A","B"]}']),
    "locks": (
        decode_lock_reply,
        [vector("lock")[0].replace(b"mqSet", b"lockOKMQSet")],
    ),
    "offsets set by hand": (
        lambda data: decode_reset_offsets({"topic": "T", "group": "g"}, data),
        [b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}'],
    ),
    "trace": (
        decode_trace,
        vector("trace.Pub", "trace.SubBefore", "trace.SubAfter", "trace.EndTransaction"),
    ),
    "offset id": (text(decode_offset_message_id), [VECTORS["offset_id.v4"].encode()]),
    "recall handle": (
        text(decode_recall_handle),
        [b"djEgVCBicm9rZXItYSAxNzAwMDAwMDAxMDAwIDdGMDAwMDAxMDAwMQ=="],
    ),
    "fields": (read_fields, [b"M,1,2,3,4,5,g,T,TBW102,4,0,0,1700000000000,0,p,0,false,16,true,b"]),
    "frames": (read_frames, FRAMES),
    "replies": (read_replies, FRAMES),
    **{f"{kind} body": (unpack(FLAGS[kind]), vector(f"compressed.{kind}")) for kind in available()},
    **MORE_DECODERS,
}
ODD_NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31), 127, 128, 255, 256, 32767, 32768, 65535, 2**24]
ODD_TEXTS = [
    b"{",
    b"}",
    b"[",
    b'"',
    b"\\",
    b":",
    b",",
    b"\\u",
    b"-",
    b"9" * 30,
    b"9" * 5000,  # more digits than Python makes a number of
    b"null",
    b"\x01",
    b"\x02",
    b"{[" * 40,
]


def mutate(chooser, seed):
    """One to four changes of the kinds that break parsers."""
    data = bytearray(seed)
    for _ in range(chooser.randint(1, 4)):
        at = chooser.randrange(len(data) + 1)
        kind = chooser.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chooser.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = chooser.randrange(256)
        elif kind == 2:
            width = chooser.choice((1, 2, 4, 8))
            number = chooser.choice(ODD_NUMBERS) + chooser.randint(-1, 1)
            data[at : at + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "big")
        elif kind == 3:
            del data[at : at + chooser.randint(1, 40)]
        elif kind == 4:
            data[at:at] = chooser.randbytes(chooser.randint(1, 20))
        elif kind == 5:
            start = chooser.randrange(len(data) + 1)
            data[at:at] = data[start : start + chooser.randint(1, 60)]
        elif kind == 6:
            data[at:at] = chooser.choice(ODD_TEXTS)
        else:
            del data[at:]
    return bytes(data)


def inputs(chooser, seeds, number):
    for index in range(number):
        if index % 10 == 0:
            yield chooser.randbytes(chooser.randrange(200))
        else:
            yield mutate(chooser, chooser.choice(seeds))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", DECODERS)
def test_only_protocol_errors_come_out(name):
    decode, seeds = DECODERS[name]
    # pytest-randomly seeds the module's generator, and prints its seed: a failure can be repeated.
    chooser = random.Random(random.getrandbits(64))
    for data in inputs(chooser, seeds, max(1, TOTAL // len(DECODERS))):
        try:
            decode(data)
        except ProtocolError as error:
            if len(str(error)) > 500:
                pytest.fail(f"{name} repeats its input: {error}")
        except Exception as error:
            pytest.fail(f"{name} raised {error!r} for {data.hex()}")


def test_no_decoder_of_the_wire_is_left_out():
    """A codec that is new must be tried like all others."""
    source = Path(__file__).parents[2] / "src" / "rocketwire" / "wire"
    tried = "".join(
        path.read_text("utf-8")
        for path in (Path(__file__), Path(__file__).parent / "more_decoders.py")
    )
    written = "".join(path.read_text("utf-8") for path in sorted(source.glob("*.py")))
    names = set(re.findall(r"^def (decode_[a-z_]+)", written, re.MULTILINE))
    # By way of those that they are a part of.
    names -= {
        "decode_binary_header",
        "decode_json_header",
        "decode_ext",
        "decode_queue",
        "decode_properties",
        "decode_pushed_reply",
    }
    assert names
    assert {name for name in names if not re.search(rf"\b{name}\b", tried)} == set()


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_mutated_was_sound(name):
    decode, seeds = DECODERS[name]
    for seed in seeds[-1:] if name == "replies" else seeds:
        decode(seed)


@pytest.mark.parametrize("name", DECODERS)
def test_a_hostile_input_can_not_make_us_allocate(name):
    decode, seeds = DECODERS[name]
    chooser = random.Random(random.getrandbits(64))
    prepared = list(inputs(chooser, seeds, 300))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for data in prepared:
            tracemalloc.reset_peak()
            with contextlib.suppress(ProtocolError):
                decode(data)
            peak = tracemalloc.get_traced_memory()[1] - before
            # A route may rightly name some thousands of queues, of a hundred bytes each.
            # A body may rightly become 64 MiB, and is copied once or twice.
            limits = {"route": 200_000_000, "messages": 280_000_000, "columns": 280_000_000}
            limit = limits.get(name, 2_000_000)
            assert peak < limit, f"{peak} bytes for {data[:500].hex()}"
    finally:
        tracemalloc.stop()
