"""Filters by SQL92: readers and consumers, both shells, all clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, unique_group

from rocketwire import AsyncConsumer, ConfigError, Consumer, InvalidMessageError, Message
from rocketwire.embedded import EmbeddedCluster

REGIONS = ("eu", "us", None)


def send_all(shell: Any, topic: str) -> None:
    for number in range(12):
        properties = {"price": str(number)}
        region = REGIONS[number % 3]
        if region is not None:
            properties["region"] = region
        shell.send(Message(topic, f"{number}", properties=properties))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("price > 8", {9, 10, 11}),
        ("price BETWEEN 2 AND 4 AND region IS NOT NULL", {3, 4}),
        ("region IN ('us') OR price = 0", {0, 1, 4, 7, 10}),
        ("region <> 'eu'", {1, 4, 7, 10}),
        ("price > 100", set()),
    ],
)
def test_a_reader_gets_what_an_expression_fits(target, shell, expression, expected):
    topic = target.topic(queues=2)
    send_all(shell, topic)
    while len(shell.read(topic)) < 12:
        pass  # Apache's queues follow the log
    found = shell.read(topic, sql=expression)
    assert {int(message.text) for message in found} == expected
    assert len(found) == len(expected)


def test_a_wrong_expression_is_an_error_with_the_brokers_remark(target, shell):
    topic = target.topic()
    with pytest.raises(ConfigError, match=r"'price >': broker broker-. can't read it: .{10}"):
        shell.read(topic, sql="price >")


@pytest.mark.parametrize("how", [{"tags": "a", "sql": "b = 1"}, {"sql": ""}, {"sql": 5}])
def test_a_filter_that_makes_no_sense_is_refused(target, shell, how):
    with pytest.raises(InvalidMessageError, match="sql is"):
        shell.read(target.topic(), **how)


@pytest.fixture(params=list(MEMBERS))
def consumer(request: pytest.FixtureRequest, target) -> Iterator[Callable[..., Any]]:
    """Starts a member that notes what it sees; gives it back, and stops it in the end."""
    started: list[Any] = []

    def start(topic: str, expression: str) -> Any:
        one = MEMBERS[request.param](target.name_server, unique_group(), start="earliest")
        one.consumer.subscribe(topic, sql=expression)
        started.append(one.start())
        return one

    yield start
    for one in started:
        one.stop()


def test_a_consumer_gets_what_an_expression_fits(target, shell, consumer):
    topic = target.topic(queues=2)
    send_all(shell, topic)
    one = consumer(topic, "price > 3 AND region = 'eu'")
    one.seen.wait_for_bodies({"6", "9"})
    shell.send(Message(topic, "new", properties={"price": "50", "region": "eu"}))
    shell.send(Message(topic, "other", properties={"price": "1", "region": "eu"}))
    one.seen.wait_for_bodies({"6", "9", "new"})
    assert sorted(one.seen.bodies()) == ["6", "9", "new"]


WRONG = r"'region =': broker broker-. can't read it: .{10}"


def test_a_wrong_expression_is_an_error_of_run(target):
    topic = target.topic()
    with Consumer(target.name_server, group=unique_group()) as consumer:
        consumer.subscribe(topic, sql="region =")
        with pytest.raises(ConfigError, match=WRONG):
            consumer.run(print)


def test_a_wrong_expression_is_an_error_of_run_on_a_loop(target):
    topic = target.topic()

    async def main() -> None:
        async with AsyncConsumer(target.name_server, group=unique_group()) as consumer:
            consumer.subscribe(topic, sql="region =")
            with pytest.raises(ConfigError, match=WRONG):
                await consumer.run(print)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_the_brokers_switch_is_named(kind: str) -> None:
    from tests.conformance.shells import SHELLS

    with EmbeddedCluster(property_filter=False) as cluster:
        cluster.create_topic("t")
        with (
            SHELLS[kind](cluster.name_server) as shell,
            pytest.raises(ConfigError, match="enablePropertyFilter=true"),
        ):
            shell.read("t", sql="price > 10")
