from __future__ import annotations

import pytest

from rocketwire import LocalProtocolError
from rocketwire.wire.codes import CLIENT_VERSION, Language, RequestCode
from rocketwire.wire.command import ONEWAY, Command, decode_command, encode_command
from rocketwire.wire.framing import MAX_FRAME
from rocketwire.wire.send_request import PlainFrames, SendTemplate, moment_of, send_fields

_BORN = 1_700_000_000_123


def _fields(*, batch: bool = False) -> dict[str, str]:
    return send_fields(
        group="g",
        topic="T",
        default_topic="TBW102",
        default_queues=4,
        queue_id=3,
        broker="broker-a",
        batch=batch,
    )


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("system_flag", "flag"), [(0, 0), (1, 0), (0, -5), (8, 2**31 - 1)])
@pytest.mark.parametrize("properties", [b"", b"KEYS\x01gr\xc3\xbcn\x02"])
def test_a_request_from_a_template_is_the_request_written_field_by_field(
    batch: bool, system_flag: int, flag: int, properties: bytes
) -> None:
    template = SendTemplate(_fields(batch=batch))
    request = template.request(system_flag, flag, _BORN, properties, b"body")
    decoded = decode_command((request.head(77) + bytes(request.body))[4:])
    fields = _fields(batch=batch) | {"f": str(system_flag), "h": str(flag), "g": str(_BORN)}
    if properties:
        fields["i"] = properties.decode()
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    expected = Command(code, fields, b"body", opaque=77)
    assert decoded == expected
    assert (decoded.language, decoded.version) == (Language.PYTHON, CLIENT_VERSION)
    assert len(request.head(77)) + 4 == len(encode_command(expected))
    assert request.code == code


def test_the_head_carries_the_opaque_number_and_the_flag_of_its_connection() -> None:
    request = SendTemplate(_fields()).request(0, 0, _BORN, b"", b"x")
    first, second = request.head(1), request.head(2, ONEWAY)
    assert len(first) == len(second)
    decoded = decode_command((second + b"x")[4:])
    assert (decoded.opaque, decoded.flag) == (2, ONEWAY)


def test_a_time_of_birth_before_2001_has_as_many_digits() -> None:
    request = SendTemplate(_fields()).request(0, 0, 5, b"", b"x")
    assert int(decode_command((request.head(1) + b"x")[4:]).ext["g"]) == 5


def test_many_flags_are_not_kept_for_ever() -> None:
    template = SendTemplate(_fields())
    for flag in range(1, 500):
        head = template.request(0, flag, _BORN, b"", b"x").head(1)
        assert decode_command((head + b"x")[4:]).ext["h"] == str(flag)
    assert len(template._by_flags) < 100


def test_a_request_that_no_broker_takes_is_refused() -> None:
    template = SendTemplate(_fields())
    room = MAX_FRAME - len(template.request(0, 0, _BORN, b"", b"").head(1))
    assert template.request(0, 0, _BORN, b"", bytes(room)).head(1)
    with pytest.raises(LocalProtocolError, match="fit into a frame"):
        template.request(0, 0, _BORN, b"", bytes(room + 1)).head(1)


@pytest.mark.parametrize("flag", [0, ONEWAY])
@pytest.mark.parametrize("body", [b"x", b"y" * 5000])
def test_a_plain_frame_is_the_request_of_a_template(flag: int, body: bytes) -> None:
    template = SendTemplate(_fields())
    message_id = "7F00000100002A9F00000000ABCD001F"
    properties = f"UNIQ_KEY\x01{message_id}\x02".encode()
    request = template.request(0, 0, _BORN, properties, body)
    frames = PlainFrames(template, len(message_id), flag)
    made = frames.frame(12345, moment_of(_BORN, message_id[:-4]), 0x1F, body)
    assert made == request.head(12345, flag) + body
