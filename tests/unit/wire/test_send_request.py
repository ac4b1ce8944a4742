from __future__ import annotations

from types import SimpleNamespace

import pytest

from rocketwire import LocalProtocolError
from rocketwire.wire.codes import CLIENT_VERSION, Language, RequestCode
from rocketwire.wire.command import ONEWAY, Command, decode_command, encode_command
from rocketwire.wire.framing import MAX_FRAME
from rocketwire.wire.send_request import (
    SendTemplate,
    born_field,
    born_ms,
    encode_send,
    encode_sends,
    send_fields,
)

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
        opaque, request_flag, system_flag, flag, born_field(born_ms), properties, len(body)
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


class _Send:
    """A send request, as an attempt is one."""

    code = int(RequestCode.SEND_MESSAGE_V2)

    def __init__(
        self, template: SendTemplate, system_flag: int, flag: int, properties: bytes
    ) -> None:
        self.target = SimpleNamespace(template=template)
        self.system_flag, self.flag, self.properties = system_flag, flag, properties
        self.born, self.body = born_field(_BORN), b"body"

    def head(self, opaque: int, flag: int = 0) -> bytes:
        return self.target.template.head(
            opaque, flag, self.system_flag, self.flag, self.born, self.properties, len(self.body)
        )


def test_requests_written_together_are_those_that_are_written_alone() -> None:
    template = SendTemplate(_fields())
    kinds = [
        (system_flag, flag, properties)
        for system_flag in (0, 1, 4, 5)
        for flag in (0, -1, *range(70))  # more than are kept
        for properties in (b"", b"KEYS\x01k\x02")
    ]
    sends = [_Send(template, *kind) for kind in (*kinds, *kinds)]
    pieces, sizes, errors = encode_sends(sends, 7)
    alone = [send.head(7 + place) + send.body for place, send in enumerate(sends)]
    assert b"".join(pieces) == b"".join(alone)
    assert sizes == [len(request) for request in alone]
    assert errors == []
    assert [encode_send(send, 7 + place) for place, send in enumerate(sends)] == alone


def test_a_time_of_birth_is_read_as_it_was_written() -> None:
    assert born_ms(born_field(_BORN)) == _BORN
    assert born_ms(born_field(5)) == 5
