"""Where queues begin, and what is committed."""

from __future__ import annotations

import pytest
from tests.unit.core.group.group_world import GroupWorld

from rocketwire.core.group.offsets import commit, start_offset
from rocketwire.core.group.upkeep import join
from rocketwire.errors import TopicNotFoundError, TransportError
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.route import TopicRoute

ONE = MessageQueue("T", "broker-a", 0)
RETRIES = MessageQueue("%RETRY%g", "broker-a", 0)


def member_of(world: GroupWorld, **options: object):
    member = world.member(**options)
    world.driver.run(_know_routes(member.group))
    return member


def _know_routes(group):
    from rocketwire.core.lookup import refresh_topic

    yield from refresh_topic(group.instance, "T", 3.0)


def begin(world: GroupWorld, queue: MessageQueue = ONE, **options: object) -> int:
    return world.driver.run(start_offset(member_of(world, **options).group, queue))


def test_a_group_that_is_known_goes_on_where_it_was():
    world = GroupWorld()
    world.send(10, ("broker-a", 0))
    world.brokers["broker-a"].offsets["T", 0] = 7
    for start in ("earliest", "latest", 5.0):
        assert begin(world, start=start) == 7


def test_a_new_group_begins_at_the_first_or_at_the_last_message():
    world = GroupWorld()
    world.send(10, ("broker-a", 0))
    world.brokers["broker-a"].first["T", 0] = 3
    world.check_commit = lambda *_: None
    assert begin(world, start="earliest") == 3
    assert begin(world, start="latest") == 10


def test_the_first_member_of_a_new_group_notes_the_end_of_every_queue():
    world = GroupWorld()
    world.check_commit = lambda *_: None
    world.send(50)
    begin(world, start="latest")
    ends = {
        (name, key[1]): len(queue)
        for name, broker in world.brokers.items()
        for key, queue in broker.queues.items()
    }
    noted = {
        (name, key[1]): offset
        for name, broker in world.brokers.items()
        for key, offset in broker.offsets.items()
    }
    assert {place: n for place, n in noted.items() if n} == ends
    assert len(noted) == 8


def test_a_queue_that_is_new_to_a_known_group_begins_at_its_first_message():
    world = GroupWorld()
    world.send(10, ("broker-a", 0))
    world.brokers["broker-b"].offsets["T", 2] = 0
    assert begin(world, start="latest") == 0


def test_an_old_broker_that_answers_zero_does_not_make_a_group_known():
    """Brokers before 5.0 say 0 where a queue still has its first message."""
    world = GroupWorld()
    world.send(10, ("broker-a", 0))
    old = world.brokers["broker-b"]
    old._code_14 = lambda _: Command(0, {"offset": "0"}, version=409)
    world.check_commit = lambda *_: None
    assert begin(world, start="latest") == 10


def test_retries_always_begin_with_the_first():
    world = GroupWorld()
    world.brokers["broker-a"].queues["%RETRY%g", 0] = []
    world.brokers["broker-a"].store("%RETRY%g", 0, _stored("x"))
    for start in ("latest", "earliest", 12.0):
        assert begin(world, RETRIES, start=start) == 0


def _stored(body: str):
    from tests.unit.core.group.group_world import Stored

    return Stored(body)


def test_a_broker_that_is_away_gives_no_position():
    world = GroupWorld()
    world.brokers["broker-a"].break_now(Refuse())
    with pytest.raises(TransportError):
        begin(world)


def test_offsets_are_committed_every_five_seconds_and_only_when_they_moved():
    world = GroupWorld(brokers=1, queues=1)
    world.member().begin()
    world.run(1.0)
    broker = world.brokers["broker-a"]

    def commits() -> list[str]:
        codes = RequestCode.UPDATE_CONSUMER_OFFSET
        found = [c for c in broker.seen if c.code == codes and c.ext["topic"] == "T"]
        return [c.ext["commitOffset"] for c in found]

    world.send(3, ("broker-a", 0))
    world.run(3.0)
    assert commits() == []
    world.run(2.5)
    assert commits() == ["3"]
    world.run(20.0)
    assert commits() == ["3"]


def test_offsets_that_did_not_move_are_told_again_once_a_minute():
    """A broker that was killed may have lost what it was told last."""
    world = GroupWorld(brokers=1, queues=1)
    world.member().begin()
    world.send(3, ("broker-a", 0))
    world.run(10.0)
    broker = world.brokers["broker-a"]
    assert broker.offsets["T", 0] == 3
    del broker.offsets["T", 0]
    world.run(30.0)
    assert ("T", 0) not in broker.offsets
    world.run(40.0)
    assert broker.offsets["T", 0] == 3
    del broker.offsets["T", 0]
    world.run(30.0)  # nor more often later on
    assert ("T", 0) not in broker.offsets
    world.run(35.0)
    assert broker.offsets["T", 0] == 3


