from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.world import NAME_SERVER, World, address, route_of

from rocketwire.core.lookup import ask_name_servers, locate_topic, refresh_topic
from rocketwire.core.routes import RouteTable
from rocketwire.errors import ConfigError, NameServerUnavailableError, RouteError
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.testing.simulation import SimulatedLock
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute


class Changes:
    def __init__(self) -> None:
        self.seen = []

    def route_changed(self, event) -> None:
        self.seen.append(event)


def refresh(world: World, topic: str = "T"):
    return world.driver.run(refresh_topic(world.instance, topic, world.clock() + 3.0))


def test_queues_are_sorted_and_filtered_as_java_does_it() -> None:
    route = TopicRoute(
        (
            QueueData("broker-b", 2, 2, 6, 0),
            QueueData("broker-a", 4, 1, 6, 0),
            QueueData("broker-c", 2, 2, 4, 0),  # not writable
            QueueData("broker-d", 2, 2, 6, 0),  # no master
        ),
        tuple(
            BrokerData("c", b, {1 if b == "broker-d" else 0: address(b)}, None, False)
            for b in ("broker-a", "broker-b", "broker-c", "broker-d")
        ),
        None,
        {},
    )
    world = World(topics={"T": route})
    entry = refresh(world)
    assert entry.queues == (
        MessageQueue("T", "broker-a", 0),
        MessageQueue("T", "broker-b", 0),
        MessageQueue("T", "broker-b", 1),
    )
    reading = world.instance.routes.read_queues("T")
    assert [q for q in reading if q.broker == "broker-c"]
    assert len([q for q in reading if q.broker == "broker-a"]) == 4


def test_an_ordered_topic_s_configuration_is_honoured() -> None:
    route = route_of({"broker-a": 8, "broker-b": 8})
    ordered = TopicRoute(route.queues, route.brokers, "broker-b:2;broker-a:1", {})
    world = World(topics={"T": ordered})
    assert [(q.broker, q.id) for q in refresh(world).queues] == [
        ("broker-b", 0),
        ("broker-b", 1),
        ("broker-a", 0),
    ]


def test_an_ordered_topic_keeps_the_queues_of_a_broker_that_is_away() -> None:
    route = route_of({"broker-a": 2})
    ordered = TopicRoute(route.queues, route.brokers, "broker-a:2;broker-b:1", {})
    entry = refresh(World(topics={"T": ordered}))
    assert [(q.broker, q.id) for q in entry.listed] == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
    ]
    assert [(q.broker, q.id) for q in entry.queues] == [("broker-a", 0), ("broker-a", 1)]


def test_another_order_is_no_change() -> None:
    hook = Changes()
    world = World(hooks=(hook,))
    first = refresh(world)
    route = world.routes["T"]
    world.routes["T"] = TopicRoute(route.queues[::-1], route.brokers[::-1], None, {})
    assert refresh(world) is first
    assert hook.seen == []


def test_a_change_is_told_with_before_and_after() -> None:
    hook = Changes()
    world = World(2, 1, hooks=(hook,))
    before = refresh(world).queues
    world.routes["T"] = route_of({"broker-a": 2, "broker-b": 1})
    after = refresh(world).queues
    (event,) = hook.seen
    assert (event.topic, event.before, event.after) == ("T", before, after)
    assert len(after) == 3


def test_a_broker_that_left_every_route_is_forgotten() -> None:
    world = World(2)
    for _ in range(8):
        world.send()
    assert {h.broker for h in world.instance.faults.snapshot(world.clock())} == set(world.names)
    world.routes["T"] = route_of({"broker-a": 4})
    refresh(world)
    assert {h.broker for h in world.instance.faults.snapshot(world.clock())} == {"broker-a"}
    assert world.instance.routes.addresses() == {address("broker-a")}


def test_a_new_master_address_starts_on_trial() -> None:
    world = World(1)
    world.send()
    world.network.add_broker("10.0.0.55:10911")
    world.routes["T"] = route_of({"broker-a": 4}, broker_a="10.0.0.55:10911")
    refresh(world)
    (health,) = world.instance.faults.snapshot(world.clock())
    assert health.state == "trial"
    world.send()
    assert world.network.brokers["10.0.0.55:10911"].arrivals


def test_a_topic_that_the_name_server_forgot_keeps_its_route() -> None:
    world = World()
    first = refresh(world)
    world.routes["T"] = None
    world.clock.advance(100.0)
    entry = world.driver.run(locate_topic(world.instance, "T", world.clock() + 3.0, "TBW102", 4))
    assert entry is first


def test_a_stale_route_serves_while_the_name_server_is_down() -> None:
    world = World()
    world.send()
    world.clock.advance(100.0)
    world.servers[NAME_SERVER].break_now(Refuse())
    assert world.send() is not None


