"""What each feature says of a broker that is dead: its name or address, and never nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.members import MEMBERS, TAKERS, eventually
from tests.conformance.receivers import RECEIVERS
from tests.conformance.shells import SHELLS
from tests.conformance.test_dead_letters import kill_messages, listed

from rocketwire import Message, MessageQueue, Outcome, RocketMQError, SendFailedError
from rocketwire.embedded import EmbeddedCluster

QUICK = {"request_timeout": 1.0}
QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """One broker, so that there is nobody else to ask."""
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("orders", 1)
        yield cluster


@pytest.fixture(params=list(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refuses(cluster: EmbeddedCluster, call: Callable[[], Any]) -> RocketMQError:
    """The error of a call, which names the broker."""
    with pytest.raises(RocketMQError) as caught:
        call()
    text = str(caught.value)
    assert "broker-a" in text or cluster.broker("broker-a").address in text, text
    return caught.value


def die(cluster: EmbeddedCluster) -> None:
    """Name servers tell of it still, as they do for two minutes of one that has crashed."""
    cluster.broker("broker-a").refuse()


def test_producers_say_that_nothing_was_sent(cluster: EmbeddedCluster, kind: str):
    with SHELLS[kind](cluster.name_server, send_timeout=1.0, **QUICK) as shell:
        timed = shell.send(Message("orders", "later", deliver_at=time.time() + 60))
        die(cluster)
        calls = (
            lambda: shell.send(Message("orders", "x")),
            lambda: shell.transact(Message("orders", "x")),
            lambda: shell.request(Message("orders", "x"), timeout=1.0),
        )
        for call in calls:
            refuses(cluster, call)  # it may still meet a connection of before
            error = refuses(cluster, call)
            assert isinstance(error, SendFailedError)
            assert error.outcome is Outcome.NOT_SENT
        refuses(cluster, lambda: shell.recall("orders", timed.recall_handle))
        refuses(cluster, lambda: shell.read("orders"))
        refuses(cluster, lambda: shell.read("orders", sql="a > 1"))


def test_a_transaction_whose_broker_dies_before_the_end_says_so(
    cluster: EmbeddedCluster, kind: str
):
    with SHELLS[kind](cluster.name_server, send_timeout=1.0, **QUICK) as shell:
        refuses(cluster, lambda: shell.transact(Message("orders", "x"), lambda: die(cluster)))


def test_receivers_say_so_of_every_step(cluster: EmbeddedCluster, kind: str):
    with SHELLS[kind](cluster.name_server) as shell:
        shell.send_many([Message("orders", f"{n}") for n in range(2)])
    receiver = RECEIVERS[kind](cluster.name_server, group="g", start="earliest", **QUICK)
    receiver.subscribe("orders")
    receiver.start()
    try:
        messages: list[Any] = []
        while len(messages) < 2:
            messages += receiver.receive(wait=5.0)
        die(cluster)
        refuses(cluster, lambda: receiver.receive(wait=0.3))
        for what, args in (("ack", ()), ("extend", (5.0,)), ("release", ())):
            refuses(cluster, lambda what=what, args=args: receiver.do(messages[0], what, *args))
        refuses(cluster, lambda: receiver.acknowledge(messages))
    finally:
        receiver.shutdown()


def test_members_say_so_where_they_ask_the_broker(cluster: EmbeddedCluster, kind: str):
    member = MEMBERS[kind](cluster.name_server, "g", "orders", start="earliest", **QUICK).start()
    try:
        eventually(lambda: QUEUE in member.assignment())
        die(cluster)
        ago = datetime.now(UTC) - timedelta(hours=1)
        for where in ("earliest", "latest", ago):
            refuses(cluster, lambda where=where: member.ask("seek", QUEUE, where))
        refuses(cluster, lambda: member.ask("committed", QUEUE))
        assert member.ask("position", QUEUE) == 0
    finally:
        member.stop()


def test_a_delivery_that_can_not_be_given_up_comes_again(
    cluster: EmbeddedCluster, kind: str, caplog: pytest.LogCaptureFixture
):
    taker = TAKERS[kind](cluster.name_server, "g", "orders", start="earliest", **QUICK).start()
    try:
        with SHELLS[kind](cluster.name_server) as shell:
            shell.send(Message("orders", "42"))
        (delivery,) = taker.take(1)
        die(cluster)
        assert taker.decide(delivery, "dead_letter", "no such customer")
        eventually(lambda: "could not be moved to the dead letters" in caplog.text)
        cluster.broker("broker-a").heal()
        eventually(lambda: len(taker.taken) == 2)
        assert taker.taken[1].message.message_id == delivery.message.message_id
        assert taker.decide(taker.taken[1], "dead_letter", "no such customer")
        admin = ADMINS[kind](cluster.name_server).start()
        try:
            (letter,) = listed(admin, "g", 1)
            assert letter.last_error == "no such customer"
        finally:
            admin.close()
    finally:
        taker.stop()


def test_operators_are_told_by_every_verb(cluster: EmbeddedCluster, kind: str):
    with SHELLS[kind](cluster.name_server) as shell:
        sent = shell.send(Message("orders", "42", keys="k"))
        cluster.create_topic("into", 1)
    kill_messages(cluster, "orders", "g", 1)
    admin = ADMINS[kind](cluster.name_server, **QUICK).start()
    try:
        (letter,) = listed(admin, "g", 1)
        die(cluster)
        for call in (
            lambda: admin.create_topic("new", 1),
            lambda: admin.alter_topic("orders", queues=2),
            lambda: admin.alter_topic("orders", queues=2, dry_run=True),
            lambda: admin.delete_topic("orders"),
            admin.groups,
            lambda: admin.group("g"),
            lambda: admin.reset("g", "orders", "earliest"),
            lambda: admin.reset("g", "orders", "earliest", dry_run=True),
            lambda: admin.clone_offsets("g", "h", "orders"),
            lambda: admin.delete_group("g"),
            lambda: admin.connections("g"),
            lambda: admin.broker_settings("broker-a"),
            lambda: admin.change_broker_settings("broker-a", {"maxMessageSize": 1}),
            lambda: admin.message(sent.offset_message_id),
            lambda: admin.message(sent.message_id, "orders"),
            lambda: admin.find("orders", "k"),
            admin.users,
            admin.policies,
            admin.plain_accounts,
            lambda: list(admin.dead_letters("g")),
            lambda: admin.purge_dead_letters("g"),
            lambda: admin.redrive(letter),
            lambda: admin.redrive(letter, to="into"),
            lambda: list(admin.replay([letter.message], "into")),
        ):
            refuses(cluster, call)
        (broker,) = admin.brokers()
        assert broker.error
        assert {state.error is None for state in admin.topic("orders").queues} == {False}
    finally:
        admin.close()