def test_a_broker_that_was_away_is_told_the_offsets_again():
    world = GroupWorld(brokers=1, queues=2)
    world.member().begin()
    world.send(4)
    world.run(10.0)
    broker = world.brokers["broker-a"]
    kept = dict(broker.offsets)
    broker.restart()
    broker.offsets.clear()
    world.run(1.0)
    broker.heal()
    world.run(15.0)
    assert broker.offsets == kept


class Racing:
    """Apache's table of offsets: two that come at once to a new topic and group are one."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.made: dict[tuple[str, str], float] = {}

    def install(self) -> None:
        for broker in self.world.brokers.values():
            broker._code_15 = lambda command, broker=broker: self.take(broker, command)

    def take(self, broker, command: Command) -> Command:
        place, now = (broker.name, command.ext["topic"]), self.world.clock()
        key = (command.ext["topic"], int(command.ext["queueId"]))
        if self.made.setdefault(place, now) == now:
            for known in [k for k in broker.offsets if k[0] == key[0]]:
                del broker.offsets[known]
        broker.offsets[key] = int(command.ext["commitOffset"])
        return Command(0)


def test_no_offset_of_a_new_group_is_lost_where_the_broker_mixes_up_the_first_two():
    """It was: one queue of a new group at ``latest`` then began with its first message."""
    world = GroupWorld(brokers=2, queues=4)
    world.send(80)
    Racing(world).install()
    member = member_of(world, start="latest")
    for name in world.brokers:
        for number in range(4):
            queue = MessageQueue("T", name, number)
            end = len(world.brokers[name].queues["T", number])
            assert world.driver.run(start_offset(member.group, queue)) == end


@pytest.mark.parametrize("ordered", [False, True])
def test_queues_given_back_before_the_first_commit_are_not_handled_again(ordered):
    """They were: each was committed by itself, at the same time, and one offset got lost."""
    world = GroupWorld(brokers=2, queues=8)
    world.member(ordered=ordered).begin()
    world.send(160)
    world.run(1.0)
    assert len(world.handled) == 160
    Racing(world).install()
    world.member(ordered=ordered).begin()
    world.run(1.0)
    assert [len(queues) for queues in world.assignments().values()] == [8, 8]
    assert len(world.handled) == 160


def test_a_first_offset_that_was_refused_keeps_nobody_waiting():
    world = GroupWorld(brokers=2, queues=4)
    member = world.member().begin()
    world.send(40)
    world.run(1.0)
    broker = world.brokers["broker-a"]
    real, broker._code_15 = broker._code_15, lambda _: Command(ResponseCode.SYSTEM_ERROR)
    queues = list(member.group.queues.values())
    assert world.driver.run(commit(member.group, queues, world.clock() + 3.0)) is False
    assert not broker.offsets
    broker._code_15 = real
    assert world.driver.run(commit(member.group, queues, world.clock() + 3.0)) is True
    assert broker.offsets == {k: len(q) for k, q in broker.queues.items()}


def test_a_first_offset_without_an_answer_holds_up_no_other_broker():
    world = GroupWorld(brokers=2, queues=4)
    member = world.member().begin()
    world.send(40)
    world.run(1.0)
    world.brokers["broker-a"].break_now(Hang())
    held = {q.queue.broker: q for q in member.group.queues.values() if q.queue.topic == "T"}
    lost = world.driver.spawn(commit(member.group, [held["broker-a"]], world.clock() + 3.0))
    assert world.driver.run(commit(member.group, [held["broker-b"]], world.clock() + 3.0)) is True
    assert not lost.done
    world.run(3.5)
    assert lost.result() is False


def test_a_commit_that_failed_is_tried_again():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member().begin()
    world.run(1.0)
    broker = world.brokers["broker-a"]
    world.send(3, ("broker-a", 0))
    world.run(1.0)
    real, broker._code_15 = broker._code_15, lambda _: Command(ResponseCode.SYSTEM_ERROR)
    deadline = world.clock() + 3.0
    queues = list(member.group.queues.values())
    assert world.driver.run(commit(member.group, queues, deadline)) is False
    broker._code_15 = real
    world.run(6.0)
    assert broker.offsets["T", 0] == 3


def test_leaving_commits_at_once():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member().begin()
    world.run(1.0)
    world.send(3, ("broker-a", 0))
    world.run(0.1)
    member.leave()
    world.run(0.1)
    assert world.brokers["broker-a"].offsets["T", 0] == 3
    assert not world.brokers["broker-a"].members


def test_leaving_waits_for_the_handler_at_work():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member().begin()
    member.behave = lambda _: (3.0, None)
    world.run(1.0)
    world.send(1, ("broker-a", 0))
    world.run(0.1)
    task = member.leave()
    world.run(2.0)
    assert not task.done
    world.run(1.5)
    assert task.result() is True
    assert world.brokers["broker-a"].offsets["T", 0] == 1


def test_leaving_does_not_wait_for_ever():
    world = GroupWorld(brokers=1, queues=2)
    member = world.member(ordered=True).begin()
    member.behave = lambda m: (300.0 if m.queue.id == 0 else 0.0, None)
    world.run(1.0)
    world.send(2, ("broker-a", 0))
    world.send(2, ("broker-a", 1))
    world.run(1.0)
    task = member.leave()
    world.run(11.0)
    assert task.result() is False
    broker = world.brokers["broker-a"]
    assert broker.offsets["T", 1] == 2
    assert broker.offsets.get(("T", 0), 0) == 0
    assert {queue for topic, queue in broker.locks if topic == "T"} == {0}, "its handler goes on"


class Kept:
    """Where a broadcasting member keeps its offsets, in memory."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        return self.offsets.get(queue)

    def knows(self, topic: str) -> bool:
        return any(queue.topic == topic for queue in self.offsets)

    def save(self, offsets) -> None:
        self.offsets |= offsets


