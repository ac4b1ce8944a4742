"""Pulls from a template are the pulls that are written field by field."""

from __future__ import annotations

import pytest

from rocketwire.wire import headers
from rocketwire.wire.codes import CLIENT_VERSION, Language, RequestCode
from rocketwire.wire.command import ONEWAY, Command, decode_command, encode_command
from rocketwire.wire.pull_request import PullTemplate


def _fields(offset: int) -> dict[str, str]:
    return headers.pull(
        group="g",
        topic="T",
        queue_id=3,
        offset=offset,
        max_messages=32,
        system_flag=6,
        suspend_ms=15_000,
        subscription="grün || b",
        subscription_version=1_700_000_000_123,
        broker="broker-a",
    )


@pytest.mark.parametrize("offset", [0, 7, 10**9, 2**63 - 1])
def test_a_request_from_a_template_is_the_request_written_field_by_field(offset):
    request = PullTemplate(_fields(12345)).request(offset, 32)
    decoded = decode_command((request.head(77) + request.body)[4:])
    expected = Command(RequestCode.PULL_MESSAGE, _fields(offset), opaque=77)
    assert decoded == expected
    assert (decoded.language, decoded.version) == (Language.PYTHON, CLIENT_VERSION)
    assert len(request.head(77)) == len(encode_command(expected))
    assert request.code == RequestCode.PULL_MESSAGE


def test_the_head_carries_the_opaque_number_and_the_flag_of_its_connection():
    request = PullTemplate(_fields(0)).request(5, 7)
    decoded = decode_command(request.head(2, ONEWAY)[4:])
    assert (decoded.opaque, decoded.flag) == (2, ONEWAY)
