"""The thread behind a blocking client: nobody who handed something over is left without a word."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import eventually

from rocketwire import (
    ClientClosedError,
    Credentials,
    FaultPolicy,
    Message,
    Outcome,
    Producer,
    SendFailedError,
)
from rocketwire.core.effects import sleep
from rocketwire.core.sending.mode import SendMode
from rocketwire.embedded import EmbeddedCluster
from rocketwire.sync import background, loop_thread
from rocketwire.sync.background import Background
from rocketwire.sync.loop_thread import LoopThread
from rocketwire.sync.submit import SingleDelivery
from rocketwire.system.latch import Latch


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("orders", queues=2)
        yield running


@contextlib.contextmanager
def producing(cluster: EmbeddedCluster, **options: Any) -> Iterator[Producer]:
    settings = {"group": "behind", "background": False, "send_timeout": 20.0}
    with Producer(cluster.name_server, **(settings | options)) as producer:
        for _ in range(4):
            producer.send(Message("orders", b"warm-up"))
        yield producer


def test_what_is_handed_over_when_the_loop_has_just_ended_is_refused(cluster, monkeypatch) -> None:
    with producing(cluster) as producer:
        producer.submit(Message("orders", b"x")).result(20)
        behind = producer._background
    # Somebody called the loop in its last moment; it never came.
    behind._is_called = True
    told: list[Any] = []
    behind._refuse_all()
    behind.run(_nothing(), lambda *end: told.append(end))
    ((result, error),) = told
    assert result is None
    assert isinstance(error, SendFailedError)
    assert error.outcome is Outcome.NOT_SENT


def _nothing() -> Any:
    yield None


def test_a_thread_that_can_not_be_started_fails_that_message_and_no_later_one(
    cluster, monkeypatch
) -> None:
    with producing(cluster) as producer:

        def no_thread(_: object) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(Background, "start", no_thread)
            with pytest.raises(SendFailedError, match="can't start new thread") as failed:
                producer.submit(Message("orders", b"x")).result(20)
        assert failed.value.outcome is Outcome.NOT_SENT
        assert producer.stats().in_flight == 0
        assert producer.submit(Message("orders", b"y")).result(20)


def test_a_loop_that_can_not_be_made_is_an_error_and_no_hang(monkeypatch) -> None:
    def no_loop() -> Callable[[], Any]:
        def make() -> Any:
            raise OSError(24, "Too many open files")

        return make

    monkeypatch.setattr(loop_thread, "_loop_factory", no_loop)
    started: list[BaseException] = []

    def start() -> None:
        try:
            LoopThread("hopeless").start()
        except OSError as error:
            started.append(error)

    starter = threading.Thread(target=start, daemon=True)
    starter.start()
    starter.join(20)
    assert not starter.is_alive()
    assert "Too many open files" in str(started[0])


def test_what_comes_too_late_for_a_loop_that_ends_is_told_so() -> None:
    thread, told = LoopThread("ending"), []
    thread.start()
    work_is_over = threading.Event()

    async def keep_busy() -> None:
        asyncio.get_running_loop().run_in_executor(None, work_is_over.wait, 20)

    def come_late() -> None:
        with pytest.raises(ClientClosedError) as closed:
            thread.run(lambda: asyncio.sleep(60))
        told.append(closed.value)

    thread.run(keep_busy)
    ender = threading.Thread(target=thread.stop, daemon=True)
    ender.start()
    eventually(lambda: "shutdown_default_executor" in repr(asyncio.all_tasks(thread.loop)))
    late = threading.Thread(target=come_late, daemon=True)
    late.start()
    eventually(lambda: len(asyncio.all_tasks(thread.loop)) > 1)
    work_is_over.set()
    late.join(20)
    ender.join(20)
    assert told
    come_late()  # and to one that has ended
    assert len(told) == 2


@pytest.mark.parametrize("auto_batch", [None, {"linger": 0.2}], ids=["single", "batched"])
def test_no_thread_for_callbacks_keeps_no_answer_from_others(
    cluster, monkeypatch, auto_batch
) -> None:
    start, called = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "rocketwire-callbacks":
            raise RuntimeError("can't start new thread")
        start(thread)

    with producing(cluster, auto_batch=auto_batch) as producer:
        producer.send(Message("orders", b"first"))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            message = Message("orders", b"x")
            producer.submit(message, on_success=lambda _: called.append("x"))
            assert producer.submit(message).result(20)
        assert called == []
        producer.submit(Message("orders", b"y"), on_success=lambda _: called.append("y"))
        eventually(lambda: called == ["x", "y"])


def test_late_answers_to_submitted_messages_are_counted(cluster) -> None:
    with producing(cluster, send_timeout=0.6) as producer:
        cluster.broker("broker-a").late_replies(0.4)
        deliveries = [producer.submit(Message("orders", b"%d" % n)) for n in range(8)]
        assert all(d.result(20) for d in deliveries)
        # An answer that comes after its attempt was given up, before the broker was left alone.
        for _ in range(400):
            if producer.stats().late_replies:
                break
            threading.Event().wait(0.01)
        assert producer.stats().late_replies


def test_messages_wait_for_no_broker_that_was_left_since_they_were_made(cluster) -> None:
    with producing(cluster, fault=FaultPolicy(failure_isolation=30.0)) as producer:
        sender, in_flight = producer._sender, producer._in_flight
        attempts = [sender.start(Message("orders", b"%d" % n), SendMode.ASYNC) for n in range(8)]
        assert {attempt.where.broker for attempt in attempts} == {"broker-a", "broker-b"}
        cluster.broker("broker-a").hang()
        faults, now = producer._instance.faults, producer._instance.clock()
        faults.failed(faults.begin("broker-a", now), now, "refused the connection")
        deliveries = []
        for attempt in attempts:
            group = in_flight.admit(1, 1)
            assert group is not None
            deliveries.append(SingleDelivery(attempt, producer._submitter, group, 1, 1))
            producer._background.post(deliveries[-1])
        results = [delivery.result(20) for delivery in deliveries]
        assert {result.queue.broker for result in results} == {"broker-b"}
        assert {result.attempts for result in results} == {()}
        assert len({result.message_id for result in results}) == 8
        assert in_flight.held == 0


@pytest.mark.parametrize("auto_batch", [None, True])
def test_a_shutdown_in_a_callback_waits_for_what_is_in_flight(cluster, auto_batch) -> None:
    with producing(cluster, auto_batch=auto_batch) as producer:
        over = threading.Event()

        def end(_: object) -> None:
            producer.shutdown()
            over.set()

        first = producer.submit(Message("orders", b"first"), on_success=end)
        deliveries = [first]
        with contextlib.suppress(Exception):
            deliveries += [producer.submit(Message("orders", b"%d" % n)) for n in range(500)]
        assert over.wait(20)
        assert [d.exception(20) for d in deliveries] == [None] * len(deliveries)


def test_the_callback_thread_ends_when_one_of_its_callbacks_shuts_down(cluster) -> None:
    with producing(cluster) as producer:
        threads: list[threading.Thread] = []

        def end(_: object) -> None:
            threads.append(threading.current_thread())
            producer.shutdown()

        producer.submit(Message("orders", b"x"), on_success=end).result(20)
        while not threads:
            threading.Event().wait(0.005)
        threads[0].join(20)
        assert not threads[0].is_alive()


@pytest.mark.parametrize("had_callbacks", [False, True])
def test_a_callback_that_is_added_after_the_shutdown_is_called(cluster, had_callbacks) -> None:
    with producing(cluster) as producer:
        delivery = producer.submit(Message("orders", b"x"))
        if had_callbacks:
            delivery.add_done_callback(lambda _: None)
    called = threading.Event()
    delivery.add_done_callback(lambda _: called.set())
    assert called.wait(20)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_no_callback_ends_the_thread_of_the_others(cluster, caplog, error) -> None:
    def leave(_: object) -> None:
        raise error

    with producing(cluster) as producer:
        producer.submit(Message("orders", b"x"), on_success=leave).result(20)
        called = threading.Event()
        producer.submit(Message("orders", b"y"), on_success=lambda _: called.set())
        assert called.wait(20)
    assert "a callback of a submitted message failed" in caplog.text


@pytest.mark.parametrize("factory", [None, background._loop_factory()], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_selector_that_ends_the_program_behind_a_submit_takes_nobody_along(
    cluster, caplog, monkeypatch, factory, error
) -> None:
    """The thread ended: others in flight had no end, and no message was sent after it."""

    def choose(queues: Any, message: Message, _: object) -> Any:
        if threading.current_thread().name == "rocketwire-background":
            raise error("leaving")
        return queues[0]

    choose.pins = False  # type: ignore[attr-defined]
    monkeypatch.setattr(background, "_loop_factory", lambda: factory)
    cluster.create_topic("hanging", 1)
    with producing(cluster, background=True, fault="off") as producer:
        first, second = producer.publish_queues("hanging")
        busy, hung = sorted(cluster.brokers, key=lambda broker: broker.name != first.broker)
        producer.submit(Message("hanging", b"warm-up"), queue=second).result(20)
        hung.hang()
        busy.busy()
        left = [producer.submit(Message("hanging", b"%d" % n), queue=second) for n in range(3)]
        bad = producer.submit(Message("hanging", b"x"), selector=choose)
        assert bad.exception(20).outcome is Outcome.MAYBE_STORED
        hung.heal()
        busy.heal()
        assert [delivery.exception(20) for delivery in left] == [None] * 3
        assert producer.submit(Message("hanging", b"later")).result(20)
        assert producer.stats().in_flight == 0
    assert "leaving" in caplog.text


class Keys:
    """Gives keys, but for the next time that the background asks once it is told to fail."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error, self.fails = error, False

    def __call__(self) -> Credentials:
        if self.fails and threading.current_thread().name == "rocketwire-background":
            self.fails = False
            raise self.error("leaving")
        return Credentials("access", "secret")


