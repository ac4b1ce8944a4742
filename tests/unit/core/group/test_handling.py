"""What comes of calling a handler, for the group and for an operator who wants one message handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from tests.unit.core.group.group_world import GROUP, GroupWorld, Member
from tests.unit.core.group.test_process_queue import message

from rocketwire.core.group.handling import (
    Failure,
    cancelled,
    describe,
    error_of,
    make_workload,
    tell_of_waiting,
    trace_code,
    wanted_retry,
)
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.requests import answer
from rocketwire.core.group.send_back import Retry
from rocketwire.core.group.trace import EXCEPTION, FAILED, SUCCESS
from rocketwire.core.later_answer import LaterAnswer
from rocketwire.core.wake_up import WakeUp
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.lenient_json import loads
from rocketwire.wire.stored_message import encode_record


def test_what_a_handler_returns_says_whether_its_message_comes_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = message(3)
    own, failed = Retry(5.0), Failure(ValueError("no such order"))
    assert wanted_retry(own, given, "g") is own
    for plain in (Retry, failed):
        found = wanted_retry(plain, given, "g")
        assert found is not None
        assert found.after is None
    for fine in (None, "anything", 0):
        assert wanted_retry(fine, given, "g") is None
    (record,) = caplog.records
    assert record.getMessage() == f"a handler failed at {describe(given, 'g')}"
    assert record.exc_info is not None
    assert error_of(failed) is failed.error
    assert error_of(None) is None


def test_a_trace_tells_errors_and_retries_apart() -> None:
    failed = Failure(ValueError())
    assert trace_code(failed, Retry()) == EXCEPTION
    assert trace_code(Retry(), Retry()) == FAILED
    assert trace_code(None, None) == SUCCESS


def test_a_handler_that_was_cancelled_from_within_has_failed() -> None:
    cause = asyncio.CancelledError()
    error = cancelled(cause).error
    assert "cancelled from within" in str(error)
    assert error.__cause__ is cause


def test_messages_are_named_with_their_place_and_their_tries() -> None:
    first = message(3)
    text = describe(first, "g")
    assert f"queue {first.queue.id}, offset 3, keys None, attempt 1)" in text
    assert describe([first], "g") == text
    assert describe([first, message(4), message(5)], "g") == f"{text} and 2 more"


@pytest.mark.parametrize(
    ("ordered", "broadcast", "needs_lock"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_handlers_of_a_consumer_get_what_its_settings_allow(
    ordered: bool, broadcast: bool, needs_lock: bool
) -> None:
    config = (
        GroupWorld()
        .member(ordered=ordered, broadcast=broadcast, max_queue_messages=7, max_messages=9)
        .config
    )
    workload = make_workload(config, nullcontext(), lambda: 100.0)
    queue = ProcessQueue(MessageQueue("T", "broker-a", 0), 0, WakeUp(nullcontext()))
    assert workload.room(queue) == 7
    workload.put(queue, [message(0)], 1)
    assert (workload.next_work() is None) is needs_lock


@pytest.mark.parametrize(
    ("hands", "words"),
    [(0, None), (1, "5 s for 1 handler; a second Ctrl-C gives it up"),
     (2, "5 s for 2 handlers; a second Ctrl-C gives them up")],
)  # fmt: skip
def test_an_interrupted_consumer_says_for_what_it_waits(
    hands: int, words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    workload = make_workload(GroupWorld().member().config, nullcontext(), lambda: 100.0)
    queue = ProcessQueue(MessageQueue("T", "broker-a", 0), 0, WakeUp(nullcontext()))
    workload.put(queue, [message(n) for n in range(3)], 3)
    for _ in range(hands):
        workload.next_work()
    tell_of_waiting(workload, 5.0, "g")
    assert [r.getMessage().partition("up to ")[2] for r in caplog.records] == (
        [] if words is None else [words]
    )


# -- because an operator wants it -----------------------------------------------------------------


class Wanted:
    """A member whose handler is called by an operator."""

    def __init__(self, **options: Any) -> None:
        self.world = GroupWorld()
        self.world.clock.advance(100.0)
        self.member: Member = self.world.member(**options)
        self.calls: list[tuple[Any, Callable[[object], None]]] = []
        self.member.group.call_handler = lambda *call: self.calls.append(call)

    def ask(self, topic: str = "T", **properties: str) -> Any:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        body = encode_record(topic=topic, body=b"again", properties=text.encode(), queue_offset=9)
        fields = {"consumerGroup": GROUP, "brokerName": "broker-b"}
        command = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, body)
        return answer(self.member.group, command)

    def tell(self, result: object) -> dict[str, Any]:
        given: list[Command] = []
        later = self.ask()
        assert isinstance(later, LaterAnswer)
        later.when_given(given.append)
        assert given == []
        self.world.clock.advance(0.25)
        self.calls[-1][1](result)
        (reply,) = given
        assert reply.code == ResponseCode.SUCCESS
        return loads(reply.body)


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (None, "CR_SUCCESS"),
        (Retry(), "CR_LATER"),
        (Failure(ValueError("no")), "CR_THROW_EXCEPTION"),
    ],
)
def test_an_operator_is_told_in_java_s_words_what_came_of_it(result: object, word: str) -> None:
    told = Wanted().tell(result)
    remark = "ValueError: no" if word == "CR_THROW_EXCEPTION" else None
    assert told == {
        "autoCommit": True,
        "consumeResult": word,
        "order": False,
        "remark": remark,
        "spentTimeMills": 250,
    }


def test_the_handler_gets_the_message_under_the_topic_that_it_was_sent_to() -> None:
    wanted = Wanted(ordered=True)
    wanted.ask()
    wanted.ask(f"%RETRY%{GROUP}", RETRY_TOPIC="T")
    for given, _ in wanted.calls:
        assert (given.topic, given.offset, given.queue.broker) == ("T", 9, "broker-b")
        assert given.body == b"again"
    assert wanted.tell(None)["order"] is True
