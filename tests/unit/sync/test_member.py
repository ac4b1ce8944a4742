"""Handler threads: each message is handled once, by as many at a time as there are."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import unique_group
from tests.unit.core.group.test_process_queue import message

from rocketwire import Consumer, Message, Producer
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.workload import Work, Workload
from rocketwire.core.wake_up import WakeUp
from rocketwire.embedded import EmbeddedCluster
from rocketwire.message import MessageQueue

LIMIT = 30.0
COUNT = 2000


@pytest.fixture(scope="module")
def backlog() -> Iterator[tuple[str, str]]:
    """A name server, and a topic with messages in two queues."""
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("backlog", 2)
        with Producer(cluster.name_server, group="feeder") as producer:
            for result in producer.send_many(Message("backlog", str(n)) for n in range(COUNT)):
                assert not isinstance(result, Exception), result
        yield cluster.name_server, "backlog"


@pytest.fixture
def run(backlog) -> Iterator[Callable[..., None]]:
    """Run a handler that is given the consumer, too; fails if it is not stopped in time."""
    made: list[Consumer] = []

    def start(handler: Callable[[Consumer, Any], object], **options: Any) -> None:
        name_server, topic = backlog
        one = Consumer(name_server, group=unique_group(), start="earliest", **options)
        made.append(one.subscribe(topic))
        thread = threading.Thread(target=one.run, args=(lambda given: handler(one, given),))
        thread.start()
        thread.join(LIMIT)
        assert not thread.is_alive(), "the consumer was not stopped by its handler"

    yield start
    for one in made:
        one.shutdown()


def test_every_message_is_handled_once(run):
    seen: list[str] = []
    places = itertools.count(1)

    def handle(one: Consumer, given: Any) -> None:
        seen.append(given.text)
        if next(places) == COUNT:
            one.stop()

    run(handle, workers=8)
    assert Counter(seen) == Counter(str(n) for n in range(COUNT))


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("quick", [0, 40])
def test_all_threads_are_at_work_where_handlers_wait(run, batch, quick):
    """Also after many that did not wait: quick handlers are left to few threads."""
    together = threading.Barrier(4)
    places = itertools.count()

    def handle(one: Consumer, _: Any) -> None:
        if next(places) >= quick:
            together.wait(LIMIT)  # breaks, and fails the test, if fewer come
            one.stop()

    run(handle, workers=4, batch=batch)
    assert not together.broken


def test_all_threads_are_at_work_again_and_again_where_few_messages_wait(run):
    together = threading.Barrier(4)
    places, meetings = itertools.count(), itertools.count(1)

    def handle(one: Consumer, _: Any) -> None:
        if next(places) % 100 >= 96:  # four of a hundred
            together.wait(LIMIT)
            if next(meetings) == 20:
                one.stop()
                together.abort()

    run(handle, workers=4)
    assert next(meetings) > 20


def test_nothing_waits_behind_a_message_that_hangs(run):
    """Three hang for as long as anything else is not handled; the fourth thread does it all."""
    places, done = itertools.count(1), itertools.count(1)
    all_done = threading.Event()
    hung: list[bool] = []

    def handle(one: Consumer, _: Any) -> None:
        if next(places) in {1, 500, 1200}:
            hung.append(all_done.wait(LIMIT))
            return
        if next(done) == COUNT - 3:
            all_done.set()
            one.stop()

    run(handle, workers=4)
    assert hung == [True] * 3


def test_not_one_message_more_after_a_stop(run):
    seen: list[str] = []

    def handle(one: Consumer, given: Any) -> None:
        seen.append(given.text)
        if len(seen) == 10:
            one.stop()

    run(handle, workers=1)
    assert len(seen) == 10


def test_a_message_that_failed_is_told_by_its_own_id(run, caplog):
    ids: list[str] = []

    def handle(one: Consumer, given: Any) -> None:
        ids.append(given.message_id)
        if len(ids) == 7:
            one.stop()
            raise ValueError("the seventh")

    run(handle, workers=1)
    (told,) = [r for r in caplog.records if "a handler failed" in r.message]
    assert ids[6] in told.message


def test_a_thread_left_behind_in_its_handler_does_nothing_in_a_later_run(backlog):
    """It comes back into another membership, whose messages it must neither take nor count."""
    name_server, topic = backlog
    let_go, left_behind, seen = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    options = {"group": unique_group(), "start": "earliest", "shutdown_timeout": 0.1}
    with Consumer(name_server, workers=1, **options).subscribe(topic) as one:

        def hang(_: Any) -> None:
            threads.append(threading.current_thread())
            one.stop()
            left_behind.set()
            let_go.wait(LIMIT)
            raise ValueError("far too late")

        one.run(hang)
        assert left_behind.is_set()

        def handle(_: Any) -> None:
            assert threading.current_thread() not in threads
            let_go.set()
            threads[0].join(LIMIT)
            seen.set()
            one.stop()

        one.run(handle)
        assert seen.is_set()
        assert len(threads) == 1
        assert not threads[0].is_alive()


def test_an_iteration_that_is_left_acknowledged_all_but_the_last(backlog):
    name_server, topic = backlog
    group = unique_group()
    seen: list[set[str]] = []
    last = ""
    for wanted in (500, COUNT - 499):
        texts: set[str] = set()
        with Consumer(name_server, group=group, start="earliest").subscribe(topic) as one:
            for given in one:
                texts.add(given.text)
                if len(texts) == wanted:
                    last = last or given.text
                    break
        seen.append(texts)
    assert seen[0] & seen[1] == {last}
    assert seen[0] | seen[1] == {str(n) for n in range(COUNT)}


# Threads at one workload, without a network


class Crowd:
    """Threads that handle what is put into a workload, as fast as they can."""

    def __init__(self, *, ordered: bool = False) -> None:
        self.lock = threading.Lock()
        ticks = itertools.count()
        # A clock by which every tenth message or so ends a slice.
        self.workload = Workload(
            lock=self.lock, clock=lambda: next(ticks) * 1e-4, ordered=ordered, needs_lock=False
        )
        self.queues = [
            ProcessQueue(MessageQueue("T", "a", n), 0, WakeUp(threading.Lock())) for n in range(3)
        ]
        self.handled: list[tuple[int, int, int]] = []
        self.inside: Counter[int] = Counter()
        self.overlaps = 0
        self.is_over = False

    def put(self, queue: ProcessQueue, count: int) -> None:
        start = queue.next_offset
        found = [message(start + n) for n in range(count)]
        self.workload.put(queue, found, start + count)

    def _handle(self, work: Work, given: Any) -> None:
        number = work.process_queue.queue.id
        self.inside[number] += 1
        self.overlaps += self.inside[number] > 1
        self.handled.append((number, work.epoch, given.offset))
        self.inside[number] -= 1

    def _work(self) -> None:
        workload = self.workload
        while True:
            is_over = self.is_over  # asked first: what is put afterwards must be handled
            with self.lock:
                work = workload.next_work()
            if work is None:
                if is_over:
                    return
                continue
            given = work.given
            while given is not None:
                self._handle(work, given)
                given = workload.go_on(work)
            workload.finish(work)

    def run(self, meanwhile: Callable[[], None]) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(4)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # threads come between one another wherever they can
        try:
            for thread in threads:
                thread.start()
            meanwhile()
        finally:
            self.is_over = True
            for thread in threads:
                thread.join(LIMIT)
            sys.setswitchinterval(interval)
        assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("ordered", [False, True])
def test_threads_take_each_message_once(ordered):
    crowd = Crowd(ordered=ordered)

    def fill() -> None:
        for _ in range(100):
            for queue in crowd.queues:
                crowd.put(queue, 7)
                crowd.workload.floors([queue])

    crowd.run(fill)
    assert Counter(crowd.handled) == Counter((q, 0, n) for q in range(3) for n in range(700))
    workload = crowd.workload
    assert (workload.handled, workload.held, workload.held_bytes, workload.in_hand) == (
        2100,
        0,
        0,
        0,
    )
    assert [(q.floor, q.in_hand) for q in crowd.queues] == [(700, 0)] * 3
    if ordered:
        assert not crowd.overlaps
        for number in range(3):
            found = [offset for q, _, offset in crowd.handled if q == number]
            assert found == sorted(found)


def test_queues_that_begin_anew_while_threads_go_on_keep_their_count():
    crowd = Crowd()

    def fill() -> None:
        for turn in range(60):
            for queue in crowd.queues:
                crowd.put(queue, 20)
            crowd.workload.restart(crowd.queues[turn % 3], 1000 * (turn + 1))
        for queue in crowd.queues:
            crowd.put(queue, 20)

    crowd.run(fill)
    workload = crowd.workload
    assert (workload.held, workload.held_bytes, workload.in_hand) == (0, 0, 0)
    assert [q.floor for q in crowd.queues] == [q.next_offset for q in crowd.queues]
    assert max(Counter(crowd.handled).values()) == 1


def test_a_queue_dropped_while_threads_go_on_is_not_committed_too_far():
    crowd = Crowd()

    def fill() -> None:
        for _ in range(50):
            for queue in crowd.queues:
                crowd.put(queue, 20)
        crowd.workload.drop(crowd.queues[0])

    crowd.run(fill)
    workload, dropped = crowd.workload, crowd.queues[0]
    assert (workload.held, workload.held_bytes, dropped.held, dropped.in_hand) == (0, 0, 0, 0)
    handled = {offset for number, _, offset in crowd.handled if number == 0}
    assert set(range(dropped.floor)) <= handled


def test_what_is_taken_from_handlers_is_settled_once():
    """Each message is done by its handler or taken from it, whoever is first, never both."""
    crowd = Crowd()
    taken: list[int] = []

    def fill() -> None:
        workload = crowd.workload
        for _ in range(100):
            for queue in crowd.queues:
                crowd.put(queue, 10)
            for work, late in workload.overdue(float("inf")).items():
                if (lost := workload.abandon(work, late)) is not None:
                    taken.append(len(lost.messages))
                    for one in lost.messages:
                        workload.settle(lost, one)
                    workload.close(lost)

    crowd.run(fill)
    workload = crowd.workload
    assert workload.handled + sum(taken) == 3000
    assert (workload.held, workload.held_bytes, workload.in_hand) == (0, 0, 0)
    assert [(q.floor, q.in_hand) for q in crowd.queues] == [(1000, 0)] * 3
