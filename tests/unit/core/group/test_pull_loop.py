"""Filling queues: how much, from where, and what if the broker has something else."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.core.group.group_world import GroupWorld, Member
from tests.unit.core.world import decoded

from rocketwire.config import Credentials
from rocketwire.core.effects import Invoke, InvokeAll
from rocketwire.core.reading.pull import ALL, HOLD_SLACK, TagFilter, tag_filter
from rocketwire.hooks import QueueEvent
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Refuse
from rocketwire.testing.simulation import SimulatedDriver
from rocketwire.wire.codes import PullFlag, RequestCode, ResponseCode
from rocketwire.wire.command import BINARY, JSON, Command
from rocketwire.wire.route import TopicRoute

ONE = ("broker-a", 0)
#: What signatures and namespaces add.
_BESIDES = {"ns", "nsd", "AccessKey", "Signature"}


class Told:
    def __init__(self) -> None:
        self.paused_events: list[QueueEvent] = []
        self.moved: list[QueueEvent] = []

    def paused(self, event: QueueEvent) -> None:
        self.paused_events.append(event)

    def offset_moved(self, event: QueueEvent) -> None:
        self.moved.append(event)


def pulls(world: GroupWorld, broker: str = "broker-a") -> list[Command]:
    seen = world.brokers[broker].seen
    return [c for c in seen if c.code == RequestCode.PULL_MESSAGE and c.ext["topic"] == "T"]


def test_pulls_wait_at_the_broker_and_carry_their_subscription():
    world = GroupWorld(brokers=1, queues=1, tags="A || B")
    world.member().begin()
    world.run(1.0)
    (pull,) = pulls(world)
    assert int(pull.ext["sysFlag"]) == PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
    assert pull.ext["subscription"] == "A || B"
    assert pull.ext["suspendTimeoutMillis"] == "15000"
    world.run(60.0)
    assert len(pulls(world)) <= 5


def test_pulls_are_the_same_whether_from_a_template_or_field_by_field():
    """A JSON header, a namespace of 5.x or a signature is written anew for each request."""
    written = {}
    for name, options in {
        "template": {},
        "json": {"header": "json"},
        "namespace": {"namespace_v2": "n"},
        "signed": {"credentials": Credentials("access-key", "secret-key")},
    }.items():
        world = GroupWorld(brokers=1, queues=1)
        world.send(200, ONE)
        world.member("same", **options).begin()
        world.run(5.0)
        assert len(world.bodies) == 200
        written[name] = [
            (pull.header, {k: v for k, v in pull.ext.items() if v and k not in _BESIDES})
            for pull in pulls(world)
        ]
    fields = [ext for _, ext in written["template"]]
    assert {header for header, _ in written["template"]} == {BINARY}
    assert {header for header, _ in written["json"]} == {JSON}
    for other in written.values():
        assert [ext for _, ext in other] == fields


def test_a_queue_that_is_far_behind_is_pulled_several_times_at_once():
    world = GroupWorld(brokers=1, queues=1)
    world.send(500, ONE)
    world.member().begin()
    world.run(5.0)
    assert len(world.bodies) == 500
    offsets = [int(p.ext["queueOffset"]) for p in pulls(world)]
    assert offsets[:9] == [0, *range(32, 32 * 9, 32)]
    assert sorted(set(offsets)) == offsets, "nothing was pulled twice"


def test_answers_that_do_not_follow_are_thrown_away():
    """A broker may give less than was asked for: later pulls of the round leave a gap then."""
    world = GroupWorld(brokers=1, queues=1)
    broker = world.brokers["broker-a"]
    real = broker._read
    sizes = iter([32, 32, 8, 32, 32, 3] * 100)

    def read_less(command: Command, offset: int) -> Command:
        command.ext["maxMsgNums"] = str(next(sizes))
        return real(command, offset)

    broker._read = read_less
    world.send(700, ONE)
    world.member(workers=1).begin()
    world.run(20.0)
    assert [offset for _, _, offset, _ in world.handled] == list(range(700))


def test_a_queue_is_held_back_while_its_handler_is_slow():
    told = Told()
    world = GroupWorld(brokers=1, queues=1)
    world.send(3000, ONE)
    member = world.member(max_queue_messages=100, hooks=[told])
    member.behave = lambda _: (1000.0, None)
    member.begin()
    world.run(60.0)
    assert 100 <= member.workload.held <= 100 + 8 * 32
    assert len(pulls(world)) < 15
    assert [e.why for e in told.paused_events] == [
        f"{member.workload.held} messages are held of it"
    ]
    member.behave = lambda _: (0.0, None)
    world.run(1200.0)
    assert len(world.bodies) == 3000


def test_one_unhandled_message_holds_back_a_long_span():
    world = GroupWorld(brokers=1, queues=1)
    world.send(1000, ONE)
    member = world.member(max_queue_span=200)
    member.behave = lambda m: (500.0 if m.offset == 5 else 0.0, None)
    member.begin()
    world.run(60.0)
    assert len(world.bodies) < 5 + 200 + 8 * 32
    assert (
        member.group.floors(member.group.queues.values())[
            next(q for q in member.group.queues if q.topic == "T")
        ]
        == 5
    )
    world.run(600.0)
    assert len(world.bodies) == 1000


def test_an_expired_offset_follows_the_broker_and_is_reported():
    told = Told()
    world = GroupWorld(brokers=1, queues=1)
    world.send(100, ONE)
    broker = world.brokers["broker-a"]
    broker.offsets["T", 0] = 10
    broker.first["T", 0] = 60
    member = world.member(hooks=[told]).begin()
    world.run(2.0)
    assert [offset for _, _, offset, _ in world.handled] == list(range(60, 100))
    assert [e.why for e in told.moved] == [
        "offset 10 is not there, the broker has 60 to 100; going on at 60"
    ]
    assert member.group.counters.moved_offsets == 1
    world.run(5.0)
    assert broker.offsets["T", 0] == 100


def test_an_offset_beyond_the_end_comes_back_to_it():
    world = GroupWorld(brokers=1, queues=1)
    world.send(10, ONE)
    world.brokers["broker-a"].offsets["T", 0] = 50
    world.check_commit = lambda *_: None
    world.member().begin()
    world.run(2.0)
    world.send(5, ONE)
    world.run(1.0)
    assert [offset for _, _, offset, _ in world.handled] == list(range(10, 15))


def test_a_lost_connection_costs_a_moment_and_no_message():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member().begin()
    world.run(1.0)
    world.brokers["broker-a"].break_now(Refuse())
    world.run(2.0)
    world.brokers["broker-a"].heal()
    world.send(5, ONE)
    world.run(10.0)
    assert len(world.bodies) == 5
    assert member.group.counters.pull_errors >= 1


def test_other_tags_are_pulled_with_at_once():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member().begin()
    world.run(1.0)
    member.group.subscribe({"T": tag_filter("A || B")})
    world.run(0.1)
    assert [p.ext["subscription"] for p in pulls(world)] == ["*", "A || B"]
    member.group.subscribe({})
    world.run(0.1)
    assert [q.topic for q in member.group.queues] == ["%RETRY%g"]


def test_a_garbled_answer_does_not_stop_a_queue():
    world = GroupWorld(brokers=1, queues=1)
    broker = world.brokers["broker-a"]
    real, broker._read = broker._read, lambda *_: Command(0, {"nextBeginOffset": "x"}, b"rubbish")
    world.member().begin()
    world.run(2.0)
    broker._read = real
    world.send(3, ONE)
    world.run(5.0)
    assert len(world.bodies) == 3


def calls(world: GroupWorld, effects: list) -> list[list[tuple[float, str, int]]]:
    """The rounds of pulls of T: how long each may take, where it goes, and from which offset on."""
    rounds = []
    for moment, effect in effects:
        invokes = effect.invokes if isinstance(effect, InvokeAll) else [effect]
        found = []
        for call in invokes:
            if isinstance(call, Invoke):
                command = decoded(call.request)
                if command.code == RequestCode.PULL_MESSAGE and command.ext["topic"] == "T":
                    offset = int(command.ext["queueOffset"])
                    found.append((round(call.deadline - moment, 6), call.address, offset))
        if found:
            rounds.append(found)
    return rounds


def watched(**options: object) -> tuple[GroupWorld, Member, list]:
    """A member of a world with one queue, and all that its operations wait for."""
    world = GroupWorld(brokers=1, queues=1)
    world.driver = SimulatedDriver(world.network, record=True)
    return world, world.member(**options), world.driver.effects


def test_a_pull_that_waits_has_the_time_for_it_and_one_of_several_has_not():
    world, member, effects = watched(pull_wait=10.0, pull_timeout=4.0)
    world.send(200, ONE)
    member.begin()
    world.run(5.0)
    rounds = calls(world, effects)
    single = {limit for found in rounds if len(found) == 1 for limit, _, _ in found}
    several = {limit for found in rounds if len(found) > 1 for limit, _, _ in found}
    assert single == {10.0 + HOLD_SLACK + 4.0}
    assert several == {4.0}


def test_a_queue_is_pulled_at_the_slave_that_its_broker_suggests_if_that_is_known():
    world, member, effects = watched()
    broker = world.brokers["broker-a"]
    true, suggested = broker._read, {"suggestWhichBrokerId": "1"}
    slave = "10.0.0.50:10911"

    def read(command: Command, offset: int) -> Command:
        reply = true(command, offset)
        reply.ext |= suggested
        return reply

    broker._read = read
    member.begin()
    world.run(1.0)

    def next_place() -> str:
        effects.clear()
        world.send(1, ONE)
        world.run(0.1)
        return calls(world, effects)[0][0][1]

    assert next_place() == broker.address, "no route has that slave"
    routes = member.group.instance.routes
    route = routes.get("T").route
    (data,) = route.brokers
    data = data._replace(addresses={**data.addresses, 1: slave})
    routes.update("T", TopicRoute(route.queues, (data,), route.order_conf, route.mappings))
    world.network.brokers[slave] = broker
    assert next_place() == slave
    suggested["suggestWhichBrokerId"] = "0"
    next_place()
    assert next_place() == broker.address


def test_templates_of_pulls_are_made_anew_with_the_subscription_and_old_ones_are_let_go():
    world, member, _ = watched()
    world.send(200, ONE)
    member.begin()
    world.run(5.0)
    (held,) = [held for queue, held in member.group.queues.items() if queue.topic == "T"]
    assert {key[0] for key in held.templates} == {False, True}, "of both kinds of pulls"
    for tags in ("A", "B"):
        member.group.subscribe({"T": tag_filter(tags)})
        world.run(1.0)
        assert {key[2] for key in held.templates} == {tags}


def test_the_rests_between_failed_pulls_grow_up_to_a_limit():
    world, member, effects = watched()
    member.begin()
    world.run(1.0)
    world.brokers["broker-a"].break_now(Refuse())
    began = world.clock()
    world.run(30.0)
    moments = []
    for moment, effect in effects:
        if moment >= began and isinstance(effect, Invoke):
            command = decoded(effect.request)
            if command.code == RequestCode.PULL_MESSAGE and command.ext["topic"] == "T":
                moments.append(moment)
    rests = [round(b - a, 1) for a, b in pairwise(moments)]
    assert rests[:6] == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0]


FILTERS = [ALL, tag_filter("A"), TagFilter("a > 1", frozenset(), "SQL92")]


@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: wanted.expression)
def test_offsets_that_lack_are_told_unless_a_filter_explains_them(wanted, caplog):
    world = GroupWorld(brokers=1, queues=1)
    world.send(10, ONE)
    broker = world.brokers["broker-a"]
    true = broker._read

    def read(command: Command, offset: int) -> Command:
        if command.ext["topic"] == "T" and offset == 0:
            ext = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "10"}
            return Command(ResponseCode.PULL_RETRY_IMMEDIATELY, ext)
        return true(command, offset)

    broker._read = read
    broker._code_46 = lambda _: Command(0)  # the expression is right
    member = world.member()
    member.group.subscribe({"T": wanted})
    member.begin()
    world.run(5.0)
    assert ("of the offsets 0 to 4 only 0 are there" in caplog.text) is wanted.is_all
    assert member.group.queues[MessageQueue("T", "broker-a", 0)].next_offset == 10
