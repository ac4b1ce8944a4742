"""Thousands of producers over brokers with a capacity: what a policy does to a whole cluster.

Producers are the client's own code (``SimulatedProducer``). Brokers are queues: what is moved away from
one of them is load on the others, and a queue that is too long answers "busy", as RocketMQ's
brokers do after 200 ms. All is in virtual time, and two runs with one seed are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.errors import RocketMQError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.hooks import BrokerEvent
from rocketwire.message import Message
from rocketwire.testing.cluster_faults import ClusterFault
from rocketwire.testing.event_driver import NEVER_ANSWERED, REFUSED, EventDriver
from rocketwire.testing.simulated_producer import (
    NAME_SERVER,
    Answers,
    SimulatedProducer,
    route_of,
    settings,
)
from rocketwire.wire.codes import RequestCode, ResponseCode

_TOPIC: Final = "simulated"
_MESSAGE: Final = Message(_TOPIC, b"x" * 200)
#: How long a request may wait in a broker's line (``waitTimeMillsInSendQueue``).
_PATIENCE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Setting:
    """One experiment.

    ``load`` is the part of the brokers' capacity that an even spread uses; ``latency`` is what an
    answer takes beside waiting in line.
    """

    producers: int = 100
    brokers: int = 3
    seconds: float = 60.0
    rate: float = 10.0
    load: float = 0.5
    latency: float = 0.002
    send_timeout: float = 3.0
    faults: tuple[ClusterFault, ...] = ()

    @property
    def capacity(self) -> float:
        """Messages a second of one broker."""
        return self.producers * self.rate / self.brokers / self.load


@dataclass(slots=True)
class ClusterFigures:
    """What came of an experiment; times in seconds.

    ``peak`` is the most that a broker got in any second, against an even spread; ``peak_back`` the
    same of a broker that was bad, in the ten seconds after it was well again; ``back`` how long that
    took to get half of its share. ``probes`` and ``lookups`` are the most in any second.
    """

    sends: int = 0
    failed: int = 0
    attempts: int = 0
    busy: int = 0
    p50: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    lost: float = 0.0
    peak: float = 0.0
    peak_back: float = 0.0
    back: float | None = None
    isolations: int = 0
    probes: int = 0
    lookups: int = 0


class QueueingBroker:
    """One broker: a line of requests that are stored one after the other."""

    __slots__ = ("arrivals", "busy", "fault", "free_at", "latency", "probes", "service")

    def __init__(self, capacity: float, latency: float) -> None:
        self.service = 1.0 / capacity
        self.latency = latency
        self.free_at = 0.0
        self.fault: ClusterFault | None = None
        #: Requests by second.
        self.arrivals: dict[int, int] = {}
        self.probes: dict[int, int] = {}
        self.busy = 0

    def receive(self, now: float, *, is_probe: bool) -> tuple[float, int]:
        """What comes of a request; see ``event_driver.Brokers``."""
        counts = self.probes if is_probe else self.arrivals
        counts[int(now)] = counts.get(int(now), 0) + 1
        fault = self.fault
        extra, service = 0.0, self.service
        if fault is not None:
            kind = fault.kind_at(now)
            if kind == "refuse":
                return 0.0005, REFUSED
            if kind == "hang":
                return NEVER_ANSWERED, 0
            if kind == "busy" and not is_probe:
                self.busy += 1
                return self.latency, ResponseCode.SYSTEM_BUSY
            if kind == "slow":
                extra = fault.value
            elif kind == "weak":
                service /= fault.value
        if is_probe:  # heartbeats have a line of their own
            return self.latency + extra, 0
        waits = max(0.0, self.free_at - now)
        if waits > _PATIENCE:
            self.busy += 1
            return _PATIENCE, ResponseCode.SYSTEM_BUSY
        self.free_at = now + waits + service
        return waits + service + self.latency + extra, 0


class QueueingBrokers:
    """All of them, and the name server."""

    def __init__(self, setting: Setting) -> None:
        self.names = [f"broker-{number}" for number in range(setting.brokers)]
        self.by_name = {
            name: QueueingBroker(setting.capacity, setting.latency) for name in self.names
        }
        self.lookups: dict[int, int] = {}

    def receive(self, address: str, request: Any, now: float) -> tuple[float, int]:
        """What comes of a request (``event_driver.Brokers``)."""
        if address == NAME_SERVER:
            self.lookups[int(now)] = self.lookups.get(int(now), 0) + 1
            return 0.001, 0
        is_probe = request.code == RequestCode.HEART_BEAT
        return self.by_name[address].receive(now, is_probe=is_probe)


@dataclass(slots=True)
class _Isolations:
    """A hook that counts."""

    count: int = 0

    def broker_isolated(self, event: BrokerEvent) -> None:
        self.count += 1


class ClusterSimulation:
    """One experiment under one policy.

    Args:
        policy: of every producer.
        setting: how many, how fast, what goes wrong.
        seed: two simulations with one seed run alike.
    """

    def __init__(self, policy: FaultPolicy, setting: Setting, *, seed: int = 0) -> None:
        self._setting = setting
        self._random = Random(seed)
        self.brokers = QueueingBrokers(setting)
        route = route_of(dict.fromkeys(self.brokers.names, 1))
        self.driver = EventDriver(self.brokers, Answers({_TOPIC: route}))
        self._isolations = _Isolations()
        config = settings(
            fault=policy, send_timeout=setting.send_timeout, hooks=(self._isolations,)
        )
        #: What the first producer prepared for each queue serves all: it is the same for each.
        self._targets: dict[Any, Any] = {}
        self._latencies: list[float] = []
        self.figures = ClusterFigures()
        self._senders = [self._start(config, route) for _ in range(setting.producers)]

    def _start(self, config: Any, route: Any) -> Sender:
        driver = self.driver
        producer = SimulatedProducer(
            config, clock=driver.clock, random=self._random, make_lock=driver.make_lock
        )
        entry = producer.learn(_TOPIC, route)
        entry.derived.update(self._targets)
        sender = producer.sender()
        if not self._targets:
            sender.chooser.plan(entry, SendMode.ASYNC, driver.now)
            self._targets = {k: v for k, v in entry.derived.items() if k != "queues"}
        probing = producer.probing(driver.spawn)
        if probing is not None:
            driver.spawn(probing)
        return sender

    def run(self) -> ClusterFigures:
        """Run to the end, and let sends under way come to theirs."""
        setting, driver = self._setting, self.driver
        for fault in setting.faults:
            for name in fault.brokers(self.brokers.names):
                driver.call_at(fault.begin, self._break, name, fault)
                driver.call_at(fault.end, self._break, name, None)
        pause = 1.0 / setting.rate
        for sender in self._senders:
            driver.call_at(self._random.random() * pause, self._send, sender)
        driver.run_until(setting.seconds + setting.send_timeout + 0.1)
        self._sum_up()
        return self.figures

    def _break(self, name: str, fault: ClusterFault | None) -> None:
        self.brokers.by_name[name].fault = fault

    def _send(self, sender: Sender, _: Any) -> None:
        driver, began = self.driver, self.driver.now

        def done(now: float, error: RocketMQError | None) -> None:
            self._latencies.append(now - began)
            if error is not None:
                self.figures.failed += 1

        driver.send(sender, _MESSAGE, SendMode.ASYNC, done)
        after = driver.now + self._random.expovariate(self._setting.rate)
        if after < self._setting.seconds:
            driver.call_at(after, self._send, sender)

    # -- figures ------------------------------------------------------------------------------

    def _sum_up(self) -> None:
        figures, setting = self.figures, self._setting
        brokers = self.brokers.by_name
        latencies = sorted(self._latencies)
        figures.sends = len(latencies)
        figures.attempts = self.driver.attempts
        figures.busy = sum(broker.busy for broker in brokers.values())
        if latencies:
            figures.p50, figures.p99, figures.p999 = (
                latencies[min(len(latencies) - 1, int(part * len(latencies)))]
                for part in (0.5, 0.99, 0.999)
            )
            usual = setting.latency + 1.0 / setting.capacity
            figures.lost = sum(latency - usual for latency in latencies if latency > usual)
        share = setting.producers * setting.rate / setting.brokers
        figures.peak = max(_most(broker.arrivals) for broker in brokers.values()) / share
        figures.isolations = self._isolations.count
        figures.lookups = _most(self.brokers.lookups)
        figures.probes = _most(_added(broker.probes for broker in brokers.values()))
        self._look_at_return(share)

    def _look_at_return(self, share: float) -> None:
        """How the brokers that were bad came back, after the last fault that has an end."""
        ended = [fault for fault in self._setting.faults if fault.end < self._setting.seconds]
        if not ended:
            return
        last = max(ended, key=lambda fault: fault.end)
        back: list[float] = []
        for name in last.brokers(self.brokers.names):
            arrivals = self.brokers.by_name[name].arrivals
            first, end = int(last.end), int(self._setting.seconds)
            near = [arrivals.get(second, 0) for second in range(first, min(first + 10, end))]
            self.figures.peak_back = max(self.figures.peak_back, max(near, default=0) / share)
            seconds = (s for s in range(first, end) if arrivals.get(s, 0) >= share / 2)
            back.append(next(seconds, end) - last.end)
        self.figures.back = max(0.0, *back) if back else None


def _most(counts: dict[int, int]) -> int:
    return max(counts.values(), default=0)


def _added(many: Any) -> dict[int, int]:
    whole: dict[int, int] = {}
    for counts in many:
        for second, count in counts.items():
            whole[second] = whole.get(second, 0) + count
    return whole
