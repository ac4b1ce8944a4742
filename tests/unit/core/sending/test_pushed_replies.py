"""A reply is handed to who waits for it, whatever its sender wrote into it."""

from __future__ import annotations

import json

import pytest
from tests.wire_tools import encode_batch

from rocketwire import ProtocolError
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.command import Command, MatchedRequest
from rocketwire.wire.pushed_reply import read_reply
from rocketwire.wire.session import Session

EXT = {
    "producerGroup": "g", "topic": "T", "queueId": "0", "sysFlag": "0", "bornTimestamp": "17",
    "flag": "0", "properties": "CORRELATION_ID\x01c-1\x02", "reconsumeTimes": "0",
    "bornHost": "/10.0.0.1:5000", "storeHost": "10.0.0.2:10911", "storeTimestamp": "18",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({"properties": "CORRELATION_ID\x01c-1\x02own\x01with\x01separators\x02"}, b"42"),
        ({"properties": "CORRELATION_ID\x01c-1\x02own\x01\ud800\x02"}, b"42"),
        ({"topic": "T\udfff"}, b"42"),
        ({"sysFlag": str(SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP)},
         encode_batch([(b"1", b"", 0), (b"2", b"", 0)])),
        ({"sysFlag": str(SystemFlag.COMPRESSED)}, b"no zlib"),
        ({"bornTimestamp": str(2**62), "bornHost": "nowhere"}, b"42"),
    ],
)  # fmt: skip
def test_an_odd_reply_arrives(changed: dict[str, str], body: bytes) -> None:
    correlation_id, message = read_reply(Command(326, EXT | changed, body), "broker-a")
    assert correlation_id == "c-1"
    assert message.body == body
    assert message.born_at.year <= 9999


# -- read by the layout of the one before ------------------------------------------------------

_JAVA = {
    "queueId": "0", "flag": "0", "sysFlag": "0", "reconsumeTimes": "0", "storeTimestamp": "18",
    "unitMode": "false", "defaultTopic": "TBW102", "bornHost": "127.0.0.1:32878",
    "defaultTopicQueueNums": "4", "producerGroup": "g", "topic": "C_REPLY_TOPIC",
    "bornTimestamp": "17", "storeHost": "127.0.0.1:13736",
    "properties": "PUSH_REPLY_TIME\x0119\x02CORRELATION_ID\x01c-1\x02MSG_TYPE\x01reply\x02own\x01x\x02",
}  # fmt: skip


def _pushed(ext: dict[str, str], body: bytes, opaque: int = 9) -> bytes:
    """The frame of a pushed reply, as Java writes it."""
    fields = {
        "code": 326, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip
    header = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    return len(header).to_bytes(4, "big") + header + body


def _second(ext: dict[str, str], body: bytes) -> Command:
    """The request of a broker that has pushed a reply before."""
    session = Session()
    session.read(_pushed(_JAVA, b"first"))
    return session.read(_pushed(ext, body)).as_request()


def test_the_second_reply_is_read_by_the_layout_of_the_first() -> None:
    command = _second(_JAVA, b"42")
    assert type(command) is MatchedRequest
    assert (command.code, command.opaque, command.flag, command.header) == (326, 9, 0, 0)
    assert command.ext == _JAVA
    assert not command.is_oneway
    correlation_id, message = read_reply(command, "broker-a")
    assert (correlation_id, message.body, message.topic) == ("c-1", b"42", "C_REPLY_TOPIC")
    assert dict(message.properties)["own"] == "x"
    assert (message.born_at.timestamp(), message.stored_at.timestamp()) == (0.017, 0.018)
    assert (message.born_host, message.store_host) == ("127.0.0.1:32878", "127.0.0.1:13736")


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({}, b"42"),
        ({}, b""),
        ({"properties": "CORRELATION_ID\x01c-1\x02"}, b"42"),
        ({"properties": "CORRELATION_ID\x01c-1"}, b"42"),
        ({"properties": "a\x01b\x01c\x02void\x01\x02\x01\x02CORRELATION_ID\x01c-1\x02a\x01d\x02"}, b"42"),
        ({"properties": "CORRELATION_ID\x01c-0\x02CORRELATION_ID\x01c-1\x02"}, b"42"),
        ({"properties": "NO_CORRELATION_ID\x01c-0\x02CORRELATION_ID\x01c-1\x02"}, b"42"),
        ({"properties": "CORRELATION_ID\x01c-1\x02own\x01\u00e4\x03\x02"}, b"42"),
        ({"properties": 'CORRELATION_ID\x01c-1\x02own\x01"quoted" \\u0002\x02'}, b"42"),
        ({"properties": ""}, b"42"),
        ({"sysFlag": str(SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP), "flag": "-7"}, b"42"),
        ({"sysFlag": str(SystemFlag.COMPRESSED)}, b"no zlib"),
        ({"bornHost": "/[::1]:5000", "storeHost": "nowhere"}, b"42"),
        ({"topic": "T" * 200, "reconsumeTimes": "3"}, b"42"),
    ],
)  # fmt: skip
def test_both_ways_of_reading_find_the_same(changed: dict[str, str], body: bytes) -> None:
    ext = _JAVA | changed
    ours = read_reply(_second(ext, body), "broker-a")
    theirs = read_reply(Command(326, ext, body), "broker-a")
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    assert ours[1].properties == theirs[1].properties


@pytest.mark.parametrize("name", ["bornTimestamp", "queueId", "topic", "producerGroup"])
def test_what_is_garbled_is_told_as_of_any_other(name: str) -> None:
    for value in ("", "9" * 19 if name != "topic" else ""):
        if name == "producerGroup" and value:
            continue
        with pytest.raises(ProtocolError):
            read_reply(_second(_JAVA | {name: value}, b"42"), "broker-a")