def test_without_a_background_a_stale_route_is_asked_for_again() -> None:
    world = World()
    world.send()
    world.clock.advance(29.0)
    world.send()
    assert world.asked == ["T"]
    world.clock.advance(2.0)
    world.send()
    assert world.asked == ["T", "T"]


def test_the_name_server_that_answered_is_asked_first_next_time() -> None:
    servers = ("10.0.0.100:9876", "10.0.0.101:9876", "10.0.0.102:9876")
    world = World(name_servers=servers, seed=3)
    dead = world.instance.servers_in_turn()[0]
    world.servers[dead].break_now(Refuse())
    refresh(world)
    chosen = world.instance.servers_in_turn()[0]
    assert chosen != dead
    began = world.clock()
    refresh(world)
    assert world.clock() - began == pytest.approx(0.001)


def test_name_servers_are_chosen_at_random() -> None:
    servers = tuple(f"10.0.0.{100 + n}:9876" for n in range(4))
    firsts = {World(name_servers=servers, seed=s).instance.servers_in_turn()[0] for s in range(40)}
    assert firsts == set(servers)


def test_every_name_server_gets_its_share_of_the_time() -> None:
    servers = ("10.0.0.100:9876", "10.0.0.101:9876")
    world = World(name_servers=servers)
    for server in world.servers.values():
        server.break_now(Hang())
    with pytest.raises(NameServerUnavailableError) as caught:
        world.driver.run(ask_name_servers(world.instance, 105, {"topic": "T"}, 2.0))
    assert world.clock() == pytest.approx(2.0)
    assert all(server in str(caught.value) for server in servers)


def test_an_error_of_the_name_server_is_not_taken_for_no_route() -> None:
    world = World(topics={})
    world.route_code = ResponseCode.NO_PERMISSION
    with pytest.raises(RouteError, match="check the credentials"):
        world.driver.run(locate_topic(world.instance, "T", 3.0, "TBW102", 4))


def test_no_name_server_is_a_configuration_error() -> None:
    world = World()
    world.instance.name_servers = ()
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        world.driver.run(ask_name_servers(world.instance, 105, {}, 3.0))


def test_a_real_route_replaces_the_fallback() -> None:
    world = World(topics={"TBW102": route_of({"broker-a": 8}, permission=7)})
    world.send()
    assert world.instance.routes.get("T").is_fallback
    world.routes["T"] = route_of({"broker-a": 2})
    refresh(world)
    entry = world.instance.routes.get("T")
    assert not entry.is_fallback
    assert len(entry.queues) == 2


def test_addresses_are_translated_by_mapping_and_by_function() -> None:
    for mapping in ({address("broker-a"): "10.9.9.9:1"}, lambda a: "10.9.9.9:1"):
        world = World(1, address_map=mapping)
        entry = refresh(world)
        assert entry.masters == {"broker-a": "10.9.9.9:1"}


def test_a_route_costs_the_same_however_many_topics_are_known() -> None:
    translated: list[str] = []
    table = RouteTable(
        clock=lambda: 0.0,
        lock=SimulatedLock(),
        address_map=lambda a: (translated.append(a), a)[1],
    )
    costs = set()
    for number in range(50):
        table.update(f"t{number}", route_of({"broker-a": 4, "broker-b": 4}))
        costs.add(len(translated))
        translated.clear()
    assert len(costs) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t1", "t2", "t3"]),
            st.one_of(
                st.none(),
                st.dictionaries(
                    st.sampled_from(["broker-a", "broker-b", "broker-c"]), st.integers(1, 3)
                ),
            ),
        )
    )
)
def test_brokers_are_those_of_all_routes_at_the_address_that_came_last(history) -> None:
    moments = count()
    table = RouteTable(clock=lambda: float(next(moments)), lock=SimulatedLock())
    routes: dict[str, dict[str, int]] = {}
    latest: dict[str, str] = {}
    for topic, brokers in history:
        if brokers is None:
            table.forget(topic)
            routes.pop(topic, None)
        else:
            where = {broker: f"10.0.0.{n}:10911" for broker, n in brokers.items()}
            renamed = {broker.replace("-", "_"): address for broker, address in where.items()}
            change = table.update(topic, route_of(dict.fromkeys(brokers, 4), **renamed))
            known = {b for found in routes.values() for b in found}
            if change.is_change:
                moved = {b for b, at in where.items() if b in known and latest[b] != at}
                assert set(change.moved) == moved
                latest |= where
            routes[topic] = brokers
        assert table.brokers() == {b for found in routes.values() for b in found}
        assert table.masters() == {b: latest[b] for b in table.brokers()}
