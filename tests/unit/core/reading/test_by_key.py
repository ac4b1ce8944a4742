"""Messages by a key, brokers that a topic is known to have, and expressions that brokers check."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World, route_of

from rocketwire.core.reading.by_key import messages_by_key
from rocketwire.core.reading.expected import KEPT_FOR, check_expected, complete_queues
from rocketwire.core.reading.filters import check_filter, message_filter
from rocketwire.errors import (
    BrokerError,
    ConfigError,
    ConnectFailedError,
    InvalidMessageError,
    MissingQueuesError,
)
from rocketwire.testing.simulated_network import Hang, Refuse
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.lenient_json import loads
from rocketwire.wire.properties import rewritten
from rocketwire.wire.stored_message import encode_record


def record(number: int, second: int, **properties: str) -> bytes:
    return encode_record(
        topic="T",
        body=b"%d" % number,
        properties=rewritten(properties).encode(),
        queue_id=0,
        queue_offset=number,
        physical_offset=number * 100,
        store_ms=second * 1000,
        store_host="10.0.0.1:10911",
    )


class Index(World):
    """A broker that has indexed messages, and gives the newest 32 of those asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(1, 1, **options)
        self.kept: list[tuple[int, bytes]] = []
        self.queries: list[dict[str, str]] = []
        self.extra_answer = self.tell

    def store(self, number: int, second: int, **properties: str) -> None:
        self.kept.append((second, record(number, second, **properties)))

    def tell(self, command: Command) -> Command | None:
        if command.code != RequestCode.QUERY_MESSAGE:
            return None
        ext = command.ext
        self.queries.append(ext)
        begin, end = int(ext["beginTimestamp"]) // 1000, int(ext["endTimestamp"]) // 1000
        found = [data for second, data in self.kept if begin <= second <= end]
        if not found:
            return Command(ResponseCode.QUERY_NOT_FOUND, remark="none")
        return Command(0, body=b"".join(found[-32:]))

    def find(self, key: str = "k", *, unique: bool = False, most: int = 64) -> list[int]:
        operation = messages_by_key(
            self.instance,
            "T",
            key,
            unique=unique,
            max_messages=most,
            begin=0.0,
            end=9e9,
            deadline=self.clock() + 3.0,
        )
        return [message.offset for message in self.driver.run(operation)]


def test_the_newest_messages_with_a_key_are_found_oldest_first() -> None:
    index = Index()
    for number in range(5):
        index.store(number, 100 + number, KEYS="a k")
    index.store(5, 105, KEYS="other")  # its hash is the same
    index.store(6, 106, UNIQ_KEY="k")
    assert index.find() == [0, 1, 2, 3, 4, 6]
    assert index.find(most=3) == [3, 4, 6]
    assert index.find("nothing") == []


def test_a_broker_that_gives_a_full_answer_is_asked_for_older_ones() -> None:
    index = Index()
    for number in range(80):
        index.store(number, 100 + number, KEYS="k")
    assert index.find(most=100) == list(range(80))
    # From the oldest that came on: of its second there may be more.
    assert [int(q["endTimestamp"]) // 1000 for q in index.queries[1:]] == [148, 117]
    index.queries.clear()
    assert index.find(most=20) == list(range(60, 80))
    assert len(index.queries) == 1


def test_what_was_given_twice_ends_the_search_and_is_told_once() -> None:
    index = Index()
    for number in range(40):
        index.store(number, 100, KEYS="k")
    assert index.find() == list(range(8, 40))
    assert len(index.queries) == 2


def test_of_messages_with_one_id_the_oldest_count() -> None:
    index = Index()
    for number in range(3):
        index.store(number, 100 + number, UNIQ_KEY="id-1")
    index.store(3, 103, UNIQ_KEY="id-2", KEYS="id-1")
    assert index.find("id-1", unique=True, most=2) == [0, 1]
    (query,) = index.queries
    assert (query["maxNum"], query["_UNIQUE_KEY_QUERY"]) == ("32", "true")


def test_nothing_found_is_no_error_and_a_refusal_is() -> None:
    index = Index()
    assert index.find() == []
    index.extra_answer = lambda command: (
        Command(ResponseCode.SYSTEM_ERROR, remark="the index is broken")
        if command.code == RequestCode.QUERY_MESSAGE
        else None
    )
    with pytest.raises(BrokerError, match="the index is broken"):
        index.find()


# -- brokers that are missing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (1, 1),
        (3, 3),
        ("a, b", ("a", "b")),
        (["a"], ("a",)),
        (("a", "b "), ("a", "b")),
    ],
)
def test_expected_brokers_are_names_or_a_count(given: Any, expected: Any) -> None:
    assert check_expected(given) == expected


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "", [], [""], [1], ["a", ""], {"a": 1}])
def test_what_names_no_brokers_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="expected_brokers is"):
        check_expected(given)


def look(world: World, expected: Any = None) -> set[str]:
    operation = complete_queues(world.instance, "T", world.clock() + 3.0, expected)
    return {queue.broker for queue in world.driver.run(operation)}


def only(world: World, *names: str) -> None:
    """From now on the route has these brokers, and the one that is known is old."""
    world.routes["T"] = route_of(dict.fromkeys(names, 1))
    world.clock.advance(31.0)


