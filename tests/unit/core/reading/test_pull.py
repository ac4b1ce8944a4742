from __future__ import annotations

from dataclasses import replace

import pytest
from tests.wire_tools import reply_from

from rocketwire.config import ReaderConfig
from rocketwire.core.effects import Invoke, Op, Sleep
from rocketwire.core.instance import Instance
from rocketwire.core.reading.pull import ALL, is_compacted, max_offset, read_pull, tag_filter
from rocketwire.errors import (
    BrokerError,
    ConnectFailedError,
    InvalidMessageError,
    RequestTimeoutError,
)
from rocketwire.message import MessageQueue
from rocketwire.system.surroundings import surroundings
from rocketwire.testing.virtual_clock import VirtualClock
from rocketwire.wire import message_fields
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import RESPONSE, Command
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute, encode_route
from rocketwire.wire.stored_message import encode_record

QUEUE = MessageQueue("T", "broker-a", 2)


def record(offset: int, body: bytes = b"x", tags: str = "", flag: int = 0) -> bytes:
    properties = f"TAGS\x01{tags}\x02".encode() if tags else b""
    return encode_record(
        topic="T",
        body=body,
        properties=properties,
        queue_id=2,
        queue_offset=offset,
        physical_offset=offset * 100,
        system_flag=flag,
        born_ms=1_700_000_000_000,
        born_host="10.0.0.1:5000",
        store_ms=1_700_000_000_100,
        store_host="10.0.0.2:10911",
    )


def answer(code: int, body: bytes = b"", *, following: int = 0, low: int = 0, high: int = 10):
    ext = {"nextBeginOffset": str(following), "minOffset": str(low), "maxOffset": str(high)}
    return reply_from(Command(code, ext, body, remark="why", flag=RESPONSE))


def test_messages_come_with_where_to_go_on() -> None:
    reply = answer(0, record(4, b"a") + record(5, b"b"), following=6)
    fetched = read_pull(reply, QUEUE, 4, ALL)
    assert [(m.body, m.offset) for m in fetched.messages] == [(b"a", 4), (b"b", 5)]
    assert (fetched.next_offset, fetched.min_offset, fetched.max_offset) == (6, 0, 10)
    assert fetched.moved_from is None
    assert fetched.messages[0].queue == QUEUE


def test_messages_before_the_offset_asked_for_are_left_out() -> None:
    reply = answer(0, record(3) + record(4), following=5)
    assert [m.offset for m in read_pull(reply, QUEUE, 4, ALL).messages] == [4]


def test_tags_are_compared_by_text() -> None:
    reply = answer(0, record(0, tags="Aa") + record(1, tags="BB") + record(2), following=3)
    fetched = read_pull(reply, QUEUE, 0, tag_filter("Aa || C"))
    assert [m.tags for m in fetched.messages] == ["Aa"]
    assert fetched.next_offset == 3


def test_nothing_new_stays_where_it_is() -> None:
    fetched = read_pull(answer(ResponseCode.PULL_NOT_FOUND, following=0), QUEUE, 7, ALL)
    assert (fetched.messages, fetched.next_offset) == ((), 7)


def test_filtered_messages_are_skipped() -> None:
    reply = answer(ResponseCode.PULL_RETRY_IMMEDIATELY, following=9)
    assert read_pull(reply, QUEUE, 7, ALL).next_offset == 9


def test_a_moved_offset_is_reported() -> None:
    reply = answer(ResponseCode.PULL_OFFSET_MOVED, following=3, low=3)
    fetched = read_pull(reply, QUEUE, 1, ALL)
    assert (fetched.moved_from, fetched.next_offset) == (1, 3)


def test_a_refusal_is_an_error() -> None:
    with pytest.raises(BrokerError, match="broker-a answered NO_PERMISSION 16: why"):
        read_pull(answer(16), QUEUE, 0, ALL)


def test_a_body_that_can_t_be_decompressed_does_not_stop_the_queue(caplog, monkeypatch) -> None:
    monkeypatch.setattr(message_fields, "_warned", set())
    reply = answer(0, record(0, b"not zlib", flag=0x301) + record(1, b"fine"), following=2)
    fetched = read_pull(reply, QUEUE, 0, ALL)
    assert [m.body for m in fetched.messages] == [b"not zlib", b"fine"]
    assert "offset 0: the body is given as it is stored" in caplog.text
    why, fine = (message.undecodable for message in fetched.messages)
    assert "zlib" in why
    assert fine is None


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, set()), ("*", set()), ("", set()), ("A", {"A"}), (" A || B ", {"A", "B"})],
)
def test_filters_from_text(text, names) -> None:
    assert tag_filter(text).tags == names


