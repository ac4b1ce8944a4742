"""A reply is handed to who waits for it, whatever its sender wrote into it."""

from __future__ import annotations

import pytest

from rocketwire.core.sending.requests import read_reply
from rocketwire.wire.batch import encode_batch
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.command import Command

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
