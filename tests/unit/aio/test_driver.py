"""How operations are run: in order, beside each other, and when they are given up."""

import asyncio
import math
import threading
import time

import pytest
from tests.operations import oneway

from rocketwire.core.effects import Event, Invoke, invoke, invoke_all, sleep, wait
from rocketwire.errors import ClientClosedError, ConnectFailedError, ConnectionLostError
from rocketwire.wire.command import Command, Reply


def soon(seconds=10.0):
    return time.monotonic() + seconds


def ask(address, code=7, *, seconds=10.0):
    return invoke(address, Command(code), soon(seconds))


async def mute(peer):
    await peer.reader.read()


def test_an_operation_that_asks_for_nothing_ends_at_once(run, driving):
    def op():
        return "done"
        yield

    async def main():
        async with driving() as driver:
            assert await driver.run(op()) == "done"
            ends = []
            driver.start(op(), lambda *end: ends.append(end))
            assert ends == [("done", None)]

    run(main())


def test_what_an_operation_raises_is_its_end(run, driving):
    def op():
        yield from sleep(0)
        raise KeyError("mine")

    async def main():
        async with driving() as driver:
            with pytest.raises(KeyError, match="mine"):
                await driver.run(op())
            end = asyncio.get_running_loop().create_future()
            driver.start(op(), lambda *both: end.set_result(both))
            result, error = await end
            assert result is None
            assert isinstance(error, KeyError)

    run(main())


def test_an_operation_may_go_on_after_an_error(run, serve, driving, free_address):
    def op(first, second):
        try:
            yield from ask(first)
        except ConnectFailedError:
            return (yield from ask(second))

    async def main():
        async with serve() as server, driving() as driver:
            reply = await driver.run(op(free_address, server.address))
            assert reply.code == 0

    run(main())


def test_one_operation_may_ask_many_times(run, serve, driving):
    def op(address):
        codes = []
        for number in range(20):
            codes.append((yield from ask(address, number)).code)
            yield from oneway(address, Command(99), soon())
        return codes

    async def echo(peer):
        while True:
            command = await peer.request()
            if not command.is_oneway:
                peer.answer(command, code=command.code)

    async def main():
        async with serve(echo) as server, driving() as driver:
            assert await driver.run(op(server.address)) == list(range(20))
            assert server.accepted == 1

    run(main())


def test_start_needs_no_task_and_tells_the_end_where_the_reply_is_read(run, serve, driving):
    async def main():
        async with serve() as server, driving() as driver:
            await driver.run(ask(server.address))
            done = asyncio.Event()
            ends = []
            tasks = asyncio.all_tasks()

            def on_done(result, error):
                ends.append((result, error))
                if len(ends) == 100:
                    done.set()

            for number in range(100):
                driver.start(ask(server.address, number), on_done)
            assert asyncio.all_tasks() == tasks
            await done.wait()
            assert all(isinstance(r, Reply) and e is None for r, e in ends)

    run(main())


def test_a_completion_function_that_raises_harms_nobody(run, serve, driving, caplog):
    async def main():
        async with serve() as server, driving() as driver:
            await driver.run(ask(server.address))
            driver.start(ask(server.address), lambda result, error: 1 / 0)
            await driver.run(ask(server.address))

    run(main())
    assert "completion function failed" in caplog.text


def test_several_requests_at_once_come_back_in_order_with_failures_in_place(
    run, serve, driving, free_address
):
    async def hang_up(peer):
        await peer.request()

    async def main():
        async with serve() as good, serve(hang_up) as bad, driving() as driver:
            addresses = (good.address, free_address, bad.address, good.address)
            calls = tuple(Invoke(a, Command(1), soon()) for a in addresses)
            results = await driver.run(invoke_all(calls))
            kinds = [Reply, ConnectFailedError, ConnectionLostError, Reply]
            assert [type(r) for r in results] == kinds

    run(main())


def test_no_requests_at_once_are_an_empty_answer(run, driving):
    async def main():
        async with driving() as driver:
            assert await driver.run(invoke_all(())) == []

    run(main())


def test_sleep_lasts_until_its_moment(run, driving):
    def op():
        moment = soon(0.02)
        yield from sleep(moment)
        return time.monotonic() - moment

    async def main():
        async with driving() as driver:
            # Loops round to their clock's resolution, uvloop to a millisecond.
            assert await driver.run(op()) > -0.002

    run(main())


def test_an_open_gate_holds_nobody(run, driving):
    async def main():
        async with driving() as driver:
            event = Event()
            event.set()
            assert await driver.run(wait(event, 0.0)) is True

    run(main())


@pytest.mark.parametrize("deadline", [10.0, math.inf])
def test_a_gate_may_be_opened_by_another_thread(run, driving, deadline):
    async def main():
        async with driving() as driver:
            event = Event()
            waiting = asyncio.create_task(driver.run(wait(event, soon(deadline))))
            await asyncio.sleep(0)
            thread = threading.Thread(target=event.set)
            thread.start()
            assert await waiting is True
            thread.join()

    run(main())


def test_a_gate_may_be_opened_on_the_loop(run, driving):
    async def main():
        async with driving() as driver:
            event = Event()
            waiting = [asyncio.create_task(driver.run(wait(event, soon()))) for _ in range(5)]
            await asyncio.sleep(0)
            event.set()
            assert await asyncio.gather(*waiting) == [True] * 5

    run(main())


def test_a_gate_that_stays_shut_is_waited_for_until_the_deadline(run, driving):
    async def main():
        async with driving() as driver:
            event = Event()
            assert await driver.run(wait(event, soon(0.02))) is False
            event.set()  # nobody listens any more
            await asyncio.sleep(0)

    run(main())


