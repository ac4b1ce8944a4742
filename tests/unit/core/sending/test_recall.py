"""What a broker's refusal of a recall means."""

from __future__ import annotations

import pytest
from tests.unit.core.world import World

from rocketwire import BrokerError, PermissionDeniedError, RecallError, RecallProblem
from rocketwire.core.sending.recall import recall
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Command
from rocketwire.wire.message_id import RecallHandle, encode_recall_handle

#: The world's time of day begins at 1 700 000 000 s.
LATER = 1_700_000_600_000


def refusal(code: int, remark: str, deliver_ms: int = LATER) -> BaseException:
    world = World()
    world.extra_answer = lambda command: (
        Command(code, remark=remark) if command.code == RequestCode.RECALL_MESSAGE else None
    )
    handle = encode_recall_handle(RecallHandle("T", "broker-b", deliver_ms, "7F" * 16))
    with pytest.raises(BaseException) as caught:
        world.driver.run(recall(world.sender, "T", handle, world.clock() + 3))
    return caught.value


@pytest.mark.parametrize(
    ("code", "remark", "deliver_ms", "problem", "words"),
    [
        (16, "recall failed, operation is forbidden", LATER, "SWITCHED_OFF", "recallMessageEnable=true"),
        (3, "request type 370 not supported", LATER, "BROKER_TOO_OLD", "5.3.2"),
        (604, "recall failed, timestamp invalid", LATER, "TOO_LATE", "was delivered"),
        (604, "in other words", 1_600_000_000_000, "TOO_LATE", "was delivered"),
        (604, "recall failed, handle is invalid", LATER, "MALFORMED", "can't use the handle"),
    ],
)  # fmt: skip
def test_refusals_are_told_apart(code, remark, deliver_ms, problem, words):
    error = refusal(code, remark, deliver_ms)
    assert isinstance(error, RecallError)
    assert error.problem is RecallProblem[problem]
    assert words in str(error)
    assert "broker-b" in str(error)
    assert remark in str(error.__cause__)


def test_other_refusals_stay_what_they_are():
    assert isinstance(refusal(16, "the broker is not writable"), PermissionDeniedError)
    assert type(refusal(1, "something broke")) is BrokerError