@pytest.mark.parametrize(
    ("error", "topic", "is_connected"),
    [
        (ValueError, "orders", True),
        (ValueError, "orders", False),
        (ValueError, "unknown", True),
        (SystemExit, "orders", True),
        (SystemExit, "unknown", True),
        (SystemExit, "unknown", False),
    ],
)
def test_keys_that_can_not_be_had_end_one_submitted_message_and_no_other(
    cluster, error, topic, is_connected
) -> None:
    """All that were handed over in the same moment had no end, or the thread went."""
    keys = Keys(error)
    cluster.create_topic("unknown", queues=1)
    with producing(cluster, credentials=keys) as producer:
        if is_connected:
            for queue in producer.publish_queues("orders"):
                producer.submit(Message("orders", b"x"), queue=queue).result(20)
        held = Latch()
        if is_connected:
            producer._background._loop.call_soon_threadsafe(held.wait, 20)
        keys.fails = True
        bad = producer.submit(Message(topic, b"first"))
        others = [producer.submit(Message("orders", b"%d" % n)) for n in range(4)]
        held.open()
        assert "leaving" in str(bad.exception(20))
        assert [other.exception(20) for other in others] == [None] * 4
        assert producer.send(Message(topic, b"later")).offset >= 0
        assert producer.stats().in_flight == 0