def test_a_broker_that_was_there_minutes_ago_is_missed_by_name() -> None:
    world = World(2, route_refresh=30.0)
    assert look(world) == {"broker-a", "broker-b"}
    only(world, "broker-a")
    with pytest.raises(MissingQueuesError, match="would return less: broker-b") as told:
        look(world)
    assert [(q.topic, q.broker, q.id) for q in told.value.queues] == [("T", "broker-b", -1)]
    world.clock.advance(KEPT_FOR)
    assert look(world) == {"broker-a"}


def test_a_broker_that_is_back_is_found_though_the_route_is_young() -> None:
    world = World(2, route_refresh=30.0)
    look(world)
    world.instance.routes.update("T", route_of({"broker-a": 1}))
    world.asked.clear()
    assert look(world) == {"broker-a", "broker-b"}
    assert world.asked == ["T"]


def test_what_the_user_expects_beats_what_was_seen() -> None:
    world = World(2, route_refresh=30.0)
    look(world)
    only(world, "broker-a")
    assert look(world, ("broker-a",)) == {"broker-a"}
    assert look(world, 1) == {"broker-a"}
    with pytest.raises(MissingQueuesError, match="less: broker-z"):
        look(world, ("broker-a", "broker-z"))
    with pytest.raises(MissingQueuesError, match="less: broker-b"):
        look(world, 2)


def test_brokers_whose_names_nobody_knows_are_counted() -> None:
    world = World(1)
    with pytest.raises(MissingQueuesError, match="2 of 3 whose names are not known"):
        look(world, 3)


def test_an_order_configuration_names_brokers_that_were_never_seen() -> None:
    world = World(1)
    route = route_of({"broker-a": 1})
    world.routes["T"] = type(route)(route.queues, route.brokers, "broker-a:1;broker-b:1", {})
    with pytest.raises(MissingQueuesError, match="less: broker-b"):
        look(world)


# -- filters --------------------------------------------------------------------------------------


def test_a_filter_is_of_tags_or_an_expression() -> None:
    assert message_filter(None, None).is_all
    assert message_filter("A", None).tags == {"A"}
    for tags in (None, "*"):
        found = message_filter(tags, "a > 1")
        assert (found.expression, found.kind, found.tags) == ("a > 1", "SQL92", frozenset())


@pytest.mark.parametrize(
    ("tags", "sql", "words"),
    [
        (5, None, "tags is 5"),
        ("A", "a > 1", "give one of them"),
        (None, " ", "sql is ' '"),
        (None, 7, "sql is 7"),
    ],
)
def test_a_filter_that_says_nothing_or_two_things_is_refused(
    tags: Any, sql: Any, words: str
) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        message_filter(tags, sql)


class Checkers(World):
    """Brokers that are asked whether they can read an expression."""

    def __init__(self, *codes: int, remark: str = "so", **options: Any) -> None:
        super().__init__(2, **options)
        self.checked: list[Command] = []
        self.script = list(codes)
        self.remark = remark
        self.extra_answer = self.tell

    def tell(self, command: Command) -> Command | None:
        if command.code != RequestCode.CHECK_CLIENT_CONFIG:
            return None
        self.checked.append(command)
        return Command(self.script.pop(0) if self.script else 0, remark=self.remark)

    def check(self, sql: str | None = "a > 1") -> None:
        wanted = message_filter(None, sql)
        until = self.clock() + 10.0
        self.driver.run(check_filter(self.instance, "g", "T", wanted, until))


def test_each_broker_checks_an_expression_and_none_checks_tags() -> None:
    world = Checkers()
    world.check(None)
    assert world.checked == []
    world.check()
    assert len(world.checked) == 2
    told = loads(world.checked[0].body)
    assert (told["clientId"], told["group"]) == ("client-1", "g")
    assert told["subscriptionData"]["subString"] == "a > 1"
    assert told["subscriptionData"]["topic"] == "T"


def test_an_expression_that_a_broker_can_not_read_is_told() -> None:
    with pytest.raises(ConfigError, match=r"is 'a > 1': broker broker-. can't read it: no such"):
        Checkers(0, int(ResponseCode.SUBSCRIPTION_PARSE_FAILED), remark="no\n such").check()


def test_filters_that_are_switched_off_are_told_with_what_to_do() -> None:
    remark = "The broker does not support consumer to filter message by SQL92"
    with pytest.raises(ConfigError, match="enablePropertyFilter=true"):
        Checkers(int(ResponseCode.SYSTEM_ERROR), remark=remark).check()
    with pytest.raises(BrokerError, match="so"):
        Checkers(int(ResponseCode.SYSTEM_ERROR)).check()


def test_a_dead_broker_keeps_nobody_from_the_others() -> None:
    world = Checkers(request_timeout=4.0)
    world.brokers["broker-a"].break_now(Hang())
    world.check()
    assert len(world.checked) == 1
    assert world.clock() < 2.5
    world.brokers["broker-a"].heal()
    for broker in world.brokers.values():
        broker.break_now(Refuse())
    with pytest.raises(ConnectFailedError):
        world.check()
