"""What a reader makes of a broker that lets it read no more: waiting gives nobody a right."""

import pytest
from tests.unit.core.world import World

from rocketwire.core.reading.pull import ALL
from rocketwire.core.reading.topics import Reading
from rocketwire.errors import PermissionDeniedError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command

PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
DENIED = (
    "org.apache.rocketmq.acl.common.AclException: No default permission for topic:T, "
    "org.apache.rocketmq.acl.plain.PlainPermissionManager.checkPerm"
)


def test_a_missing_right_is_told_at_once_though_4x_has_no_code_for_it() -> None:
    world = World(brokers=1)
    pulls = []

    def answer(command: Command) -> Command | None:
        if command.code in PULLS:
            pulls.append(command)
            return Command(ResponseCode.SYSTEM_ERROR, remark=DENIED)
        return None

    world.extra_answer = answer
    queue = MessageQueue("T", "broker-a", 0)
    reading = Reading(world.instance, group="g", tags=ALL, follow=False)
    world.driver.run(reading.begin("T", [queue], {queue: 0}, {queue: 5}))
    began = world.clock()
    with pytest.raises(PermissionDeniedError, match="it takes SUB on the topic T"):
        while True:
            world.driver.run(reading.next_messages())
    assert len(pulls) == 1
    assert world.clock() - began < 1.0
