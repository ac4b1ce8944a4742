"""One transaction, step by step, on a simulated network."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.unit.core.world import World

from rocketwire import (
    Message,
    Outcome,
    SendFailedError,
    TransactionError,
    TransactionState,
    UnsupportedRequestError,
)
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.transactions import TransactionSteps
from rocketwire.core.upkeep import keep_heartbeats
from rocketwire.sync.transaction import Transaction
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command

COMMITTED, ROLLED_BACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK


class Ends:
    """Answers the decisions, and keeps them."""

    def __init__(self, world: World, code: int = 0) -> None:
        self.seen: list[dict[str, str]] = []
        self.code = code
        world.extra_answer = self

    def __call__(self, command: Command) -> Command | None:
        if command.code != RequestCode.END_TRANSACTION:
            return None
        self.seen.append(command.ext)
        return Command(self.code, remark="so be it")


def transaction(world: World, message: Any = None, timeout: float | None = None) -> Transaction:
    return Transaction(
        world.sender,
        message or Message("T", b"x"),
        timeout,
        lambda attempt: world.driver.run(attempt.operation()),
        world.driver.run,
    )


def test_a_half_message_says_so_and_a_decision_names_it():
    world = World()
    ends = Ends(world)
    with transaction(world, Message("T", b"x", tags="t")) as tx:
        (broker, _, command) = world.stored[0]
        assert int(command.ext["f"]) & 0xC == 4
        assert command.ext["i"].endswith("TRAN_MSG\x01true\x02PGROUP\x01g\x02")
    (end,) = ends.seen
    assert end["commitOrRollback"] == "8"
    assert end["producerGroup"] == "g"
    assert end["topic"] == "T"
    assert end["bname"] == broker
    assert end["tranStateTableOffset"] == str(tx.result.offset)
    assert end["commitLogOffset"] == str(0xAB)
    assert end["msgId"] == tx.result.message_id
    assert end["fromTransactionCheck"] == "false"
    assert tx.state is COMMITTED


@pytest.mark.parametrize("status", [10, 11, 12])
def test_a_half_message_that_is_not_safe_is_rolled_back(status):
    world = World(retry_another_broker_when_not_stored=True)
    ends = Ends(world)
    world.codes = {name: [status] for name in world.names}
    with pytest.raises(TransactionError, match="begin again") as caught:
        transaction(world).__enter__()
    assert caught.value.state is ROLLED_BACK
    assert caught.value.result is not None
    assert len(world.stored) == 1
    assert [end["commitOrRollback"] for end in ends.seen] == ["12"]


def test_a_half_message_gets_all_the_time_and_one_try_once_it_may_be_stored():
    world = World()
    for broker in world.brokers.values():
        broker.break_now(Hang())
    began = world.clock()
    with pytest.raises(SendFailedError) as caught:
        transaction(world, timeout=3.0).__enter__()
    assert caught.value.outcome is Outcome.MAYBE_STORED
    assert len(caught.value.attempts) == 1
    assert world.clock() - began >= 2.9


def test_a_half_message_is_tried_elsewhere_while_it_is_surely_not_stored():
    world = World()
    ends = Ends(world)
    for name in ("broker-a", "broker-b"):
        world.brokers[name].break_now(Refuse())
    for _ in range(3):
        with transaction(world):
            pass
    assert world.where() == ["broker-c"] * 3
    assert len(ends.seen) == 3


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.ILLEGAL_OPERATION])
def test_a_refused_commit_is_unknown_and_not_tried_again(code, caplog):
    world = World()
    ends = Ends(world, code)
    with pytest.raises(TransactionError, match="so be it") as caught, transaction(world) as tx:
        pass
    assert caught.value.state is tx.state is TransactionState.UNKNOWN
    assert len(ends.seen) == 1
    assert "was not confirmed" in caplog.text


def test_a_decision_that_never_left_is_tried_again():
    world = World()
    ends = Ends(world)
    with transaction(world) as tx:
        broker = world.brokers[tx.result.queue.broker]
        broker.break_now(Refuse())
        world.clock.call_at(world.clock() + 0.15, broker.heal)
    assert tx.state is COMMITTED
    assert len(ends.seen) == 1


def test_a_decision_that_never_leaves_is_tried_three_times():
    world = World()
    ends = Ends(world)
    tx = transaction(world).__enter__()
    world.driver.run(world.instance.route_wake_up.wait(world.clock()))
    world.brokers[tx.result.queue.broker].break_now(Refuse())
    began = world.clock()
    with pytest.raises(TransactionError, match="was not confirmed"):
        tx.commit()
    assert world.clock() - began == pytest.approx(0.2, abs=0.01)  # the pauses between them
    assert world.driver.run(world.instance.route_wake_up.wait(world.clock())), "it may have moved"
    assert ends.seen == []
    assert tx.state is TransactionState.UNKNOWN


def test_a_decision_is_not_tried_again_beyond_its_time():
    world = World()
    Ends(world)
    tx = transaction(world, timeout=0.15).__enter__()
    world.brokers[tx.result.queue.broker].break_now(Refuse())
    began = world.clock()
    with pytest.raises(TransactionError):
        tx.commit()
    assert world.clock() - began == pytest.approx(0.1, abs=0.01)


def test_what_has_not_begun_can_not_be_asked():
    tx = transaction(World())
    for ask in (lambda: tx.result, lambda: tx.transaction_id, tx.commit, tx.rollback):
        with pytest.raises(TransactionError, match="has not begun"):
            ask()
    assert tx.state is TransactionState.OPEN
    assert "OPEN" in repr(tx)


def test_a_transaction_begins_once():
    world = World()
    Ends(world)
    tx = transaction(world)
    with tx:
        pass
    with pytest.raises(TransactionError, match="once"):
        tx.__enter__()


def test_properties_that_leave_no_room_are_refused():
    steps = TransactionSteps(
        World().sender, Message("T", b"x", properties={"a": "b" * 32700}), None
    )
    with pytest.raises(Exception, match="those of the transaction included"):
        steps._begin(SendMode.BLOCKING)


class Checker:
    """A checker that is never asked."""

    def decided(self, key: str) -> None:
        """Nothing is to be done."""


class Proxy:
    """Stands in the place of name servers and brokers, and notes in which order it is asked."""

    def __init__(self, world: World) -> None:
        self.order: list[int] = []
        world.extra_answer = self
        world.instance.producer_groups.add("g")
        world.instance.presence.want()
        world.driver.spawn(keep_heartbeats(world.instance))

    def __call__(self, command: Command) -> Command | None:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")
        self.order.append(command.code)
        return None


def test_a_proxy_hears_of_a_group_before_its_first_half_message():
    """One of 5.3 forgets a group that sends first, and nobody ever asks for its decision."""
    world = World()
    proxy = Proxy(world)
    world.instance.check_runners["g"] = cast("Any", Checker())
    for _ in range(2):
        with transaction(world):
            pass
    heard, sent = (RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2)
    assert proxy.order.count(sent) == 2
    assert proxy.order.index(heard) < proxy.order.index(sent)
    assert proxy.order.count(heard) == 3, "one round of three brokers, not one for each transaction"


def test_nothing_is_sent_through_a_proxy_without_a_checker():
    world = World()
    proxy = Proxy(world)
    with pytest.raises(UnsupportedRequestError, match="checker="):
        transaction(world).__enter__()
    assert RequestCode.SEND_MESSAGE_V2 not in proxy.order


def test_nothing_is_sent_through_a_proxy_that_answers_no_heartbeat():
    world = World()
    Proxy(world)
    world.instance.check_runners["g"] = cast("Any", Checker())
    for broker in world.brokers.values():
        broker.break_now(Hang())
    for _ in range(5):  # also after a round of heartbeats that nobody answered
        with pytest.raises(SendFailedError, match=r"no heartbeat within 1\.0 s") as caught:
            transaction(world, timeout=1.0).__enter__()
        assert caught.value.outcome is Outcome.NOT_SENT
    assert world.stored == []


@pytest.mark.parametrize("decide", ["commit", "rollback"])
def test_a_decision_that_can_not_be_told_is_unknown(decide, caplog):
    world = World()
    ends = Ends(world)
    tx = transaction(world).__enter__()
    tx._place = tx._place._replace(offset_message_id="no such place")
    if decide == "commit":
        with pytest.raises(TransactionError, match="no such place"):
            tx.commit()
    else:
        assert tx.rollback() is TransactionState.UNKNOWN
    assert tx.state is TransactionState.UNKNOWN
    assert not ends.seen
    assert "was not confirmed" in caplog.text
