"""Receive and acknowledge over a simulated network: who is asked for how much, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World

from rocketwire.core.group.receive import Receiver
from rocketwire.core.group.receive_start import ReceivePlace
from rocketwire.core.group.received import extension, release_after
from rocketwire.errors import BrokerError, InvalidMessageError, TransportError
from rocketwire.testing.simulated_network import Refuse
from rocketwire.wire.client_bodies import Subscription
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.stored_message import encode_record


def record(offset: int, tags: str = "", properties: str = "") -> bytes:
    text = (f"TAGS\x01{tags}\x02" if tags else "") + properties
    return encode_record(
        topic="T", body=b"%d" % offset, properties=text.encode(), queue_id=0, queue_offset=offset,
        physical_offset=offset * 100, system_flag=0, born_ms=1, born_host="10.0.0.1:5000",
        store_ms=2, store_host="10.0.0.2:10911",
    )  # fmt: skip


class Brokers:
    """What brokers answer to simple consumers: messages as long as there are any."""

    def __init__(self, world: World, waiting: int = 0, tags: str = "") -> None:
        self.waiting = waiting
        self.tags = tags
        self.given = 0
        self.pops: list[Command] = []
        self.acks: list[Command] = []
        self.without: set[int] = set()
        world.extra_answer = self.answer

    def answer(self, command: Command) -> Command | None:
        if command.code in self.without:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")
        if command.code == RequestCode.POP_MESSAGE:
            self.pops.append(command)
            return self._pop(int(command.ext["maxMsgNums"]))
        if command.code in {RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE}:
            self.acks.append(command)
            return Command(0)
        return None

    def _pop(self, most: int) -> Command:
        count = min(most, self.waiting)
        if not count:
            return Command(ResponseCode.POLLING_TIMEOUT, {"popTime": "1", "invisibleTime": "1"})
        self.waiting -= count
        offsets = range(self.given, self.given + count)
        self.given += count
        ext = {
            "popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "1",
            "startOffsetInfo": f"0 0 {offsets[0]}",
        }  # fmt: skip
        return Command(0, ext, b"".join(record(offset, self.tags) for offset in offsets))


def make(world: World, **subscription: Any) -> Receiver:
    receiver = Receiver(world.instance, "g", "earliest")
    receiver.subscribe(Subscription("T", **subscription))
    return receiver


def receive(world: World, receiver: Receiver, count: int = 32, wait: float = 0.0) -> list[Any]:
    return world.driver.run(receiver.receive(count, wait, 60.0))


def test_a_large_count_is_asked_for_in_pieces_that_brokers_take() -> None:
    world = World(brokers=2)
    brokers = Brokers(world, waiting=100)
    found = receive(world, make(world), 90)
    assert [t.message.offset for t in found] == list(range(90))
    assert [int(p.ext["maxMsgNums"]) for p in brokers.pops] == [32, 32, 26]


def test_all_brokers_together_are_asked_for_no_more_than_the_count() -> None:
    world = World(brokers=3)
    brokers = Brokers(world)
    assert receive(world, make(world), 5, wait=3.0) == []
    held = [p for p in brokers.pops if p.ext["pollTime"] != "0"]
    rounds = [held[n : n + 3] for n in range(0, len(held), 3)]
    assert len(rounds) > 2
    for asked in rounds:
        assert sorted(int(p.ext["maxMsgNums"]) for p in asked) == [1, 2, 2]


def test_more_brokers_than_messages_wanted_take_turns() -> None:
    world = World(brokers=3)
    brokers = Brokers(world)
    receive(world, make(world), 1, wait=2.0)
    assert {p.ext["maxMsgNums"] for p in brokers.pops} == {"1"}


def test_one_broker_holds_the_question_for_seconds() -> None:
    world = World(brokers=1)
    brokers = Brokers(world)
    receive(world, make(world), wait=0.5)
    quick, held = (int(p.ext["pollTime"]) for p in brokers.pops[:2])
    assert quick == 0
    assert 400 <= held <= 500


@pytest.mark.parametrize("brokers", [1, 3])
def test_brokers_that_hold_no_question_are_asked_less_and_less_often(brokers: int) -> None:
    """One that has too many waiting questions, or takes ours for too late, answers at once."""
    world = World(brokers=brokers)
    script = Brokers(world)
    began = world.clock()
    assert receive(world, make(world), wait=15.0) == []
    assert world.clock() - began >= 15.0
    rounds = len(script.pops) / brokers
    assert 15 <= rounds <= 45


def test_a_message_that_comes_while_brokers_hold_nothing_is_received_soon() -> None:
    world = World(brokers=1)
    script = Brokers(world)
    receiver = make(world)
    began = world.clock()
    world.clock.call_at(began + 7.0, lambda: setattr(script, "waiting", 1))
    assert len(receive(world, receiver, wait=15.0)) == 1
    assert world.clock() - began < 7.0 + 0.6


def test_nobody_to_be_reached_is_an_error_whenever_the_wait_ends() -> None:
    for wait in (0.0, 0.05, 0.1, 0.3, 0.77, 2.0, 9.0):
        world = World(brokers=2)
        Brokers(world)
        receiver = make(world)
        receive(world, receiver)
        for broker in world.brokers.values():
            broker.break_now(Refuse())
        with pytest.raises(TransportError):
            receive(world, receiver, wait=wait)


def test_a_broker_that_is_away_is_left_alone_for_a_while_and_then_asked_again() -> None:
    world = World(brokers=2)
    brokers = Brokers(world)
    receiver = make(world)
    receive(world, receiver)
    world.brokers["broker-a"].break_now(Refuse())
    assert receive(world, receiver, wait=0.3) == []
    place = ReceivePlace("T", "broker-a")
    assert receiver._rests.awake([place]) == []
    world.brokers["broker-a"].heal()
    world.clock.run_until(world.clock() + 31.0)
    brokers.pops.clear()
    receive(world, receiver)
    assert len(brokers.pops) == 2
    assert receiver._rests.awake([place]) == [place]


def test_a_refusal_is_told_unless_there_are_messages() -> None:
    world = World(brokers=1)
    brokers = Brokers(world)
    brokers.without.add(RequestCode.POP_MESSAGE)
    with pytest.raises(BrokerError, match="needs a broker of RocketMQ 5"):
        receive(world, make(world), wait=5.0)


def test_several_are_acknowledged_at_once_where_the_broker_can() -> None:
    world = World(brokers=1)
    brokers = Brokers(world, waiting=5)
    receiver = make(world)
    taken = receive(world, receiver)
    world.driver.run(receiver.acknowledge([(t.receipt, "T") for t in taken]))
    assert [a.code for a in brokers.acks] == [RequestCode.BATCH_ACK_MESSAGE]
    world.driver.run(receiver.acknowledge([(taken[0].receipt, "T")]))
    assert brokers.acks[-1].code == RequestCode.ACK_MESSAGE


def test_a_broker_without_batches_is_asked_for_one_once_only() -> None:
    world = World(brokers=1)
    brokers = Brokers(world, waiting=6)
    brokers.without.add(RequestCode.BATCH_ACK_MESSAGE)
    receiver = make(world)
    taken = receive(world, receiver)
    for part in (taken[:3], taken[3:]):
        world.driver.run(receiver.acknowledge([(t.receipt, "T") for t in part]))
    assert [a.ext["offset"] for a in brokers.acks] == ["0", "1", "2", "3", "4", "5"]


def test_a_message_whose_tag_only_hashes_alike_is_done_with() -> None:
    world = World(brokers=1)
    brokers = Brokers(world, waiting=2, tags="BB")
    assert receive(world, make(world, expression="Aa")) == []
    (batch,) = brokers.acks
    assert batch.code == RequestCode.BATCH_ACK_MESSAGE
    brokers.waiting = 1
    assert len(receive(world, make(world, expression="Aa || BB"))) == 1


def test_a_message_of_a_retry_topic_keeps_the_receipt_that_it_brings() -> None:
    world = World(brokers=1)
    brokers = Brokers(world)
    text = "7 1700000000123 60000 0 1 broker-a 0 9"

    def answer(command: Command) -> Command | None:
        if command.code != RequestCode.POP_MESSAGE:
            return brokers.answer(command)
        ext = {
            "popTime": "1700000000123", "invisibleTime": "2", "reviveQid": "3", "startOffsetInfo": "",
        }  # fmt: skip
        return Command(0, ext, record(9, properties=f"POP_CK\x01{text}\x02"))

    world.extra_answer = answer
    receiver = make(world)
    (taken,) = receive(world, receiver, 1)
    assert taken.receipt.encode() == text
    world.driver.run(receiver.acknowledge([(taken.receipt, "T")]))
    assert brokers.acks[0].ext["topic"] == "%RETRY%g_T"


FORGED = [
    "0 1 60000 0 0 broker-a 0 3",
    "0 1700000000000 60000 0 1 elsewhere 0 9",
    "0 1700000000000 60000 0 1 broker-a 5 9",
    "0 1700000000000 60000 0 0 broker-a 0 9",
    "no receipt",
    "9" * 5000 + " 1700000000000 60000 0 1 broker-a 0 9",
]


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("mark", ["0", "1", "2"])
def test_a_receipt_that_the_sender_wrote_into_its_message_does_not_count(
    forged: str, mark: str
) -> None:
    # In a batch brokers store it as it comes; acknowledging by it would do so with another message.
    world = World(brokers=1)
    brokers = Brokers(world)
    topics = {"0": "T", "1": "%RETRY%g_T", "2": "%RETRY%g+T"}

    def answer(command: Command) -> Command | None:
        if command.code != RequestCode.POP_MESSAGE:
            return brokers.answer(command)
        ext = {
            "popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "3",
            "startOffsetInfo": f"{mark} 0 7", "msgOffsetInfo": f"{mark} 0 8,9",
        }  # fmt: skip
        return Command(0, ext, record(9, properties=f"POP_CK\x01{forged}\x02"))

    world.extra_answer = answer
    receiver = make(world)
    (taken,) = receive(world, receiver, 1)
    assert taken.receipt.encode() == f"7 1700000000000 60000 3 {mark} broker-a 0 9"
    world.driver.run(receiver.acknowledge([(taken.receipt, "T")]))
    assert brokers.acks[0].ext["topic"] == topics[mark]


def test_the_first_of_several_questions_is_held_for_a_moment_and_later_ones_for_longer() -> None:
    world = World(brokers=2)
    brokers = Brokers(world)
    receive(world, make(world), wait=5.0)
    held = [int(p.ext["pollTime"]) for p in brokers.pops if p.ext["pollTime"] != "0"]
    assert held[:10:2] == [50, 100, 200, 400, 500]


def test_a_message_is_given_back_at_once_or_after_a_time_that_makes_sense() -> None:
    assert release_after(0) == 0.0
    assert release_after("10 s") == 10.0
    assert extension(0.001) == 0.001
    for wrong in (release_after, extension):
        with pytest.raises(InvalidMessageError):
            wrong(-1.0)
    with pytest.raises(InvalidMessageError):
        extension(0)
