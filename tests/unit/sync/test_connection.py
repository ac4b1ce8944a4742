"""Blocking connections: what counts as written, and deadlines that hold whatever wakes the thread."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
from tests.unit.core.world import World
from tests.unit.sync.ticking import ticking

from rocketwire import Message, Producer, Reader
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.mode import SendMode
from rocketwire.embedded import EmbeddedCluster
from rocketwire.errors import ConnectionLostError, RequestTimeoutError
from rocketwire.sync.connection import Connection, Connector, Pool
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    connection = Connection("10.0.0.1:10911", ours, time.monotonic, 1 << 24)
    yield connection, theirs
    connection.close()
    theirs.close()


def attempt_of(body: bytes, seconds: float) -> SendAttempt:
    """An attempt in real time, to a broker that is made up."""
    world = World(1, compress_over=0, max_message_size=1 << 24)
    world.send()
    attempt = world.sender.start(Message("T", body), SendMode.BLOCKING)
    attempt.deadline = time.monotonic() + seconds
    return attempt


def test_a_request_of_which_some_bytes_left_is_written(pair) -> None:
    connection, _ = pair
    attempt = attempt_of(b"x" * 8_000_000, 0.2)
    with pytest.raises(RequestTimeoutError, match="took no more bytes") as failed:
        connection.exchange(attempt)
    assert failed.value.written
    assert attempt.is_written


@pytest.mark.parametrize("size", [10, 10_000, 100_000])
def test_a_request_of_which_no_byte_left_is_not_written(pair, size) -> None:
    connection, theirs = pair
    theirs.close()
    attempt = attempt_of(b"x" * size, 5.0)
    with pytest.raises(ConnectionLostError) as failed:
        connection.exchange(attempt)
    assert not failed.value.written
    assert not attempt.is_written


@pytest.mark.parametrize("pieces", [1, 3])
def test_an_answer_that_is_no_success_knows_when_it_came(pair, pieces) -> None:
    connection, theirs = pair
    attempt = attempt_of(b"x", 30.0)
    busy = encode_command(Command(2, remark="[OVERLOAD]", opaque=1, flag=RESPONSE))
    size = -(-len(busy) // pieces)

    def answer() -> None:
        theirs.recv(4096)
        for start in range(0, len(busy), size):
            time.sleep(0.02)
            theirs.sendall(busy[start : start + size])

    before = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(answer)
        reply = connection.exchange(attempt)
        done.result(10)
    assert isinstance(reply, Reply)
    assert reply.code == 2
    assert before < reply.arrived == connection.used_at <= time.monotonic()


def test_a_peer_that_takes_nothing_at_all_leaves_a_request_unwritten(pair) -> None:
    connection, _ = pair
    filler = attempt_of(b"x" * 8_000_000, 0.1)
    with pytest.raises(RequestTimeoutError):
        connection.exchange(filler)  # the buffers are full now
    attempt = attempt_of(b"x", 0.1)
    with pytest.raises(RequestTimeoutError) as failed:
        connection.exchange(attempt)
    assert not failed.value.written
    assert not attempt.is_written


@pytest.mark.parametrize("size", [10, 8_000_000], ids=["reading", "writing"])
def test_signals_do_not_prolong_a_deadline(pair, size) -> None:
    connection, _ = pair
    attempt = attempt_of(b"x" * size, 0.3)
    with ticking(2000) as ticks, pytest.raises(RequestTimeoutError):
        connection.exchange(attempt)
    assert 0 < len(ticks) < 2000


@pytest.mark.parametrize("error", [TimeoutError, InterruptedError, KeyboardInterrupt])
@pytest.mark.parametrize("size", [10, 8_000_000], ids=["reading", "writing"])
def test_what_a_signal_handler_raises_goes_to_the_caller(pair, error, size) -> None:
    connection, _ = pair
    attempt = attempt_of(b"x" * size, 30.0)

    def alarm(*_: object) -> None:
        raise error("the application's own")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(error, match="the application's own"):
            connection.exchange(attempt)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_process_with_many_descriptors_sends_and_reads_like_any_other() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip(f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    taken: list[int] = []
    try:
        with EmbeddedCluster(brokers=2) as cluster:
            cluster.create_topic("orders", queues=2)
            taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
            with Producer(cluster.name_server) as producer:
                sent = producer.send_many([Message("orders", b"%d" % n) for n in range(3000)])
                producer.submit(Message("orders", b"x")).result(20)
            with Reader(cluster.name_server) as reader:
                assert len(list(reader.read("orders"))) == len(sent) + 1
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("step", range(8))
def test_a_connection_is_taken_by_one_thread_whatever_runs_in_between(step) -> None:
    """A debugger lets other threads run between any two lines."""
    connector = Connector(clock=time.monotonic, connect_timeout=1.0, tls=None, max_frame=1 << 24)
    pool, address, theirs = Pool(connector), "10.0.0.1:10911", []
    for _ in range(2):
        ours, peer = socket.socketpair()
        theirs.append(peer)
        pool.give_back(Connection(address, ours, time.monotonic, 1 << 24))
    others: list[Connection] = []
    lines = 0

    def look(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code is not Pool.take.__code__:
            return None
        if event == "line":
            lines += 1
            if lines == step + 1:
                with ThreadPoolExecutor(1) as other:
                    others.append(other.submit(pool.take, address, time.monotonic() + 1).result())
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        mine = pool.take(address, time.monotonic() + 1)
    finally:
        sys.settrace(before)
    assert mine not in others
    for connection in (mine, *others):
        pool.give_back(connection)
    pool.close()
    for peer in theirs:
        peer.close()
    assert {connection.fileno() for connection in (mine, *others)} == {-1}
