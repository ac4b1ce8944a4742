"""Where a group of simple consumers begins, and what is told and changed of what it received."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.group.test_receive import Brokers, make, receive
from tests.unit.core.world import World, address

from rocketwire.core.group.receive import Receiver
from rocketwire.errors import (
    BrokerError,
    ClientClosedError,
    TransportError,
    UnsupportedRequestError,
)
from rocketwire.testing.simulated_network import Refuse
from rocketwire.wire.client_bodies import Subscription
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.pop import Receipt


class Begun(Brokers):
    """Brokers that know where groups are."""

    def __init__(self, world: World, *, known: bool = False) -> None:
        super().__init__(world)
        self.known = known
        #: Whether another member sets an offset while we do.
        self.is_overtaken = False
        self.set: list[tuple[str, str, str]] = []
        self.order: list[int] = []

    def answer(self, command: Command) -> Command | None:
        self.order.append(command.code)
        if command.code == RequestCode.GET_MAX_OFFSET:
            return Command(0, {"offset": "12"})
        if command.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return Command(0, {"offset": "5"})
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            if self.known:
                return Command(0, {"offset": "3"})
            return Command(ResponseCode.QUERY_NOT_FOUND, remark="none")
        if command.code == RequestCode.PULL_MESSAGE:
            self.known = self.known or self.is_overtaken
            at = command.ext["queueOffset"]
            ext = {"nextBeginOffset": at, "minOffset": "0", "maxOffset": "12"}
            return Command(ResponseCode.PULL_NOT_FOUND, ext)
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            ext = command.ext
            self.set.append((ext["bname"], ext["queueId"], ext["commitOffset"]))
            return Command(0)
        return super().answer(command)


def begin(world: World, start: str | float) -> Receiver:
    receiver = Receiver(world.instance, "g", start)
    receiver.subscribe(Subscription("T"))
    world.driver.run(receiver.prepare())
    return receiver


@pytest.mark.parametrize(("start", "offset"), [("latest", "12"), (1_600_000_000.0, "5")])
def test_a_new_group_begins_where_it_is_told_on_every_queue(start: Any, offset: str) -> None:
    world = World(2, 2)
    brokers = Begun(world)
    receiver = begin(world, start)
    queues = [(name, number, offset) for name in world.names for number in "01"]
    assert sorted(brokers.set) == queues
    brokers.order.clear()
    world.driver.run(receiver.prepare())
    assert set(brokers.order) <= {RequestCode.GET_BROKER_CLUSTER_INFO}, "nothing is set again"


def test_a_group_that_begins_with_the_first_message_sets_nothing() -> None:
    world = World(1, 2)
    brokers = Begun(world)
    begin(world, "earliest")
    assert brokers.set == []


@pytest.mark.parametrize("overtaken", [False, True])
def test_what_the_group_or_another_member_has_set_stands(overtaken: bool) -> None:
    world = World(1, 1)
    brokers = Begun(world, known=not overtaken)
    brokers.is_overtaken = overtaken
    begin(world, "latest")
    assert brokers.set == []
    assert (RequestCode.PULL_MESSAGE in brokers.order) is overtaken


def test_a_broker_that_is_away_is_begun_with_later_at_the_moment_of_the_first_try() -> None:
    world = World(2, 1)
    brokers = Begun(world)
    world.brokers["broker-b"].break_now(Refuse())
    receiver = begin(world, "latest")
    assert brokers.set == [("broker-a", "0", "12")]
    assert world.driver.run(world.instance.route_wake_up.wait(world.clock()))
    world.brokers["broker-b"].heal()
    world.driver.run(receiver.prepare())
    assert len(brokers.set) == 1, "it is left alone for a while"
    world.clock.advance(1.1)
    world.driver.run(receiver.prepare())
    # What it has stored meanwhile is not skipped.
    assert brokers.set[1:] == [("broker-b", "0", "5")]


def test_no_broker_at_all_is_an_error() -> None:
    world = World(1, 1)
    Begun(world)
    world.brokers["broker-a"].break_now(Refuse())
    with pytest.raises(TransportError):
        begin(world, "latest")


# -- what is known of a receiver ------------------------------------------------------------------


def test_heartbeats_tell_what_a_receiver_wants_until_its_end() -> None:
    world = World(1)
    Brokers(world)
    receiver = Receiver(world.instance, "g", "earliest")
    assert not receiver.has_subscriptions
    receiver.subscribe(Subscription("T", "A"))
    first = receiver.data()
    assert (first.group, first.consume_type) == ("g", "CONSUME_ACTIVELY")
    receiver.subscribe(Subscription("T", "B"))
    receiver.subscribe(Subscription("S"))
    later = receiver.data()
    assert [(s.topic, s.expression) for s in later.subscriptions] == [("S", "*"), ("T", "B")]
    assert later.subscriptions[0].version > first.subscriptions[0].version
    assert receiver in world.instance.receivers
    receiver.end()
    assert receiver not in world.instance.receivers


def test_who_waits_for_messages_is_told_of_the_end() -> None:
    world = World(1)
    Brokers(world)
    receiver = make(world)
    task = world.driver.spawn(receiver.receive(1, 30.0, 60.0))
    world.clock.advance(0.1)
    receiver.end()
    world.clock.advance(6.0)
    with pytest.raises(ClientClosedError, match="was shut down while it waited"):
        task.result()


def change(world: World, receiver: Receiver, receipt: Receipt, seconds: float) -> Receipt:
    return world.driver.run(receiver.change(receipt, "T", seconds))


def test_a_message_that_is_kept_longer_has_another_receipt() -> None:
    world = World(1)
    brokers = Brokers(world, waiting=1)
    receiver = make(world)
    (taken,) = receive(world, receiver, 1)
    seen: list[Command] = []
    fields = {"popTime": "1700000005000", "invisibleTime": "90000", "reviveQid": "2"}

    def answer(command: Command) -> Command | None:
        if command.code != RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME:
            return brokers.answer(command)
        seen.append(command)
        return Command(0, fields)

    world.extra_answer = answer
    renewed = change(world, receiver, taken.receipt, 90.0)
    assert renewed != taken.receipt
    assert (seen[0].ext["invisibleTime"], seen[0].ext["topic"]) == ("90000", "T")
    world.extra_answer = lambda _: Command(ResponseCode.SYSTEM_ERROR, remark="it is another's")
    with pytest.raises(BrokerError, match="it is another's"):
        change(world, receiver, renewed, 90.0)


def test_a_broker_that_can_not_do_it_is_named_with_what_to_use_instead() -> None:
    world = World(1)
    brokers = Brokers(world, waiting=1)
    receiver = make(world)
    (taken,) = receive(world, receiver, 1)
    brokers.without = {RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME}
    with pytest.raises(UnsupportedRequestError, match="use Consumer instead"):
        change(world, receiver, taken.receipt, 5.0)


def test_the_first_failure_of_several_acknowledgements_is_told_and_all_are_tried() -> None:
    world = World(2)
    brokers = Brokers(world, waiting=2)
    receiver = make(world)
    taken = receive(world, receiver, 1) + receive(world, receiver, 1)
    receipts = [(t.receipt, t.topic) for t in taken]
    assert {receipt.broker for receipt, _ in receipts} == set(world.names)
    first = receipts[0][0].broker
    world.brokers[first].break_now(Refuse())
    with pytest.raises(TransportError, match=address(first)):
        world.driver.run(receiver.acknowledge(receipts))
    assert len(brokers.acks) == 1
