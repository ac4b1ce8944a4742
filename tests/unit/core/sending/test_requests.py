"""Requests that are answered with a message: what is sent, what is waited for, and what is told instead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World

from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.requests import check_request, request
from rocketwire.errors import (
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    Outcome,
    ReplyTimeoutError,
    SendFailedError,
    UnsupportedRequestError,
)
from rocketwire.message import Message
from rocketwire.testing.simulated_network import Hang
from rocketwire.testing.simulation import Task
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.properties import decode_properties

QUESTION = Message("T", b"what?")
REPLY: Any = object()


class Asker(World):
    """A producer that is known to every broker, and whose clock has run for a while."""

    def __init__(self, *, is_known: bool = True, **options: Any) -> None:
        super().__init__(1, **options)
        self.cluster_code = int(ResponseCode.SUCCESS)
        self.extra_answer = self.tell
        self.clock.advance(100.0)
        self.send()
        self.stored.clear()
        self.asked.clear()
        if is_known:
            self.instance.presence.told()

    def tell(self, command: Command) -> Command | None:
        if command.code != RequestCode.GET_BROKER_CLUSTER_INFO:
            return None
        self.asked.append("cluster")
        return Command(self.cluster_code, body=b'{"brokerAddrTable":{},"clusterAddrTable":{}}')

    def ask(self, timeout: float = 2.0) -> Task[Any]:
        return self.driver.spawn(request(self.sender, QUESTION, SendMode.BLOCKING, timeout))

    def properties(self) -> dict[str, str]:
        return decode_properties(self.stored[-1][2].ext["i"])

    @property
    def waits(self) -> int:
        return len(self.instance.replies._expected)


def test_a_request_tells_where_its_reply_goes_and_the_reply_is_given() -> None:
    asker = Asker()
    task = asker.ask(timeout=2.5)
    asker.clock.advance(0.1)
    assert not task.done
    told = asker.properties()
    assert told["CORRELATION_ID"] == told["UNIQ_KEY"]
    assert (told["REPLY_TO_CLIENT"], told["TTL"]) == ("client-1", "2500")
    asker.instance.replies.arrived(told["CORRELATION_ID"], REPLY)
    asker.clock.advance(0.0)
    assert task.result() is REPLY
    assert asker.waits == 0


def test_a_request_without_a_reply_is_told_when_its_time_is_over() -> None:
    asker = Asker()
    task = asker.ask(timeout=2.0)
    asker.clock.advance(1.99)
    assert not task.done
    asker.clock.advance(0.02)
    with pytest.raises(
        ReplyTimeoutError, match=r"topic T within 2 s: .*request was stored"
    ) as told:
        task.result()
    assert told.value.outcome is Outcome.STORED
    assert told.value.__cause__ is None
    assert asker.waits == 0


def test_a_request_that_got_no_answer_itself_may_be_answered_all_the_same() -> None:
    asker = Asker(retries=0)
    asker.brokers["broker-a"].break_now(Hang())
    task = asker.ask(timeout=2.0)
    asker.clock.advance(2.1)
    with pytest.raises(ReplyTimeoutError, match="may be stored: it got no answer") as told:
        task.result()
    assert told.value.outcome is Outcome.MAYBE_STORED
    assert isinstance(told.value.__cause__, SendFailedError)


def test_a_request_that_was_refused_is_a_failed_send() -> None:
    asker = Asker(retries=0)
    asker.codes = {"broker-a": [int(ResponseCode.MESSAGE_ILLEGAL)]}
    task = asker.ask()
    asker.clock.advance(0.1)
    with pytest.raises(SendFailedError, match="MESSAGE_ILLEGAL"):
        task.result()
    assert asker.waits == 0


def test_a_producer_that_is_shut_down_waits_for_no_reply() -> None:
    asker = Asker()
    task = asker.ask()
    asker.clock.advance(0.1)
    asker.instance.replies.give_up(asker.sender)
    asker.clock.advance(0.0)
    with pytest.raises(ClientClosedError, match=r"the request was stored$"):
        task.result()


def test_a_request_that_is_given_up_waits_for_nothing_and_keeps_no_place() -> None:
    asker = Asker()
    asker.brokers["broker-a"].break_now(Hang())
    task = asker.ask()
    asker.clock.advance(0.1)
    assert asker.waits == 1
    task.cancel()
    assert asker.waits == 0
    (health,) = asker.instance.faults.snapshot(asker.clock())
    assert health.in_flight == 0


def test_brokers_that_do_not_know_the_asker_yet_are_told_first_for_half_of_the_time() -> None:
    asker = Asker(is_known=False)
    task = asker.ask(timeout=2.0)
    asker.clock.advance(0.5)
    assert asker.stored == []
    assert asker.driver.run(asker.instance.heartbeat_wake_up.wait(asker.clock()))
    asker.clock.advance(0.6)
    assert len(asker.stored) == 1
    asker.clock.advance(0.95)
    with pytest.raises(ReplyTimeoutError):
        task.result()


def test_a_request_leaves_at_once_when_the_brokers_know_the_asker() -> None:
    asker = Asker(is_known=False)
    asker.ask(timeout=2.0)
    asker.clock.advance(0.1)
    asker.instance.presence.told()
    asker.clock.advance(0.01)
    assert len(asker.stored) == 1


def test_a_proxy_in_the_way_is_told_and_nothing_is_sent() -> None:
    asker = Asker()
    asker.cluster_code = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    for _ in range(2):
        task = asker.ask()
        asker.clock.advance(0.1)
        with pytest.raises(UnsupportedRequestError, match="a proxy passes no replies on"):
            task.result()
    assert asker.stored == []
    assert asker.asked == ["cluster"]


def test_whether_a_proxy_is_in_the_way_is_asked_once() -> None:
    asker = Asker()
    for _ in range(2):
        asker.ask()
        asker.clock.advance(3.0)
    assert len(asker.stored) == 2
    assert asker.asked == ["cluster"]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ([QUESTION], "message is a list"),
        (b"what?", "message is a bytes"),
        (Message("T", b"", delay_level=1), "can't be delayed or timed"),
        (Message("T", b"", deliver_at=1.8e9), "can't be delayed or timed"),
    ],
)
def test_what_can_be_no_request_is_refused(message: Any, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        check_request(message, background=True)


def test_a_request_needs_the_connection_of_heartbeats() -> None:
    assert check_request(QUESTION, background=True) is QUESTION
    with pytest.raises(ConfigError, match="background=True"):
        check_request(QUESTION, background=False)
