"""Recorded sends, sent again under another policy to brokers as they were.

The client's own sender, fault table and retries decide; only the brokers are a model
(``conditions``). One replay is one producer in one period.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import RocketMQError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, MessageQueue
from rocketwire.spark.policy_lab.conditions import PER_SECOND, Course, Incident, Sighting
from rocketwire.spark.policy_lab.figures import CALM, Stay, Tally
from rocketwire.testing.event_driver import EventDriver
from rocketwire.testing.simulated_producer import (
    NAME_SERVER,
    Answers,
    SimulatedProducer,
    route_of,
    settings,
)

#: How often it is looked who is left out.
_LOOK: Final = 0.5
#: Seconds before and after the chosen incident that are drawn.
BEFORE: Final = 5.0
AFTER: Final = 15.0
_MODES: Final = {"blocking": SendMode.BLOCKING, "async": SendMode.ASYNC, "oneway": SendMode.ONEWAY}


class RecordedSend(NamedTuple):
    """One send as it was asked for; ``broker`` and ``queue`` where it had to go to one queue."""

    at: float
    topic: str
    mode: str = "blocking"
    timeout: float = 3.0
    size: int = 200
    broker: str | None = None
    queue: int = 0


@dataclass(frozen=True, slots=True)
class Client:
    """What a producer's header told, as options of a producer, and its routes."""

    options: Mapping[str, Any] = field(default_factory=dict)
    #: Queues by broker, by topic.
    routes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Period:
    """The time that is replayed; sends before ``counted`` only warm the fault table up."""

    begin: float
    counted: float
    end: float
    usual: float
    incidents: Sequence[Incident] = ()
    chosen: Incident | None = None


class RecordedBrokers:
    """Brokers as they were.

    Args:
        sightings: of each broker, by stretches since 1970.
        period: the time.
        is_best: which case holds where nobody knows.
        seed: of what is drawn.
    """

    def __init__(
        self,
        sightings: Mapping[str, Mapping[int, Sighting]],
        period: Period,
        *,
        is_best: bool,
        seed: int,
    ) -> None:
        self._first = int(period.begin * PER_SECOND)
        slots = int((period.end - period.begin + 1.0) * PER_SECOND) + 2
        self._last = slots - 1
        self._random = Random(seed).random
        self.courses = {
            broker: Course(
                {slot - self._first: seen for slot, seen in mine.items()},
                slots,
                period.usual,
                is_best=is_best,
            )
            for broker, mine in sightings.items()
        }
        self._conditions = {name: course.conditions for name, course in self.courses.items()}

    def slot_at(self, now: float) -> int:
        """The stretch of a moment; what is later than all of them is the last."""
        return min(self._last, max(0, int(now * PER_SECOND) - self._first))

    def receive(self, address: str, request: Any, now: float) -> tuple[float, int]:
        """What comes of a request (``event_driver.Brokers``)."""
        if address == NAME_SERVER:
            return 0.001, 0
        return self._conditions[address][self.slot_at(now)].draw(self._random)

    @property
    def is_uncertain(self) -> bool:
        """Whether best and worst case differ anywhere."""
        return any(course.unknown for course in self.courses.values())


