"""Answers are read into large buffers, whole and in order, however the network cuts them."""

import itertools
import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketwire.columns.reply_buffers import ReplyReader
from rocketwire.errors import ConnectionLostError, RemoteProtocolError, RequestTimeoutError
from rocketwire.sync.connection import Connection
from rocketwire.wire.command import RESPONSE, Command, encode_command

MAX_FRAME = 16 * 1024 * 1024


def answer(opaque, body, flag=RESPONSE):
    return encode_command(
        Command(0, {"nextBeginOffset": str(opaque)}, body, opaque=opaque, flag=flag)
    )


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def make_reader(sock, max_frame=MAX_FRAME):
    return ReplyReader(Connection("10.0.0.1:1", sock, time.monotonic, max_frame), time.monotonic)


def soon():
    return time.monotonic() + 30


def send_in_background(sock, data, sizes=None):
    def send():
        at = 0
        while at < len(data):
            size = next(sizes) if sizes else len(data)
            sock.sendall(data[at : at + size])
            at += size

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=20),
    cuts=st.lists(st.integers(1, 700), min_size=1, max_size=5),
)
def test_answers_come_whole_and_in_order_however_they_are_cut(sizes, cuts):
    bodies = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    stream = b"".join(answer(number, body) for number, body in enumerate(bodies))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sending = send_in_background(theirs, stream, itertools.cycle(cuts))
        reader = make_reader(ours)
        for number, body in enumerate(bodies):
            found = reader.read(soon())
            assert (found.reply.opaque, found.body) == (number, body)
            assert found.buffer[found.at : found.at + len(body)].tobytes() == body
        assert reader.is_empty
        sending.join(30)


def test_a_body_stays_as_it_is_while_many_more_are_read(pair):
    """A buffer that somebody still points into is never written again."""
    ours, theirs = pair
    count, size = 60, 300_000  # several buffers of 4 MiB
    data = b"".join(answer(number, bytes([number]) * size) for number in range(count))
    sending = send_in_background(theirs, data)
    reader = make_reader(ours)
    found = [reader.read(soon()) for _ in range(count)]
    sending.join(30)
    assert len({id(part.buffer) for part in found}) > 3
    assert [bytes(part.body) == bytes([n]) * size for n, part in enumerate(found)] == [True] * count


def test_an_answer_larger_than_a_buffer_is_read(pair):
    ours, theirs = pair
    body = b"0123456789abcdef" * (10 * 1024 * 1024 // 16)
    sending = send_in_background(theirs, answer(1, b"small") + answer(2, body) + answer(3, b""))
    reader = make_reader(ours)
    assert reader.read(soon()).body == b"small"
    assert reader.read(soon()).body == body
    assert reader.read(soon()).body == b""
    sending.join(30)


def test_requests_of_the_broker_are_passed_over(pair):
    ours, theirs = pair
    theirs.sendall(answer(1, b"request", flag=0) + answer(2, b"answer"))
    found = make_reader(ours).read(soon())
    assert (found.reply.opaque, bytes(found.body)) == (2, b"answer")


def test_silence_is_a_timeout_and_what_came_is_kept(pair):
    ours, theirs = pair
    reader = make_reader(ours)
    whole = answer(7, b"body")
    theirs.sendall(whole[:9])
    with pytest.raises(RequestTimeoutError, match=r"10\.0\.0\.1:1"):
        reader.read(time.monotonic() + 0.01)
    assert not reader.is_empty
    theirs.sendall(whole[9:])
    assert reader.read(soon()).body == b"body"


def test_a_time_limit_of_the_socket_itself_is_no_lost_connection(pair):
    """A TLS socket that has half a record is readable and gives nothing until its own limit."""
    ours, theirs = pair

    class HalfRecord:
        """Readable as the real one, and once without a byte."""

        def __init__(self):
            self.calls = 0

        def fileno(self):
            return ours.fileno()

        def settimeout(self, seconds):
            ours.settimeout(seconds)

        def recv_into(self, view):
            self.calls += 1
            if self.calls == 1:
                raise TimeoutError("The read operation timed out")
            return ours.recv_into(view)

    theirs.sendall(answer(1, b"body"))
    assert make_reader(HalfRecord()).read(soon()).body == b"body"


def test_the_end_of_the_stream_is_a_lost_connection(pair):
    ours, theirs = pair
    theirs.sendall(answer(1, b"body")[:-1])
    theirs.close()
    with pytest.raises(ConnectionLostError) as caught:
        make_reader(ours).read(soon())
    assert caught.value.written


@pytest.mark.parametrize("length", [-1, 0, 3, MAX_FRAME])
def test_an_impossible_length_is_refused_before_room_is_made(pair, length):
    ours, theirs = pair
    theirs.sendall(length.to_bytes(4, "big", signed=True) + b"\0" * 8)
    with pytest.raises(RemoteProtocolError, match=f"frame length {length} "):
        make_reader(ours).read(soon())


def test_a_header_that_is_longer_than_its_frame_is_refused(pair):
    ours, theirs = pair
    theirs.sendall((12).to_bytes(4, "big") + (100).to_bytes(4, "big") + b"\0" * 8)
    with pytest.raises(RemoteProtocolError, match="beyond its frame"):
        make_reader(ours).read(soon())
