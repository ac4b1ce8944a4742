from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.framing import MAX_FRAME, FrameBuffer


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
