"""Answers that make no sense, interrupts and hooks that end the program: nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from rocketwire import AsyncProducer, Message, Outcome, Producer, SendFailedError, SendStatus
from rocketwire.aio.connection import Connection
from rocketwire.aio.waiter import Waiter
from rocketwire.core.effects import Invoke
from rocketwire.embedded import EmbeddedCluster
from rocketwire.embedded.handlers import send as send_handlers
from rocketwire.wire.command import Command

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic(TOPIC, queues=2)
        yield running


class Garbler:
    """Makes brokers say "stored" and tell the place in words that are no number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        found = [v for v in vars(send_handlers).values() if hasattr(v, "_answer")]
        assert found
        kind: Any = found[0]
        usual = kind._answer

        def answer(handler: Any, *args: Any, **more: Any) -> Any:
            reply = usual(handler, *args, **more)
            if self.is_on and reply is not None:
                reply.ext["queueOffset"] = "x7"
            return reply

        monkeypatch.setattr(kind, "_answer", answer)


class Hook:
    def __init__(self) -> None:
        self.before = self.after = 0

    def before_send(self, _: Message) -> None:
        self.before += 1

    def after_attempt(self, _: object) -> None:
        pass

    def after_send(self, _: object) -> None:
        self.after += 1


def test_hooks_hear_of_a_stored_answer_that_makes_no_sense_and_nothing_leaks(
    cluster, monkeypatch
) -> None:
    garbler, hook = Garbler(monkeypatch), Hook()

    async def main() -> None:
        options = {"hooks": (hook,), "send_timeout": 5.0, "async_retries": 0}
        async with AsyncProducer(cluster.name_server, **options) as producer:
            for _ in range(4):
                await producer.send(Message(TOPIC, b"usual"))
            garbler.is_on = True
            messages = [Message(TOPIC, b"%d" % n) for n in range(4)]
            messages.append(Message(TOPIC, b"k", sharding_key="k"))
            deliveries = [await producer.submit(message) for message in messages]
            for delivery in deliveries:
                with pytest.raises(SendFailedError) as failed:
                    await delivery
                assert failed.value.outcome is Outcome.MAYBE_STORED
            assert producer.stats().in_flight == 0
            assert len(producer._sender.order) == 0
            garbler.is_on = False
            assert (await producer.send(Message(TOPIC, b"k", sharding_key="k"))).offset >= 0

    asyncio.run(main())
    assert hook.before == hook.after == 10


def test_a_blocking_keyed_send_with_a_hook_says_that_the_answer_makes_no_sense(
    cluster, monkeypatch
) -> None:
    garbler = Garbler(monkeypatch)
    with Producer(cluster.name_server, hooks=(Hook(),), background=False, retries=0) as producer:
        for _ in range(4):
            producer.send(Message(TOPIC, b"usual"))
        garbler.is_on = True
        for _ in range(2):
            with pytest.raises(SendFailedError) as failed:
                producer.send(Message(TOPIC, b"k", sharding_key="k"))
            assert failed.value.outcome is Outcome.MAYBE_STORED
        assert len(producer._sender.order) == 0


def test_an_interrupt_in_a_hook_leaves_the_key_to_the_next_send(cluster) -> None:
    class Interrupting:
        is_on = False

        def after_attempt(self, _: object) -> None:
            if self.is_on:
                raise KeyboardInterrupt

    hook = Interrupting()
    with Producer(cluster.name_server, hooks=(hook,), background=False) as producer:
        keyed = Message(TOPIC, b"x", sharding_key="k")
        producer.send(keyed)
        hook.is_on = True
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(KeyboardInterrupt):
                send(keyed)
            assert len(producer._sender.order) == 0
        hook.is_on = False
        assert producer.send(keyed).status is SendStatus.OK


@pytest.mark.parametrize("timeout", [3_000_000, 1e9])
def test_a_timeout_may_be_longer_than_a_poll_can_be(cluster, timeout) -> None:
    with Producer(cluster.name_server, background=False) as producer:
        assert producer.send(Message(TOPIC, b"x"), timeout=timeout).status is SendStatus.OK


@pytest.mark.parametrize("how", ["single", "list", "keyed list", "cancelled"])
def test_a_delivery_that_is_over_keeps_no_body_alive(cluster, how) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server) as producer:
            await producer.send(Message(TOPIC, b"usual"))
            bodies = [os.urandom(50) for _ in range(3 if "list" in how else 1)]
            key = "k" if "keyed" in how else None
            messages: Any = [Message(TOPIC, body, sharding_key=key) for body in bodies]
            delivery = await producer.submit(messages if "list" in how else messages[0])
            del messages
            if how == "cancelled":
                delivery.cancel()
            else:
                await delivery
            await producer.send(Message(TOPIC, b"behind it"))
            gc.collect()
            # The list, the loop's own name, and the argument of the call.
            assert [sys.getrefcount(body) for body in bodies] == [3] * len(bodies)
            assert delivery.done()

    asyncio.run(main())


