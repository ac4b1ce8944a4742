"""The walks are those that messages take: each step is called, in the order in which the page has them.

A blocking send and a submit are compared the other way round, too: the page names every file that is passed, as a step,
after the steps, or in its first words.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.docs.test_walks import PREAMBLE, WALKS, Step, files_of, list_of, names_in, rest_of, steps

import rocketwire
from rocketwire import (
    Admin,
    AsyncProducer,
    Consumer,
    Delivery,
    Message,
    MessageQueue,
    Producer,
    StoredMessage,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.selectors import QueueList, hash_queue

_PACKAGE = f"{Path(rocketwire.__file__).parent}/"
#: What is passed by everything and belongs to no walk: values that users hold, their rules, and words of errors.
_VALUES = re.compile(r"[^/]+\.py")
#: For walks whose files are all compared: under the default policy a plan is made anew after a pause, and a slow answer
#: is judged; a busy machine has both.
_NO_JUDGE = "off"
#: Steps that another thread takes while the steps around them are taken: each comes in its place among the steps of
#: its own thread only.
MEANWHILE = {
    "A submit": {"Delivery.result": "the caller waits while the background sends"},
    "An auto-batched send": {
        "BatchedDelivery": "the background may begin before the caller has its handle",
        "Delivery.result": "the caller waits while the background sends",
    },
    "A handled message": {
        "Member.handle_all": "workers wait for messages while the first ones are pulled"
    },
    "A Spark row": {"TableWriter.finish": "the task waits while threads send"},
}
#: Steps that were called before, for something else: what counts is a call after the step before. Steps that a walk
#: names twice are such, too.
AGAIN = {
    "A handled message": {
        "Connection.issue": "routes, heartbeats and offsets have been asked for",
        "Connection.data_received": "and were answered",
        "Workload.next_work": "workers have looked before there was any",
        "commit": "offsets are committed every few seconds",
    },
    "A Spark row": {
        "Driver.run": "the topic was looked up when the options were checked",
        "Connection.call": "the topic was looked up when the options were checked",
    },
}


class Trail:
    """The calls of functions of the package, from ``begin`` to ``end``, on all threads that are noted.

    Args:
        at: what is done when a function is called.
    """

    def __init__(self, at: Mapping[str, Callable[[], object]] | None = None) -> None:
        #: File, function and thread. Appending to a list is one step of the interpreter, on every thread.
        self.calls: list[tuple[str, str, int]] = []
        self.is_open = True
        self._at = at or {}

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function."""
        name = frame.f_code.co_filename
        if event == "call" and self.is_open and name.startswith(_PACKAGE):
            file, function = name.removeprefix(_PACKAGE), frame.f_code.co_qualname
            if not file.startswith("embedded/"):
                self.calls.append((file, function, threading.get_ident()))
                if function in self._at:
                    self._at[function]()

    def begin(self) -> None:
        """What was called before belongs to something else."""
        self.calls.clear()

    def end(self) -> None:
        """What comes now belongs to something else."""
        self.is_open = False

    @property
    def files(self) -> dict[str, str]:
        """The files, each with the function that was called first in it."""
        return {file: function for file, function, _ in reversed(self.calls)}


@contextmanager
def here(trail: Trail) -> Iterator[None]:
    """Note what this thread calls, and nothing that the garbage collector calls for earlier tests."""
    before = sys.getprofile()
    gc.collect()
    gc.disable()
    sys.setprofile(trail.note)
    try:
        yield
    finally:
        sys.setprofile(before)
        gc.enable()


@contextmanager
def everywhere(trail: Trail) -> Iterator[None]:
    """Note what this thread calls, and all threads that begin meanwhile."""
    threading.setprofile(trail.note)
    try:
        with here(trail):
            yield
    finally:
        threading.setprofile(None)


