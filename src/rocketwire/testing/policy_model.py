"""A model of senders in a closed loop over simulated brokers: what does a fault policy cost?

It runs the client itself over simulated brokers, as a shell does (``Sender.start``, and the operation
of an attempt that was not simply stored), so that minutes of a cluster's life take seconds. Use it to compare policies for your own latencies.

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
from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.faults.selection import TopicQueues
from rocketwire.core.faults.table import FaultTable
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.finish import stored
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.errors import RocketMQError, SendFailedError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.hooks import BrokerEvent
from rocketwire.message import Message, MessageQueue
from rocketwire.testing.simulated_network import (
    Fault,
    Hang,
    Latency,
    Refuse,
    SimulatedRequest,
    Slow,
    with_pauses,
)
from rocketwire.testing.simulated_producer import (
    NAME_SERVER,
    Answers,
    SimulatedProducer,
    route_of,
    settings,
)
from rocketwire.testing.simulation import SimulatedDriver, SimulatedNetwork
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Reply

__all__ = ["FaultPolicy", "Figures", "Hang", "PolicyModel", "Refuse", "Slow"]

_TOPIC: Final = "model"
_MESSAGE: Final = Message(_TOPIC, b"x" * 200)

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
        names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        route = route_of(dict.fromkeys(names, queues))
        self._answers = Answers({_TOPIC: route})
        self.network: Final = SimulatedNetwork(seed, respond=self._respond)
        self.driver: Final = SimulatedDriver(self.network)
        self.clock: Final = self.network.clock
        self.figures: Final = Figures()
        self.brokers: Final = {
            name: self.network.add_broker(name, latency=latency) for name in names
        }
        self.network.add_broker(NAME_SERVER, latency=0.001)
        self.producer: Final = SimulatedProducer(
            settings(
                fault=policy,
                send_timeout=timeout,
                retries=retries,
                attempt_timeout=attempt_timeout,
                background=background,
                hooks=(_IsolationCount(self.figures),),
            ),
            clock=self.clock,
            random=self.network.random,
            make_lock=self.driver.make_lock,
        )
        self.table: Final[FaultTable] = self.producer.instance.faults
        self.route: Final[TopicEntry] = self.producer.learn(_TOPIC, route)
        self.queues: Final = list(self.route.queues)
        shared = None if own_counters else RoundRobinCounter(self.network.random)
        self._senders = [self.producer.sender(shared) for _ in range(senders)]
        #: The queues as senders see them.
        self.view: Final[TopicQueues] = self._senders[0].queues_of(self.route)
        self._think = think
        self._is_probing = False
        self._broken: tuple[str, float, float] | None = None
        self._good_before = 0
        self._good_during = 0
        self._until = 0.0

    def _respond(self, request: SimulatedRequest, code: int) -> Reply:
        return self._answers.to(request, code)

    def break_broker(self, broker: str, *, start: float, end: float, fault: Fault) -> None:
        """Have something wrong with a broker for a time. The figures are about the last such."""
        self._broken = (broker, start, end)
        self.brokers[broker].break_between(start, end, fault)

    def run(self, until: float) -> Figures:
        """Run to a moment, and let sends under way come to their end."""
        self._until = until
        tasks = [self.driver.spawn(self._sender(sender)) for sender in self._senders]
        probing = None if self._is_probing else self.producer.probing(self.driver.spawn)
        if probing is not None:
            self._is_probing = True
            self.driver.spawn(probing)
        self.clock.run_until(until)
        self.clock.run_while(lambda: not all(task.done for task in tasks))
        for task in tasks:
            task.result()
        self._sum_up()
        return self.figures

    # ------------------------------------------------------------------ operations

    def _sender(self, sender: Sender) -> Op[None]:
        figures = self.figures
        while self.clock() < self._until:
            began = self.clock()
            try:
                queue = yield from self.send(sender)
            except SendFailedError as error:
                figures.failed += 1
                figures.failures.append(error)
            else:
                figures.by_queue[queue] += 1
                self._count_good()
            figures.sent += 1
            figures.slowest = max(figures.slowest, self.clock() - began)
            if self._think:
                yield from sleep(self.clock() + self._think)

    def send(self, sender: Sender) -> Op[MessageQueue]:
        """One send, with its retries; returns where it was stored."""
        attempt = sender.start(_MESSAGE, SendMode.BLOCKING)
        self.attempt_begins(attempt)
        outcome: Reply | RocketMQError
        try:
            outcome = yield Invoke(attempt.where.address, attempt, attempt.deadline, attempt)
        except RocketMQError as error:
            outcome = error
        except GeneratorExit:
            attempt.give_up()
            raise
        if isinstance(outcome, Reply) and outcome.code == ResponseCode.SUCCESS:
            stored(attempt, outcome.frame, outcome.arrived)
            return attempt.where.queue
        operation = attempt.operation()
        next(operation)  # the attempt, which is over
        yield from self._resumed(operation, outcome)
        history = attempt.history
        assert history is not None
        assert history.last is not None
        return history.last.where.queue

    def _resumed(self, operation: Op[object], outcome: Reply | RocketMQError) -> Op[None]:
        """Run the rest of an operation, and look at each further attempt before it is made."""
        while True:
            try:
                if isinstance(outcome, RocketMQError):
                    effect = operation.throw(outcome)
                else:
                    effect = operation.send(outcome)
            except StopIteration:
                return
            if type(effect) is Invoke and isinstance(effect.observer, SendAttempt):
                self.attempt_begins(effect.observer)
            try:
                outcome = yield effect
            except RocketMQError as error:
                outcome = error
            except GeneratorExit:
                operation.close()
                raise

    # ------------------------------------------------------------------ figures

    def attempt_begins(self, attempt: SendAttempt) -> None:
        """An attempt has its target, and is about to be written."""
        self._count_attempt(attempt.where.broker, attempt.began)

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


class _IsolationCount:
    """A hook."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def broker_isolated(self, event: BrokerEvent) -> None:
        self._figures.isolations += 1
