"""A signal handler that forks while the program waits, where both processes go on with the wait.

What is waited for comes from a thread of the parent's. The child has no such thread: it is told at once,
and not when its time is over.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.fork.forking import Child

from rocketwire import (
    ClientClosedError,
    Consumer,
    Message,
    Outcome,
    Producer,
    SendFailedError,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.system.surroundings import surroundings

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
TOPIC = "orders"
#: What the parent waits for in vain; the child would, too.
PATIENCE = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic(TOPIC, queues=2)
        yield running


@contextlib.contextmanager
def stuck(cluster: EmbeddedCluster, **options: Any) -> Iterator[Producer]:
    """A producer whose submitted messages get no answer."""
    settings: dict[str, Any] = {"send_timeout": 60.0, "async_retries": 0, "shutdown_timeout": 60.0}
    with Producer(cluster.name_server, **(settings | options)) as producer:
        producer.submit(Message(TOPIC, b"warm")).result(30)
        cluster.broker("broker-a").hang()
        try:
            yield producer
        finally:
            cluster.broker("broker-a").heal()


def both(wait: Callable[[], object]) -> tuple[BaseException | None, BaseException | None]:
    """What a wait ends with in the parent, and in a child that is forked in the midst of it."""
    reading, writing = os.pipe()
    children: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: children.append(os.fork()))
    timer = threading.Timer(
        PATIENCE / 4, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1)
    )
    timer.start()
    ending: BaseException | None = None
    try:
        wait()
    except BaseException as error:
        ending = error
    if 0 in children:
        try:
            os.write(writing, pickle.dumps(ending))
        finally:
            os._exit(0)
    os.close(writing)
    timer.join()
    signal.signal(signal.SIGUSR1, before)
    with os.fdopen(reading, "rb") as told:
        content = told.read()
    os.waitpid(children[0], 0)
    return ending, pickle.loads(content)


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("what", ["result", "exception"])
def test_a_child_that_waits_for_a_delivery_is_told_at_once(cluster, what, auto_batch) -> None:
    with stuck(cluster, auto_batch=auto_batch) as producer:
        delivery = producer.submit(Message(TOPIC, b"late"))

        def wait() -> None:
            error = getattr(delivery, what)(PATIENCE)
            if isinstance(error, Exception):
                raise error

        parent, child = both(wait)
        assert isinstance(parent, TimeoutError)
        assert isinstance(child, SendFailedError)
        assert child.outcome is Outcome.MAYBE_STORED
        assert "the parent sends it" in str(child)


def test_a_child_in_a_flush_is_told_at_once(cluster) -> None:
    with stuck(cluster) as producer:
        producer.submit(Message(TOPIC, b"late"))
        parent, child = both(lambda: producer.flush(PATIENCE))
        assert isinstance(parent, TimeoutError)
        assert isinstance(child, ClientClosedError)
        assert "the parent's to finish" in str(child)


def test_a_child_that_waits_for_room_is_told_at_once(cluster) -> None:
    with stuck(cluster, max_in_flight=1) as producer:
        producer.submit(Message(TOPIC, b"late"))
        parent, child = both(lambda: producer.submit(Message(TOPIC, b"x"), timeout=PATIENCE))
        assert isinstance(parent, SendFailedError)
        assert parent.outcome is Outcome.NOT_SENT
        assert isinstance(child, ClientClosedError)


def test_a_child_whose_send_waits_for_its_key_is_told_at_once(cluster) -> None:
    with stuck(cluster) as producer:
        producer.submit(Message(TOPIC, b"late", sharding_key="k"))
        keyed = Message(TOPIC, b"behind", sharding_key="k")
        parent, child = both(lambda: producer.send(keyed, timeout=PATIENCE))
        assert isinstance(parent, SendFailedError)
        assert parent.outcome is Outcome.NOT_SENT
        assert isinstance(child, ClientClosedError)


def test_a_child_in_a_shutdown_is_told_at_once_and_closes_the_rest(cluster) -> None:
    producer = Producer(
        cluster.name_server, send_timeout=60.0, async_retries=0, shutdown_timeout=PATIENCE
    ).start()
    producer.submit(Message(TOPIC, b"warm")).result(30)
    cluster.broker("broker-a").hang()
    try:
        producer.submit(Message(TOPIC, b"late"))
        parent, child = both(producer.shutdown)
    finally:
        cluster.broker("broker-a").heal()
    assert parent is None
    assert isinstance(child, ClientClosedError)


def test_a_child_of_a_running_consumer_is_told_at_once(cluster) -> None:
    consumer = Consumer(cluster.name_server, group="forking").subscribe(TOPIC)
    parents = os.getpid()
    end = threading.Timer(PATIENCE, lambda: os.getpid() == parents and consumer.stop())
    end.start()
    parent, child = both(lambda: consumer.run(lambda _: None))
    end.join()
    assert parent is None
    assert isinstance(child, ClientClosedError)
    assert "the parent's to finish" in str(child)


def test_locks_that_others_held_at_the_fork_are_free_in_the_child_and_our_own_are_held() -> None:
    ours = surroundings()
    of_another, mine = ours.make_lock(), ours.make_lock()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with of_another:
            held.set()
            release.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)

    def work() -> tuple[bool, bool]:
        was_held = ours.holds_lock()  # by the code that the fork is in the midst of
        return was_held, of_another.acquire(timeout=10)  # type: ignore[attr-defined]

    try:
        with mine:
            assert Child(work).result() == (True, True)
    finally:
        release.set()
        holder.join()