class Replay:
    """One producer's sends in one period, under one policy.

    Args:
        client: its settings and routes.
        policy: instead of its own.
        brokers: as they were.
        period: the time.
        seed: of the producer's own chances.
    """

    def __init__(
        self,
        client: Client,
        policy: FaultPolicy,
        brokers: RecordedBrokers,
        period: Period,
        *,
        seed: int = 0,
    ) -> None:
        routes = {topic: route_of(queues) for topic, queues in client.routes.items()}
        self._brokers = brokers
        self._period = period
        self._driver = EventDriver(brokers, Answers(routes), start=period.begin)
        self._producer = SimulatedProducer(
            settings(**(dict(client.options) | {"fault": policy})),
            clock=self._driver.clock,
            random=Random(seed),
            make_lock=self._driver.make_lock,
        )
        self._names = sorted({name for queues in client.routes.values() for name in queues})
        for topic, route in routes.items():
            self._producer.learn(topic, route)
        self._sender = self._producer.sender()
        self._faults = self._producer.instance.faults
        self._messages: dict[tuple[str, int], Message] = {}
        self._begins = [one.begin for one in period.incidents]
        self.tally = Tally(stays={name: Stay() for name in self._names})
        self._before: dict[str, int] = {}

    def run(self, sends: Sequence[RecordedSend]) -> Tally:
        """Send them all, in the order of their times."""
        driver, period = self._driver, self._period
        probing = self._producer.probing(driver.spawn)
        if probing is not None:
            driver.spawn(probing)
        driver.call_at(period.counted, self._start_counting)
        if sends:
            driver.call_at(sends[0].at, self._begin, sends, 0)
        # Until the last send is over, whatever its broker does.
        longest = max((send.timeout for send in sends), default=0.0)
        driver.run_until(period.end + longest)
        tally = self.tally
        tally.seconds = period.end - period.counted
        for name, seen in self._sent().items():
            tally.by_broker[name] = seen - self._before.get(name, 0)
        return tally

    def _start_counting(self, *_: Any) -> None:
        self._before = self._sent()
        self._driver.attempts = 0
        self._look()

    def _sent(self) -> dict[str, int]:
        counters = self._sender.counters
        return {
            name: counters.of(name).answers + counters.of(name).failures for name in self._names
        }

    def _begin(self, sends: Sequence[RecordedSend], place: int) -> None:
        send = sends[place]
        driver, began = self._driver, self._driver.now
        is_counted = began >= self._period.counted

        def done(now: float, error: RocketMQError | None) -> None:
            if is_counted:
                self._count(began, now - began, is_failed=error is not None)

        queue = None
        if send.broker is not None and send.broker in self._brokers.courses:
            queue = MessageQueue(send.topic, send.broker, send.queue)
        message = self._message(send.topic, send.size)
        mode = _MODES[send.mode]
        driver.send(self._sender, message, mode, done, timeout=send.timeout, queue=queue)
        if place + 1 < len(sends):
            driver.call_at(max(driver.now, sends[place + 1].at), self._begin, sends, place + 1)
        self.tally.attempts = driver.attempts

    def _message(self, topic: str, size: int) -> Message:
        # Sizes matter by their seconds on the wire only.
        key = topic, min(size, 1 << 22).bit_length()
        message = self._messages.get(key)
        if message is None:
            message = self._messages[key] = Message(topic, b"x" * max(1, min(size, 1 << 22)))
        return message

    # -- counting -----------------------------------------------------------------------------

    def _count(self, began: float, latency: float, *, is_failed: bool) -> None:
        self.tally.send(latency, self._period.usual, self._incident_at(began), is_failed=is_failed)
        if self._period.chosen is not None:
            self._note(began, max(latency, 1e-6), 0.0)

    def _note(self, at: float, latency: float, out: float) -> None:
        """Something of the incident that is drawn, if it is near it."""
        chosen = self._period.chosen
        if chosen is not None and chosen.begin - BEFORE <= at < chosen.end + AFTER:
            self.tally.moment(int((at - chosen.begin) // _LOOK), latency, out)

    def _incident_at(self, moment: float) -> int:
        place = bisect_right(self._begins, moment) - 1
        if place < 0:
            return CALM
        incident = self._period.incidents[place]
        # What a policy remembers of an incident is a part of its cost.
        return incident.number if moment < incident.end + 5.0 else CALM

    def _look(self, *_: Any) -> None:
        """Note who is left out just now, and whether rightly."""
        now, period = self._driver.now, self._period
        if now >= period.end:
            return
        self._faults.refresh(now)
        allowed, _usable = self._faults.allowed(self._names)
        slot, chosen = self._brokers.slot_at(now), period.chosen
        for name in self._names:
            course = self._brokers.courses[name]
            stay = self.tally.stays[name]
            is_out, is_bad = name not in allowed, course.conditions[slot].is_bad
            if is_out and slot in course.unknown:
                stay.unknown += _LOOK
            elif is_out and is_bad:
                stay.rightly += _LOOK
            elif is_out:
                stay.wrongly += _LOOK
            elif is_bad:
                stay.missed += _LOOK
            if is_out and chosen is not None and name in chosen.brokers:
                self._note(now, 0.0, _LOOK)
        self._driver.call_at(now + _LOOK, self._look)
