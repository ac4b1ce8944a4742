"""What brokers and operators ask of a member."""

from __future__ import annotations

import pytest
from tests.unit.core.group.group_world import GROUP, GroupWorld

from rocketwire.core.group.requests import answer
from rocketwire.core.group.view import assignment, lag, stats
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.client_bodies import queue_json
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.lenient_json import Pairs, dumps, loads, pairs

ONE = MessageQueue("T", "broker-a", 0)


def running(**options: object):
    world = GroupWorld(brokers=1, queues=2)
    member = world.member(**options).begin()
    world.send(6, ("broker-a", 0))
    world.run(6.0)
    return world, member


def test_an_operator_moves_the_group_back():
    world, member = running()
    world.check_commit = lambda *_: None
    body = dumps({"offsetTable": Pairs([(queue_json(ONE), 2)])}, standard=False)
    fields = {"topic": "T", "group": GROUP, "timestamp": "0"}
    command = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
    assert answer(member.group, command) is None
    world.run(0.5)
    assert [offset for _, _, offset, _ in world.handled] == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]


def test_a_reset_of_another_group_is_none_of_our_business():
    world, member = running()
    body = dumps({"offsetTable": Pairs([(queue_json(ONE), 2)])}, standard=False)
    fields = {"topic": "T", "group": "other", "timestamp": "0"}
    assert answer(member.group, Command(220, fields, body)) is None
    world.run(1.0)
    assert len(world.handled) == 6


def test_a_member_tells_how_far_it_is():
    _, member = running()
    reply = answer(member.group, Command(221, {"topic": "T", "group": GROUP}))
    assert reply is not None
    table = {q["queueId"]: offset for q, offset in pairs(loads(reply.body)["messageQueueTable"])}
    assert table == {0: 6, 1: 0}


def test_a_member_tells_what_it_does():
    _, member = running(ordered=True)
    reply = answer(member.group, Command(307, {"consumerGroup": GROUP, "clientId": member.name}))
    assert reply is not None
    assert reply.code == ResponseCode.SUCCESS
    info = loads(reply.body)
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "true"
    assert {s["topic"] for s in info["subscriptionSet"]} == {"T", "%RETRY%g"}
    queues = {(q["topic"], q["queueId"]): i for q, i in pairs(info["mqTable"])}
    assert queues["T", 0]["commitOffset"] == 6
    assert queues["T", 0]["locked"] is True


@pytest.mark.parametrize(
    ("ordered", "left", "locked"), [(True, 10.0, True), (True, 0.0, False), (False, 10.0, False)]
)
def test_a_queue_is_told_as_locked_only_while_its_lock_holds(ordered, left, locked):
    world, member = running(ordered=ordered)
    member.group.queues[ONE].locked_until = world.clock() + left
    reply = answer(member.group, Command(307, {"consumerGroup": GROUP, "clientId": member.name}))
    table = {(q["topic"], q["queueId"]): i for q, i in pairs(loads(reply.body)["mqTable"])}
    told = table["T", 0]
    assert told["locked"] is locked
    assert (told["lastLockTimestamp"] > 0) is locked
    assert (told["cachedMsgMinOffset"], told["cachedMsgMaxOffset"]) == (6, 5)


def test_questions_that_make_no_sense_are_refused():
    _, member = running()
    for code, group in ((307, "other"), (309, "other"), (309, GROUP)):
        refusal = answer(member.group, Command(code, {"consumerGroup": group}))
        assert isinstance(refusal, Command)
        assert refusal.code == ResponseCode.SYSTEM_ERROR
        assert refusal.remark
    unknown = answer(member.group, Command(4711))
    assert isinstance(unknown, Command)
    assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert unknown.remark


def test_what_is_no_message_is_never_handled_directly():
    _, member = running()
    member.group.call_handler = lambda *_: pytest.fail("nothing was to be handled")
    for body in (b"", b"\0" * 7, b"\0\0\0\x60" + b"x" * 92):
        with pytest.raises(RemoteProtocolError):
            answer(member.group, Command(309, {"consumerGroup": GROUP}, body))


def test_a_consumer_shows_its_queues_its_lag_and_its_numbers():
    world, member = running()
    group = member.group
    assert assignment(group) == (ONE, MessageQueue("T", "broker-a", 1))
    member.behave = lambda _: (100.0, None)
    world.send(4, ("broker-a", 0))
    world.run(1.0)
    found = world.driver.run(lag(group, world.clock() + 3.0))
    assert found[ONE] == 4
    numbers = stats(group)
    assert (numbers.handled, numbers.pulled, numbers.held, numbers.in_hand) == (6, 10, 4, 2)
    state = next(q for q in numbers.queues if q.queue == ONE)
    assert (state.handled, state.committed, state.end, state.held) == (6, 6, 10, 4)
    assert state.state == "running"
