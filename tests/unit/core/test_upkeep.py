from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.core.world import NAME_SERVER, World, decoded, route_of

from rocketwire.config import Credentials
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.upkeep import (
    heartbeat,
    keep_heartbeats,
    keep_probing,
    keep_routes,
    say_goodbye,
)
from rocketwire.errors import SendFailedError
from rocketwire.message import Message, MessageQueue
from rocketwire.testing.simulated_network import Answer, Hang, Refuse, Reset, Slow
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.route import TopicRoute


def started(**options) -> World:
    world = World(**({"background": True} | options))
    world.instance.producer_groups.add("g")
    world.send()
    return world


def keep(world: World, changed=lambda: None) -> None:
    world.driver.spawn(keep_heartbeats(world.instance))
    world.driver.spawn(keep_routes(world.instance, changed))
    world.driver.spawn(keep_probing(world.instance, world.driver.spawn))


def beats(world: World) -> dict[str, int]:
    code = RequestCode.HEART_BEAT
    return {n: b.arrivals.get(code, 0) for n, b in world.brokers.items()}


def test_heartbeats_go_to_every_master_and_say_who_we_are() -> None:
    world = started()
    bodies = []
    for broker in world.brokers.values():
        broker.on_arrival = lambda request, now: bodies.append(bytes(decoded(request).body))
    assert world.driver.run(heartbeat(world.instance)) == 3
    assert set(beats(world).values()) == {1}
    body = json.loads(bodies[0])
    assert body["clientID"] == "client-1"
    assert body["producerDataSet"] == [{"groupName": "g"}]


def test_heartbeats_come_every_30_seconds() -> None:
    world = started()
    keep(world)
    world.clock.advance(100.0)
    assert set(beats(world).values()) == {4}


def test_a_dead_broker_does_not_keep_heartbeats_from_others() -> None:
    world = started()
    world.brokers["broker-a"].break_now(Hang())
    keep(world)
    world.clock.advance(100.0)
    counts = beats(world)
    assert counts["broker-b"] == counts["broker-c"] >= 3


def test_nobody_is_told_of_a_client_without_groups() -> None:
    world = World()
    world.send()
    assert world.driver.run(heartbeat(world.instance)) == 0
    assert set(beats(world).values()) == {0}


def test_routes_are_refreshed_every_30_seconds_and_at_once_when_asked() -> None:
    world = started()
    rounds = []
    keep(world, lambda: rounds.append(world.clock()))
    world.clock.advance(95.0)
    assert len(rounds) == 3
    world.instance.route_wake_up.wake()
    world.clock.advance(1.0)
    assert len(rounds) == 4


def test_a_broker_that_can_t_be_reached_makes_routes_fresh_at_once() -> None:
    world = started()
    keep(world)
    world.clock.advance(10.0)
    asked = len(world.asked)
    world.brokers["broker-b"].break_now(Refuse())
    for _ in range(12):
        world.send()
    world.clock.advance(0.5)
    assert len(world.asked) > asked


SLAVE = Answer(ResponseCode.SERVICE_NOT_AVAILABLE, "it is a slave")


@pytest.mark.parametrize(
    ("fault", "mode"),
    [
        (Refuse(), SendMode.BLOCKING),
        (Refuse(), SendMode.ASYNC),
        (Refuse(), SendMode.ONEWAY),
        (Reset(), SendMode.BLOCKING),
        (SLAVE, SendMode.ASYNC),
    ],
)
def test_a_send_without_a_second_try_makes_routes_fresh_at_once(fault: Any, mode: SendMode) -> None:
    """Its master may have moved: a send that stays on its queue failed for up to 30 seconds."""
    world = started()
    keep(world)
    world.clock.advance(10.0)
    asked = len(world.asked)
    world.brokers["broker-b"].break_now(fault)
    with pytest.raises(SendFailedError):
        world.send(queue=MessageQueue("T", "broker-b", 0), mode=mode)
    world.clock.advance(0.5)
    assert len(world.asked) > asked


def test_a_key_whose_broker_has_no_master_makes_routes_fresh_at_once() -> None:
    world = started()
    keep(world)
    world.clock.advance(10.0)
    place = world.send(Message("T", b"x", sharding_key="order-1")).queue
    left = route_of({name: 4 for name in world.names if name != place.broker})
    order = ";".join(f"{name}:4" for name in world.names)
    world.instance.routes.update("T", TopicRoute(left.queues, left.brokers, order, {}))
    with pytest.raises(SendFailedError, match="has no master"):
        world.send(Message("T", b"x", sharding_key="order-1"))
    world.clock.advance(0.5)
    assert world.send(Message("T", b"x", sharding_key="order-1")).queue == place


def test_a_name_server_that_is_down_does_not_end_the_refreshing() -> None:
    world = started()
    keep(world)
    world.servers[NAME_SERVER].break_now(Refuse())
    world.clock.advance(100.0)
    world.servers[NAME_SERVER].heal()
    world.routes["T"] = route_of({"broker-a": 1})
    world.clock.advance(31.0)
    assert len(world.instance.routes.get("T").queues) == 1


