"""Members share queues, give them back in order, and survive storms."""

from __future__ import annotations

import pytest
from tests.unit.core.group.group_world import GroupWorld
from tests.unit.core.group.storms import Storm, check_split

from rocketwire.core.group.rebalance import rebalance
from rocketwire.core.lookup import refresh_topic
from rocketwire.hooks import QueuesEvent
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.wire.codes import RequestCode


def test_heartbeats_with_the_subscription_come_before_the_first_pull():
    world = GroupWorld(tags="A || B")
    world.member().begin()
    world.run(1.0)
    for broker in world.brokers.values():
        codes = [c.code for c in broker.seen]
        assert RequestCode.PULL_MESSAGE in codes
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.PULL_MESSAGE)
        beat = next(c for c in broker.seen if c.code == RequestCode.HEART_BEAT)
        assert b'"subString":"A || B"' in bytes(beat.body)
        assert b'"topic":"%RETRY%g"' in bytes(beat.body)


def test_members_split_at_once_when_somebody_comes_and_goes():
    world = GroupWorld()
    members = [world.member().begin() for _ in range(3)]
    world.run(1.0)
    check_split(world)
    members[1].leave()
    world.run(1.0)
    check_split(world)
    world.member().begin()
    world.run(1.0)
    check_split(world)


def test_members_find_one_another_without_being_told():
    """Notifications are lost at times: every 20 s members look by themselves."""
    world = GroupWorld()
    world.tell_members = lambda _: None
    world.member().begin()
    world.run(1.0)
    world.member().begin()
    world.run(21.0)
    check_split(world)


def test_new_queues_are_shared_after_the_next_look_at_the_route():
    world = GroupWorld(queues=2)
    members = [world.member(route_refresh=5.0).begin() for _ in range(2)]
    world.run(1.0)
    world.topics["T"] = {"broker-a": 4, "broker-b": 4}
    world.run(30.0)
    check_split(world)
    assert sum(len(m.group.queues) for m in members) >= 8


def test_a_retry_queue_that_a_broker_tells_late_of_is_found_soon():
    """It was found with the next refresh of the route only: a retry could take a minute."""
    world = GroupWorld()
    world.late_to_register = {"broker-b"}
    member = world.member().begin()
    world.run(10.0)
    check_split(world)
    retries = lambda: {q.broker for q in member.group.queues if q.topic == "%RETRY%g"}  # noqa: E731
    assert retries() == {"broker-a"}
    world.late_to_register = set()
    world.run(6.0)
    assert retries() == {"broker-a", "broker-b"}
    looks = member.group.counters.rebalances
    world.run(19.0)
    assert member.group.counters.rebalances <= looks + 1


def test_a_member_that_brokers_have_forgotten_keeps_its_queues_and_says_so():
    world = GroupWorld()
    member = world.member().begin()
    world.run(1.0)
    for broker in world.brokers.values():
        broker.members.clear()
    member.group.rebalance_wake_up.wake()
    world.run(2.0)
    assert all(list(b.members) == [member.name] for b in world.brokers.values())
    check_split(world)
    assert member.group.counters.revoked == 0


def test_a_lost_queue_is_committed_before_it_is_given_up():
    world = GroupWorld(brokers=1, queues=2)
    first = world.member("a").begin()
    first.behave = lambda _: (2.0, None)
    world.send(1, ("broker-a", 1))
    world.run(1.0)
    assert first.in_hand
    world.member("b").begin()
    world.run(0.5)
    assert ("T", 1) not in world.brokers["broker-a"].offsets
    world.run(2.0)
    assert world.brokers["broker-a"].offsets["T", 1] == 1


def test_the_next_owner_of_an_ordered_queue_waits_for_the_handler_at_work():
    world = GroupWorld(brokers=1, queues=2)
    first = world.member("a", ordered=True).begin()
    first.behave = lambda _: (50.0, None)
    world.send(2, ("broker-a", 1))
    world.run(1.0)
    second = world.member("b", ordered=True).begin()
    world.run(40.0)
    assert world.assignments() == {"a": [MessageQueue("T", "broker-a", 0)], "b": []}
    world.run(15.0)
    assert world.assignments()["b"] == [MessageQueue("T", "broker-a", 1)]
    world.run(5.0)
    assert [(who, offset) for who, _, offset, _ in world.handled] == [("a", 0), ("b", 1)]
    assert second.is_alive


def test_an_ordered_member_handles_nothing_after_its_lock_ran_out():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member(ordered=True, request_timeout=1.0).begin()
    world.run(1.0)
    broker = world.brokers["broker-a"]
    member.behave = lambda _: (1.0, None)
    world.send(100, ("broker-a", 0))
    world.run(2.0)
    broker.break_now(Hang())
    world.run(60.0)
    handled = len(world.handled)
    assert handled <= 3 + 30 + 20
    world.run(10.0)
    assert len(world.handled) == handled
    broker.heal()
    world.run(100.0)
    assert len(world.bodies) == 100
    world.check_order()


