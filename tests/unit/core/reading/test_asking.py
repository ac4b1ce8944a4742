"""Where queues are asked for, who answers in place of a master, and what an answer is checked for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World, address, route_of
from tests.wire_tools import offset_message_id

from rocketwire.core.reading import pull
from rocketwire.core.reading.pull import ALL, TagFilter, tag_filter
from rocketwire.core.reading.topics import Reading, resolve
from rocketwire.errors import (
    BrokerError,
    ConnectFailedError,
    InvalidMessageError,
    TopicNotFoundError,
    TransportError,
)
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.wire.codes import PullFlag, RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute
from rocketwire.wire.stored_message import encode_record

QUEUE = MessageQueue("T", "broker-a", 0)
SLAVE = "10.0.0.50:10911"
#: When the first message was stored; each of the others a second later.
BEGAN_MS = 1_700_000_000_000


def record(offset: int) -> bytes:
    return encode_record(
        topic="T",
        body=b"%d" % offset,
        properties=b"",
        queue_id=0,
        queue_offset=offset,
        physical_offset=offset * 100,
        store_ms=BEGAN_MS + offset * 1000,
        store_host="10.0.0.1:10911",
    )


class Store(World):
    """A broker, perhaps with a slave, whose queues hold a few messages."""

    def __init__(self, *, first: int = 0, end: int = 10, slave: bool = False, **world: Any) -> None:
        super().__init__(1, 1, **world)
        self.first, self.end = first, end
        self.searched = 0
        self.commands: list[Command] = []
        self.extra_answer = self.tell
        if slave:
            self.network.add_broker(SLAVE, latency=0.002)
            addresses = {0: address("broker-a"), 1: SLAVE}
            broker = BrokerData("c", "broker-a", addresses, None, False)
            self.routes["T"] = TopicRoute((QueueData("broker-a", 1, 1, 6, 0),), (broker,), None, {})
        self.run(pull.read_queues(self.instance, "T", self.in_time))
        self.asked.clear()

    @property
    def in_time(self) -> float:
        return self.clock() + 3.0

    def run(self, operation: Any) -> Any:
        return self.driver.run(operation)

    def tell(self, command: Command) -> Command | None:
        if command.code in {RequestCode.GET_ROUTE_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}:
            return None
        self.commands.append(command)
        if command.code == RequestCode.PULL_MESSAGE:
            return self.pulled(command)
        found = {
            RequestCode.GET_MIN_OFFSET: self.first,
            RequestCode.GET_MAX_OFFSET: self.end,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.searched,
        }.get(command.code)  # type: ignore[call-overload]
        return None if found is None else Command(0, {"offset": str(found)})

    def pulled(self, command: Command) -> Command:
        offset, code = int(command.ext["queueOffset"]), ResponseCode.SUCCESS
        found = range(offset, min(self.end, offset + int(command.ext["maxMsgNums"])))
        following = offset + len(found)
        if not self.first <= offset <= self.end:
            code, found = ResponseCode.PULL_OFFSET_MOVED, range(0)
            following = self.first if offset < self.first else self.end
        elif not found:
            code = ResponseCode.PULL_NOT_FOUND
        ext = {"nextBeginOffset": following, "minOffset": self.first, "maxOffset": self.end}
        body = b"".join(map(record, found))
        return Command(code, {name: str(value) for name, value in ext.items()}, body)

    def is_rung(self) -> bool:
        """Whether routes are to be asked for at once."""
        return self.run(self.instance.route_wake_up.wait(self.clock()))


# -- which queues there are, and where ------------------------------------------------------------


def test_the_queues_of_a_topic_are_asked_for_again_when_the_route_is_old() -> None:
    store = Store(route_refresh=30.0)
    for wait, asked in ((0.0, 0), (29.9, 0), (0.2, 1), (1.0, 1)):
        store.clock.advance(wait)
        assert store.run(pull.read_queues(store.instance, "T", store.in_time)) == (QUEUE,)
        assert len(store.asked) == asked


def test_the_queues_of_a_topic_that_nobody_knows_are_an_error() -> None:
    store = Store()
    with pytest.raises(TopicNotFoundError, match="topic nowhere is unknown"):
        store.run(pull.read_queues(store.instance, "nowhere", store.in_time))


def test_a_broker_that_is_not_known_yet_is_asked_for_once() -> None:
    store = Store()
    stranger = MessageQueue("T", "broker-b", 0)
    with pytest.raises(ConnectFailedError, match="broker-b is not registered"):
        store.run(pull.address_of(store.instance, stranger, store.in_time))
    assert store.asked == ["T"]
    store.routes["T"] = route_of({"broker-a": 1, "broker-b": 1})
    found = store.run(pull.address_of(store.instance, stranger, store.in_time))
    assert found == address("broker-b")


def test_a_queue_is_asked_at_its_master_else_at_the_first_slave() -> None:
    store = Store(slave=True)
    assert store.run(pull.address_of(store.instance, QUEUE, 3.0)) == address("broker-a")
    slaves = {2: "10.0.0.52:10911", 1: SLAVE}
    broker = BrokerData("c", "broker-a", slaves, None, False)
    route = TopicRoute((QueueData("broker-a", 1, 1, 6, 0),), (broker,), None, {})
    store.instance.routes.update("T", route)
    assert store.run(pull.address_of(store.instance, QUEUE, 3.0)) == SLAVE


# -- questions ------------------------------------------------------------------------------------


def test_a_slave_answers_where_its_master_can_not_be_reached() -> None:
    store = Store(first=4, slave=True)
    store.brokers["broker-a"].break_now(Refuse())
    assert store.run(pull.min_offset(store.instance, QUEUE, store.in_time)) == 4
    assert not store.is_rung()


def test_the_first_failure_is_told_and_routes_are_asked_for_where_nobody_answers() -> None:
    store = Store(slave=True)
    store.brokers["broker-a"].break_now(Refuse())
    store.network.brokers[SLAVE].break_now(Hang())
    with pytest.raises(ConnectFailedError, match=address("broker-a")):
        store.run(pull.min_offset(store.instance, QUEUE, store.in_time))
    assert store.is_rung()


def test_a_refusal_is_told_and_no_other_is_asked() -> None:
    store = Store(slave=True)
    store.extra_answer = lambda command: Command(ResponseCode.NO_PERMISSION, remark="not you")
    with pytest.raises(BrokerError, match="not you"):
        store.run(pull.min_offset(store.instance, QUEUE, store.in_time))


def test_a_queue_that_never_had_a_message_begins_at_zero() -> None:
    store = Store(first=-1)
    assert store.run(pull.min_offset(store.instance, QUEUE, store.in_time)) == 0
    store.first = 1
    assert store.run(pull.min_offset(store.instance, QUEUE, store.in_time)) == 1


def test_routes_are_asked_for_while_a_master_with_a_slave_is_away() -> None:
    store = Store(slave=True)
    store.brokers["broker-a"].break_now(Refuse())
    assert store.run(pull.max_offset(store.instance, QUEUE, store.in_time)) == 10
    assert store.is_rung()


@pytest.mark.parametrize(
    ("searched", "wanted", "found"),
    [
        (3, 3.0, 3),  # stored in that very moment
        (3, 2.5, 3),  # the first one after it, as 5.x answers
        (3, 3.5, 4),  # the nearest one, as 4.9 answers
        (3, 3.001, 4),
        (10, 99.0, 10),  # there is none so late
        (2, 0.5, 4),  # what was found is gone meanwhile
    ],
)
def test_the_offset_of_a_moment_is_that_of_the_first_message_at_or_after_it(
    searched: int, wanted: float, found: int
) -> None:
    store = Store(first=4 if searched == 2 else 0)
    store.searched = searched
    moment = BEGAN_MS / 1000 + wanted
    assert store.run(resolve(store.instance, QUEUE, moment, "g", store.in_time)) == found
    search, check = store.commands
    assert search.ext["timestamp"] == str(round(moment * 1000))
    assert check.ext["maxMsgNums"] == "1"


@pytest.mark.parametrize(
    ("position", "offset"),
    [("earliest", 2), ("latest", 10), ({QUEUE: 7}, 7), ({MessageQueue("T", "broker-a", 1): 7}, 2)],
)
def test_a_position_is_an_offset_of_each_queue(position: Any, offset: int) -> None:
    store = Store(first=2)
    assert store.run(resolve(store.instance, QUEUE, position, "g", store.in_time)) == offset


# -- one pull -------------------------------------------------------------------------------------


def test_a_pull_waits_at_the_broker_only_if_asked_to() -> None:
    store = Store()
    for wait, flag in ((0.0, 0), (2.5, PullFlag.SUSPEND)):
        store.run(
            pull.fetch(store.instance, QUEUE, 3, group="g", wait=wait, deadline=store.in_time)
        )
        ext = store.commands[-1].ext
        assert int(ext["sysFlag"]) == PullFlag.SUBSCRIPTION | flag
        assert int(ext["suspendTimeoutMillis"]) == wait * 1000
        assert ext["maxMsgNums"] == "32"


def test_a_pull_goes_to_a_slave_where_the_master_can_not_be_reached() -> None:
    store = Store(slave=True)
    store.brokers["broker-a"].break_now(Refuse())
    found = store.run(pull.fetch(store.instance, QUEUE, 8, group="g", deadline=store.in_time))
    assert [message.offset for message in found.messages] == [8, 9]
    assert store.is_rung()


def test_a_pull_is_not_repeated_when_its_time_is_over_or_nobody_else_is_there() -> None:
    store = Store(slave=True)
    slave = store.network.brokers[SLAVE]
    arrived: list[float] = []
    slave.on_arrival = lambda _, now: arrived.append(now)
    store.brokers["broker-a"].break_now(Hang())
    with pytest.raises(TransportError):
        store.run(pull.fetch(store.instance, QUEUE, 8, group="g", deadline=store.in_time))
    assert arrived == []
    alone = Store()
    alone.brokers["broker-a"].break_now(Refuse())
    with pytest.raises(ConnectFailedError):
        alone.run(pull.fetch(alone.instance, QUEUE, 8, group="g", deadline=alone.in_time))
    assert alone.is_rung()


@pytest.mark.parametrize(
    ("wanted", "is_all"),
    [(ALL, True), (tag_filter("A"), False), (TagFilter("*", frozenset(), "SQL92"), False)],
)
def test_only_all_tags_leave_nothing_out(wanted: TagFilter, is_all: bool) -> None:
    assert wanted.is_all is is_all


# -- by offset id ---------------------------------------------------------------------------------


def offset_id(broker: str, offset: int) -> str:
    host, port = address(broker).split(":")
    return offset_message_id(bytes(map(int, host.split("."))), int(port), offset * 100)


class Viewed(Store):
    """A store that gives single messages, and whose name server lists another broker."""

    def __init__(self) -> None:
        super().__init__()
        self.network.add_broker(address("broker-c"), latency=0.002)

    def tell(self, command: Command) -> Command | None:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            self.asked.append("cluster")
            body = (
                b'{"brokerAddrTable":{"broker-c":{"cluster":"c","brokerName":"broker-c",'
                b'"brokerAddrs":{"0":"10.0.0.3:10911"}}},"clusterAddrTable":{"c":["broker-c"]}}'
            )
            return Command(0, body=body)
        if command.code == RequestCode.VIEW_MESSAGE_BY_ID:
            self.commands.append(command)
            offset = int(command.ext["offset"]) // 100
            if offset == 7:
                return Command(ResponseCode.SYSTEM_ERROR, remark="it is gone")
            return Command(0, body=b"" if offset == 8 else record(offset))
        return super().tell(command)

    def view(self, broker: str, offset: int) -> Any:
        name = offset_id(broker, offset)
        return self.run(pull.message_by_offset_id(self.instance, name, self.in_time))

    def is_own(self, name: str) -> bool:
        return self.run(pull.is_own_offset_id(self.instance, name, self.in_time))


@pytest.mark.parametrize(("broker", "asked"), [("broker-a", []), ("broker-c", ["cluster"])])
def test_a_message_is_found_by_its_offset_id_at_any_broker_of_the_cluster(
    broker: str, asked: list[str]
) -> None:
    store = Viewed()
    found = store.view(broker, 3)
    assert (found.offset, found.queue) == (3, MessageQueue("T", broker, 0))
    assert store.asked == asked
    assert store.is_own(offset_id(broker, 1))


def test_an_offset_id_of_another_cluster_is_refused_and_nobody_there_is_asked() -> None:
    store = Viewed()
    arrived: list[float] = []
    other = store.network.add_broker(address("broker-d"), latency=0.002)
    other.on_arrival = lambda _, now: arrived.append(now)
    with pytest.raises(InvalidMessageError, match="which is none of this cluster"):
        store.view("broker-d", 3)
    assert arrived == []
    assert not store.is_own(offset_id("broker-d", 1))
    assert not store.is_own("no id at all")
    with pytest.raises(InvalidMessageError, match="is no offset message id"):
        store.run(pull.message_by_offset_id(store.instance, "nonsense", store.in_time))


def test_an_offset_id_under_which_nothing_is_stored_is_an_error() -> None:
    store = Viewed()
    with pytest.raises(BrokerError, match="it is gone"):
        store.view("broker-a", 7)
    with pytest.raises(InvalidMessageError, match="has no message under"):
        store.view("broker-a", 8)


# -- a whole topic --------------------------------------------------------------------------------


def reading(store: Store, *, follow: bool = False, tags: TagFilter = ALL, **how: Any) -> Reading:
    made = Reading(store.instance, group="g", tags=tags, follow=follow, **how)
    store.run(made.begin("T", None, "earliest", None))
    return made


def test_offsets_that_lack_are_told_and_whole_answers_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    made = reading(store, batch=4)
    while not made.is_over:
        store.run(made.next_messages())
    assert "only" not in caplog.text
    counts = [int(command.ext["maxMsgNums"]) for command in store.commands[-3:]]
    assert counts == [4, 4, 2]


def test_a_reader_that_follows_goes_on_for_ever_and_gets_what_comes_later() -> None:
    store = Store(end=3)
    made = reading(store, follow=True)
    assert len(store.run(made.next_messages())) == 3
    assert store.run(made.next_messages()) == []
    assert not made.is_over
    store.end = 5
    assert [message.offset for message in store.run(made.next_messages())] == [3, 4]


def test_offsets_that_are_gone_are_told_and_the_rest_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store(end=10)
    made = reading(store)
    store.first = 6
    assert store.run(made.next_messages()) == []
    assert [(move.moved_from, move.next_offset) for move in made.moves] == [(0, 6)]
    assert "offset 0 is gone, the broker has 6 to 10; going on at 6" in caplog.text
    assert [message.offset for message in store.run(made.next_messages())] == [6, 7, 8, 9]
    assert made.is_over


def test_a_reading_that_finds_nothing_new_waits_longer_each_time() -> None:
    store = Store()
    made = reading(store, follow=True)
    assert len(store.run(made.next_messages())) == 10

    def waited() -> float:
        before = store.clock()
        assert store.run(made.next_messages()) == []
        return store.clock() - before

    pauses = [waited() for _ in range(9)]
    wanted = [0.05 * 1.5**number for number in range(6)] + [0.5] * 3
    assert pauses == pytest.approx(wanted, abs=0.005)  # a pull takes a moment
    made.cursors[0].next -= 1
    before = store.clock()
    assert len(store.run(made.next_messages())) == 1
    assert store.clock() - before < 0.01
    assert waited() == pytest.approx(0.05, abs=0.005)


@pytest.mark.parametrize("follow", [False, True])
def test_a_queue_whose_broker_stays_away_is_an_error_after_a_while_unless_one_follows(
    follow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    made = reading(store, follow=follow)
    store.brokers["broker-a"].break_now(Refuse())
    began = store.clock()
    while store.clock() - began < 29.0:
        before = store.clock()
        assert store.run(made.next_messages()) == []
        assert store.clock() - before == pytest.approx(0.25, abs=0.001)  # a refusal takes a moment
    assert sum("can't be read, trying again" in r.message for r in caplog.records) == 1
    assert store.is_rung()
    store.clock.advance(2.0)
    if not follow:
        with pytest.raises(ConnectFailedError):
            store.run(made.next_messages())
    store.brokers["broker-a"].heal()
    assert len(store.run(made.next_messages())) == 10
    assert made.cursors[0].failing_since is None