def test_an_isolated_broker_returns_by_a_good_probe_and_two_messages() -> None:
    world = started()
    keep(world)
    for _ in range(30):
        world.send()
    world.brokers["broker-b"].break_now(Refuse())
    for _ in range(30):
        world.send()
    states = {h.broker: h.state for h in world.instance.faults.snapshot(world.clock())}
    assert states["broker-b"] == "isolated"
    world.clock.advance(5.0)
    assert world.where()[-10:].count("broker-b") == 0
    world.brokers["broker-b"].heal()
    world.clock.advance(3.0)
    before = len(world.stored)
    for _ in range(30):
        world.send()
    states = {h.broker: h.state for h in world.instance.faults.snapshot(world.clock())}
    assert states["broker-b"] == "usable"
    assert world.where()[before:].count("broker-b") >= 8


class ProbeNotes:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def broker_probed(self, event: Any) -> None:
        self.seen.append(event)


def test_hooks_hear_of_every_probe_and_of_what_came_of_it() -> None:
    notes = ProbeNotes()
    world = started(hooks=(notes,))
    keep(world)
    for _ in range(30):
        world.send()
    world.brokers["broker-b"].break_now(Refuse())
    for _ in range(12):
        world.send()
    world.clock.advance(4.0)
    world.brokers["broker-b"].heal()
    world.clock.advance(3.0)
    *bad, good = notes.seen
    assert {event.broker for event in notes.seen} == {"broker-b"}
    assert bad
    assert all(event.latency is None and not event.is_good and event.why for event in bad)
    assert (good.is_good, good.why) == (True, "")
    assert good.latency == pytest.approx(0.002)
    assert 1_700_000_000.0 < bad[0].at < good.at <= world.instance.wall()


def test_a_broker_that_says_busy_to_probes_stays_out() -> None:
    world = started()
    keep(world)
    for _ in range(30):
        world.send()
    world.brokers["broker-b"].break_now(Answer(14, heartbeats=True))
    for _ in range(12):
        world.send()
    world.clock.advance(8.0)
    before = len(world.stored)
    for _ in range(12):
        world.send()
    assert "broker-b" not in world.where()[before:]


def test_a_probe_s_connecting_does_not_count_as_slowness() -> None:
    world = started()
    for broker in world.brokers.values():
        broker.connect_latency = 0.3
    keep(world)
    for _ in range(30):
        world.send()
    world.brokers["broker-b"].break_now(Refuse())
    for _ in range(12):
        world.send()
    world.brokers["broker-b"].heal()
    world.clock.advance(3.0)
    before = len(world.stored)
    for _ in range(12):
        world.send()
    assert "broker-b" in world.where()[before:]


def isolate(world: World, broker: str) -> None:
    for _ in range(30):
        world.send()
    world.brokers[broker].break_now(Refuse())
    for _ in range(12):
        world.send()
    assert world.instance.faults.state_of(broker) == "isolated"


def test_an_error_in_a_probe_is_not_the_end_of_probing() -> None:
    """Keys that could not be had once: the broker was never asked again, and left out for long."""
    is_sealed = False

    def credentials() -> Credentials:
        if is_sealed:
            raise OSError("the vault is sealed")
        return Credentials("key", "secret")

    world = started(credentials=credentials)
    isolate(world, "broker-b")
    world.brokers["broker-b"].heal()
    world.driver.spawn(keep_probing(world.instance, world.driver.spawn))
    is_sealed = True
    world.clock.advance(2.0)
    assert beats(world)["broker-b"] == 0
    is_sealed = False
    world.clock.advance(3.0)
    assert beats(world)["broker-b"] == 1
    assert world.instance.faults.state_of("broker-b") == "trial"


@pytest.mark.parametrize("fault", ["default", "java5-detector"])
def test_a_probe_that_leaves_with_its_client_is_made_by_the_next_one(fault: str) -> None:
    world = started(fault=fault)
    isolate(world, "broker-b")
    world.brokers["broker-b"].break_now(Hang())
    probes: list[Any] = []

    def start(operation: Any) -> None:
        probes.append(world.driver.spawn(operation))

    first = world.driver.spawn(keep_probing(world.instance, start))
    while not probes:
        world.clock.advance(0.1)
    for task in (first, *probes):
        task.cancel()
    world.brokers["broker-b"].heal()
    before = beats(world)["broker-b"]
    world.driver.spawn(keep_probing(world.instance, world.driver.spawn))
    world.clock.advance(4.0)
    assert beats(world)["broker-b"] == before + 1
    assert world.instance.faults.reachable("broker-b")


def test_slow_brokers_are_left_and_found_again() -> None:
    world = started()
    keep(world)
    for _ in range(60):
        world.send()
    world.brokers["broker-c"].break_now(Slow(0.3))
    for _ in range(100):
        world.send()
    tail = world.where()[-60:]
    assert tail.count("broker-c") <= 3
    world.brokers["broker-c"].heal()
    world.clock.advance(5.0)
    before = len(world.stored)
    for _ in range(30):
        world.send(Message("T", b"x"))
    assert world.where()[before:].count("broker-c") >= 8


def test_goodbye_is_said_to_every_broker_and_a_dead_one_is_no_harm() -> None:
    world = started()
    world.brokers["broker-a"].break_now(Refuse())
    world.driver.run(say_goodbye(world.instance, "g"))
    counts = {n: b.arrivals.get(RequestCode.UNREGISTER_CLIENT, 0) for n, b in world.brokers.items()}
    assert counts == {"broker-a": 0, "broker-b": 1, "broker-c": 1}
