"""The table under real threads and a real lock."""

import threading
from random import Random

import pytest

from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.faults.selection import TopicQueues
from rocketwire.core.faults.table import FaultTable
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import MessageQueue

BROKERS = ("a", "b", "c")


class SharedTime:
    """A clock that every reading moves on a little."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.0005
        return self.now


def life(table, view, clock, seed, start, errors):
    """One sender that meets everything that can happen."""
    random = Random(seed)
    counters = RoundRobinCounter(random)
    try:
        start.wait()
        for _ in range(1_500):
            now = clock()
            queue = view.best(counters, now, ["a"] if random.random() < 0.1 else [])
            attempt = table.begin(queue.broker, now)
            view.another_usable(queue.broker, now)
            fate = random.random()
            if fate > 0.02:
                attempt.written(clock(), 300)
            if fate < 0.02:
                table.cancelled(attempt)
            elif fate < 0.06:
                table.failed(attempt, clock(), "closed the connection")
            elif fate < 0.10:
                table.replied(attempt, clock(), 17)
            else:
                table.answered(attempt, clock())
    except Exception as error:
        errors.append(error)


@pytest.mark.parametrize(
    "policy",
    [FaultPolicy(), FaultPolicy.java4(), FaultPolicy.java5(detector=True), FaultPolicy.off()],
    ids=["adaptive", "java4", "java5", "off"],
)
def test_many_threads_may_use_one_table(policy):
    clock = SharedTime()
    told = []
    table = FaultTable(
        policy,
        clock=clock,
        lock=threading.Lock(),
        random=Random(1),
        # Listeners come back to the table: with the lock held this would never end.
        on_isolated=lambda *event: told.append((event, table.snapshot(clock()))),
        on_returned=lambda *event: told.append((event, table.snapshot(clock()))),
    )
    view = TopicQueues("t", [MessageQueue("t", b, n) for b in BROKERS for n in range(2)], table)
    start = threading.Barrier(5)
    errors = []
    senders = [
        threading.Thread(target=life, args=(table, view, clock, seed, start, errors))
        for seed in range(4)
    ]
    for thread in senders:
        thread.start()
    start.wait()
    while any(thread.is_alive() for thread in senders):
        table.snapshot(clock())
        for broker in table.probe_due(clock()):
            table.probe_started(broker)
            table.probe_finished(broker, clock(), 0.001, good=True)
        table.reset("b")
        table.retain(BROKERS)
        senders[0].join(0.001)
    for thread in senders:
        thread.join()
    assert errors == []
    states = table.snapshot(clock())
    assert [health.in_flight for health in states] == [0, 0, 0]
    assert bool(told) == (policy.mode != "off")