def test_a_gate_opened_after_the_loop_has_gone_is_no_error(driving):
    event = Event()

    async def main():
        async with driving() as driver:
            driver.start(wait(event, math.inf), lambda result, error: None)

    asyncio.run(main())
    thread = threading.Thread(target=event.set)
    thread.start()
    thread.join()
    assert event.is_set


class Closing:
    """An operation that notes how it ended."""

    def __init__(self, op):
        self.op = op
        self.ended = None

    def run(self):
        try:
            result = yield from self.op
            self.ended = "returned"
            return result
        except GeneratorExit:
            self.ended = "closed"
            raise


def test_cancelling_closes_the_operation_and_leaves_the_connection_usable(run, serve, driving):
    held = []
    release = asyncio.Event()

    async def hold_first(peer):
        held.append(await peer.request())
        await release.wait()
        peer.answer(held[0], code=1)
        while True:
            peer.answer(await peer.request(), code=2)

    async def main():
        async with serve(hold_first) as server, driving() as driver:
            closing = Closing(ask(server.address))
            task = asyncio.create_task(driver.run(closing.run()))
            while not held:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert closing.ended == "closed"
            session = driver.connections[server.address].session
            assert not session.pending
            assert session.unanswered == 0
            release.set()
            assert (await driver.run(ask(server.address))).code == 2
            assert session.late == 1
            assert server.accepted == 1

    run(main())


@pytest.mark.parametrize("kind", ["sleep", "event", "all", "connecting"])
def test_every_kind_of_waiting_can_be_cancelled(run, serve, driving, kind):
    async def main():
        async with serve(mute) as server, driving() as driver:
            event = Event()
            ops = {
                "sleep": lambda: sleep(soon()),
                "event": lambda: wait(event, soon()),
                "all": lambda: invoke_all((Invoke(server.address, Command(1), soon()),) * 3),
                "connecting": lambda: ask(server.address),
            }
            if kind == "all":
                await driver.run(oneway(server.address, Command(1), soon()))
            closing = Closing(ops[kind]())
            ends = []
            handle = driver.start(closing.run(), lambda *end: ends.append(end))
            handle.give_up()
            handle.give_up()
            assert closing.ended == "closed"
            event.set()
            await asyncio.sleep(0.01)
            assert ends == []
            if kind == "all":
                assert not driver.connections[server.address].session.pending

    run(main())


def test_a_reply_may_cancel_one_that_came_in_the_same_bytes(run, serve, driving):
    async def both_at_once(peer):
        first, second = await peer.request(), await peer.request()
        peer.send(peer.reply(first) + peer.reply(second))
        await peer.reader.read()

    async def main():
        async with serve(both_at_once) as server, driving() as driver:
            ends = []
            done = asyncio.Event()

            def first_done(result, error):
                ends.append("first")
                second.give_up()
                asyncio.get_running_loop().call_soon(done.set)

            driver.start(ask(server.address), first_done)
            closing = Closing(ask(server.address))
            second = driver.start(closing.run(), lambda *end: ends.append("second"))
            await done.wait()
            assert ends == ["first"]
            assert closing.ended == "closed"

    run(main())


def test_an_operation_may_try_to_cancel_itself(run, driving):
    handles = []

    def op():
        yield from sleep(soon(0.001))
        handles[0].give_up()
        return "finished all the same"

    async def main():
        async with driving() as driver:
            end = asyncio.get_running_loop().create_future()
            handles.append(driver.start(op(), lambda *both: end.set_result(both)))
            assert await end == ("finished all the same", None)

    run(main())


def test_an_operation_that_fails_while_it_is_cancelled_is_logged(run, driving, caplog):
    def op():
        try:
            yield from sleep(soon())
        finally:
            raise RuntimeError("untidy")

    async def main():
        async with driving() as driver:
            driver.start(op(), lambda *end: None).give_up()

    run(main())
    assert "untidy" in caplog.text


def test_closing_tells_everybody_who_waits(run, serve, driving):
    async def main():
        async with serve(mute) as server, driving() as driver:
            await driver.run(oneway(server.address, Command(1), soon()))
            task = asyncio.create_task(driver.run(ask(server.address)))
            await asyncio.sleep(0)
            await driver.close()
            with pytest.raises(ClientClosedError, match="shut down before the answer"):
                await task
            with pytest.raises(ClientClosedError):
                await driver.run(ask(server.address))
            assert not driver.connections

    run(main())


def test_closing_while_connecting_tells_those_who_wait_for_it(run, serve, driving):
    async def main():
        async with serve(mute) as server, driving() as driver:
            ends = []
            driver.start(ask(server.address), lambda *end: ends.append(end))
            await driver.close()
            (((result, error)),) = ends
            assert result is None
            assert isinstance(error, ClientClosedError)

    run(main())


def test_connections_of_addresses_that_vanished_are_closed_after_their_last_answer(
    run, serve, driving
):
    release = asyncio.Event()

    async def later(peer):
        command = await peer.request()
        await release.wait()
        peer.answer(command)
        assert await peer.reader.read() == b""

    async def main():
        async with serve(later) as gone, serve() as kept, driving() as driver:
            await driver.run(ask(kept.address))
            task = asyncio.create_task(driver.run(ask(gone.address)))
            while gone.address not in driver.connections or not gone.accepted:
                await asyncio.sleep(0.001)
            connection = driver.connections[gone.address]
            driver.retain({kept.address})
            assert list(driver.connections) == [kept.address]
            release.set()
            assert (await task).code == 0
            await connection.closed

    run(main())
