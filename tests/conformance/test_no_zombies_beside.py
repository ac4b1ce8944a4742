"""What runs beside the calls of any client and dies is started again: upkeep, traces, checkers, connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import eventually, unique_group
from tests.unit.core.sending.test_checks import CHECK

from rocketwire import (
    AsyncConsumer,
    AsyncProducer,
    AsyncReader,
    AsyncSimpleConsumer,
    Consumer,
    Message,
    Producer,
    Reader,
    SendFailedError,
    SimpleConsumer,
)
from rocketwire.aio import connecting, group_session, upkeep
from rocketwire.aio.transaction_checker import MOST_AT_ONCE, LoopCheckRunner, ThreadCheckRunner
from rocketwire.core.group.trace import ConsumeTracer
from rocketwire.embedded import EmbeddedCluster
from rocketwire.message import TransactionState
from rocketwire.sync import background
from rocketwire.system import name_lookup

LIMIT = 30.0
TOPIC = "topic"


class KilledError(Exception):
    """What a test throws into something that runs."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic(TOPIC, 1)
        yield running


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """What failed is started again soon, and threads begin at once."""
    monkeypatch.setattr(upkeep, "_PAUSE", 0.01)
    monkeypatch.setattr(group_session, "_PAUSE", 0.01)
    monkeypatch.setattr(background, "_PATIENCE", 0.0)


def wait_for(is_so: Callable[[], bool]) -> None:
    eventually(is_so, LIMIT)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not is_so():
            await asyncio.sleep(0.005)


def use_blocking(client: Any, is_so: Callable[[], bool]) -> None:
    with client:
        wait_for(is_so)


def use_async(client: Any, is_so: Callable[[], bool]) -> None:
    async def use() -> None:
        async with client:
            await until(is_so)

    asyncio.run(use())


CLIENTS: dict[str, tuple[type, Callable[..., None]]] = {
    **{
        kind.__name__: (kind, use_blocking) for kind in (Producer, Reader, Consumer, SimpleConsumer)
    },
    **{
        kind.__name__: (kind, use_async)
        for kind in (AsyncProducer, AsyncReader, AsyncConsumer, AsyncSimpleConsumer)
    },
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("part", ["keep_heartbeats", "keep_routes", "keep_probing"])
def test_a_part_of_the_upkeep_that_dies_is_started_again(
    monkeypatch, cluster, client, part, caplog
):
    usual, started = getattr(upkeep, part), []

    def die_once(*given: Any) -> Any:
        started.append(part)
        if len(started) == 1:
            raise KilledError
        yield from usual(*given)

    monkeypatch.setattr(upkeep, part, die_once)
    kind, use = CLIENTS[client]
    use(kind(cluster.name_server, group=unique_group()), lambda: len(started) > 1)
    assert "upkeep failed and is started again" in caplog.text


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_the_traces_of_a_consumer_are_shipped_again(monkeypatch, cluster, kind, caplog):
    usual, started = ConsumeTracer.keep_shipping, []

    def die_once(self: ConsumeTracer) -> Any:
        started.append(self)
        if len(started) == 1:
            raise KilledError
        yield from usual(self)

    monkeypatch.setattr(ConsumeTracer, "keep_shipping", die_once)
    one = kind(cluster.name_server, group=unique_group(), trace=True).subscribe(TOPIC)

    async def join() -> None:
        async with one:
            await one.join()
            await until(lambda: len(started) > 1)

    if kind is AsyncConsumer:
        asyncio.run(join())
    else:
        with one:
            one.join()
            wait_for(lambda: len(started) > 1)
    assert "a part of a consumer failed and is started again" in caplog.text


QUESTIONS = [CHECK._replace(transaction_id=f"T{n}") for n in range(3 * MOST_AT_ONCE)]


class Odd:
    """An answer that can't even be looked at."""

    @property
    def __class__(self) -> type:
        raise KilledError


@pytest.mark.parametrize("runs", ["threads", "loop"])
@pytest.mark.parametrize("dies", ["at the answer", "when the broker is told"])
def test_a_checker_that_dies_leaves_its_place_to_others(runs, dies, caplog):
    """Eight deaths were the end of all checking; a question in hand was never asked again."""
    told: list[str] = []
    is_broken = True

    def settle(check: Any, state: TransactionState) -> None:
        if is_broken and dies == "when the broker is told":
            raise KilledError
        told.append(check.transaction_id)

    def answer(_: object) -> Any:
        return Odd() if is_broken and dies == "at the answer" else True

    async def awaited(message: object) -> Any:
        return answer(message)

    async def on_a_loop() -> None:
        nonlocal is_broken
        runner = LoopCheckRunner(asyncio.get_running_loop(), awaited, settle)
        for check in QUESTIONS:
            runner.post(check)
        await until(lambda: not runner._open)
        is_broken, told[:] = False, []
        for check in QUESTIONS:
            runner.post(check)
        await until(lambda: len(told) == len(QUESTIONS))

    if runs == "loop":
        asyncio.run(on_a_loop())
    else:
        runner = ThreadCheckRunner(answer, settle)
        for check in QUESTIONS:
            runner.post(check)
        wait_for(lambda: not runner._open)
        is_broken, told[:] = False, []
        for check in QUESTIONS:
            runner.post(check)
        wait_for(lambda: len(told) == len(QUESTIONS))
    assert "the broker asks again" in caplog.text


def test_a_connection_whose_making_dies_is_made_anew(monkeypatch, cluster):
    """All who came later waited for the one that nobody was making any more."""
    usual, died = connecting.literal, []

    def die_once(*given: Any) -> Any:
        if not died:
            died.append(given)
            raise RuntimeError("File descriptor 7 is used by transport")
        return usual(*given)

    async def send() -> None:
        async with AsyncProducer(cluster.name_server, background=False, send_timeout=LIMIT) as one:
            with pytest.raises(SendFailedError, match="used by transport"):
                await one.send(Message(TOPIC, b"x"))
            assert await one.send(Message(TOPIC, b"x"))

    monkeypatch.setattr(connecting, "literal", die_once)
    asyncio.run(asyncio.wait_for(send(), LIMIT))


def test_a_look_up_that_dies_is_over_and_the_next_one_is_made(monkeypatch):
    usual = name_lookup._ask

    def die(*_: object) -> Any:
        raise MemoryError

    over = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(name_lookup, "_ask", die)
        first = name_lookup.look_up("localhost")
        first.add_waiter(over.set)
        assert over.wait(LIMIT)
    with pytest.raises(OSError, match="MemoryError"):
        first.endpoints(1)
    assert name_lookup._ask is usual
    again = threading.Event()
    second = name_lookup.look_up("localhost")
    second.add_waiter(again.set)
    assert again.wait(LIMIT)
    assert second.endpoints(1)