def test_a_member_whose_lock_another_took_goes_on_behind_the_other():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member("a", ordered=True).begin()
    member.behave = lambda _: (0.5, None)
    world.send(100, ("broker-a", 0))
    world.run(2.0)
    broker = world.brokers["broker-a"]
    # Somebody else gets the lock (an operator, or a broker that forgot) and handles some.
    broker.locks["T", 0] = ("stranger", world.clock() + 60.0)
    world.run(25.0)
    stopped_at = len(world.handled)
    world.run(5.0)
    assert len(world.handled) == stopped_at
    for offset in range(stopped_at + 5):
        world.done.add((MessageQueue("T", "broker-a", 0), offset))
    broker.offsets["T", 0] = stopped_at + 5
    del broker.locks["T", 0]
    world.run(90.0)
    assert world.handled[stopped_at][2] == stopped_at + 5
    assert broker.offsets["T", 0] == 100


class Told:
    """Keeps count of the queues that hooks were told of."""

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[MessageQueue, ...]]] = []

    def assigned(self, event: QueuesEvent) -> None:
        self.events.append(("assigned", event.queues))

    def revoked(self, event: QueuesEvent) -> None:
        self.events.append(("revoked", event.queues))

    def held(self) -> set[MessageQueue]:
        """What a program that follows the hooks believes to have."""
        found: set[MessageQueue] = set()
        for kind, queues in self.events:
            assert (kind == "revoked") == (found >= set(queues))
            found ^= set(queues)
        return found


def test_hooks_are_told_of_every_queue_that_comes_and_goes():
    world, told = GroupWorld(), Told()
    member = world.member(hooks=[told]).begin()
    world.run(1.0)
    alone = told.held()
    assert alone == set(member.group.queues)
    other = world.member().begin()
    world.run(1.0)
    assert told.held() == set(member.group.queues) < alone
    assert {kind for kind, _ in told.events} == {"assigned", "revoked"}
    other.leave()
    world.run(1.0)
    assert told.held() == set(member.group.queues) == alone
    counters = member.group.counters
    assert counters.assigned == sum(len(q) for kind, q in told.events if kind == "assigned")
    assert counters.revoked == counters.assigned - len(alone)


def test_hooks_are_told_of_queues_before_they_go_and_never_of_none():
    told: list[tuple[MessageQueue, ...]] = []

    class Hook:
        def queues_revoked(self, event):
            assert set(event.queues) <= set(member.group.queues), "it is told while they are ours"
            told.append(event.queues)

    world = GroupWorld()
    member = world.member(hooks=[Hook()]).begin()
    world.run(60.0)
    assert told == []
    alone = set(member.group.queues)
    world.member().begin()
    world.run(1.0)
    assert {queue for queues in told for queue in queues} == alone - set(member.group.queues)
    assert all(told)
    rest = set(member.group.queues)
    told.clear()
    member.leave()
    world.run(1.0)
    assert [set(queues) for queues in told] == [rest]


def test_why_queues_can_not_be_shared_is_told(caplog):
    world = GroupWorld(brokers=1)
    member = world.member().begin()
    world.run(1.0)
    caplog.clear()
    world.brokers["broker-a"].break_now(Refuse())
    assert world.driver.run(rebalance(member.group)) is False
    words = [r.getMessage() for r in caplog.records if "can't be shared" in r.getMessage()]
    assert len(words) == 1
    assert words[0].startswith("queues of T can't be shared just now: ")
    assert len(member.group.queues) == 5, "what it has, it keeps"


def test_queues_of_a_broker_that_is_new_are_taken_over_at_the_next_heartbeat():
    world = GroupWorld(queues=2)
    world.topics["T"] = {"broker-a": 2}
    member = world.member(rebalance_interval=500.0, heartbeat_interval=10.0).begin()

    def brokers() -> set[str]:
        return {queue.broker for queue in member.group.queues if queue.topic == "T"}

    world.run(1.0)
    assert brokers() == {"broker-a"}
    world.topics["T"] = {"broker-a": 2, "broker-b": 2}
    # The refresh of routes, which is upkeep's.
    world.driver.spawn(refresh_topic(member.group.instance, "T", world.clock() + 3.0))
    world.run(5.0)
    assert brokers() == {"broker-a"}
    world.run(10.0)
    assert brokers() == {"broker-a", "broker-b"}


def test_a_dead_broker_does_not_stop_the_queues_of_others():
    world = GroupWorld()
    world.member().begin()
    world.run(1.0)
    world.brokers["broker-a"].break_now(Hang())
    for _ in range(10):
        world.send(1, ("broker-b", 0))
        world.run(0.2)
    assert len(world.bodies) == 10
    lost = world.send(5, ("broker-a", 0))
    world.run(5.0)
    world.brokers["broker-a"].heal()
    world.run(60.0)
    assert set(lost) <= world.bodies


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_missed_in_a_storm(seed):
    storm = Storm(seed)
    storm.rage(300.0)
    storm.calm_down()


@pytest.mark.parametrize("seed", range(8))
def test_no_two_members_ever_handle_an_ordered_queue_in_a_storm(seed):
    storm = Storm(seed, ordered=True)
    storm.rage(300.0)
    storm.calm_down()
    storm.world.check_order()


def test_a_new_member_waits_once_for_a_broker_that_hangs_not_for_each_of_its_queues():
    world = GroupWorld(queues=16)
    world.brokers["broker-a"].break_now(Hang())
    world.member().begin()
    began = world.clock()
    while not world.bodies and world.clock() < began + 60.0:
        world.send(1, ("broker-b", 0))
        world.run(0.5)
    assert world.clock() - began < 15.0
    world.brokers["broker-a"].heal()
    lost = world.send(5, ("broker-a", 15))
    world.run(60.0)
    assert set(lost) <= world.bodies
