"""How many handler threads are awake."""

from __future__ import annotations

import threading
from contextlib import nullcontext

from tests.unit.core.test_process_queue import message

from rocketwire.core.bell import Bell
from rocketwire.core.process_queue import ProcessQueue
from rocketwire.core.workload import Workload
from rocketwire.message import MessageQueue
from rocketwire.sync.crew import Crew


class Looks:
    """In place of a loop: looks are taken when the test says so."""

    def __init__(self) -> None:
        self.waiting = []

    def call_soon_threadsafe(self, call) -> None:
        call()

    def call_later(self, _, call) -> None:
        self.waiting.append(call)

    def take(self) -> None:
        (call,) = self.waiting
        self.waiting.clear()
        call()


class Hands:
    """A crew without threads: the test takes work and says when it is done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.workload = Workload(lock=self.lock, clock=lambda: 0.0, ordered=False)
        self.looks = Looks()
        self.crew = Crew(self.workload, self.lock, self.looks)
        self.queue = ProcessQueue(MessageQueue("T", "a", 0), 0, Bell(nullcontext()))

    def put(self, count: int) -> None:
        start = self.queue.next_offset
        found = [message(start + number) for number in range(count)]
        self.workload.put(self.queue, found, start + count)

    def take(self):
        with self.lock:
            return self.crew.take()

    def handle(self, count: int) -> None:
        for _ in range(count):
            self.workload.finish(self.take())

    def quick(self) -> None:
        """A hundred messages were handled between two looks."""
        self.put(300)
        self.handle(100)
        self.looks.take()


def test_slow_handlers_all_get_work():
    hands = Hands()
    hands.put(300)
    works = [hands.take() for _ in range(4)]
    assert None not in works
    for work in works:
        hands.workload.finish(work)
    hands.handle(95)
    hands.looks.take()  # 99 since the last look: still slow
    assert None not in [hands.take() for _ in range(4)]


def test_quick_handlers_leave_the_work_to_one():
    hands = Hands()
    hands.quick()
    work = hands.take()
    assert work is not None
    assert hands.take() is None
    hands.workload.finish(work)
    assert hands.take() is not None


def test_when_the_one_is_stuck_the_others_get_work_at_the_next_look():
    hands = Hands()
    hands.quick()
    hands.take()
    assert hands.take() is None
    hands.looks.take()
    assert None not in [hands.take() for _ in range(3)]


def test_a_single_message_behind_a_stuck_handler_is_looked_after_too():
    hands = Hands()
    hands.quick()
    hands.handle(200)
    hands.looks.take()  # quick, and nothing is left
    hands.put(1)
    stuck = hands.take()
    assert stuck is not None
    hands.put(1)
    assert hands.take() is None
    hands.looks.take()
    assert hands.take() is not None


def test_looks_end_when_there_is_nothing_to_look_after():
    hands = Hands()
    hands.quick()
    hands.handle(200)
    hands.looks.take()
    hands.looks.take()
    assert hands.looks.waiting == []
    hands.put(1)  # and one message alone, with slow handlers, needs none
    assert hands.looks.waiting == []


def test_who_waits_is_woken_by_work_and_by_the_end():
    hands = Hands()
    seen = []

    def wait() -> None:
        with hands.lock:
            while len(seen) < 1:
                work = hands.crew.take()
                if work is None:
                    hands.crew.wait()
                else:
                    seen.append(work)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    hands.put(1)
    while not seen:
        threads[0].join(0.001)
    hands.crew.wake_all()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 1