def test_a_filter_of_separators_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="tags"):
        tag_filter("||")


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        (None, "*"),
        ("*", "*"),
        (" ", "*"),
        (["*"], "*"),
        ("a", "a"),
        ("a||b", "a || b"),
        (["a", "b"], "a || b"),
        (("a",), "a"),
        ({" a "}, "a"),
    ],
)
def test_tags_are_given_as_text_or_as_a_list(given, expression) -> None:
    found = tag_filter(given)
    assert found.expression == expression
    assert found.tags == (frozenset() if expression == "*" else frozenset(expression.split(" || ")))


@pytest.mark.parametrize("given", ["||", [], [""], ["a", None], [1], ["a || b"], ["a", " "]])
def test_tags_that_are_none_are_refused(given) -> None:
    with pytest.raises(InvalidMessageError, match=r"tags is .*give '\*'"):
        tag_filter(given)


MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"


class Slow:
    """An instance whose requests are answered by a script, in virtual time."""

    def __init__(self, answers: dict[str, object], addresses: dict[int, str]) -> None:
        self.clock = VirtualClock(100.0)
        config = ReaderConfig(name_servers=("127.0.0.1:9876",))
        own = replace(surroundings(), clock=self.clock)
        self.instance = Instance(config, "client", own)
        self.addresses = addresses
        self.answers = answers
        self.asked: list[str] = []
        self.instance.routes.update("T", self.route())

    def route(self) -> TopicRoute:
        broker = BrokerData("c", "broker-a", self.addresses, None, False)
        return TopicRoute((QueueData("broker-a", 4, 4, 6, 0),), (broker,), None, {})

    def run(self, operation: Op[int]) -> int:
        given: object = None
        while True:
            try:
                if isinstance(given, Exception):
                    effect = operation.throw(given)
                else:
                    effect = operation.send(given)
            except StopIteration as stop:
                return stop.value
            given = None
            if isinstance(effect, Sleep):
                self.clock.advance(effect.until - self.clock())
            else:
                given = self.answer(effect)

    def answer(self, effect: Invoke) -> object:
        if effect.address not in self.answers:
            body = encode_route(self.route(), standard=True)
            return reply_from(Command(0, body=body, flag=RESPONSE))
        self.asked.append(effect.address)
        found = self.answers[effect.address]
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(found, RequestTimeoutError):
            self.clock.advance(effect.deadline - self.clock())
        if isinstance(found, int):
            return reply_from(Command(0, {"offset": str(found)}, flag=RESPONSE))
        return found


BOTH = {0: MASTER, 1: SLAVE}
GONE = ConnectFailedError("refused")


def test_the_end_of_a_queue_is_asked_at_its_master_again_before_a_slave_that_may_be_behind() -> (
    None
):
    world = Slow({MASTER: [GONE, GONE, 50], SLAVE: 40}, BOTH)
    assert world.run(max_offset(world.instance, QUEUE, 104.0)) == 50
    assert world.asked == [MASTER] * 3


@pytest.mark.parametrize("failure", [GONE, RequestTimeoutError("silent")])
def test_a_slave_tells_the_end_where_the_master_stays_away(failure) -> None:
    world = Slow({MASTER: failure, SLAVE: 40}, BOTH)
    assert world.run(max_offset(world.instance, QUEUE, 104.0)) == 40
    assert world.clock() <= 104.0
    assert world.asked[0] == MASTER
    assert world.asked[-1] == SLAVE


def test_nobody_waits_for_a_master_that_is_alone_or_not_there() -> None:
    alone = Slow({MASTER: GONE}, {0: MASTER})
    with pytest.raises(ConnectFailedError):
        alone.run(max_offset(alone.instance, QUEUE, 104.0))
    orphan = Slow({SLAVE: 40}, {1: SLAVE})
    assert orphan.run(max_offset(orphan.instance, QUEUE, 104.0)) == 40
    assert alone.clock() == orphan.clock() == 100.0


def test_a_refusal_of_the_master_counts() -> None:
    refusal = reply_from(Command(ResponseCode.SYSTEM_ERROR, remark="no", flag=RESPONSE))
    world = Slow({MASTER: refusal, SLAVE: 40}, BOTH)
    with pytest.raises(BrokerError, match="no"):
        world.run(max_offset(world.instance, QUEUE, 104.0))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Command(0, body=b'{"attributes":{"cleanup.policy":"COMPACTION"}}'), True),
        (Command(0, body=b'{"attributes":{"cleanup.policy":"DELETE"}}'), False),
        (Command(0, body=b'{"attributes":{}}'), False),
        (Command(0, body=b'{"topicName":"T"}'), False),
        (Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="what?"), False),
    ],
)
def test_whether_a_topic_is_compacted_is_asked(reply, expected) -> None:
    reply.flag = RESPONSE
    world = Slow({MASTER: reply_from(reply)}, {0: MASTER})
    assert world.run(is_compacted(world.instance, QUEUE, 104.0)) is expected
