from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.unit.sync.peer import Peer, PeerConnection, echo, peer

from rocketwire.core.effects import Event, Invoke, InvokeAll, Oneway, Sleep, Wait, invoke
from rocketwire.errors import (
    ConnectFailedError,
    ConnectionLostError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from rocketwire.sync.connection import Connector, Pool
from rocketwire.sync.driver import Driver
from rocketwire.wire.command import ONEWAY, Command, encode_command

LONG = 20.0


@pytest.fixture
def pool() -> Iterator[Pool]:
    connector = Connector(
        clock=time.monotonic, connect_timeout=3.0, tls=None, max_frame=1024 * 1024
    )
    pool = Pool(connector)
    yield pool
    pool.close()


@pytest.fixture
def driver(pool: Pool) -> Driver:
    return Driver(pool, time.monotonic)


def deadline(seconds: float = LONG) -> float:
    return time.monotonic() + seconds


def call(driver: Driver, server: Peer, body: bytes = b"x", limit: float = LONG):
    def operation():
        reply = yield Invoke(server.address, Command(10, body=body), deadline(limit))
        return reply

    return driver.run(operation())


def test_a_request_gets_its_answer_and_the_connection_is_used_again(driver: Driver) -> None:
    with peer() as server:
        assert [call(driver, server, b"%d" % n).body for n in range(5)] == [
            b"0", b"1", b"2", b"3", b"4",
        ]  # fmt: skip
        assert len(server.connections) == 1


def test_a_large_request_and_answer_arrive_whole(driver: Driver) -> None:
    with peer() as server:
        body = bytes(range(256)) * 3000
        assert call(driver, server, body).body == body


def test_an_answer_in_single_bytes_arrives(driver: Driver) -> None:
    def trickle(connection: PeerConnection) -> None:
        for byte in connection.answer(connection.next()):
            connection.send(bytes([byte]))
        connection.next()

    with peer(trickle) as server:
        assert call(driver, server, b"abc").body == b"abc"


def test_ipv6_literals_work(driver: Driver) -> None:
    with peer(host="::1") as server:
        assert call(driver, server).code == 0


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1:http", "127.0.0.1:99999", "a..b:10911", "x" * 64 + ":10911"]
)
def test_an_impossible_address_is_a_failed_connection(driver: Driver, address: str) -> None:
    with pytest.raises(ConnectFailedError, match="could not be reached: ") as failed:
        driver.run(invoke(address, Command(10), deadline()))
    assert str(failed.value).startswith(address)


def test_a_refused_connection_was_not_written(driver: Driver) -> None:
    with peer() as server:
        address = server.address
    with pytest.raises(ConnectFailedError, match="refused the connection") as caught:
        driver.run(_invoke(address))
    assert not caught.value.written


def _invoke(address: str, limit: float = LONG):
    return (yield Invoke(address, Command(10, body=b"x"), deadline(limit)))


def test_silence_is_a_time_out_that_may_have_been_stored(driver: Driver) -> None:
    def deaf(connection: PeerConnection) -> None:
        connection.next()
        connection.next()

    with peer(deaf) as server, pytest.raises(RequestTimeoutError, match="no answer") as caught:
        call(driver, server, limit=0.1)
    assert caught.value.written


