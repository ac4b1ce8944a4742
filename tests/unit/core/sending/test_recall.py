"""What a broker's refusal of a recall means."""

from __future__ import annotations

import pytest
from tests.unit.core.world import World

from rocketwire import (
    BrokerError,
    InvalidMessageError,
    NoWritableQueueError,
    PermissionDeniedError,
    RecallError,
    RecallProblem,
)
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


def test_a_recall_asks_the_broker_that_keeps_the_message():
    world = World()
    seen: list[Command] = []

    def tell(command: Command) -> Command | None:
        if command.code != RequestCode.RECALL_MESSAGE:
            return None
        seen.append(command)
        return Command(0, {"msgId": "7F" * 16})

    world.extra_answer = tell
    handle = encode_recall_handle(RecallHandle("T", "broker-b", LATER, "7F" * 16))
    assert world.driver.run(recall(world.sender, "T", handle, world.clock() + 3)) == "7F" * 16
    (command,) = seen
    assert (command.ext["topic"], command.ext["recallHandle"]) == ("T", handle)
    assert command.ext["producerGroup"] == "g"


@pytest.mark.parametrize(
    ("topic", "handle", "error", "words"),
    [
        ("T", None, RecallError, "handle is None"),
        ("T", "nonsense", RecallError, "handle: "),
        ("U", encode_recall_handle(RecallHandle("T", "broker-b", LATER, "7F" * 16)), RecallError,
         "is one of topic 'T', not of 'U'"),
        ("T", encode_recall_handle(RecallHandle("T", "broker-z", LATER, "7F" * 16)),
         NoWritableQueueError, "broker-z, which keeps the message, has no master"),
        ("%RETRY%g", "any", InvalidMessageError, "nothing in it waits for a time"),
        ("%DLQ%g", "any", InvalidMessageError, "nothing in it waits for a time"),
        ("a b", "any", InvalidMessageError, "topic"),
    ],
)  # fmt: skip
def test_what_can_not_be_recalled_is_refused_and_nobody_is_asked(topic, handle, error, words):
    world = World()
    asked: list[int] = []

    def tell(command: Command) -> Command | None:
        if command.code == RequestCode.RECALL_MESSAGE:
            asked.append(command.code)
        return None

    world.extra_answer = tell
    with pytest.raises(error, match=words) as caught:
        world.driver.run(recall(world.sender, topic, handle, world.clock() + 3))
    if error is RecallError:
        assert caught.value.problem is RecallProblem.MALFORMED
    assert asked == []
