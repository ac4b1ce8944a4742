"""An open producer across a fork: the child has fresh sockets and ids, the parent is unharmed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import queue
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fork import forking
from tests.fork.forking import Child, bodies, send_all

from rocketwire import AsyncProducer, Message, Producer, Reader
from rocketwire.embedded import EmbeddedCluster
from rocketwire.errors import ClientClosedError, Outcome, SendFailedError
from rocketwire.system import registry
from rocketwire.system.status import read_statuses
from rocketwire.wire.trace_record import TRACE_TOPIC, decode_trace

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # From 3.12 on Python warns of forks in programs with threads: that is what is tested here.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture
def producer(cluster: EmbeddedCluster) -> Iterator[Producer]:
    """One that has sent, and whose background runs."""
    with Producer(cluster.name_server, group="orders") as running:
        running.submit(Message("warm-up", b"x")).result(30)
        send_all(running, [b"x"] * 4, "warm-up")
        yield running


def stored(cluster: EmbeddedCluster, topic: str = "orders") -> Counter[bytes]:
    return Counter(message.body for message in cluster.messages(topic))


def clients(cluster: EmbeddedCluster) -> set[str]:
    """Addresses from which messages came since the journal was cleared."""
    return {entry.client for entry in cluster.journal.sends()}


def test_the_child_sends_on_its_own_sockets_and_the_parent_goes_on_with_its_own(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    send_all(producer, bodies("before", 20))
    of_parent = clients(cluster)
    cluster.journal.clear()
    child = Child(lambda: (producer.client_id, send_all(producer, bodies("child", 20))))
    client_id, ids = child.result()
    of_child = clients(cluster)
    cluster.journal.clear()
    send_all(producer, bodies("after", 20))
    assert client_id != producer.client_id
    assert len(set(ids)) == 20
    assert not of_child & of_parent
    assert clients(cluster) <= of_parent  # nobody closed them, so nobody connected again
    sent = bodies("before", 20) + bodies("child", 20) + bodies("after", 20)
    assert stored(cluster) == Counter(sent)


def test_ids_are_unique_across_parent_and_children(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    ids = send_all(producer, bodies("parent", 50))
    children = [
        Child(lambda name=f"child-{n}": send_all(producer, bodies(name, 50))) for n in range(4)
    ]
    ids += send_all(producer, bodies("parent-again", 50))
    for child in children:
        ids += child.result()
    assert len(set(ids)) == len(ids) == 300
    assert sum(stored(cluster).values()) == 300


def test_a_childs_child_works_too(cluster: EmbeddedCluster, producer: Producer) -> None:
    def work() -> tuple[list[str], list[str]]:
        ours = send_all(producer, bodies("child", 5))
        theirs = Child(lambda: send_all(producer, bodies("grandchild", 5))).result()
        return ours + send_all(producer, bodies("child-again", 5)), theirs

    ours, theirs = Child(work).result()
    assert len(set(ours + theirs)) == 15
    assert sum(stored(cluster).values()) == 15


def test_locks_that_other_threads_hold_at_the_fork_do_not_stop_the_child(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    instance = producer._instance
    locks = [
        registry._lock,
        producer._start_lock,
        producer._in_flight.lock,
        producer._callbacks._lock,
        producer._background._lock,
        producer._sender.order._lock,
        instance.lock,
        instance.faults._lock,
        instance.routes._lock,
        instance.route_wake_up._lock,
        instance.probe_wake_up._lock,
        instance.heartbeat_wake_up._lock,
    ]
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            release.wait(forking.LIMIT)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)

    def work() -> list[str]:
        ids = send_all(producer, bodies("child", 3))
        ids.append(
            producer.submit(Message("orders", b"submitted", sharding_key="k")).result(30).message_id
        )
        ids.append(producer.send(Message("orders", b"ordered", sharding_key="k")).message_id)
        producer.health()
        producer.shutdown()
        return ids

    try:
        ids = Child(work).result()
    finally:
        release.set()
        holder.join()
    assert len(set(ids)) == 5
    assert stored(cluster) == Counter([*bodies("child", 3), b"submitted", b"ordered"])
    send_all(producer, [b"parent"])


def test_forks_in_the_midst_of_sends_harm_neither_side(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    stop = threading.Event()
    sent: list[list[bytes]] = [[] for _ in range(3)]

    def keep_sending(number: int) -> None:
        while not stop.is_set():
            body = f"thread-{number}-{len(sent[number])}".encode()
            producer.send(Message("orders", body))
            producer.submit(Message("orders", body + b"-submitted"))
            sent[number].append(body)

    threads = [threading.Thread(target=keep_sending, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(8):
            Child(lambda name=f"child-{number}": send_all(producer, bodies(name, 5))).result()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    producer.flush(30)
    wanted = Counter(body for number in range(8) for body in bodies(f"child-{number}", 5))
    for one in sent:
        wanted.update(one)
        wanted.update(body + b"-submitted" for body in one)
    assert stored(cluster) == wanted
    assert producer.stats().failed == 0


def test_what_was_submitted_before_the_fork_is_sent_by_the_parent_alone(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    deliveries = [producer.submit(Message("orders", body)) for body in bodies("parent", 500)]

    def work() -> int:
        held = producer.stats().in_flight
        producer.submit(Message("orders", b"child")).result(30)
        producer.flush(30)
        producer.shutdown()
        return held

    assert Child(work).result() == 0
    assert all(delivery.result(30) for delivery in deliveries)
    assert stored(cluster) == Counter([*bodies("parent", 500), b"child"])


@pytest.mark.parametrize("auto_batch", [False, True])
def test_a_delivery_from_before_the_fork_fails_at_once_in_the_child(
    cluster: EmbeddedCluster, auto_batch: bool
) -> None:
    options = {"send_timeout": 60.0, "async_retries": 0, "auto_batch": auto_batch}
    with Producer(cluster.name_server, group="orders", **options) as producer:
        early = producer.submit(Message("orders", b"early"))
        early.result(30)
        for name in ("broker-a", "broker-b"):
            cluster.broker(name).hang()
        late = producer.submit(Message("orders", b"late"))

        def work() -> tuple[bool, str, Outcome, int]:
            told: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
            late.add_done_callback(lambda delivery: told.put(delivery.exception()))
            error = told.get(timeout=30)
            assert late.done()
            assert late.exception() is error
            with pytest.raises(SendFailedError):
                late.result()
            producer.flush(30)
            assert isinstance(error, SendFailedError)
            return early.done(), str(error), error.outcome, early.result().offset

        is_done, text, outcome, offset = Child(work).result()
        assert is_done
        assert offset == early.result().offset
        assert outcome is Outcome.MAYBE_STORED
        assert "the parent sends it" in text
        assert not late.done()
        for name in ("broker-a", "broker-b"):
            cluster.broker(name).heal()
        assert late.result(30)
    assert stored(cluster) == Counter([b"early", b"late"])


@pytest.mark.parametrize("auto_batch", [False, True])
def test_an_asyncio_delivery_from_before_the_fork_fails_at_once_in_the_child(
    cluster: EmbeddedCluster, auto_batch: bool
) -> None:
    async def parent() -> tuple[str, str]:
        options = {"send_timeout": 60.0, "async_retries": 0, "auto_batch": auto_batch}
        async with AsyncProducer(cluster.name_server, **options) as producer:
            early = await producer.submit(Message("orders", b"early"))
            await early
            for name in ("broker-a", "broker-b"):
                cluster.broker(name).hang()
            late = await producer.submit(Message("orders", b"late"))

            async def use() -> tuple[str, str]:
                assert early.done()
                assert late.done()
                with pytest.raises(SendFailedError) as failed:
                    await late
                assert failed.value.outcome is Outcome.MAYBE_STORED
                with pytest.raises(ClientClosedError) as refused:
                    await producer.send(Message("orders", b"child"))
                await producer.shutdown()
                return str(failed.value), str(refused.value)

            texts = await asyncio.to_thread(Child(lambda: _on_new_loop(use())).result)
            assert not late.done()
            for name in ("broker-a", "broker-b"):
                cluster.broker(name).heal()
            assert await late
            return texts

    failed, refused = asyncio.run(parent())
    assert "the parent sends it" in failed
    assert "make a new one in the child" in refused
    assert stored(cluster) == Counter([b"early", b"late"])


def _on_new_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """In a child that was forked inside a running loop."""
    asyncio._set_running_loop(None)
    return asyncio.run(work)


def test_a_child_that_never_sends_opens_nothing_and_starts_no_thread(
    cluster: EmbeddedCluster, producer: Producer, tmp_path: Path
) -> None:
    options = {"trace": True, "telemetry": tmp_path / "t", "status": tmp_path / "status.json"}
    cluster.create_topic("orders", queues=2)
    with (
        Producer(cluster.name_server, group="rich", **options) as rich,
        Reader(cluster.name_server) as reader,
    ):
        send_all(rich, [b"x"])
        assert reader.queues("orders")

        def work() -> tuple[list[str], int]:
            producer.flush(30)
            return [thread.name for thread in threading.enumerate()], open_sockets()

        before = open_sockets()
        names, count = Child(work).result()
        assert len(names) == 1
        # What is left is the cluster's, which runs in this process.
        assert count < before or not before
        send_all(rich, [b"y"])
        assert reader.queues("orders")
    assert stored(cluster) == Counter([b"x", b"y"])


def open_sockets() -> int:
    """Sockets that this process has open; 0 where nobody tells."""
    numbers = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    return sum(_is_socket(number) for number in numbers)


def _is_socket(number: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    except OSError:
        return False


def test_shutting_down_in_the_child_leaves_the_parent_running(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    def work() -> str:
        producer.shutdown()
        with pytest.raises(ClientClosedError):
            producer.send(Message("orders", b"x"))
        return "closed"

    assert Child(work).result() == "closed"
    send_all(producer, bodies("parent", 10))
    assert stored(cluster) == Counter(bodies("parent", 10))


def test_producers_that_share_an_instance_share_one_in_the_child_too(
    cluster: EmbeddedCluster,
) -> None:
    options = {"client_id": "shared-across-a-fork"}
    with (
        Producer(cluster.name_server, group="a", **options) as first,
        Producer(cluster.name_server, group="b", **options) as second,
    ):
        assert first._instance is second._instance
        send_all(first, [b"x"])

        def work() -> tuple[bool, list[str]]:
            ids = send_all(first, [b"1"]) + send_all(second, [b"2"])
            return first._instance is second._instance, ids

        is_shared, ids = Child(work).result()
        assert is_shared
        ids += send_all(first, [b"3"]) + send_all(second, [b"4"])
        assert len(set(ids)) == 4


def test_a_producer_that_was_not_open_at_the_fork_is_as_it_was(cluster: EmbeddedCluster) -> None:
    waiting, closed = Producer(cluster.name_server), Producer(cluster.name_server)
    closed.start()
    closed.shutdown()

    def work() -> list[str]:
        for one in (waiting, closed):
            with pytest.raises(ClientClosedError):
                one.send(Message("orders", b"x"))
        with waiting:
            return send_all(waiting, [b"child"])

    assert len(Child(work).result()) == 1
    with waiting:
        send_all(waiting, [b"parent"])
    assert stored(cluster) == Counter([b"child", b"parent"])


def test_a_reader_reads_on_both_sides(cluster: EmbeddedCluster, producer: Producer) -> None:
    send_all(producer, bodies("m", 30))
    with Reader(cluster.name_server) as reader:

        def read() -> list[bytes]:
            return sorted(message.body for message in reader.read("orders"))

        before = read()
        assert Child(read).result() == before == sorted(bodies("m", 30))
        assert read() == before


def test_a_child_forked_inside_a_running_loop_can_have_a_loop_of_its_own(
    cluster: EmbeddedCluster,
) -> None:
    async def send(name: str) -> list[str]:
        async with AsyncProducer(cluster.name_server, group=name) as own:
            return [(await own.send(Message("orders", b))).message_id for b in bodies(name, 5)]

    async def parent() -> list[str]:
        async with AsyncProducer(cluster.name_server, group="parent") as own:
            ids = [(await own.send(Message("orders", b"first"))).message_id]
            child = Child(lambda: asyncio.run(send("child")))
            ids.append((await own.send(Message("orders", b"meanwhile"))).message_id)
            ids += await asyncio.to_thread(child.result)
            ids.append((await own.send(Message("orders", b"last"))).message_id)
            return ids

    ids = asyncio.run(parent())
    assert len(set(ids)) == 8
    assert stored(cluster) == Counter([b"first", b"meanwhile", b"last", *bodies("child", 5)])


# -- reports --------------------------------------------------------------------------------------


def test_telemetry_of_parent_and_child_goes_to_files_of_their_own(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    # Time enough for a machine that pauses: a retry would be a line of its own.
    with Producer(cluster.name_server, telemetry=tmp_path, send_timeout=60.0) as producer:
        ids = send_all(producer, bodies("before", 20))

        def work() -> tuple[str, list[str]]:
            sent = send_all(producer, bodies("child", 20))
            producer.shutdown()
            return producer.client_id, sent

        child_id, child_ids = Child(work).result()
        ids += send_all(producer, bodies("after", 20))
        parent_id = producer.client_id
    written: dict[str, list[str]] = {}
    for path in tmp_path.iterdir():
        found = [json.loads(line) for line in path.read_text().splitlines()]
        (client_id,) = {line["clientId"] for line in found}
        # A broker that such a machine makes look slow is isolated, which is a line, too.
        attempts = [line for line in found if line["kind"] == "attempt"]
        written[client_id] = [line["messageId"] for line in attempts]
    assert written == {parent_id: ids, child_id: child_ids}


def test_traces_of_parent_and_child_arrive_once(cluster: EmbeddedCluster) -> None:
    with Producer(cluster.name_server, trace=True) as producer:
        ids = send_all(producer, bodies("before", 5))

        def work() -> list[str]:
            sent = send_all(producer, bodies("child", 5))
            producer.shutdown()
            return sent

        ids += Child(work).result()
        ids += send_all(producer, bodies("after", 5))
    records = [r for m in cluster.messages(TRACE_TOPIC) for r in decode_trace(m.body)]
    assert sorted(record.message_id for record in records) == sorted(ids)


def test_parent_and_child_show_a_status_each(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    pause = threading.Event()
    with Producer(cluster.name_server, status=path) as producer:
        while not read_statuses(path):
            pause.wait(0.01)

        def work() -> list[int]:
            send_all(producer, [b"child"])  # from then on the child has a producer, too
            while len(found := read_statuses(path)) < 2:
                pause.wait(0.01)
            producer.shutdown()
            return [status["pid"] for status in found]

        child = Child(work)
        assert child.result() == [os.getpid(), child.pid]
        assert [status["pid"] for status in read_statuses(path)] == [os.getpid()]


# -- multiprocessing --------------------------------------------------------------------------------


@pytest.fixture
def inherited(producer: Producer) -> Iterator[Producer]:
    forking.inherited = producer
    yield producer
    forking.inherited = None


def _collect(results: Any, processes: list[Any]) -> list[tuple[str, list[str]]]:
    for process in processes:
        process.start()
    answers = [results.get(timeout=forking.LIMIT) for _ in processes]
    for process in processes:
        process.join(forking.LIMIT)
        assert process.exitcode == 0
    results.close()
    results.join_thread()
    return answers


def test_forked_processes_use_the_producer_that_they_inherit(
    cluster: EmbeddedCluster, inherited: Producer
) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=forking.use_inherited, args=(f"process-{n}", 20, results))
        for n in range(3)
    ]
    answers = _collect(results, processes)
    ids = [i for _, sent in answers for i in sent] + send_all(inherited, bodies("parent", 20))
    assert len(set(ids)) == len(ids) == 80
    assert len({client for client, _ in answers} | {inherited.client_id}) == 4
    assert sum(stored(cluster).values()) == 80


def test_spawned_processes_have_producers_of_their_own(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(
            target=forking.use_own, args=(cluster.name_server, f"process-{n}", 20, results)
        )
        for n in range(2)
    ]
    answers = _collect(results, processes)
    ids = [i for _, sent in answers for i in sent] + send_all(producer, bodies("parent", 20))
    assert len(set(ids)) == len(ids) == 60
    assert sum(stored(cluster).values()) == 60


def test_a_pool_of_workers_sends_with_the_inherited_producer(
    cluster: EmbeddedCluster, inherited: Producer
) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        answers = pool.map(forking.send_one, bodies("pool", 40), chunksize=5)
        pool.close()
        pool.join()
    assert os.getpid() not in {pid for pid, _ in answers}
    assert len({message_id for _, message_id in answers}) == 40
    assert stored(cluster) == Counter(bodies("pool", 40))
