from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketwire.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from rocketwire.wire.codes import Language
from rocketwire.wire.command import (
    BINARY,
    JSON,
    ONEWAY,
    RESPONSE,
    Command,
    Reply,
    decode_command,
    encode_command,
)

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
int32 = st.integers(-(2**31), 2**31 - 1)
commands = st.builds(
    Command,
    code=st.integers(0, 32767),
    ext=st.dictionaries(text, text, max_size=6),
    body=st.binary(max_size=200),
    remark=st.none() | text,
    opaque=int32,
    flag=st.integers(0, 3),
    language=st.integers(0, 13),
    version=st.integers(0, 32767),
    header=st.sampled_from([JSON, BINARY]),
)


@given(commands)
def test_a_json_header_is_written_as_json_is(command: Command) -> None:
    command.header, command.remark, command.ext = JSON, None, {}
    header = command.head(command.opaque)[8:]
    fields = json.loads(header)
    assert json.dumps(fields, separators=(",", ":"), sort_keys=True).encode() == header
    assert [fields[name] for name in ("code", "flag", "opaque", "version")] == [
        command.code, command.flag, command.opaque, command.version,
    ]  # fmt: skip


@given(commands)
def test_a_command_comes_back_as_it_was(command: Command) -> None:
    assert decode_command(encode_command(command)[4:]) == command


@given(commands)
def test_a_reply_reads_the_same_lazily(command: Command) -> None:
    frame = encode_command(command)[4:]
    reply = Reply(frame)
    assert (reply.code, reply.opaque, reply.flag) == (command.code, command.opaque, command.flag)
    assert reply.ext == command.ext
    assert reply.remark == command.remark
    assert reply.body == bytes(command.body)


def test_the_binary_vector_of_the_protocol() -> None:
    command = Command(105, {"topic": "T"}, opaque=7)
    expected = (
        "00000025 01000021 0069 03 01db 00000007 00000000 00000000 0000000c 0005746f706963"
        " 0000000154"
    )
    assert encode_command(command) == bytes.fromhex(expected)


def test_the_json_vector_of_the_protocol() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":7,'
        b'"version":475}'
    )
    assert len(header) == 92
    frame = bytes.fromhex("000000600000005c") + header
    assert decode_command(frame[4:]) == Command(105, {"topic": "T"}, opaque=7, header=JSON)


def test_a_java_reply_is_read_without_decoding_it() -> None:
    header = (
        b'{"code":0,"extFields":{"msgId":"0A","flag":"9","opaque":"5"},"flag":1,'
        b'"language":"JAVA","opaque":77,"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    reply = Reply(len(header).to_bytes(4, "big") + header)
    assert (reply.code, reply.opaque, reply.flag) == (0, 77, 1)
    assert reply.ext == {"msgId": "0A", "flag": "9", "opaque": "5"}


def test_keys_in_another_order_are_read_too() -> None:
    header = json.dumps({"opaque": 5, "flag": 1, "code": 17, "remark": "none"}).encode()
    reply = Reply(len(header).to_bytes(4, "big") + header)
    assert (reply.code, reply.opaque, reply.remark) == (17, 5, "none")


def test_bare_numbers_of_other_clients_become_text() -> None:
    header = b'{"code":10,"opaque":1,"flag":0,"extFields":{"queueId":3,"batch":true,"x":null}}'
    command = decode_command(len(header).to_bytes(4, "big") + header)
    assert command.ext == {"queueId": "3", "batch": "true"}
    assert command.language == Language.OTHER


def test_empty_values_are_left_out_of_a_binary_header() -> None:
    command = Command(10, {"a": "", "b": "x"})
    assert decode_command(encode_command(command)[4:]).ext == {"b": "x"}


def test_a_flag_says_that_nobody_waits_for_an_answer() -> None:
    assert Command(0, flag=ONEWAY).is_oneway
    assert not Command(0, flag=RESPONSE).is_oneway


def test_a_code_that_does_not_fit_is_told() -> None:
    with pytest.raises(LocalProtocolError, match="JSON header"):
        encode_command(Command(200050))
    assert decode_command(encode_command(Command(200050, header=JSON))[4:]).code == 200050


def test_a_frame_that_no_server_takes_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="at most"):
        encode_command(Command(310, body=b"x" * (16 * 1024 * 1024)))


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x00\x00\x05{}",
        b"\x02\x00\x00\x02{}",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x00",
        b"\x01\x00\x00\x03abc",
        b"\x00\x00\x00\x0b" + b'{"code":""}',
        b"\x00\x00\x00\x0f" + b'{"code":' + b"9" * 6 + b"}",
        b"\x00" + (50_000).to_bytes(3, "big") + b"[" * 50_000,
        b"\x00" + (9_000).to_bytes(3, "big") + b'{"code":' + b"1" * 8_991 + b"}",
    ],
)
def test_malformed_frames_raise_our_error_only(frame: bytes) -> None:
    for read in (decode_command, lambda f: Reply(f).ext):
        try:
            read(frame)
        except ProtocolError:
            continue
        assert frame.endswith(b"999999}")  # the only one that is a header


@given(st.binary(min_size=4, max_size=120))
def test_random_bytes_raise_our_error_only(frame: bytes) -> None:
    for read in (decode_command, lambda f: Reply(f).ext):
        with contextlib.suppress(RemoteProtocolError):
            read(frame)
