"""A model of senders in a closed loop over simulated brokers: what does a fault policy cost?

It runs the decisions of the client itself (fault table, queue choice, retries) over simulated
brokers, without messages and codecs, so that minutes of a cluster's life take a second. Use it to
compare policies for your own latencies.

>>> model = PolicyModel(FaultPolicy(), senders=4)
>>> model.break_broker("broker-b", start=5.0, end=10.0, fault=Hang())
>>> figures = model.run(until=12.0)
>>> figures.failed
0
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from rocketwire.core.effects import Invoke, Op, sleep
from rocketwire.core.faults.selection import RoundRobinCounter, TopicQueues
from rocketwire.core.faults.table import FaultTable, Flight
from rocketwire.core.sending.retry import attempt_deadline, failure, is_retryable, outcome_of
from rocketwire.errors import Attempt, RocketMQError, SendFailedError, TransportError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Fault, Hang, Latency, Refuse, Slow, with_pauses
from rocketwire.testing.simulation import SimulatedDriver, SimulatedNetwork
from rocketwire.wire.codes import STORED, RequestCode, error_for
from rocketwire.wire.command import Command, Reply

__all__ = ["FaultPolicy", "Figures", "Hang", "PolicyModel", "Refuse", "Slow"]

_TOPIC: Final = "model"
_LOOK_AGAIN: Final = 0.05
_UNWELL: Final = frozenset({2, 14, 215})

#: Brokers of about 2 ms that pause for 20 to 150 ms in 0.3 % of sends.
ORDINARY: Final = with_pauses(0.002, share=0.003, shortest=0.02, longest=0.15)


@dataclass(slots=True)
class Figures:
    """What came of a run.

    ``hits`` are attempts on the broken broker while it was broken, ``goodput`` is the rate of
    good sends in that time against the rate before it, ``back`` is the time from healing to the
    first attempt there (None: never). ``moved`` is the part of attempts that a healthy cluster's
    policy kept from the queue whose turn it was.
    """

    sent: int = 0
    failed: int = 0
    hits: int = 0
    goodput: float = 1.0
    back: float | None = None
    isolations: int = 0
    slowest: float = 0.0
    by_queue: Counter[MessageQueue] = field(default_factory=Counter)
    failures: list[SendFailedError] = field(default_factory=list)


class PolicyModel:
    """Senders, brokers, and one fault table between them.

    Args:
        policy: what is modelled.
        brokers: how many; they are called broker-a, broker-b ...
        queues: on each broker.
        senders: each sends its next message when the last one is answered.
        timeout: of a send.
        retries: beyond the first try.
        attempt_timeout: the cap of an attempt, None for none; by default an even share.
        latency: of a healthy broker.
        background: whether isolated brokers are probed.
        own_counters: one round-robin counter for each sender, as threads have; else a common one.
        think: seconds from the end of a send to the sender's next one.
        seed: two models with the same seed run alike.
    """

    def __init__(  # noqa: PLR0913  independent settings of one experiment
        self,
        policy: FaultPolicy,
        *,
        brokers: int = 3,
        queues: int = 4,
        senders: int = 4,
        timeout: float = 3.0,
        retries: int = 2,
        attempt_timeout: float | None = -1.0,
        latency: Latency | float = ORDINARY,
        background: bool = True,
        own_counters: bool = True,
        think: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.network: Final = SimulatedNetwork(seed)
        self.driver: Final = SimulatedDriver(self.network)
        self.clock: Final = self.network.clock
        self.figures: Final = Figures()
        self._random = self.network.random
        self.table: Final = FaultTable(
            policy,
            clock=self.clock,
            lock=self.driver.make_lock("the table's lock"),
            random=self._random,
            on_isolated=self._isolated,
            probing=background and policy.probes,
        )
        names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        self.brokers: Final = {
            name: self.network.add_broker(name, latency=latency) for name in names
        }
        self.queues: Final = [
            MessageQueue(_TOPIC, name, n) for name in names for n in range(queues)
        ]
        self.view: Final = TopicQueues(_TOPIC, self.queues, self.table)
        self._senders = senders
        self._timeout = timeout
        self._tries = 1 + retries
        self._cap = timeout / self._tries if attempt_timeout == -1.0 else attempt_timeout
        self._background = background and policy.probes
        self._own_counters = own_counters
        self._think = think
        self._broken: tuple[str, float, float] | None = None
        self._good_before = 0
        self._good_during = 0
        self._until = 0.0

    def break_broker(self, broker: str, *, start: float, end: float, fault: Fault) -> None:
        """Have something wrong with a broker for a time. The figures are about the last such."""
        self._broken = (broker, start, end)
        self.brokers[broker].break_between(start, end, fault)

    def run(self, until: float) -> Figures:
        """Run to a moment, and let sends under way come to their end."""
        self._until = until
        shared = RoundRobinCounter(self._random)
        tasks = [
            self.driver.spawn(
                self._sender(RoundRobinCounter(self._random) if self._own_counters else shared)
            )
            for _ in range(self._senders)
        ]
        if self._background:
            self.driver.spawn(self._prober())
        self.clock.run_until(until)
        self.clock.run_while(lambda: not all(task.done for task in tasks))
        for task in tasks:
            task.result()
        self._sum_up()
        return self.figures

    # ------------------------------------------------------------------ operations

    def _sender(self, counters: RoundRobinCounter) -> Op[None]:
        figures = self.figures
        while self.clock() < self._until:
            began = self.clock()
            try:
                yield from self.send(counters)
            except SendFailedError as error:
                figures.failed += 1
                figures.failures.append(error)
            else:
                self._count_good()
            figures.sent += 1
            figures.slowest = max(figures.slowest, self.clock() - began)
            if self._think:
                yield from sleep(self.clock() + self._think)

    def send(self, counters: RoundRobinCounter) -> Op[MessageQueue]:
        """One send, with its retries; returns where it was stored."""
        began = self.clock()
        deadline = began + self._timeout
        failed: list[str] = []
        attempts: list[Attempt] = []
        for tries_left in reversed(range(self._tries)):
            now = self.clock()
            if now >= deadline:
                break
            queue = self.view.best(counters, now, failed)
            error = yield from self._attempt(queue, now, deadline, tries_left)
            if error is None:
                self.figures.by_queue[queue] += 1
                return queue
            attempts.append(Attempt(queue, self.clock() - now, error, outcome_of(error)))
            failed.append(queue.broker)
            if not is_retryable(error):
                break
        now = self.clock()
        raise failure(attempts, now - began, deadline_passed=now >= deadline)

    def _attempt(
        self, queue: MessageQueue, now: float, deadline: float, tries_left: int
    ) -> Op[RocketMQError | None]:
        self._count_attempt(queue.broker, now)
        another = self.view.another_usable(queue.broker, now)
        until = attempt_deadline(
            now, deadline, self._cap, tries_left=tries_left, another_usable=another
        )
        flight = self.table.begin(queue.broker, now)
        try:
            reply: Reply = yield Invoke(queue.broker, _REQUEST, until, flight)
        except TransportError as error:
            self.table.broke(flight, self.clock(), error)
            return error
        except GeneratorExit:
            self.table.cancelled(flight)
            raise
        return self._read(flight, reply, queue.broker)

    def _read(self, flight: Flight, reply: Reply, broker: str) -> RocketMQError | None:
        self.table.replied(flight, reply.arrived, reply.code)
        return None if reply.code in STORED else error_for(reply.code, reply.remark, broker)

    def _prober(self) -> Op[None]:
        while self.clock() < self._until:
            now = self.clock()
            for broker in self.table.probe_due(now):
                self.table.probe_started(broker)
                self.driver.spawn(self._probe(broker))
            due = self.table.next_probe_at()
            later = now + _LOOK_AGAIN
            yield from sleep(later if due is None else min(max(due, now + 0.001), later))

    def _probe(self, broker: str) -> Op[None]:
        began = self.clock()
        try:
            reply: Reply = yield Invoke(broker, _HEARTBEAT, began + self.table.policy.probe_timeout)
        except TransportError:
            self.table.probe_finished(broker, self.clock(), None, good=False)
        else:
            good = reply.code not in _UNWELL
            self.table.probe_finished(broker, self.clock(), reply.arrived - began, good=good)

    # ------------------------------------------------------------------ figures

    def _isolated(self, broker: str, why: str, until: float | None) -> None:
        self.figures.isolations += 1

    def _count_attempt(self, broker: str, now: float) -> None:
        if self._broken is None or broker != self._broken[0]:
            return
        _, start, end = self._broken
        if start <= now < end:
            self.figures.hits += 1
        elif now >= end and self.figures.back is None:
            self.figures.back = now - end

    def _count_good(self) -> None:
        if self._broken is None:
            return
        _, start, end = self._broken
        now = self.clock()
        if now < start:
            self._good_before += 1
        elif now < end:
            self._good_during += 1

    def _sum_up(self) -> None:
        if self._broken is None or not self._good_before:
            return
        _, start, end = self._broken
        self.figures.goodput = (self._good_during / (end - start)) / (self._good_before / start)


_REQUEST: Final = Command(RequestCode.SEND_MESSAGE_V2, body=b"x" * 200)
_HEARTBEAT: Final = Command(RequestCode.HEART_BEAT)
