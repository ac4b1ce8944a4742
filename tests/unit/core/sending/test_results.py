"""Where a half message is: what is read quickly is what its whole result says."""

from __future__ import annotations

import pytest

from rocketwire.core.sending import results
from rocketwire.core.sending.results import HalfPlace, half_place, result_fields
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue, SendResult, SendStatus
from rocketwire.wire.codes import STORED, ResponseCode
from rocketwire.wire.command import BINARY, JSON, RESPONSE, Command
from rocketwire.wire.message_id import decode_offset_message_id, log_offset_in

QUEUE = MessageQueue("orders", "broker-a", 2)
PROPERTIES = b"UNIQ_KEY\x01C0A8000101\x02TAGS\x01a\x02"
PLACE = {
    "queueId": "2",
    "TRACE_ON": "true",
    "MSG_REGION": "DefaultRegion",
    "msgId": "7F00000100002A9F000000000000012C",
    "queueOffset": "77",
}


def answer(fields: dict[str, str], code: int = 0, header: int = JSON) -> bytes:
    command = Command(code, fields, header=header)
    return bytes(command.head(9, RESPONSE))[4:]


def later(frame: bytes) -> SendResult:
    return SendResult.read_by(result_fields, (frame, PROPERTIES, QUEUE, False))


def slowly(frame: bytes) -> HalfPlace:
    result = later(frame)
    return HalfPlace(
        result.status is SendStatus.OK,
        result.offset,
        result.offset_message_id,
        result.message_id,
        result.transaction_id or result.message_id,
    )


@pytest.mark.parametrize("header", [JSON, BINARY])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"transactionId": "C0A80001FF"},
        {"transactionId": ""},
        {"batchUniqId": "B1"},
        {"transactionId": "T", "batchUniqId": "B1"},
    ],
)
def test_it_says_what_the_result_says(more, header) -> None:
    frame = answer(PLACE | more, header=header)
    wanted = slowly(frame)  # which also learns how such answers look
    assert half_place(later(frame)) == wanted
    read = later(frame)
    assert read.offset == 77
    assert half_place(read) == wanted


def test_another_status_is_not_safe(monkeypatch) -> None:
    monkeypatch.setattr(results, "_seen", [None])
    half_place(later(answer(PLACE)))
    frame = answer(PLACE, ResponseCode.SLAVE_NOT_AVAILABLE)
    assert not half_place(later(frame)).is_safe
    assert half_place(later(frame)) == slowly(frame)


def test_an_answer_in_another_form_than_the_one_before_is_read_in_full() -> None:
    frames = [answer(PLACE), answer(PLACE | {"transactionId": "T"}), answer({**PLACE, "x": 'a"b'})]
    wanted = [slowly(frame) for frame in frames]
    assert [half_place(later(frame)) for frame in (*frames, *frames)] == [*wanted, *wanted]


@pytest.mark.parametrize("name", ["msgId", "queueOffset"])
def test_an_answer_without_a_place_is_refused(name) -> None:
    half_place(later(answer(PLACE)))
    fields = {key: value for key, value in PLACE.items() if key != name}
    with pytest.raises(RemoteProtocolError, match=name):
        half_place(later(answer(fields)))


def test_the_offset_in_the_log_is_that_of_the_whole_id() -> None:
    text = PLACE["msgId"]
    assert log_offset_in(text) == decode_offset_message_id(text).offset == 300
    longer = "0" * 30 + "01" + "00002A9F" + "000000000000012C"
    assert log_offset_in(longer) == decode_offset_message_id(longer).offset == 300
    assert log_offset_in(text.lower()) == 300
    wrong_ones = [
        "",
        "7F",
        "x" * 32,
        "0x" + text[2:],
        "7F00000100002A9FFFFFFFFFFFFFFFFF",
        "7F00000100012A9F" + "0" * 16,
    ]
    for odd in ("_", "+", " ", "-", "\u0663"):
        wrong_ones += [odd + text[1:], text[:16] + odd + text[17:], text[:-1] + odd]
    for wrong in wrong_ones:
        with pytest.raises(RemoteProtocolError):
            log_offset_in(wrong)


def test_a_result_has_a_status_for_every_answer_that_says_stored() -> None:
    """One that has none would be an error only when a field of the result is asked for."""
    assert set(results._STATUS) == STORED
    assert set(results._STATUS.values()) == set(SendStatus)