def test_a_queue_that_is_new_to_a_broadcasting_member_begins_at_its_first_message():
    """It began at its end: what was sent to it before the member knew of it was never handled."""
    world = GroupWorld(brokers=1, queues=2)
    world.send(5, ("broker-a", 0))
    world.send(3, ("broker-a", 1))
    member = member_of(world, start="latest", broadcast=True)
    member.group.local = kept = Kept()

    def begin_with(number: int) -> int:
        queue = MessageQueue("T", "broker-a", number)
        return world.driver.run(start_offset(member.group, queue))

    assert begin_with(0) == 5
    assert sorted(kept.offsets.values()) == [3, 5], "the ends of all queues are noted at once"
    world.send(1, ("broker-a", 1))
    assert begin_with(1) == 3
    world.topics["T"]["broker-a"] = 3
    world.send(4, ("broker-a", 2))
    assert begin_with(2) == 0
    kept.offsets.clear()
    assert begin_with(2) == 4, "the member is new again"


def test_what_a_slave_was_told_is_told_the_master_when_it_is_back():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member().begin()
    world.run(1.0)
    world.send(3, ("broker-a", 0))
    world.run(1.0)
    group, broker = member.group, world.brokers["broker-a"]
    whole = group.instance.routes.get("T").route
    (data,) = whole.brokers
    slave = data._replace(addresses={1: data.addresses[0]})
    orphaned = TopicRoute(whole.queues, (slave,), whole.order_conf, whole.mappings)
    queues = [held for held in group.queues.values() if held.queue == ONE]
    group.instance.routes.update("T", orphaned)
    deadline = world.clock() + 3.0
    assert world.driver.run(commit(group, queues, deadline)) is False
    # The slave has it all the same, for members that come while there is no master.
    assert broker.offsets.pop(("T", 0)) == 3
    group.instance.routes.update("T", whole)
    assert world.driver.run(commit(group, queues, deadline)) is True
    assert broker.offsets["T", 0] == 3


def test_every_offset_that_a_broker_took_is_counted_as_a_commit():
    world = GroupWorld(queues=2)
    member = world.member().begin()
    world.run(11.0)  # where its queues begin is told, too
    before = member.group.counters.commits
    for queue in [("broker-a", 0), ("broker-a", 1), ("broker-b", 0)]:
        world.send(3, queue)
    world.run(6.0)
    assert member.group.counters.commits - before == 3


def test_a_topic_that_is_unknown_is_named_without_the_retry_topic():
    world = GroupWorld()
    del world.topics["T"]
    member = world.member()
    with pytest.raises(TopicNotFoundError, match="topic T is unknown: check its name"):
        world.driver.run(join(member.group))


def test_a_broadcasting_member_keeps_its_offsets_itself_and_tries_again_what_failed(caplog):
    class Full(Kept):
        is_full = True

        def save(self, offsets) -> None:
            if self.is_full:
                raise OSError("no space left")
            super().save(offsets)

    world = GroupWorld(brokers=1, queues=1)
    world.send(4, ("broker-a", 0))
    member = world.member(broadcast=True)
    member.group.local = kept = Full()
    kept.is_full = False
    member.begin()
    world.run(1.0)
    kept.offsets.clear()
    group = member.group
    queues = [held for held in group.queues.values() if held.queue == ONE]
    queues[0].committed = None
    kept.is_full = True
    before = group.counters.commits
    assert world.driver.run(commit(group, queues, world.clock() + 3.0)) is False
    assert "offsets could not be written, they are tried again: no space left" in caplog.text
    assert (kept.offsets, group.counters.commits) == ({}, before)
    kept.is_full = False
    assert world.driver.run(commit(group, queues, world.clock() + 3.0)) is True
    assert kept.offsets == {ONE: 4}
    assert group.counters.commits == before + 1
    assert world.brokers["broker-a"].offsets == {}, "brokers know nothing of it"


def test_an_offset_of_a_broker_that_no_route_has_is_not_committed():
    world = GroupWorld(brokers=1, queues=1)
    member = world.member().begin()
    world.send(3, ("broker-a", 0))
    world.run(1.0)
    group = member.group
    queues = [held for held in group.queues.values() if held.queue == ONE]
    world.topics.clear()
    world.brokers["broker-a"].queues.clear()
    for topic in group.instance.routes.topics():
        group.instance.routes.forget(topic)
    assert world.driver.run(commit(group, queues, world.clock() + 3.0)) is False
    assert queues[0].committed != 3
