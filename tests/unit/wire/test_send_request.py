from __future__ import annotations

import pytest

from rocketwire import LocalProtocolError
from rocketwire.wire.codes import CLIENT_VERSION, Language, RequestCode
from rocketwire.wire.command import ONEWAY, Command, decode_command, encode_command
from rocketwire.wire.framing import MAX_FRAME
from rocketwire.wire.send_request import SendTemplate, born_digits, send_fields

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


def _head(
    template: SendTemplate,
    *,
    opaque: int = 1,
    request_flag: int = 0,
    system_flag: int = 0,
    flag: int = 0,
    born_ms: int = _BORN,
    properties: bytes = b"",
    body: bytes = b"x",
) -> bytes:
    return template.head(
        opaque, request_flag, system_flag, flag, born_digits(born_ms), properties, len(body)
    )


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("system_flag", "flag"), [(0, 0), (1, 0), (0, -5), (8, 2**31 - 1)])
@pytest.mark.parametrize("properties", [b"", b"KEYS\x01gr\xc3\xbcn\x02"])
def test_a_request_from_a_template_is_the_request_written_field_by_field(
    batch: bool, system_flag: int, flag: int, properties: bytes
) -> None:
    template = SendTemplate(_fields(batch=batch))
    head = _head(
        template, opaque=77, system_flag=system_flag, flag=flag, properties=properties, body=b"body"
    )
    decoded = decode_command((head + b"body")[4:])
    fields = _fields(batch=batch) | {"f": str(system_flag), "h": str(flag), "g": str(_BORN)}
    if properties:
        fields["i"] = properties.decode()
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    expected = Command(code, fields, b"body", opaque=77)
    assert decoded == expected
    assert (decoded.language, decoded.version) == (Language.PYTHON, CLIENT_VERSION)
    assert len(head) + 4 == len(encode_command(expected))


def test_the_head_carries_the_opaque_number_and_the_flag_of_its_connection() -> None:
    template = SendTemplate(_fields())
    first, second = _head(template), _head(template, opaque=2, request_flag=ONEWAY)
    assert len(first) == len(second)
    decoded = decode_command((second + b"x")[4:])
    assert (decoded.opaque, decoded.flag) == (2, ONEWAY)


def test_a_time_of_birth_before_2001_has_as_many_digits() -> None:
    head = _head(SendTemplate(_fields()), born_ms=5)
    assert int(decode_command((head + b"x")[4:]).ext["g"]) == 5


def test_many_flags_are_not_kept_for_ever() -> None:
    template = SendTemplate(_fields())
    for flag in range(1, 500):
        head = _head(template, flag=flag)
        assert decode_command((head + b"x")[4:]).ext["h"] == str(flag)
    assert len(template._by_flags) < 100


def test_a_request_that_no_broker_takes_is_refused() -> None:
    template = SendTemplate(_fields())
    room = MAX_FRAME - len(_head(template, body=b""))
    assert _head(template, body=bytes(room))
    with pytest.raises(LocalProtocolError, match="fit into a frame"):
        _head(template, body=bytes(room + 1))
