"""The system has no thread for us: that is told, and forgotten when it has one again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.conformance.members import eventually
from tests.unit.core.sending.test_checks import CHECK, HALF
from tests.wire_tools import encode_item

from rocketwire import Message, Producer, Reader, SendFailedError
from rocketwire.aio.transaction_checker import ThreadCheckRunner
from rocketwire.columns.client_parts import parts_of, sender_of
from rocketwire.columns.deliver import Deliverer
from rocketwire.columns.encode import Frame
from rocketwire.columns.fetch import FetchPolicy, QueueSpan, fetch_spans
from rocketwire.core.group.handling import Failure
from rocketwire.embedded import EmbeddedCluster
from rocketwire.message import TransactionState
from rocketwire.sync.direct_calls import DirectCalls


@contextlib.contextmanager
def no_threads(name: str, *, after: int = 0) -> Iterator[None]:
    """Threads whose names begin so can't be started, but for the first ones."""
    start, left = threading.Thread.start, after

    def refuse(thread: threading.Thread) -> None:
        nonlocal left
        if thread.name.startswith(name):
            left -= 1
            if left < 0:
                raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_a_transaction_is_checked_when_the_broker_asks_again() -> None:
    settled: list[Any] = []
    runner = ThreadCheckRunner(lambda _: True, lambda *answer: settled.append(answer))
    with no_threads("rocketwire-checker"):
        for _ in range(20):
            runner.post(CHECK)
    assert settled == []
    runner.post(CHECK)
    eventually(lambda: settled == [(CHECK, TransactionState.COMMITTED)])


def test_an_operator_is_told_and_may_try_again() -> None:
    told: list[Any] = []
    calls = DirectCalls(lambda _: None, None, lambda _: None, is_batch=False)  # type: ignore[arg-type]
    with no_threads("rocketwire-direct"):
        for _ in range(20):
            calls.call(HALF, told.append)
    assert len(told) == 20
    assert {str(failure.error) for failure in told if isinstance(failure, Failure)} == {
        "can't start new thread"
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("t", queues=1)
        yield running


def frame() -> Frame:
    return Frame(
        "t", None, memoryview(encode_item(b"x" * 50, b"", 0)), np.arange(1, dtype=np.int64)
    )


def test_a_table_is_sent_by_fewer_threads_or_not_at_all(cluster) -> None:
    with Producer(cluster.name_server, group="tables") as producer:
        parts, sender = parts_of(producer), sender_of(producer)
        with no_threads("rocketwire-send", after=1):
            running = Deliverer(parts, sender)
            for _ in range(5):
                running.put(frame())
            assert running.finish().rows == 5
        with no_threads("rocketwire-send"):
            running = Deliverer(parts, sender)
            for call in (lambda: running.put(frame()), running.finish):
                with pytest.raises(SendFailedError, match="can't start new thread"):
                    call()


def test_a_read_that_can_not_begin_leaves_no_thread(cluster) -> None:
    with Producer(cluster.name_server, group="reads") as producer:
        queue, other = producer.publish_queues("t")
        producer.send(Message("t", b"x"), queue=other)
        for _ in range(5):  # more than waits to be decoded
            producer.send([Message("t", b"x" * 1_000_000)] * 3, queue=queue)
    with Reader(cluster.name_server) as reader:
        spans = [QueueSpan(q, 0, reader.max_offset(q)) for q in reader.queues("t")]
        with no_threads("rocketwire-fetch", after=1), pytest.raises(RuntimeError, match="start"):
            list(fetch_spans(parts_of(reader), spans, FetchPolicy()))
        eventually(lambda: "rocketwire-fetch" not in [t.name for t in threading.enumerate()])
