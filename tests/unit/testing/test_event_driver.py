from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import SendFailedError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, MessageQueue
from rocketwire.testing.event_driver import LOST, NEVER_ANSWERED, REFUSED, EventDriver
from rocketwire.testing.policy_model import PolicyModel
from rocketwire.testing.simulated_network import Hang, Refuse, Slow
from rocketwire.testing.simulated_producer import (
    NAME_SERVER,
    Answers,
    SimulatedProducer,
    route_of,
    settings,
)

NAMES = ("broker-a", "broker-b", "broker-c")


class Script:
    """Brokers that are well, but for what a test says of one of them."""

    def __init__(self, fates: dict[str, tuple[float, int]] | None = None) -> None:
        self.fates = fates or {}
        self.asked: list[tuple[float, str]] = []

    def receive(self, address: str, request: Any, now: float) -> tuple[float, int]:
        self.asked.append((now, address))
        return self.fates.get(address, (0.002, 0))


class Life:
    """One producer over scripted brokers."""

    def __init__(self, brokers: Any, **options: Any) -> None:
        route = route_of(dict.fromkeys(NAMES, 2))
        self.driver = EventDriver(brokers, Answers({"T": route}))
        self.producer = SimulatedProducer(
            settings(**options),
            clock=self.driver.clock,
            random=Random(1),
            make_lock=self.driver.make_lock,
        )
        self.producer.learn("T", route)
        self.sender = self.producer.sender()
        self.ended: list[tuple[float, Any]] = []
        probing = self.producer.probing(self.driver.spawn)
        if probing is not None:
            self.driver.spawn(probing)

    def send(self, mode: SendMode = SendMode.BLOCKING, **how: Any) -> None:
        began = self.driver.now
        self.driver.send(
            self.sender,
            Message("T", b"x"),
            mode,
            lambda now, error: self.ended.append((now - began, error)),
            **how,
        )

    def send_all(self, count: int, every: float = 0.01) -> None:
        for number in range(count):
            self.driver.call_at(self.driver.now + number * every, lambda *_: self.send())


def test_a_stored_send_takes_what_its_broker_takes() -> None:
    life = Life(Script())
    life.send()
    life.driver.run_until(1.0)
    assert life.ended == [(pytest.approx(0.002), None)]
    assert life.sender.counters.sent == 1


@pytest.mark.parametrize("code", [REFUSED, LOST, 2])
def test_what_fails_on_one_broker_is_stored_on_another(code: int) -> None:
    life = Life(Script({"broker-b": (0.001, code)}))
    life.send_all(6)
    life.driver.run_until(5.0)
    assert [error for _, error in life.ended] == [None] * 6
    assert life.driver.attempts == 7  # one was tried twice, then the broker was left out


def test_an_answer_that_never_comes_ends_at_the_attempt_s_deadline() -> None:
    life = Life(Script(dict.fromkeys(NAMES, (NEVER_ANSWERED, 0))), send_timeout=1.0, retries=0)
    life.send()
    life.driver.run_until(5.0)
    ((elapsed, error),) = life.ended
    assert elapsed == pytest.approx(1.0)
    assert isinstance(error, SendFailedError)


def test_a_pinned_send_stays_on_its_queue() -> None:
    script = Script({"broker-b": (0.001, REFUSED)})
    life = Life(script)
    life.send(queue=MessageQueue("T", "broker-b", 1))
    life.driver.run_until(1.0)
    assert {address for _, address in script.asked} == {"broker-b"}
    assert isinstance(life.ended[0][1], SendFailedError)


def test_a_oneway_send_is_over_when_it_is_written() -> None:
    life = Life(Script(dict.fromkeys(NAMES, (NEVER_ANSWERED, 0))))
    life.send(SendMode.ONEWAY)
    assert life.ended == [(0.0, None)]


def test_probes_bring_a_broker_back_and_a_refusal_asks_for_the_route() -> None:
    script = Script()
    life = Life(script)
    life.send_all(300, every=0.02)
    life.driver.run_until(1.5)  # a route that is fresh is not asked for again
    script.fates["broker-b"] = (0.001, REFUSED)
    life.driver.run_until(2.5)
    assert life.producer.instance.faults.state_of("broker-b") == "isolated"
    script.fates.clear()
    life.driver.run_until(6.0)
    assert life.producer.instance.faults.state_of("broker-b") == "usable"
    assert NAME_SERVER in {address for _, address in script.asked}


@pytest.mark.parametrize("fault", [Slow(0.3), Hang(), Refuse()], ids=repr)
def test_it_comes_to_what_the_checking_driver_comes_to(fault: Any) -> None:
    """Four senders in a closed loop over brokers of 2 ms, one bad from 1 to 4 s: how many hits."""
    model = PolicyModel(FaultPolicy(), senders=4, latency=0.002, seed=3)
    model.break_broker("broker-b", start=1.0, end=4.0, fault=fault)
    figures = model.run(until=6.0)

    class Loop:
        hits = 0

        def receive(self, address: str, request: Any, now: float) -> tuple[float, int]:
            if address != "broker-b" or not 1.0 <= now < 4.0:
                return 0.002, 0
            self.hits += request.code != 34  # a heartbeat
            if isinstance(fault, Refuse):
                return 0.0001, REFUSED
            return (0.302, 0) if isinstance(fault, Slow) else (NEVER_ANSWERED, 0)

    brokers = Loop()
    life = Life(brokers)
    senders = [life.producer.sender() for _ in range(4)]
    sent = 0

    def again(sender: Any) -> None:
        nonlocal sent
        sent += 1
        if life.driver.now < 6.0:
            life.driver.send(
                sender, Message("T", b"x" * 200), SendMode.BLOCKING, lambda *_: again(sender)
            )

    for sender in senders:
        again(sender)
    life.driver.run_until(10.0)
    assert abs(brokers.hits - figures.hits) <= 4
    assert sent == pytest.approx(figures.sent, rel=0.05)