def faults(walk: str, wanted: Sequence[Step], trail: Trail) -> list[str]:
    """Steps that were not taken, or before the one before."""
    places: defaultdict[Step, list[tuple[int, int]]] = defaultdict(list)
    for place, (file, function, thread) in enumerate(trail.calls):
        places[Step(file, function)].append((place, thread))
    found, taken, last, before = [], set(), -1, ""
    of_thread: defaultdict[int, int] = defaultdict(lambda: -1)
    for step in wanted:
        calls = places[Step(step.file, names_in(step.file)[step.name])]
        is_meanwhile = step.name in MEANWHILE.get(walk, ())
        if step in taken or step.name in AGAIN.get(walk, ()):
            calls = [call for call in calls if call[0] > last] or calls
        if not calls:
            found.append(f"{step} is not called")
            continue
        place, thread = calls[0]
        if place <= (of_thread[thread] if is_meanwhile else max(of_thread[thread], last)):
            found.append(f"{step} is called before {before}")
        of_thread[thread] = place
        if not is_meanwhile:
            last = place
        taken.add(step)
        before = str(step)
    return found


def check(walk: str, trail: Trail) -> None:
    """Every step was taken, in this order."""
    assert faults(walk, steps(list_of(walk)), trail) == []


def check_all(walk: str, trail: Trail, *, goes_on_as: str = "") -> None:
    """Every file that was passed is named, too; of a submit, that is every file of the first words."""
    check(walk, trail)
    if goes_on_as:
        wanted = files_of(PREAMBLE) - {"wire/message_id.py"}  # once in a millisecond
        assert wanted - trail.files.keys() == set(), "named for all, and not passed"
    named = files_of(WALKS[walk]) | files_of(PREAMBLE)
    if goes_on_as:
        named |= files_of(WALKS[goes_on_as])
    passed = trail.files.items()
    unknown = {f: by for f, by in passed if f not in named and not _VALUES.fullmatch(f)}
    assert not unknown, f"passed, and not named in {walk!r}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        with Producer(cluster.name_server, group="walks") as producer:
            producer.create_topic("walks", queues=2)
        yield cluster


def usual(number: int) -> Message:
    return Message("walks", f"body {number}", tags="paid", keys=f"order-{number}")


def ordered(number: int) -> Message:
    return Message("walks", f"step {number}", sharding_key="order-1")


class Held:
    """A selector that keeps the thread which asks it, until it may go on.

    Asked by the background, it keeps all that was submitted from going on.
    """

    def __init__(self, *, fails: bool) -> None:
        self.is_asked = threading.Event()
        self.may_go_on = threading.Event()
        self._fails = fails

    def __call__(self, queues: QueueList, message: Message, argument: object) -> MessageQueue:
        self.is_asked.set()
        assert self.may_go_on.wait(30)
        if self._fails:
            raise ValueError("not to be sent")
        return hash_queue(queues, message, argument)

    def submit(self, producer: Producer, message: Message) -> Delivery:
        """Submit a message that is held; returns when the background is held, too."""
        delivery = producer.submit(message, selector=self)
        assert self.is_asked.wait(30)
        return delivery


def test_a_blocking_send_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()
    with Producer(cluster.name_server, group="walks", fault=_NO_JUDGE) as producer:
        for number in range(10):
            producer.send(usual(number))
        message = usual(10)
        with here(trail):
            producer.send(message)
    check_all("A blocking send", trail)


def test_a_submit_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()

    async def main() -> None:
        # Without upkeep, which is on this loop, too.
        async with AsyncProducer(
            cluster.name_server, group="walks", background=False, fault=_NO_JUDGE
        ) as producer:
            for number in range(10):
                await producer.send(usual(number))
            message = usual(10)
            with here(trail):
                await (await producer.submit(message))

    asyncio.run(main())
    check_all("A submit", trail, goes_on_as="A blocking send")


def test_a_submit_of_a_thread_takes_the_way_that_is_told_after_it(cluster: EmbeddedCluster) -> None:
    trail, walk = Trail(), "A submit"
    with (
        everywhere(trail),
        Producer(cluster.name_server, group="walks", background=False) as producer,
    ):
        producer.submit(usual(0)).result(10)
        trail.begin()
        producer.submit(usual(1)).result(10)
        trail.end()
    told = rest_of(walk)
    assert faults(walk, steps(told[told.index("`sync/producer.py`") :]), trail) == []