def test_half_an_answer_is_no_answer(driver: Driver) -> None:
    def half(connection: PeerConnection) -> None:
        answer = connection.answer(connection.next())
        connection.send(answer[: len(answer) // 2])
        connection.close()

    with peer(half) as server, pytest.raises(ConnectionLostError) as caught:
        call(driver, server)
    assert caught.value.written


def test_garbage_ends_that_connection_only(driver: Driver) -> None:
    def garbage(connection: PeerConnection) -> None:
        connection.next()
        connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.next()

    with peer(garbage) as server, peer() as good:
        with pytest.raises(RemoteProtocolError):
            call(driver, server)
        assert call(driver, good).code == 0
        with pytest.raises(RemoteProtocolError):
            call(driver, server)
        assert len(server.connections) == 2


def test_a_late_answer_is_dropped(driver: Driver) -> None:
    """The answer to another request, on the same connection, must not be taken for ours."""

    def stray(connection: PeerConnection) -> None:
        while True:
            request = connection.next()
            other = Command(1, opaque=request.opaque + 1000, flag=1)
            connection.send(encode_command(other) + connection.answer(request))

    with peer(stray) as server:
        assert call(driver, server, b"mine").body == b"mine"


def test_requests_of_the_broker_are_no_answers(driver: Driver) -> None:
    def asks(connection: PeerConnection) -> None:
        request = connection.next()
        connection.send(encode_command(Command(40, opaque=request.opaque, flag=ONEWAY)))
        connection.send(connection.answer(request))
        connection.next()

    with peer(asks) as server:
        assert call(driver, server, b"mine").body == b"mine"


def test_a_connection_that_the_peer_closed_is_not_used_again(driver: Driver) -> None:
    closed = threading.Event()

    def once(connection: PeerConnection) -> None:
        connection.send(connection.answer(connection.next()))
        connection.close()
        closed.set()

    with peer(once) as server:
        for _ in range(3):
            closed.clear()
            assert call(driver, server).code == 0
            assert closed.wait(LONG)
        assert len(server.connections) == 3


def test_a_connection_with_a_stray_answer_is_not_used_again(driver: Driver) -> None:
    sent = threading.Event()

    def twice(connection: PeerConnection) -> None:
        request = connection.next()
        connection.send(connection.answer(request))
        connection.send(connection.answer(request))
        sent.set()
        connection.next()

    with peer(twice) as server:
        call(driver, server)
        assert sent.wait(LONG)
        call(driver, server)
        assert len(server.connections) == 2


def test_an_idle_connection_is_replaced(driver: Driver, pool: Pool) -> None:
    now = time.monotonic()
    connector = Connector(clock=lambda: now, connect_timeout=3.0, tls=None, max_frame=1 << 20)
    pool = Pool(connector)
    driver = Driver(pool, lambda: now)
    with peer() as server:
        driver.run(_at(server.address, now + LONG))
        now += 59.0
        driver.run(_at(server.address, now + LONG))
        assert len(server.connections) == 1
        now += 61.0
        driver.run(_at(server.address, now + LONG))
        assert len(server.connections) == 2
        pool.close()


def _at(address: str, limit: float):
    return (yield Invoke(address, Command(10), limit))


def test_oneway_does_not_wait(driver: Driver) -> None:
    seen = threading.Event()

    def listen(connection: PeerConnection) -> None:
        if connection.next().is_oneway:
            seen.set()
        connection.next()

    def operation():
        yield Oneway(server.address, Command(10), deadline())

    with peer(listen) as server:
        driver.run(operation())
        assert seen.wait(LONG)


def test_many_requests_are_pipelined_and_answers_sorted(driver: Driver) -> None:
    def backwards(connection: PeerConnection) -> None:
        requests = [connection.next() for _ in range(8)]
        for request in reversed(requests):
            connection.send(connection.answer(request))
        connection.next()

    def operation():
        calls = tuple(
            Invoke((one if n % 2 else two).address, Command(10, body=b"%d" % n), deadline())
            for n in range(16)
        )
        return (yield InvokeAll(calls))

    with peer(backwards) as one, peer(backwards) as two:
        replies = driver.run(operation())
        assert [r.body for r in replies] == [b"%d" % n for n in range(16)]
        assert len(one.connections) == len(two.connections) == 1


def test_more_requests_than_fit_in_one_go(driver: Driver) -> None:
    def operation():
        calls = tuple(
            Invoke(server.address, Command(10, body=b"%d" % n), deadline()) for n in range(300)
        )
        return (yield InvokeAll(calls))

    with peer() as server:
        assert [r.body for r in driver.run(operation())] == [b"%d" % n for n in range(300)]


def test_a_failure_among_many_stands_in_its_place(driver: Driver) -> None:
    def deaf(connection: PeerConnection) -> None:
        connection.next()
        connection.next()

    def operation():
        where = [good.address, bad.address, "127.0.0.1:1", good.address]
        limits = [LONG, 0.2, LONG, LONG]
        calls = tuple(
            Invoke(a, Command(10), deadline(s)) for a, s in zip(where, limits, strict=True)
        )
        return (yield InvokeAll(calls))

    with peer() as good, peer(deaf) as bad:
        first, second, third, fourth = driver.run(operation())
        assert first.code == fourth.code == 0
        assert isinstance(second, RequestTimeoutError)
        assert isinstance(third, ConnectFailedError)


def test_a_row_whose_first_request_can_not_be_written_leaves_no_socket(
    driver: Driver, pool: Pool
) -> None:
    too_large = Command(10, body=b"x" * (17 * 1024 * 1024))
    with peer(echo) as server:
        invokes = (Invoke(server.address, too_large, deadline()),) * 2

        def operation():
            return (yield InvokeAll(invokes))

        errors = driver.run(operation())
        assert [type(error) for error in errors] == [LocalProtocolError, ConnectionLostError]
        assert pool.is_quiet()  # else a shutdown waits for it while the error is kept


class _Heard:
    """Notes when it is told that a request has left."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def written(self, now: float, unanswered: int) -> None:
        self.sizes.append(unanswered)


def test_requests_that_are_held_leave_before_those_behind_them(driver: Driver) -> None:
    seen: list[bytes] = []

    def noting(connection: PeerConnection) -> None:
        while True:
            request = connection.next()
            seen.append(request.body)
            connection.send(connection.answer(request))

    heard, large = _Heard(), b"x" * 100_000
    bodies = [b"0", b"1", b"observed", b"3", large, b"5"]

    def operation():
        calls = tuple(
            Invoke(server.address, Command(10, body=body), deadline(), observer)
            for body, observer in zip(bodies, [None, None, heard, None, None, None], strict=True)
        )
        return (yield InvokeAll(calls))

    with peer(noting) as server:
        assert [reply.body for reply in driver.run(operation())] == bodies
        assert seen == bodies
        assert len(heard.sizes) == 1


def test_a_request_that_fits_no_frame_does_not_keep_those_before_it(driver: Driver) -> None:
    too_large = Command(10, body=b"x" * (17 * 1024 * 1024))

    def operation():
        calls = tuple(
            Invoke(server.address, command, deadline())
            for command in (Command(10, body=b"0"), too_large, Command(10, body=b"2"))
        )
        return (yield InvokeAll(calls))

    with peer(echo) as server:
        first, second, third = driver.run(operation())
        assert first.body == b"0"
        assert isinstance(second, LocalProtocolError)
        assert isinstance(third, ConnectionLostError)


def test_what_was_held_for_a_peer_that_is_gone_fails_together(driver: Driver, pool: Pool) -> None:
    with peer() as server:
        connection = pool.take(server.address, deadline())
        connection._socket.shutdown(socket.SHUT_WR)

        class Given(Pool):
            """Hands out the connection that can't be written to."""

            def take(self, address: str, limit: float, now: float | None = None):
                return connection

        calls = tuple(Invoke(server.address, Command(10), deadline()) for _ in range(3))

        def operation():
            return (yield InvokeAll(calls))

        errors = Driver(Given(pool._connector), time.monotonic).run(operation())
        assert [type(error) for error in errors] == [ConnectionLostError] * 3
        assert connection.fileno() == -1


def test_a_slow_peer_does_not_age_the_answers_of_others(driver: Driver) -> None:
    def silent(connection: PeerConnection) -> None:
        connection.next()
        connection.next()

    limit = deadline(1.0)

    def operation():
        slow, quick = (
            Invoke(one.address, Command(10), limit),
            Invoke(two.address, Command(10), deadline()),
        )
        return (yield InvokeAll((slow, quick)))

    with peer(silent) as one, peer() as two:
        late, early = driver.run(operation())
        assert isinstance(late, RequestTimeoutError)
        # Read when it came, not when the answer before it was given up.
        assert early.arrived < limit


def test_a_request_that_fits_no_frame_is_told_and_harms_nothing(driver: Driver) -> None:
    with peer() as server:
        with pytest.raises(LocalProtocolError):
            call(driver, server, b"x" * (17 * 1024 * 1024))
        assert call(driver, server).code == 0


def test_an_answer_beyond_the_limit_is_refused(driver: Driver) -> None:
    def huge(connection: PeerConnection) -> None:
        connection.next()
        connection.send((500_000_000).to_bytes(4, "big"))
        connection.next()

    with peer(huge) as server, pytest.raises(RemoteProtocolError, match="500000000"):
        call(driver, server)


def test_a_peer_that_does_not_read_does_not_hold_us_for_ever(driver: Driver) -> None:
    stop = threading.Event()

    def blocked(connection: PeerConnection) -> None:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stop.wait(LONG)

    with peer(blocked) as server:
        with pytest.raises(RequestTimeoutError) as caught:
            call(driver, server, b"x" * (15 * 1024 * 1024), limit=0.3)
        stop.set()
    assert caught.value.written


def test_waiting_for_a_gate_ends_with_it_or_with_the_deadline(driver: Driver) -> None:
    event = Event()

    def operation(limit: float):
        return (yield Wait(event, deadline(limit)))

    assert driver.run(operation(0.01)) is False
    threading.Timer(0.05, event.set).start()
    assert driver.run(operation(LONG)) is True
    assert driver.run(operation(0.0)) is True


def test_sleeping_ends_at_its_moment(driver: Driver) -> None:
    def operation():
        until = time.monotonic() + 0.02
        yield Sleep(until)
        return time.monotonic() - until

    assert driver.run(operation()) >= 0


def test_an_operation_is_closed_when_its_driver_is_interrupted(driver: Driver) -> None:
    ended = []

    class Interrupted:
        def head(self, opaque: int) -> bytes:
            raise KeyboardInterrupt

    with peer() as server:

        def operation():
            try:
                yield Invoke(server.address, Interrupted(), deadline())
            finally:
                ended.append(True)

        with pytest.raises(KeyboardInterrupt):
            driver.run(operation())
    assert ended == [True]


def test_closing_the_pool_closes_what_comes_back(pool: Pool) -> None:
    with peer(echo) as server:
        connection = pool.take(server.address, deadline())
        pool.close()
        pool.give_back(connection)
        assert pool.addresses() == ()
        with pytest.raises(OSError, match="Bad file descriptor"):
            connection._socket.getpeername()
