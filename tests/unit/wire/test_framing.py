from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.command import Command, encode_command
from rocketwire.wire.framing import LENGTH_SIZE, MAX_FRAME, FrameBuffer, body_at, length_of


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.binary(min_size=4, max_size=300), max_size=8), st.data())
def test_frames_come_back_whatever_the_chunks(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(p) for p in payloads)
    buffer = FrameBuffer()
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        step = data.draw(st.integers(1, len(stream) - position))
        found += buffer.feed(stream[position : position + step])
        position += step
    assert found == payloads
    assert buffer.held == 0


def test_byte_by_byte() -> None:
    buffer = FrameBuffer()
    stream = framed(b"abcd") + framed(b"efghi")
    found = [frame for byte in stream for frame in buffer.feed(bytes([byte]))]
    assert found == [b"abcd", b"efghi"]


@pytest.mark.parametrize("length", [-1, 0, 3, MAX_FRAME - 3, 2**31 - 1])
def test_an_impossible_length_is_refused_at_once(length: int) -> None:
    buffer = FrameBuffer()
    with pytest.raises(RemoteProtocolError, match="frame length"):
        buffer.feed(length.to_bytes(4, "big", signed=True))


def test_the_largest_frame_is_accepted() -> None:
    buffer = FrameBuffer(limit=108)
    assert buffer.feed(framed(b"x" * 104)) == [b"x" * 104]
    with pytest.raises(RemoteProtocolError):
        buffer.feed(framed(b"x" * 105))


def test_http_is_told_apart() -> None:
    with pytest.raises(RemoteProtocolError, match="it is a web server"):
        FrameBuffer().feed(b"HTTP/1.1 400 Bad Request\r\n")


def test_no_more_is_held_than_was_sent() -> None:
    buffer = FrameBuffer()
    assert buffer.feed((10_000_000).to_bytes(4, "big") + b"x" * 100) == []
    assert buffer.held == 104


@pytest.mark.parametrize("size", [104, 105])
def test_a_frame_that_is_read_as_a_whole_obeys_the_limit(size: int) -> None:
    buffer = FrameBuffer(limit=108)
    if size == 104:
        assert buffer.feed(framed(b"x" * size)) == [b"x" * size]
        assert buffer.held == 0
    else:
        with pytest.raises(RemoteProtocolError, match="frame length 105"):
            buffer.feed(framed(b"x" * size))


def test_a_frame_that_stays_where_it_is_is_measured_as_one_that_is_cut_out() -> None:
    command = encode_command(Command(10, {"topic": "t"}, b"the body", None, 7))
    data = b"before" + command
    length = length_of(data, 6)
    assert length == len(command) - LENGTH_SIZE
    frame = memoryview(data)[6 + LENGTH_SIZE :]
    assert bytes(frame[body_at(frame) :]) == b"the body"
    for wrong in (-1, 3, MAX_FRAME - 3):
        with pytest.raises(RemoteProtocolError, match=f"frame length {wrong} is not between 4 and"):
            length_of(wrong.to_bytes(4, "big", signed=True), 0)
    with pytest.raises(
        RemoteProtocolError, match="a header of 12 bytes goes beyond its frame of 8"
    ):
        body_at(b"\x00\x00\x00\x08" + b"{}{}")
