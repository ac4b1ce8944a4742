"""Transactions of many threads at once, for which the background works: the same ends as alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from rocketwire import (
    Message,
    Outcome,
    Producer,
    Reader,
    SendFailedError,
    TransactionError,
    TransactionState,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.sync.background import Background
from rocketwire.wire.codes import RequestCode

THREADS = 24
LIMIT = 20.0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic("orders", queues=4)
        yield running


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes what the background did for other threads."""
    found: list[str] = []
    for name in ("send_for", "run_for"):
        method = getattr(Background, name)

        def noting(
            self: Background, *given: Any, method: Any = method, name: str = name, **more: Any
        ) -> Any:
            found.append(name)
            return method(self, *given, **more)

        monkeypatch.setattr(Background, name, noting)
    return found


def crowded(producer: Producer) -> Producer:
    """A producer whose background runs, in the midst of so many threads that it is asked to help."""
    producer.start().submit(Message("orders", "first")).result(LIMIT)
    with producer.transaction(Message("orders", "first")):
        pass  # which also learns that there is no proxy
    producer._contention._places += [None] * 100
    return producer


def in_threads(work: Any, count: int = THREADS) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def texts(cluster: EmbeddedCluster) -> list[str]:
    with Reader(cluster.name_server) as reader:
        return sorted(message.text for message in reader.read("orders") if message.text != "first")


def test_each_ends_as_it_would_alone(cluster, relayed) -> None:
    with crowded(Producer(cluster.name_server)) as producer:

        def work(number: int) -> TransactionState:
            try:
                with producer.transaction(Message("orders", f"{number:02}")) as tx:
                    if number % 3 == 0:
                        raise ValueError(number)
            except ValueError:
                pass
            return tx.state

        states = in_threads(work)
    kept = [number for number in range(THREADS) if number % 3]
    assert texts(cluster) == [f"{number:02}" for number in kept]
    wanted = {True: TransactionState.COMMITTED, False: TransactionState.ROLLED_BACK}
    assert states == [wanted[number % 3 != 0] for number in range(THREADS)]
    assert relayed.count("send_for") == relayed.count("run_for") == THREADS
    assert producer.stats().sent >= THREADS


def test_the_main_thread_and_hooks_stay_where_they_are(cluster, relayed) -> None:
    class Hook:
        threads: ClassVar[set[int]] = set()

        def after_send(self, *_: Any) -> None:
            self.threads.add(threading.get_ident())

    with (
        crowded(Producer(cluster.name_server)) as producer,
        producer.transaction(Message("orders", "main")),
    ):
        pass
    with crowded(Producer(cluster.name_server, hooks=(Hook(),))) as producer:
        Hook.threads.clear()
        barrier = threading.Barrier(THREADS)

        def work(number: int) -> int:
            barrier.wait(LIMIT)  # so that each has a thread of its own
            with producer.transaction(Message("orders", f"{number:02}")):
                pass
            return threading.get_ident()

        assert set(in_threads(work)) == Hook.threads
    assert relayed == []


def test_a_commit_without_an_answer_is_unknown(cluster, relayed, caplog) -> None:
    with crowded(Producer(cluster.name_server, send_timeout=0.5)) as producer:
        cluster.brokers[0].lose_replies(code=RequestCode.END_TRANSACTION)

        def work(number: int) -> Any:
            with (
                pytest.raises(TransactionError) as caught,
                producer.transaction(Message("orders", f"{number:02}")),
            ):
                pass
            return caught.value.state

        assert set(in_threads(work, 4)) == {TransactionState.UNKNOWN}
    assert relayed.count("run_for") == 4
    assert "was not confirmed" in caplog.text


def test_a_half_message_without_an_answer_may_be_stored(cluster, relayed) -> None:
    with crowded(Producer(cluster.name_server, send_timeout=0.5)) as producer:
        cluster.brokers[0].lose_replies(code=RequestCode.SEND_MESSAGE_V2)

        def work(number: int) -> Any:
            with (
                pytest.raises(SendFailedError) as caught,
                producer.transaction(Message("orders", f"{number:02}")),
            ):
                pass
            return caught.value.outcome, len(caught.value.attempts)

        assert set(in_threads(work, 4)) == {(Outcome.MAYBE_STORED, 1)}
    assert relayed.count("send_for") == 4


def test_a_shutdown_waits_for_them(cluster, relayed) -> None:
    producer = crowded(Producer(cluster.name_server))
    cluster.brokers[0].slow(0.3)
    began = threading.Barrier(5)
    states: list[TransactionState] = []

    def work() -> None:
        tx = producer.transaction(Message("orders", "late"))
        began.wait(LIMIT)
        tx.__enter__()
        states.append(tx.state)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    began.wait(LIMIT)
    end = time.monotonic() + LIMIT
    while relayed.count("send_for") < 4 and time.monotonic() < end:
        time.sleep(0.001)
    producer.shutdown()
    for thread in threads:
        thread.join(LIMIT)
    assert states == [TransactionState.OPEN] * 4


def test_without_a_background_that_runs_each_thread_works_for_itself(cluster, relayed) -> None:
    with Producer(cluster.name_server, background=False) as producer:
        producer._contention._places += [None] * 100

        def work(number: int) -> TransactionState:
            with producer.transaction(Message("orders", f"{number:02}")) as tx:
                pass
            return tx.state

        assert set(in_threads(work)) == {TransactionState.COMMITTED}
    assert relayed == []
