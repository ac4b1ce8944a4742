"""What a multiplexed connection does with replies, losses, deadlines and odd peers."""

import asyncio
import contextlib
import socket
import struct
import time

import pytest
from tests.operations import oneway
from tests.wire_tools import is_response

from rocketwire.core.effects import Invoke, invoke, invoke_all
from rocketwire.errors import (
    ConnectFailedError,
    ConnectionLostError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import ONEWAY, Command, encode_command
from rocketwire.wire.framing import MAX_FRAME


def soon(seconds=10.0):
    return time.monotonic() + seconds


def ask(address, code=7, *, body=b"", seconds=10.0, observer=None):
    return invoke(address, Command(code, body=body), soon(seconds), observer)


def ask_many(address, count, *, seconds=10.0, body=b""):
    calls = (Invoke(address, Command(n, body=body), soon(seconds)) for n in range(count))
    return invoke_all(tuple(calls))


def test_a_reply_comes_back_with_the_moment_it_was_read(run, serve, driving):
    async def main():
        async with serve() as server, driving() as driver:
            before = time.monotonic()
            reply = await driver.run(ask(server.address))
            assert reply.code == 0
            assert before <= reply.arrived <= time.monotonic()

    run(main())


def test_requests_of_one_tick_leave_in_one_write(run, driving):
    chunks = []

    class Counting(asyncio.Protocol):
        def data_received(self, data):
            chunks.append(data)

    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Counting, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with driving() as driver:
            await driver.run(oneway(address, Command(1), soon()))
            with pytest.raises(RequestTimeoutError):
                await driver.run(ask(address, seconds=0.05))
            chunks.clear()
            await driver.run(ask_many(address, 50, seconds=0.1))
        server.close()
        assert len(chunks) == 1
        assert chunks[0].count(struct.pack(">I", 1 << 24 | 21)) == 50

    run(main())


def test_large_and_small_requests_arrive_whole_and_in_order(run, serve, driving):
    async def main():
        sizes = [10, 200_000, 10, 10, 16_384, 40_000, 1_000_000, 0, 70_000, 5, 131_072]
        sent = [bytes([number]) * size for number, size in enumerate(sizes)]
        seen = []

        async def script(peer):
            while True:
                command = await peer.request()
                seen.append(bytes(command.body))
                peer.answer(command)

        async with serve(script) as server, driving() as driver:
            deadline = time.monotonic() + 30
            operations = [invoke(server.address, Command(7, body=body), deadline) for body in sent]
            await asyncio.gather(*(driver.run(operation) for operation in operations))
            again = asyncio.gather(
                *(driver.run(invoke(server.address, Command(7, body=b), deadline)) for b in sent)
            )
            assert len(await again) == len(sent)
        assert seen == sent * 2

    run(main())


def test_replies_may_come_byte_by_byte(run, serve, driving):
    async def drip(peer):
        command = await peer.request()
        for byte in peer.reply(command, 0, a="b"):
            peer.send(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)

    async def main():
        async with serve(drip) as server, driving() as driver:
            reply = await driver.run(ask(server.address))
            assert reply.ext == {"a": "b"}

    run(main())


def test_replies_in_another_order_reach_their_own_requests(run, serve, driving):
    async def backwards(peer):
        commands = [await peer.request() for _ in range(5)]
        for command in reversed(commands):
            peer.answer(command, code=command.code + 100)
        await peer.reader.read()

    async def main():
        async with serve(backwards) as server, driving() as driver:
            replies = await driver.run(ask_many(server.address, 5))
            assert [r.code for r in replies] == [100, 101, 102, 103, 104]

    run(main())


def test_a_late_reply_is_dropped_and_the_connection_goes_on(run, serve, driving):
    async def first_late(peer):
        late = await peer.request()
        second = await peer.request()
        peer.answer(late, code=1)
        peer.answer(second, code=2)
        await peer.reader.read()

    async def main():
        async with serve(first_late) as server, driving() as driver:
            with pytest.raises(RequestTimeoutError, match=r"gave no answer in \d+ ms") as caught:
                await driver.run(ask(server.address, seconds=0.05))
            assert caught.value.written
            reply = await driver.run(ask(server.address))
            assert reply.code == 2
            assert driver.connections[server.address].session.late == 1
            assert server.accepted == 1

    run(main())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_losing_the_connection_fails_everything_pending_as_written(run, serve, driving, how):
    async def go_away(peer):
        for _ in range(3):
            await peer.request()
        if how == "reset":
            peer.reset()

    async def main():
        async with serve(go_away) as server, driving() as driver:
            results = await driver.run(ask_many(server.address, 3))
            assert [type(e) for e in results] == [ConnectionLostError] * 3
            assert all(e.written for e in results)
            assert len({id(e) for e in results}) == 3
            assert server.address not in driver.connections

    run(main())


def test_the_next_request_after_a_loss_gets_a_new_connection(run, serve, driving):
    async def answer_once(peer):
        peer.answer(await peer.request())

    async def main():
        async with serve(answer_once) as server, driving() as driver:
            await driver.run(ask(server.address))
            connection = driver.connections[server.address]
            await connection.closed
            await driver.run(ask(server.address))
            assert server.accepted == 2

    run(main())


def test_a_refused_connection_says_so_and_was_not_written(run, driving, free_address):
    async def main():
        async with driving() as driver:
            results = await driver.run(ask_many(free_address, 3))
            assert [type(e) for e in results] == [ConnectFailedError] * 3
            assert {str(e) for e in results} == {f"{free_address} refused the connection"}
            assert not any(e.written for e in results)
            assert not driver.connections

    run(main())


def test_a_name_with_several_addresses_that_all_refuse_is_a_refusal(run, driving, free_address):
    async def main():
        async with driving() as driver:
            port = free_address.rpartition(":")[2]
            with pytest.raises(ConnectFailedError, match=r":\d+ refused the connection$"):
                await driver.run(ask(f"localhost:{port}"))

    run(main())


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:http", "127.0.0.1:99999"])
def test_an_impossible_address_is_a_failed_connection(run, driving, address):
    async def main():
        async with driving() as driver:
            with pytest.raises(ConnectFailedError, match=r"could not be reached: .*host:port"):
                await driver.run(ask(address))

    run(main())


def test_many_who_wait_for_one_connection_share_it(run, serve, driving):
    async def main():
        async with serve() as server, driving() as driver:
            replies = await asyncio.gather(*(driver.run(ask(server.address)) for _ in range(20)))
            assert len(replies) == 20
            assert server.accepted == 1

    run(main())


@contextlib.contextmanager
def full_listener():
    """A listener that accepts nobody and whose queue is full: connecting to it hangs."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_deadline_that_comes_while_connecting_is_a_failed_connection(run, driving):
    async def main():
        with full_listener() as address:
            async with driving() as driver:
                with pytest.raises(ConnectFailedError, match="no connection in") as caught:
                    await driver.run(ask(address, seconds=0.1))
                assert not caught.value.written

    run(main())


def test_the_connect_timeout_ends_the_wait_of_all(run, driving):
    async def main():
        with full_listener() as address:
            async with driving(connect_timeout=0.1) as driver:
                results = await driver.run(ask_many(address, 2))
                expected = f"{address} could not be reached: no connection in 0.1 s"
                assert [str(e) for e in results] == [expected] * 2
                assert address not in driver.connections

    run(main())


def test_garbage_closes_only_the_connection_it_came_from(run, serve, driving):
    async def garbage(peer):
        await peer.request()
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.reader.read()

    async def main():
        async with serve(garbage) as bad, serve() as good, driving() as driver:
            await driver.run(ask(good.address))
            with pytest.raises(ConnectionLostError, match="broke the protocol") as caught:
                await driver.run(ask(bad.address))
            assert caught.value.written
            assert isinstance(caught.value.__cause__, RemoteProtocolError)
            await driver.run(ask(good.address))
            assert good.accepted == 1
            assert bad.address not in driver.connections

    run(main())


def test_an_answer_before_garbage_in_the_same_bytes_leaves_nobody_waiting(run, serve, driving):
    async def half_good(peer):
        first = await peer.request()
        await peer.request()
        malformed = struct.pack(">iI", 8, 9 << 24 | 4) + b"xxxx"
        peer.send(peer.reply(first) + malformed)
        await peer.reader.read()

    async def main():
        async with serve(half_good) as server, driving() as driver:
            results = await driver.run(ask_many(server.address, 2))
            assert [type(r) for r in results] == [ConnectionLostError] * 2

    run(main())


def test_what_a_deaf_peer_never_let_us_write_is_known_not_to_be_written(run, serve, driving):
    async def deaf(peer):
        peer.reader._transport.pause_reading()
        await asyncio.Event().wait()

    async def main():
        async with serve(deaf, limit=1024) as server, driving() as driver:
            body = bytes(2 * 1024 * 1024)
            results = await driver.run(ask_many(server.address, 20, body=body, seconds=0.3))
            assert all(type(e) is RequestTimeoutError for e in results)
            written = [e.written for e in results]
            assert written[0]
            assert not written[-1]
            # Once one could not be written, none after it was.
            assert written == sorted(written, reverse=True)
            assert "not written in time" in str(results[-1])

    run(main())


def test_writing_goes_on_when_the_peer_reads_again(run, serve, driving):
    read_now = asyncio.Event()

    async def slow_reader(peer):
        peer.reader._transport.pause_reading()
        await read_now.wait()
        peer.reader._transport.resume_reading()
        while True:
            command = await peer.request()
            peer.answer(command, code=len(command.body) % 1000)

    async def main():
        async with serve(slow_reader, limit=1024) as server, driving() as driver:
            body = bytes(1024 * 1024 + 1)
            task = asyncio.create_task(driver.run(ask_many(server.address, 24, body=body)))
            while not (c := driver.connections.get(server.address)) or not c._is_paused:
                await asyncio.sleep(0.001)
            read_now.set()
            replies = await task
            assert [r.code for r in replies] == [len(body) % 1000] * 24
            assert server.accepted == 1

    run(main())


def test_a_connection_without_a_word_is_replaced_after_a_time_out(run, serve, driving):
    async def first_is_dead(peer):
        if server_of[0].accepted == 1:
            await peer.reader.read()
        while True:
            peer.answer(await peer.request())

    server_of = []

    async def main():
        async with serve(first_is_dead) as server, driving() as driver:
            server_of.append(server)
            with pytest.raises(RequestTimeoutError):
                await driver.run(ask(server.address, seconds=0.6))
            await driver.run(ask(server.address))
            assert server.accepted == 2

    run(main())


def test_an_idle_connection_is_replaced_before_use(run, serve, driving):
    skipped = [0.0]

    def clock():
        return time.monotonic() + skipped[0]

    async def main():
        async with serve() as server, driving(clock=clock) as driver:
            await driver.run(ask(server.address))
            skipped[0] = 59.0
            await driver.run(invoke(server.address, Command(1), clock() + 10))
            assert server.accepted == 1
            skipped[0] += 61.0
            await driver.run(invoke(server.address, Command(1), clock() + 10))
            assert server.accepted == 2
            skipped[0] += 61.0
            await driver.run(oneway(server.address, Command(1), clock() + 10))
            await driver.run(invoke(server.address, Command(1), clock() + 10))
            assert server.accepted == 3

    run(main())


def test_deadlines_in_any_order_all_come(run, serve, driving):
    async def mute(peer):
        await peer.reader.read()

    async def main():
        async with serve(mute) as server, driving() as driver:
            await driver.run(oneway(server.address, Command(1), soon()))  # connected
            spans = [0.2, 0.05, 0.15, 0.01, 0.1, 0.05]
            calls = tuple(Invoke(server.address, Command(1), soon(s)) for s in spans)
            results = await driver.run(invoke_all(calls))
            now = time.monotonic()
            assert all(type(e) is RequestTimeoutError and e.written for e in results)
            assert all(call.deadline <= now for call in calls)
            assert not driver.connections[server.address].session.pending

    run(main())


@pytest.mark.parametrize("header", [0, 1])
def test_an_unknown_request_of_the_peer_is_answered_as_not_supported(run, serve, driving, header):
    answers = []

    async def asks(peer):
        mine = await peer.request()
        peer.send(encode_command(Command(40, opaque=77, header=header)))
        peer.send(encode_command(Command(41, opaque=78, flag=ONEWAY)))
        answers.append(await peer.request())
        peer.answer(mine)
        await peer.reader.read()

    async def main():
        async with serve(asks) as server, driving() as driver:
            await driver.run(ask(server.address))

    run(main())
    (answer,) = answers
    assert is_response(answer)
    assert answer.opaque == 77
    assert answer.header == header
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_a_responder_answers_requests_of_the_peer_and_may_fail(run, serve, driving, caplog):
    answers = []

    def responder(command):
        if command.code == 40:
            return Command(0, {"echo": "yes"}, body=command.body)
        raise RuntimeError("no idea")

    async def asks(peer):
        mine = await peer.request()
        peer.send(encode_command(Command(40, body=b"b", opaque=1)))
        answers.append(await peer.request())
        peer.send(encode_command(Command(41, opaque=2)))
        answers.append(await peer.request())
        peer.answer(mine)
        await peer.reader.read()

    async def main():
        async with serve(asks) as server, driving(responder=responder) as driver:
            await driver.run(ask(server.address))

    run(main())
    assert (answers[0].code, answers[0].ext, answers[0].body) == (0, {"echo": "yes"}, b"b")
    assert (answers[1].code, answers[1].remark) == (1, "RuntimeError: no idea")
    assert "request 41" in caplog.text


def test_a_oneway_request_is_written_and_not_waited_for(run, serve, driving):
    seen = []

    async def note(peer):
        seen.append(await peer.request())
        while True:
            peer.answer(await peer.request())

    async def main():
        async with serve(note) as server, driving() as driver:
            assert await driver.run(oneway(server.address, Command(5, body=b"x"), soon())) is None
            await driver.run(ask(server.address))

    run(main())
    assert seen[0].is_oneway
    assert seen[0].body == b"x"


def test_a_oneway_request_still_leaves_when_the_client_closes_at_once(run, serve, driving):
    seen = asyncio.Queue()

    async def note(peer):
        while True:
            seen.put_nowait(await peer.request())

    async def main():
        async with serve(note) as server:
            async with driving() as driver:
                for _ in range(3):
                    await driver.run(
                        oneway(server.address, Command(5, body=bytes(100_000)), soon())
                    )
            for _ in range(3):
                assert len((await seen.get()).body) == 100_000

    run(main())


def test_a_request_too_large_for_a_frame_harms_nobody_else(run, serve, driving):
    async def main():
        async with serve() as server, driving() as driver:
            huge = bytes(MAX_FRAME)
            with pytest.raises(LocalProtocolError, match="at most"):
                await driver.run(ask(server.address, body=huge))
            await driver.run(ask(server.address))
            with pytest.raises(LocalProtocolError, match="at most"):
                await driver.run(ask(server.address, body=huge))
            with pytest.raises(LocalProtocolError, match="at most"):
                await driver.run(oneway(server.address, Command(1, body=huge), soon()))
            await driver.run(ask(server.address))
            assert server.accepted == 1

    run(main())


def test_a_frame_beyond_the_limit_closes_the_connection(run, serve, driving):
    async def main():
        async def big(peer):
            command = await peer.request()
            peer.answer(command, 0, big="x" * 5000)
            await peer.reader.read()

        async with serve(big) as server, driving(max_frame=4096) as driver:
            with pytest.raises(ConnectionLostError, match="broke the protocol"):
                await driver.run(ask(server.address))

    run(main())


def test_the_flight_hears_when_it_was_written_and_behind_how_much(run, serve, driving):
    class Observer:
        def __init__(self):
            self.told = []

        def written(self, now, unanswered):
            self.told.append((now, unanswered))

    async def main():
        async with serve() as server, driving() as driver:
            observers = [Observer(), Observer(), Observer()]
            before = time.monotonic()
            calls = tuple(
                Invoke(server.address, Command(1, body=bytes(100)), soon(), f) for f in observers
            )
            await driver.run(invoke_all(calls))
            sizes = [observer.told[0][1] for observer in observers]
            assert sizes == [129, 258, 387]
            assert all(before <= f.told[0][0] <= time.monotonic() for f in observers)
            assert all(len(f.told) == 1 for f in observers)
            assert driver.connections[server.address].session.unanswered == 0

    run(main())


def test_a_flight_that_never_left_hears_nothing(run, driving, free_address):
    class Observer:
        def written(self, now, unanswered):
            raise AssertionError("not written")

    async def main():
        async with driving() as driver:
            with pytest.raises(ConnectFailedError):
                await driver.run(ask(free_address, observer=Observer()))

    run(main())


def test_connections_send_at_once_and_keep_alive(run, serve, driving):
    async def main():
        async with serve() as server, driving() as driver:
            await driver.run(ask(server.address))
            sock = driver.connections[server.address]._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    run(main())


def test_an_ipv6_literal_is_an_address(run, serve, driving):
    async def main():
        try:
            context = serve(host="::1")
            server = await context.__aenter__()
        except OSError:
            pytest.skip("no IPv6 here")
        try:
            async with driving() as driver:
                assert server.address.startswith("[::1]:")
                await driver.run(ask(server.address))
        finally:
            await context.__aexit__(None, None, None)

    run(main())
