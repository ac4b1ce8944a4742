"""Whatever is called or raised in the midst of a call, at any moment: nothing hangs, nothing is lost.

``make test`` tries a sample of all moments, ``make test-full`` every one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.members import eventually
from tests.unit.sync.moments import Moments, run_bounded

from rocketwire import (
    ClientClosedError,
    Consumer,
    Credentials,
    Message,
    Producer,
    Reader,
    ReplyTimeoutError,
    RocketMQError,
)
from rocketwire.core.effects import Send
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.requests import request
from rocketwire.embedded import EmbeddedCluster

TOPIC = "orders"
#: Every so many moments one is tried; a prime, so that loops are met in all of their steps.
EVERY = int(os.environ.get("ROCKETWIRE_EVERY_MOMENT", "11"))
LIMIT = 20.0
OPTIONS: dict[str, Any] = {"send_timeout": 15.0, "shutdown_timeout": 15.0, "background": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic(TOPIC, queues=2)
        yield running


def make(cluster: EmbeddedCluster, **options: Any) -> Producer:
    producer = Producer(cluster.name_server, **(OPTIONS | options)).start()
    producer.send(Message(TOPIC, b"warm"))
    producer.submit(Message(TOPIC, b"warm")).result(LIMIT)
    return producer


def message() -> Message:
    return Message(TOPIC, b"x")


def keyed() -> Message:
    return Message(TOPIC, b"x", sharding_key="k")


def flush(producer: Producer) -> None:
    for _ in range(3):
        producer.submit(message())
    producer.flush(LIMIT)


def transact(producer: Producer) -> None:
    with producer.transaction(message()):
        pass


def transact_beside_many(producer: Producer) -> None:
    """As in the midst of many other threads, so that the background works for this one."""
    crowd = [None] * 100
    producer._contention._places += crowd
    try:
        transact(producer)
    finally:
        producer._contention._places = []


CALLS: dict[str, Callable[[Producer], object]] = {
    "submit": lambda p: p.submit(message()),
    "submit keyed": lambda p: p.submit(keyed()),
    "send": lambda p: p.send(message()),
    "send keyed": lambda p: p.send(keyed()),
    "flush": flush,
    "transaction": transact,
    "transaction beside many": transact_beside_many,
    "stats": lambda p: (p.stats(), p.health()),
}
DEEDS: dict[str, Callable[[Producer], object]] = {
    "submit": lambda p: p.submit(message()),
    "submit keyed": lambda p: p.submit(keyed()),
    "send_oneway": lambda p: p.send_oneway(message()),
    "send keyed": lambda p: p.send(keyed()),
    "stats": lambda p: (p.stats(), p.health()),
    "flush": lambda p: p.flush(LIMIT),
}


def check_whole(producer: Producer, where: str) -> None:
    """Nothing of a running producer is lost."""
    problem = run_bounded(lambda: producer.flush(LIMIT), LIMIT + 5)
    assert problem is None, f"{problem}\nafter {where}"
    instance = producer._instance
    assert producer.stats().in_flight == 0, where
    assert producer._in_flight._held_bytes == 0, where
    assert not producer._in_flight._waiting, where
    assert len(producer._sender.order) == 0, where
    assert producer._pool.is_quiet(), where
    assert not instance.surroundings.holds_lock()
    for entry in instance.faults._entries.values():
        assert not entry.under_way, where
        assert entry.trial_attempt is None, where
    for form in (keyed, message):
        problem = run_bounded(lambda f=form: producer.submit(f()).result(LIMIT), LIMIT + 5)  # type: ignore[misc]
        assert problem is None, f"{problem}\nafter {where}"
    assert run_bounded(lambda: producer.send(keyed()), LIMIT + 5) is None, where


def try_moments(
    make_producer: Callable[[], Producer],
    call: Callable[[Producer], object],
    deed: Callable[[Producer], object],
    *,
    raises: bool = False,
    first: int = 0,
) -> int:
    """Do a deed at every so-many-th moment of a call; how many were tried."""
    producer, at, tried = make_producer(), first % EVERY, 0
    try:
        while True:
            moments = Moments(at, lambda: deed(producer), raises=raises)

            def work(moments: Moments = moments) -> None:
                with moments:
                    call(producer)

            problem = run_bounded(work, LIMIT)
            if not moments.is_done:
                return tried
            expected: tuple[type[BaseException], ...] = (RocketMQError, RuntimeError)
            if raises:
                expected = (KeyboardInterrupt,)
            assert problem is None or (
                isinstance(problem, expected) and not isinstance(problem, RecursionError)
            ), f"{problem!r}\n{problem}\nafter {moments.where}"
            check_whole(producer, moments.where)
            tried += 1
            at += EVERY
    finally:
        assert run_bounded(producer.shutdown, 2 * LIMIT) is None


def interrupt(_: Producer) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_at_any_moment_of_beginning_a_request_keeps_no_place_in_the_order(
    cluster,
) -> None:
    with make(cluster, background=True) as producer:
        sender, instance = producer._sender, producer._instance
        with pytest.raises(ReplyTimeoutError):
            producer.request(message(), timeout=0.5)
        presence = instance.presence
        eventually(lambda: presence.is_direct and presence.want().is_set)  # nothing to wait for
        for at in itertools.count():
            asking = request(sender, keyed(), SendMode.BLOCKING, LIMIT)
            moments = Moments(at, lambda: interrupt(producer), raises=True)
            with contextlib.suppress(KeyboardInterrupt), moments:
                assert isinstance(next(asking), Send)
            asking.close()
            assert len(sender.order) == 0, moments.where
            assert not instance.replies._expected, moments.where
            if not moments.is_done:
                assert at > 50
                return


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_moment_takes_nothing_along(cluster, call, auto_batch) -> None:
    tried = try_moments(
        lambda: make(cluster, auto_batch=auto_batch), CALLS[call], interrupt, raises=True
    )
    assert tried


def two_in_line(producer: Producer) -> None:
    """The second waits until there is an answer to the first."""
    producer.submit(message())
    producer.submit(message())


def two_of_a_key(producer: Producer) -> None:
    producer.submit(keyed())
    producer.send(keyed())


def send_many(producer: Producer) -> None:
    producer.send_many([message(), keyed(), message(), keyed()])


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("call", [two_in_line, two_of_a_key, send_many])
def test_an_interrupt_at_any_moment_of_waiting_takes_nothing_along(
    cluster, call, auto_batch
) -> None:
    options = {"max_in_flight": 1} if call is two_in_line else {}
    tried = try_moments(
        lambda: make(cluster, auto_batch=auto_batch, **options),
        call,
        interrupt,
        raises=True,
        first=5,
    )
    assert tried


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("call", CALLS)
def test_what_is_called_in_the_midst_of_a_call_never_hangs(cluster, call, deed, auto_batch) -> None:
    def careful(producer: Producer) -> None:
        # What it would have to wait for is the code below it: then it says so at once.
        with contextlib.suppress(RuntimeError, RocketMQError):
            DEEDS[deed](producer)

    first = len(call) * 7 + len(deed) * 3
    assert try_moments(
        lambda: make(cluster, auto_batch=auto_batch), CALLS[call], careful, first=first
    )


def our_threads() -> set[threading.Thread]:
    """Those that live: one whose start was interrupted is listed, too, and is none."""
    found = [t for t in threading.enumerate() if t.name.startswith("rocketwire") and t.is_alive()]
    # What compresses is shared by all clients of the process; a broker of the embedded cluster begins to
    # flush when it has something to flush.
    others = ("rocketwire-compress", "rocketwire-embedded", "rocketwire-flush")
    return {thread for thread in found if not thread.name.startswith(others)}


def check_closed(producer: Producer, where: str, before: set[threading.Thread]) -> None:
    """Nothing of a producer that was shut down is left, once what was beside it has ended."""
    for thread in threading.enumerate():
        if thread.name == "rocketwire-shutdown":
            thread.join(2 * LIMIT)
    assert our_threads() <= before, where
    assert producer._in_flight.held == 0, where
    assert len(producer._sender.order) == 0, where
    assert [c for c in list(producer._pool._made) if c.fileno() >= 0] == [], where
    assert not producer._instance.surroundings.holds_lock()


def try_shutdowns(
    make_producer: Callable[[], Producer],
    call: Callable[[Producer], object],
    deed: Callable[[Producer], object],
    *,
    raises: bool = False,
    first: int = 0,
) -> int:
    """As ``try_moments``, where a producer can be used only once."""
    at, tried = first % EVERY, 0
    while True:
        before = our_threads()
        producer = make_producer()
        moments = Moments(at, lambda p=producer: deed(p), raises=raises)  # type: ignore[misc]

        def work(moments: Moments = moments, producer: Producer = producer) -> None:
            with moments:
                call(producer)

        problem = run_bounded(work, LIMIT)
        allowed = KeyboardInterrupt if raises else RocketMQError
        assert problem is None or isinstance(problem, allowed), f"{problem!r}\n{moments.where}"
        producer.shutdown()
        check_closed(producer, moments.where, before)
        if not moments.is_done:
            return tried
        tried += 1
        at += EVERY * (3 if EVERY > 1 else 1)


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_shutdown_in_the_midst_of_a_call_ends_all_and_never_hangs(
    cluster, call, auto_batch
) -> None:
    assert try_shutdowns(
        lambda: make(cluster, auto_batch=auto_batch),
        CALLS[call],
        lambda producer: producer.shutdown(),
        first=len(call) * 5,
    )


def busy_shutdown(producer: Producer) -> None:
    producer.submit(message())
    producer.shutdown()


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("deed", [*DEEDS, "shutdown", "interrupt"])
def test_nothing_in_the_midst_of_a_shutdown_hangs_or_is_left(cluster, deed, auto_batch) -> None:
    def careful(producer: Producer) -> None:
        with contextlib.suppress(RuntimeError, RocketMQError):
            if deed == "shutdown":
                producer.shutdown()
            else:
                DEEDS[deed](producer)

    raises = deed == "interrupt"
    assert try_shutdowns(
        lambda: make(cluster, auto_batch=auto_batch),
        busy_shutdown,
        interrupt if raises else careful,
        raises=raises,
        first=len(deed) * 5,
    )


def rich_producer(cluster: EmbeddedCluster, folder: Path) -> Producer:
    """One with all the threads that a producer can have."""
    return Producer(
        cluster.name_server,
        trace=True,
        telemetry=folder / "telemetry",
        status=folder / "status.json",
        checker=lambda _: None,
    )


CLIENTS: dict[str, Callable[[EmbeddedCluster, Path], Any]] = {
    "producer": rich_producer,
    "reader": lambda cluster, _: Reader(cluster.name_server),
    "consumer": lambda cluster, _: Consumer(cluster.name_server, group="any").subscribe(TOPIC),
}


@pytest.mark.parametrize("then", ["shut down", "started again"])
@pytest.mark.parametrize("kind", CLIENTS)
def test_no_thread_remains_whatever_moment_of_a_start_was_interrupted(
    cluster, kind, then, tmp_path
) -> None:
    before, at, tried = our_threads(), len(then) % EVERY, 0
    while True:
        client = CLIENTS[kind](cluster, tmp_path)
        moments = Moments(at, lambda c=client: interrupt(c), raises=True)  # type: ignore[misc]

        def work(moments: Moments = moments, client: Any = client) -> None:
            with moments:
                client.start()

        problem = run_bounded(work, LIMIT)
        assert problem is None or isinstance(problem, KeyboardInterrupt), (
            f"{problem!r} {moments.where}"
        )
        if then == "started again":
            client.start()
        client.shutdown()
        assert our_threads() <= before, moments.where
        if not moments.is_done:
            break
        tried += 1
        at += EVERY
    assert tried


def test_no_thread_remains_whatever_moment_of_a_consumers_shutdown_was_interrupted(cluster) -> None:
    before, at, tried = our_threads(), 0, 0
    while True:
        consumer = Consumer(cluster.name_server, group="any").subscribe(TOPIC).start()
        moments = Moments(at, lambda c=consumer: interrupt(c), raises=True)  # type: ignore[misc]

        def work(moments: Moments = moments, consumer: Any = consumer) -> None:
            with moments:
                consumer.shutdown()

        problem = run_bounded(work, LIMIT)
        assert problem is None or isinstance(problem, KeyboardInterrupt), (
            f"{problem!r} {moments.where}"
        )
        assert run_bounded(consumer.shutdown, LIMIT) is None, moments.where
        assert our_threads() <= before, moments.where
        if not moments.is_done:
            break
        tried += 1
        at += EVERY
    assert tried


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_shutdown_at_any_moment_of_a_start_ends_it_and_never_hangs(
    cluster, kind, tmp_path
) -> None:
    before, at = our_threads(), len(kind) % EVERY
    while True:
        client = CLIENTS[kind](cluster, tmp_path)
        moments = Moments(at, client.shutdown, raises=False)

        def work(moments: Moments = moments, client: Any = client) -> None:
            with moments:
                client.start()

        problem = run_bounded(work, LIMIT)
        assert problem is None or isinstance(problem, ClientClosedError), (
            f"{problem!r} {moments.where}"
        )
        client.shutdown()
        for thread in threading.enumerate():
            if thread.name == "rocketwire-shutdown":
                thread.join(2 * LIMIT)
        assert our_threads() <= before, moments.where
        if not moments.is_done:
            break
        at += EVERY * 3


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("call", ["submit", "send keyed", "flush", "transaction beside many"])
def test_an_interrupt_at_any_moment_leaves_no_call_under_way(cluster, call, auto_batch) -> None:
    """Else a shutdown of this thread would not wait for the sends of others, ever after."""
    with make(cluster, auto_batch=auto_batch) as producer:
        for at in itertools.count(len(call) % EVERY, EVERY):
            moments = Moments(at, lambda: interrupt(producer), raises=True)
            with contextlib.suppress(KeyboardInterrupt), moments:
                CALLS[call](producer)
            here = producer._calls.here
            assert (here.sends, here.submits) == (0, 0), moments.where
            if not moments.is_done:
                break


def test_a_thread_knows_only_of_its_own_calls(cluster) -> None:
    with make(cluster) as producer, make(cluster) as other:
        seen: list[bool] = []
        here = producer._calls.here
        here.sends += 1
        assert producer._is_sending_here()
        assert not other._is_sending_here()
        thread = threading.Thread(target=lambda: seen.append(producer._is_sending_here()))
        thread.start()
        thread.join()
        assert seen == [False]
        here.sends -= 1


@pytest.mark.parametrize("middleware", [(), (lambda message, call_next: call_next(message),)])
def test_the_half_and_the_decision_of_a_transaction_are_calls_of_their_thread(
    cluster, middleware
) -> None:
    """Else a shutdown by a signal handler inside of one would wait for it, and so for itself."""
    seen: list[bool] = []
    sending: list[Producer] = []

    def keys() -> Credentials:
        # Asked by whatever is about to be written, on its thread.
        if sending:
            seen.append(sending[0]._is_sending_here())
        return Credentials("key", "a secret of ours")

    with make(cluster, credentials=keys, middleware=middleware) as producer:
        sending.append(producer)
        with producer.transaction(Message(TOPIC, b"x")):
            assert seen
            assert all(seen)
            seen.clear()
        assert seen
        assert all(seen)
