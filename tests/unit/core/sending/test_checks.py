"""What brokers are told when they ask for a transaction."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.core.world import World, address

from rocketwire.core.effects import Invoke
from rocketwire.core.sending.broker_requests import answer
from rocketwire.core.sending.checks import Check, answer_check, broker_at, verdict
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import RequestTimeoutError
from rocketwire.message import Message, MessageQueue, TransactionState
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command, Reply, encode_command

BLOCKING = SendMode.BLOCKING
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HALF = StoredMessage(
    topic="T",
    body=b"half",
    tags=None,
    keys=None,
    properties={},
    sharding_key=None,
    delay_level=0,
    deliver_at=None,
    flag=0,
    wait_store_ok=True,
    queue=MessageQueue("T", "broker-a", 0),
    offset=7,
    message_id="ID",
    offset_message_id="OFFSET-ID",
    born_at=EPOCH,
    stored_at=EPOCH,
    born_host="",
    store_host="",
    reconsume_times=0,
    commit_log_offset=70,
)
CHECK = Check(address("broker-a"), "broker-a", "g", "T", HALF, 7, 70, "TX")
COMMITTED, ROLLED_BACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK
OPEN, UNKNOWN = TransactionState.OPEN, TransactionState.UNKNOWN


class Runner:
    """Hears what brokers have confirmed."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def post(self, check: Check) -> None:
        self.heard.append(("asked", check.key))

    def decided(self, key: str) -> None:
        self.heard.append(("decided", key))

    def undecided(self, key: str) -> None:
        self.heard.append(("undecided", key))

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "state", "is_odd"),
    [
        (True, COMMITTED, False),
        (False, ROLLED_BACK, False),
        (None, UNKNOWN, False),
        (OPEN, UNKNOWN, False),
        (UNKNOWN, UNKNOWN, False),
        (COMMITTED, COMMITTED, False),
        (ROLLED_BACK, ROLLED_BACK, False),
        ("commit", UNKNOWN, True),
        (1, UNKNOWN, True),
        (0, UNKNOWN, True),
    ],
)
def test_a_checkers_answer_means_what_it_says_and_else_unknown(given, state, is_odd, caplog):
    with caplog.at_level(logging.ERROR, "rocketwire.producer"):
        assert verdict(given, CHECK) is state
    assert bool(caplog.records) == is_odd


def reply(code: int) -> Reply:
    return Reply(encode_command(Command(code, remark="because"))[4:])


def told(state: TransactionState, end: Reply | Exception) -> tuple[list[Any], list[Invoke]]:
    """What the runner hears, and what is asked of the broker."""
    world, runner, asked = World(), Runner(), []
    world.instance.check_runners["g"] = runner
    operation = answer_check(world.instance, CHECK, state)
    try:
        asked.append(operation.send(None))
        if isinstance(end, Exception):
            operation.throw(end)
        else:
            operation.send(end)
    except StopIteration:
        pass
    for one in asked:
        assert one.deadline == world.clock() + world.config.request_timeout
    return runner.heard, asked


@pytest.mark.parametrize("state", [COMMITTED, ROLLED_BACK])
def test_a_decision_that_the_broker_confirms_is_decided(state):
    heard, (asked,) = told(state, reply(ResponseCode.SUCCESS))
    assert heard == [("decided", "TX")]
    assert asked.address == CHECK.address
    assert asked.request.code == RequestCode.END_TRANSACTION


@pytest.mark.parametrize(
    "end", [reply(ResponseCode.SYSTEM_ERROR), RequestTimeoutError("no answer", written=True)]
)
def test_a_decision_that_the_broker_does_not_confirm_is_logged_and_asked_for_again(end, caplog):
    with caplog.at_level(logging.WARNING, "rocketwire.producer"):
        heard, asked = told(COMMITTED, end)
    assert heard == [("undecided", "TX")]
    assert len(asked) == 1
    assert "has not confirmed the answer COMMITTED" in caplog.text


@pytest.mark.parametrize("state", [UNKNOWN, OPEN])
def test_no_decision_is_not_told(state):
    assert told(state, reply(ResponseCode.SUCCESS)) == ([], [])


def test_a_producer_without_a_desk_ends_an_answer_all_the_same():
    for end in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR):
        operation = answer_check(World().instance, CHECK, COMMITTED)
        operation.send(None)
        with pytest.raises(StopIteration):
            operation.send(reply(end))


def test_a_broker_that_does_not_tell_its_name_is_known_by_its_address():
    world = World()
    world.driver.run(world.sender.operation(world.sender.start(Message("T", b"x"), BLOCKING)))
    for name in world.names:
        assert broker_at(world.instance, address(name)) == name
    assert broker_at(world.instance, "10.0.0.1:1") == "10.0.0.1:1"


def test_a_request_of_a_broker_that_nobody_knows_is_refused_by_its_number():
    found = answer(World().instance, "10.0.0.1:1", Command(9999))
    assert found is not None
    assert found.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "9999" in (found.remark or "")