def test_an_ordered_send_takes_its_walk(cluster: EmbeddedCluster) -> None:
    held = Held(fails=False)
    trail = Trail(at={"Driver._wait": held.may_go_on.set})
    with Producer(cluster.name_server, group="walks") as producer:
        producer.send(ordered(0))
        first = held.submit(producer, ordered(1))
        message = ordered(2)
        with here(trail):
            producer.send(message)
        assert first.result(10).offset + 1 == producer.send(ordered(3)).offset - 1
    check("An ordered send", trail)


def test_an_ordered_send_without_another_goes_on_as_a_blocking_send(
    cluster: EmbeddedCluster,
) -> None:
    trail, walk = Trail(), "An ordered send"
    with Producer(cluster.name_server, group="walks") as producer:
        producer.send(ordered(0))
        message = ordered(1)
        with here(trail):
            producer.send(message)
    assert faults(walk, steps(rest_of(walk)), trail) == []
    assert "send_operation" not in {function for _, function, _ in trail.calls}


def test_an_auto_batched_send_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail, held = Trail(), Held(fails=True)
    with (
        everywhere(trail),
        Producer(cluster.name_server, group="walks", auto_batch=True, background=False) as producer,
    ):
        producer.send(usual(0))
        producer.submit(usual(1)).result(10)
        refused = held.submit(producer, usual(2))
        # Handed over while the background is held, they leave in one batch.
        trail.begin()
        deliveries = [producer.submit(usual(number)) for number in range(3, 8)]
        held.may_go_on.set()
        for delivery in deliveries:
            delivery.result(10)
        trail.end()
        assert refused.exception(10)
    check("An auto-batched send", trail)


def test_a_handled_message_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()
    with Producer(cluster.name_server, group="walks") as producer:
        producer.send(usual(20))
    with (
        everywhere(trail),
        Consumer(cluster.name_server, group="walkers", start="earliest") as consumer,
    ):

        def handle(message: StoredMessage) -> None:
            assert message.topic == "walks"
            assert message.keys is not None
            consumer.stop()

        consumer.subscribe("walks").run(handle)
        trail.end()
    check("A handled message", trail)


class _StopAtDeadLetter:
    """A hook that ends a consumer whose handler has failed for the last time."""

    def __init__(self) -> None:
        self.stop: Callable[[], object] = partial(pytest.fail, "no consumer")

    def dead_lettered(self, event: object) -> None:
        self.stop()


def test_a_message_that_is_given_up_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail, hook = Trail(), _StopAtDeadLetter()
    with Producer(cluster.name_server, group="walks") as producer:
        producer.create_topic("walks-back", queues=1)
        producer.send(Message("walks-back", b"nobody can handle it"))
    with everywhere(trail):
        with Consumer(
            cluster.name_server, group="failing", start="earliest", max_attempts=1, hooks=[hook]
        ) as consumer:

            def handle(message: StoredMessage) -> None:
                raise ValueError(message.message_id)

            hook.stop = consumer.stop
            consumer.subscribe("walks-back").run(handle)
        with Admin(cluster.name_server) as admin:
            (letter,) = admin.dead_letters("failing")
            assert admin.redrive(letter).is_new
        trail.end()
    check("A message that is given up, and comes back", trail)


def test_a_spark_row_takes_its_walk(cluster: EmbeddedCluster) -> None:
    pytest.importorskip("pyspark")
    arrow = pytest.importorskip("pyarrow")
    import_module("rocketwire.columns.writer")  # as every import, not while calls are noted
    from pyspark.sql.types import StringType, StructField, StructType

    from rocketwire.spark import client
    from rocketwire.spark.source import RocketMQDataSource

    trail, before = Trail(), set(client._clients)
    rows = arrow.RecordBatch.from_pydict({"body": [f"row {number}" for number in range(10)]})
    try:
        with everywhere(trail):
            source = RocketMQDataSource({"nameServers": cluster.name_server, "topic": "walks"})
            writer = source.writer(StructType([StructField("body", StringType())]), overwrite=False)
            delivered = writer.write(iter([rows]))
            writer.commit([delivered])
            trail.end()
        assert delivered.rows == 10
    finally:  # what a process of Spark keeps until its end
        for key in client._clients.keys() - before:
            client._clients.pop(key).shutdown()
    check("A Spark row", trail)
