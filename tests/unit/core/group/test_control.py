"""What a program asks of its own membership: to go on elsewhere, to pause, and how far it has come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.core.group.group_world import GroupWorld, Member
from tests.wire_tools import reply_from

from rocketwire.core.effects import Invoke
from rocketwire.core.group.control import committed, position, seek, stop_limit
from rocketwire.core.group.rebalance import _give_back
from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import RESPONSE, Command

ONE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-b", 0)


def running(count: int = 10, **options: Any) -> tuple[GroupWorld, Member]:
    world = GroupWorld(brokers=1, queues=1)
    world.send(count, ("broker-a", 0))
    member = world.member(**options).begin()
    world.run(6.0)
    return world, member


def go(world: GroupWorld, member: Member, where: Any, queue: MessageQueue = ONE) -> int:
    return world.driver.run(seek(member.group, queue, where, world.clock() + 3.0))


@pytest.mark.parametrize(
    ("where", "offset"), [("earliest", 3), ("latest", 10), (3, 3), (7, 7), (10, 10)]
)
def test_a_program_goes_on_where_it_wants(where: Any, offset: int) -> None:
    world, member = running()
    world.check_commit = lambda *_: None  # type: ignore[method-assign]
    world.brokers["broker-a"].first["T", 0] = 3
    world.handled.clear()
    assert go(world, member, where) == offset
    world.run(0.5)
    assert [at for _, _, at, _ in world.handled] == list(range(offset, 10))
    assert position(member.group, ONE) == 10


def test_a_moment_is_the_first_message_at_or_after_it() -> None:
    world, member = running()
    world.check_commit = lambda *_: None  # type: ignore[method-assign]
    broker = world.brokers["broker-a"]
    asked: list[Command] = []

    def search(command: Command) -> Command:
        asked.append(command)
        return Command(0, {"offset": "4"})

    setattr(broker, f"_code_{RequestCode.SEARCH_OFFSET_BY_TIMESTAMP}", search)
    moment = datetime.fromtimestamp(0.0, UTC)
    assert go(world, member, moment) == 4
    assert asked[0].ext["timestamp"] == "0"


@pytest.mark.parametrize("where", [-1, 2, 11, True, 1.5, "middle", None])
def test_a_place_that_a_queue_does_not_have_is_refused_and_nothing_moves(where: Any) -> None:
    world, member = running()
    world.brokers["broker-a"].first["T", 0] = 3
    with pytest.raises(ConfigError, match=r"has no offset|is no place in a queue"):
        go(world, member, where)
    world.run(1.0)
    assert len(world.handled) == 10


def test_a_queue_that_is_another_s_is_refused() -> None:
    world, member = running()
    with pytest.raises(ConfigError, match="is not ours now"):
        go(world, member, "earliest", OTHER)
    with pytest.raises(ConfigError, match="is not ours now"):
        position(member.group, OTHER)


def test_a_queue_that_went_away_meanwhile_is_not_sought_in() -> None:
    world, member = running()
    operation = seek(member.group, ONE, "earliest", world.clock() + 3.0)
    asked = next(operation)
    assert isinstance(asked, Invoke)
    _give_back(member.group, [ONE])
    found = Command(0, {"offset": "0"}, flag=RESPONSE)
    with pytest.raises(ConfigError, match="is not ours now"):
        operation.send(reply_from(found))


@pytest.mark.parametrize("wrong", ["T", None, ("T", "broker-a", 0)])
def test_what_is_no_queue_is_refused_by_name(wrong: Any) -> None:
    world, member = running()
    group, until = member.group, world.clock() + 3.0
    for ask in (
        lambda: world.driver.run(committed(group, wrong, until)),
        lambda: world.driver.run(seek(group, wrong, "earliest", until)),
        lambda: position(group, wrong),
    ):
        with pytest.raises(ConfigError, match="is no MessageQueue"):
            ask()


def test_how_far_a_group_has_come_is_what_its_broker_knows() -> None:
    world, member = running()
    until = world.clock() + 3.0
    assert world.driver.run(committed(member.group, ONE, until)) == 10
    world.brokers["broker-a"].offsets.clear()
    assert world.driver.run(committed(member.group, ONE, until)) is None


def test_how_far_a_broadcasting_member_has_come_is_known_here() -> None:
    world, member = running(broadcast=True)

    class Kept:
        def get(self, queue: MessageQueue) -> int | None:
            return {ONE: 4}.get(queue)

    member.group.local = Kept()  # type: ignore[assignment]
    until = world.clock() + 3.0
    assert world.driver.run(committed(member.group, ONE, until)) == 4
    assert world.driver.run(committed(member.group, OTHER, until)) is None


@pytest.mark.parametrize(("given", "limit"), [(None, None), (0, 0.0), (2.5, 2.5), ("1 min", 60.0)])
def test_a_stopped_consumer_waits_as_long_as_it_is_told(given: Any, limit: float | None) -> None:
    assert stop_limit(given) == limit


@pytest.mark.parametrize("given", [-1, float("nan"), "soon"])
def test_a_time_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="timeout is"):
        stop_limit(given)


# -- pauses ---------------------------------------------------------------------------------------


def pause(member: Member, *, is_paused: bool) -> None:
    member.group.pauses.put("T", {"T"}, is_paused=is_paused)
    member.group.apply_pauses()


def pulls(world: GroupWorld) -> int:
    seen = world.brokers["broker-a"].seen
    return sum(c.code == RequestCode.PULL_MESSAGE and c.ext["topic"] == "T" for c in seen)


def test_a_paused_queue_is_not_pulled_and_goes_on_at_once_when_it_is_resumed() -> None:
    world, member = running()
    pause(member, is_paused=True)
    world.send(1, ("broker-a", 0))  # ends the pull that was held already
    world.run(1.0)
    before = pulls(world)
    world.send(5, ("broker-a", 0))
    world.run(30.0)
    assert pulls(world) == before
    assert len(world.handled) == 10
    pause(member, is_paused=False)
    world.run(0.1)
    assert len(world.handled) == 16


def test_a_full_queue_that_was_paused_meanwhile_is_not_pulled_when_there_is_room() -> None:
    world = GroupWorld(brokers=1, queues=1)
    world.send(200, ("broker-a", 0))
    member = world.member(max_queue_messages=32, workers=1)
    member.behave = lambda _: (0.05, None)
    member.begin()
    world.run(0.5)
    held = member.group.queues[ONE]
    assert held.is_full
    before = pulls(world)
    pause(member, is_paused=True)
    world.run(20.0)
    assert pulls(world) == before
    pause(member, is_paused=False)
    world.run(20.0)
    assert len(world.bodies) == 200


def test_an_ordered_queue_is_not_pulled_while_its_lock_is_not_ours() -> None:
    world, member = running(ordered=True, workers=1)
    broker = world.brokers["broker-a"]
    held = member.group.queues[ONE]
    broker.locks["T", 0] = ("another", world.clock() + 30.0)
    held.locked_until = world.clock()
    world.send(1, ("broker-a", 0))
    world.run(1.5)
    before = pulls(world)
    world.run(5.0)
    assert pulls(world) == before
