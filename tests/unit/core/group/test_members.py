"""Being a member: when heartbeats are sent, what is made of their answers, and how one leaves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.group.group_world import GroupWorld, Member
from tests.unit.core.world import address

from rocketwire.core.group.upkeep import give_up_waiting, heartbeat, join
from rocketwire.errors import PermissionDeniedError
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command

ONE = MessageQueue("T", "broker-a", 0)


def running(brokers: int = 1, **options: Any) -> tuple[GroupWorld, Member]:
    world = GroupWorld(brokers=brokers, queues=1)
    member = world.member(**({"heartbeat_interval": 30.0, "rebalance_interval": 500.0} | options))
    member.begin()
    world.run(2.0)
    return world, member


def beats(world: GroupWorld, broker: str = "broker-a") -> list[Command]:
    seen = world.brokers[broker].seen
    return [command for command in seen if command.code == RequestCode.HEART_BEAT]


def test_heartbeats_are_sent_at_their_pace() -> None:
    world, _ = running()
    before = len(beats(world))
    world.run(120.0)
    assert len(beats(world)) - before == 4


@pytest.mark.parametrize(("after", "soon"), [(0.02, 0.5), (0.095, 0.5), (0.11, 0.11), (5.0, 5.0)])
def test_a_heartbeat_that_is_called_for_waits_a_moment_where_more_may_call(
    after: float, soon: float
) -> None:
    world, member = running()
    member.group.heartbeat_wake_up.wake()
    world.run(5.0)
    before = len(beats(world))
    # From here on it waits for the next call: the last one was sent just now.
    member.group.heartbeat_wake_up.wake()
    world.run(0.01)
    assert len(beats(world)) == before + 1
    world.run(after - 0.008)  # a round takes 2 ms
    member.group.heartbeat_wake_up.wake()
    world.run(max(soon - after - 0.01, 0.0))
    assert len(beats(world)) == before + 1 + (after == soon)
    world.run(0.1)
    assert len(beats(world)) == before + 2


def test_heartbeats_come_every_second_while_a_broker_does_not_hear_them() -> None:
    world, _ = running(2)
    world.brokers["broker-b"].break_now(Refuse())
    world.run(31.0)
    before = len(beats(world))
    world.run(10.0)
    assert 9 <= len(beats(world)) - before <= 21
    world.brokers["broker-b"].heal()
    world.run(5.0)
    before = len(beats(world))
    world.run(20.0)
    assert len(beats(world)) == before


def test_what_brokers_answer_to_heartbeats_is_kept() -> None:
    world, member = running(2)
    world.brokers["broker-a"].version = 409
    group = member.group
    assert world.driver.run(heartbeat(group))
    assert group.versions == {address("broker-a"): 409, address("broker-b"): 479}
    world.brokers["broker-b"].break_now(Refuse())
    assert not world.driver.run(heartbeat(group))
    assert group.failed_at[address("broker-b")] == world.clock()
    assert address("broker-a") not in group.failed_at
    for topic in ("T", "%RETRY%g"):
        group.instance.routes.forget(topic)
    assert not world.driver.run(heartbeat(group)), "nobody has heard it"


def deny(world: GroupWorld, *brokers: str, why: str = "not you") -> None:
    for name in brokers:
        answer = Command(ResponseCode.NO_PERMISSION, remark=why)
        world.brokers[name]._code_34 = lambda _, answer=answer: answer


def test_a_member_that_lacks_a_right_is_told_so_once(caplog: pytest.LogCaptureFixture) -> None:
    world, member = running(2)
    deny(world, "broker-b")
    for _ in range(3):
        assert not world.driver.run(heartbeat(member.group))
    words = [r.getMessage() for r in caplog.records if "gets no messages" in r.getMessage()]
    assert len(words) == 1
    assert words[0].startswith("g gets no messages: broker-b ")
    deny(world, "broker-b", why="not you either")
    world.driver.run(heartbeat(member.group))
    words = [r.getMessage() for r in caplog.records if "gets no messages" in r.getMessage()]
    assert len(words) == 2
    del world.brokers["broker-b"]._code_34
    world.driver.run(heartbeat(member.group))
    assert member.group.denied == {}


def test_one_that_no_broker_takes_for_a_member_does_not_join() -> None:
    world = GroupWorld(brokers=2, queues=1)
    deny(world, "broker-a")
    world.driver.run(join(world.member().group))
    deny(world, "broker-b")
    with pytest.raises(PermissionDeniedError, match="not you"):
        world.driver.run(join(world.member().group))


def test_a_member_that_leaves_says_so_to_every_broker() -> None:
    world, member = running(2)
    task = member.leave()
    world.run(1.0)
    assert task.result() is True
    assert [list(broker.members) for broker in world.brokers.values()] == [[], []]
    assert member.group.queues == {}


@pytest.mark.parametrize(("request_timeout", "limit"), [(3.0, 1.0), (0.5, 0.5)])
def test_a_broker_that_does_not_answer_holds_up_a_goodbye_for_a_second_at_most(
    request_timeout: float, limit: float
) -> None:
    world, member = running(request_timeout=request_timeout)
    world.run(10.0)  # all is committed
    world.brokers["broker-a"].break_now(Hang())
    began = world.clock()
    task = member.leave()
    while not task.done:
        world.run(0.05)
    assert world.clock() - began == pytest.approx(limit, abs=0.1)
    assert task.result() is True


@pytest.mark.parametrize("gives_up", [False, True])
def test_leaving_waits_for_handlers_until_one_gives_up_waiting(gives_up: bool) -> None:
    world, member = running()
    member.behave = lambda _: (5.0, None)
    world.send(1, ("broker-a", 0))
    world.run(0.1)
    task = member.leave()
    world.run(1.0)
    assert not task.done
    if gives_up:
        give_up_waiting(member.group)
        world.run(1.0)
        assert task.result() is False
    else:
        world.run(5.0)
        assert task.result() is True
