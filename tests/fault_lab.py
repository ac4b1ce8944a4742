"""A fault table to experiment with by hand: say what brokers do, see what it makes of it.

>>> lab = FaultLab()
>>> lab.warm_up()
>>> lab.answer("broker-a", 0.3)
>>> lab.health("broker-a").why
'300 ms, 150 times the others, since 0.0 s, next probe in 1.2 s'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.faults.selection import TopicQueues
from rocketwire.core.faults.table import FaultTable, WatchedAttempt
from rocketwire.fault_policy import BrokerHealth, FaultPolicy
from rocketwire.message import MessageQueue
from rocketwire.testing.simulation import SimulatedLock
from rocketwire.testing.virtual_clock import VirtualClock


class FixedRandom:
    """Always the same number, so that jitter is known."""

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    def random(self) -> float:
        """The number."""
        return self.value


class FaultLab:
    """A table, a clock, and words for what can happen.

    Args:
        policy: the rules.
        brokers: their names.
        queues: on each broker, for ``view``.
        probing: whether brokers return by probes.
        chance: what the random generator always says.
    """

    def __init__(
        self,
        policy: FaultPolicy | None = None,
        *,
        brokers: Sequence[str] = ("broker-a", "broker-b", "broker-c"),
        queues: int = 2,
        probing: bool = True,
        chance: float = 0.5,
    ) -> None:
        self.clock: Final = VirtualClock()
        self.random: Final = FixedRandom(chance)
        #: What listeners were told: moment, broker, reason, and until when.
        self.isolated: Final[list[tuple[float, str, str, float | None]]] = []
        self.returned: Final[list[tuple[float, str, str]]] = []
        self.lock: Final = SimulatedLock("the table's lock")
        self.table: Final = FaultTable(
            FaultPolicy() if policy is None else policy,
            clock=self.clock,
            lock=self.lock,
            random=self.random,
            on_isolated=lambda broker, why, until: self.isolated.append(
                (self.clock(), broker, why, until)
            ),
            on_returned=lambda broker, why: self.returned.append((self.clock(), broker, why)),
            probing=probing,
        )
        self.brokers: Final = tuple(brokers)
        self.queues: Final = [MessageQueue("t", name, n) for name in brokers for n in range(queues)]
        self.view: Final = TopicQueues("t", self.queues, self.table)
        self.counters: Final = RoundRobinCounter(self.random)

    @property
    def now(self) -> float:
        """The moment that it is."""
        return self.clock()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    def start(self, broker: str, size: int = 0) -> WatchedAttempt:
        """Begin an attempt and write its request."""
        attempt = self.table.begin(broker, self.now)
        attempt.written(self.now, size)
        return attempt

    def answer(self, broker: str, latency: float = 0.002, *, size: int = 0) -> None:
        """A whole attempt, answered well after some time."""
        attempt = self.start(broker, size)
        self.wait(latency)
        self.table.answered(attempt, self.now)

    def warm_up(self, latency: float = 0.002, answers: int = 5) -> None:
        """Some good answers from every broker."""
        for _ in range(answers):
            for broker in self.brokers:
                self.answer(broker, latency)

    def fail(
        self,
        broker: str,
        reason: str = "refused the connection",
        *,
        after: float = 0.0,
        busy: bool = False,
    ) -> None:
        """A whole attempt that fails."""
        attempt = self.start(broker)
        self.wait(after)
        self.table.failed(attempt, self.now, reason, busy=busy)

    def probe(self, broker: str, latency: float | None = 0.002) -> None:
        """Wait until a broker is due and probe it; None for a probe without an answer."""
        due = self.table.next_probe_at()
        if due is not None:
            self.clock.run_until(due)
        assert broker in self.table.probe_due(self.now), f"{broker} is not due at {self.now}"
        self.table.probe_started(broker)
        self.wait(self.table.policy.probe_timeout if latency is None else latency)
        self.table.probe_finished(broker, self.now, latency, good=latency is not None)

    def health(self, broker: str) -> BrokerHealth:
        """What the table holds of a broker."""
        return next(item for item in self.table.snapshot(self.now) if item.broker == broker)

    def state(self, broker: str) -> str:
        """Its state."""
        return self.health(broker).state

    def isolation(self, broker: str) -> float:
        """For how long a broker is isolated from when its isolation began."""
        health = self.health(broker)
        assert health.until is not None, f"{broker} is {health.state}"
        return health.until - health.since

    def choose(self, *failed: str) -> str:
        """The broker that the next send goes to."""
        return self.view.best(self.counters, self.now, failed).broker

    def chosen(self, count: int = 12, *failed: str) -> set[str]:
        """The brokers that the next sends would go to."""
        return {self.choose(*failed) for _ in range(count)}