def test_a_keyed_message_that_is_taken_back_fails_no_other_of_its_key(cluster) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, auto_batch=True) as producer:
            await producer.send(Message(TOPIC, b"x", sharding_key="k"))
            back = await producer.submit(Message(TOPIC, b"taken back", sharding_key="k"))
            behind = await producer.submit([Message(TOPIC, b"behind", sharding_key="k")])
            back.cancel()
            assert (await behind).status is SendStatus.OK
            with pytest.raises(SendFailedError) as failed:
                await back
            assert failed.value.outcome is Outcome.NOT_SENT

    asyncio.run(main())


class _Transport:
    def get_extra_info(self, _: str) -> None: ...
    def set_write_buffer_limits(self, **_: int) -> None: ...
    def is_closing(self) -> bool:
        return False

    def write(self, _: bytes) -> None: ...
    def abort(self) -> None: ...


class _Waiter(Waiter):
    __slots__ = ("told",)
    owner = None

    def __init__(self) -> None:
        self.told: object = None
        self.connection, self.issued, self.takes_frame = None, 0.0, False

    def resume(self, value: object) -> None:
        self.told = value

    def fail(self, error: object) -> None:
        self.told = error


def test_a_request_that_waits_for_a_paused_connection_is_written_after_an_idle_minute() -> None:
    async def main() -> None:
        now = [1000.0]
        loop = asyncio.get_running_loop()
        connection = Connection("a:1", loop=loop, clock=lambda: now[0], on_over=lambda _: None)
        connection.connection_made(_Transport())  # type: ignore[arg-type]
        connection.pause_writing()
        now[0] += 59
        waiter = _Waiter()
        connection.enqueue(waiter, Invoke("a:1", Command(10), now[0] + 10, None))
        now[0] += 2
        connection.resume_writing()
        assert list(connection.session.pending.values()) == [waiter]
        now[0] += 60
        connection._sweep()
        assert waiter.told is not None

    asyncio.run(main())


class Leaving:
    """Ends the program, or tries to, at the first event."""

    is_over = False

    def after_attempt(self, _: object) -> None:
        if not self.is_over:
            self.is_over = True
            sys.exit("a hook leaves")


@pytest.mark.parametrize("auto_batch", [None, True])
def test_a_hook_that_calls_exit_behind_a_submit_is_logged_and_all_are_answered(
    cluster, caplog, auto_batch
) -> None:
    with Producer(cluster.name_server, hooks=(Leaving(),), auto_batch=auto_batch) as producer:
        deliveries = [producer.submit(Message(TOPIC, b"%d" % n)) for n in range(5)]
        assert [delivery.exception(20) for delivery in deliveries] == [None] * 5
        assert producer.stats().in_flight == 0
    assert "Leaving" in caplog.text


def test_a_hook_that_calls_exit_on_the_main_loop_ends_it_and_answers_its_own_delivery(
    cluster,
) -> None:
    deliveries: list[Any] = []

    async def main() -> None:
        producer = await AsyncProducer(cluster.name_server, hooks=(Leaving(),)).start()
        try:
            deliveries.append(await producer.submit(Message(TOPIC, b"x")))
            await deliveries[0]
        finally:
            await producer.shutdown()

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert deliveries[0].done()
    assert deliveries[0].exception().outcome is Outcome.MAYBE_STORED


@pytest.mark.parametrize("how", ["route", "connection", "written"])
def test_a_cancelled_delivery_says_whether_it_may_be_stored(cluster, how) -> None:
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, send_timeout=20.0) as producer:
            if how != "route":
                await producer.publish_queues(TOPIC)
            if how == "written":
                await producer.send(Message(TOPIC, b"x"))
                cluster.brokers[0].hang()
            delivery = await producer.submit(Message(TOPIC, b"x"))
            waiter = cast("Any", delivery)
            while how == "route" and not (waiter._run and waiter._run.issued):
                await asyncio.sleep(0)  # until the question for the route is on its way
            if how == "written":
                await asyncio.sleep(0.01)
            delivery.cancel()
            expected = Outcome.MAYBE_STORED if how == "written" else Outcome.NOT_SENT
            assert delivery.exception().outcome is expected
            cluster.brokers[0].heal()

    asyncio.run(main())


@pytest.mark.parametrize("key", [None, "k"])
def test_hooks_hear_the_end_of_every_message_that_was_announced(cluster, key) -> None:
    hook = Hook()
    ends: list[Any] = []
    hook.after_send = ends.append  # type: ignore[method-assign]

    async def main() -> None:
        options = {"hooks": (hook,), "auto_batch": True}
        async with AsyncProducer(cluster.name_server, **options) as producer:
            await producer.send(Message(TOPIC, b"x"))
            messages = [Message(TOPIC, b"%d" % n, sharding_key=key) for n in range(6)]
            deliveries = [await producer.submit(message) for message in messages]
            for delivery in deliveries[::2]:
                delivery.cancel()
            await producer.flush()

    asyncio.run(main())
    assert hook.before == sum(len(event.messages) for event in ends) == 7
    assert all(event.result is not None or event.error is not None for event in ends)