def test_a_large_message_keeps_the_room_that_it_waited_for(cluster) -> None:
    with producing(cluster, max_in_flight=1) as producer:
        taken = []
        room = producer._in_flight
        ordinary = room.take

        def take(*args: Any) -> bool:
            taken.append(args)
            return ordinary(*args)

        room.take = take  # type: ignore[method-assign]
        room.admit(1, 1)  # the room is full
        threading.Timer(0.05, lambda: room.give_back(1, 1)).start()
        assert producer.submit(Message("orders", b"x" * 5000)).result(20)
        assert [size for _, size, _ in taken] == [5000]
        assert room.held == 0


def test_loops_are_uvloop_s_where_it_is_installed() -> None:
    assert background._loop_factory() is not None


@pytest.mark.parametrize("auto_batch", [None, True])
def test_a_callback_may_submit_and_flush_and_never_waits_for_room(cluster, auto_batch) -> None:
    with producing(cluster, max_in_flight=1, auto_batch=auto_batch) as producer:
        over = threading.Event()
        made: list[Any] = []

        def go_on(_: object) -> None:
            made.extend(producer.submit(Message("orders", b"%d" % n)) for n in range(5))
            producer.flush(20)
            made.append(all(delivery.done() for delivery in made))
            over.set()

        producer.submit(Message("orders", b"first"), on_success=go_on)
        assert over.wait(20)
        assert made.pop() is True
        assert [delivery.exception() for delivery in made] == [None] * 5
        assert producer.stats().in_flight == 0


def test_what_is_handed_over_after_the_end_is_refused_also_if_the_thread_was_never_needed(
    cluster,
) -> None:
    with producing(cluster) as producer:
        behind = producer._background
    told: list[Any] = []
    late = threading.Thread(
        target=lambda: behind.run(_nothing(), lambda *end: told.append(end)), daemon=True
    )
    late.start()
    late.join(20)
    ((_, error),) = told
    assert isinstance(error, SendFailedError)


class InterruptedOnce:
    """A loop, in the first call of which an interrupt comes before it has noted anything."""

    def __init__(self, loop: Any) -> None:
        self._loop, self._is_first = loop, True

    def call_soon_threadsafe(self, *given: Any) -> None:
        if self._is_first:
            self._is_first = False
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(*given)


def test_a_thread_that_is_interrupted_while_it_calls_leaves_nobody_without_the_loop(
    cluster,
) -> None:
    with producing(cluster) as producer:
        producer.submit(Message("orders", b"first")).result(20)
        behind: Any = producer._background
        loop, box = behind._loop, Latch()
        behind._loop = InterruptedOnce(loop)
        try:
            with pytest.raises(KeyboardInterrupt):
                behind.run(sleep(0.0), lambda *_: box.open())
            assert box.wait(20)
            # Nobody believes that it was called, and waits for that.
            assert producer.submit(Message("orders", b"second")).result(20).offset >= 0
        finally:
            behind._loop = loop
