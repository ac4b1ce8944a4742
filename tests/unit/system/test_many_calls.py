"""What becomes of messages that are sent together, each with middleware of its own."""

from __future__ import annotations

from typing import Any

import pytest

from rocketwire.errors import ClientClosedError, Outcome, RocketMQError, SendFailedError
from rocketwire.message import Message, MessageQueue, SendResult, SendStatus
from rocketwire.system.many_calls import ManyCalls

STORED = SendResult(SendStatus.OK, "id", "", MessageQueue("T", "broker-a", 0), 7)
REJECTED = SendFailedError("rejected: full", outcome=Outcome.REJECTED)
MAYBE = SendFailedError("maybe stored: no answer", outcome=Outcome.MAYBE_STORED)


def calls_of(*messages: Message, broken: Any = None) -> ManyCalls:
    calls = ManyCalls(messages, lambda message: message, {} if broken is None else broken)
    for place, message in enumerate(messages):
        calls.enter(place, message)
    return calls


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (STORED, Outcome.STORED),
        (REJECTED, Outcome.REJECTED),
        (MAYBE, Outcome.MAYBE_STORED),
        (ClientClosedError("shut down"), Outcome.NOT_SENT),
    ],
)
def test_a_middleware_that_raises_its_own_error_does_not_hide_what_became_of_the_message(
    given, outcome
) -> None:
    calls = calls_of(Message("T", b"x"))
    calls.sent([0], (None, [given]))
    calls.ended(0, ValueError("its own"))
    (result,) = calls.answers_of_many()
    assert isinstance(result, SendFailedError)
    assert result.outcome is outcome
    assert isinstance(result.__cause__, ValueError)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(MAYBE, Outcome.MAYBE_STORED), (KeyError("a bug"), Outcome.MAYBE_STORED)],
)
def test_nor_after_a_request_that_failed_as_a_whole(error, outcome) -> None:
    calls = calls_of(Message("T", b"x"))
    calls.failed([0], error)
    calls.ended(0, ValueError("its own"))
    (result,) = calls.answers_of_many()
    assert isinstance(result, SendFailedError)
    assert result.outcome is outcome


def test_a_message_that_never_came_to_the_request_was_not_sent() -> None:
    calls = ManyCalls([Message("T", b"x")], lambda message: message, {})
    calls.ended(0, ValueError("refused"))
    (result,) = calls.answers_of_many()
    assert isinstance(result, SendFailedError)
    assert result.outcome is Outcome.NOT_SENT


def test_a_key_is_broken_off_by_a_request_that_failed_as_a_whole() -> None:
    broken: dict[tuple[str, str], RocketMQError] = {}
    error = ClientClosedError("shut down")
    calls_of(Message("T", b"1", sharding_key="k"), broken=broken).failed([0], error)
    assert broken == {("T", "k"): error}
    later = calls_of(Message("T", b"2", sharding_key="k"), Message("T", b"3"), broken=broken)
    assert later.sendable() == [1]
    with pytest.raises(SendFailedError, match="an earlier message of its sharding key") as failed:
        later.given(0)
    assert failed.value.outcome is Outcome.NOT_SENT
    assert failed.value.__cause__ is error
