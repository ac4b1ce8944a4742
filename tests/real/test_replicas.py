"""A synchronous master with its slave: what works while the master is away, and when it is back.

``ROCKETWIRE_REPLICAS=1`` selects these; ``make test-full`` does. Each starts five Java processes.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.members import MEMBERS, Seen
from tests.conformance.shells import SHELLS
from tests.real.replicas import Replicated
from tests.real.running import unique

from rocketwire import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    Reader,
    RouteError,
    SendFailedError,
    SendStatus,
)

pytestmark = pytest.mark.timeout(900)
_log = logging.getLogger("tests.replicas")


@pytest.fixture
def cluster(version: str) -> Iterator[Replicated]:
    with Replicated(version) as cluster:
        yield cluster


def soon(look: Callable[[], Any], limit: float = 60.0) -> Any:
    end = time.monotonic() + limit
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def fill(cluster: Replicated, topic: str, start: int, count: int) -> set[SendStatus]:
    """Send so many numbers. A master may wait 5 s for a slave that is just coming back."""
    patient: dict[str, Any] = {"send_timeout": 20.0, "attempt_timeout": None}
    with Producer(cluster.name_server, group="filler", **patient) as producer:
        results = producer.send_many([Message(topic, str(start + n)) for n in range(count)])
    return {result.status for result in results}


def lag(admin: Any, group: str, topic: str) -> int:
    return sum(n for queue, n in admin.group(group).lag.items() if queue.topic == topic)


@pytest.mark.parametrize("kind", list(MEMBERS))
def test_a_group_goes_on_from_the_slave_and_its_positions_reach_the_master(
    cluster: Replicated, kind: str
):
    topic, group = unique("topic"), unique("group")
    cluster.create_topic(topic, 2)
    assert fill(cluster, topic, 0, 100) == {SendStatus.OK}
    member = MEMBERS[kind](cluster.name_server, group, topic, start="earliest").start()
    member.seen.wait(lambda seen: len(seen.all) >= 100)
    member.stop()
    assert fill(cluster, topic, 100, 100) == {SendStatus.OK}
    cluster.wait_copied(topic, group)
    cluster.brokers[0].kill()
    # A member that comes now finds where the group was, and the rest, at the slave.
    member = MEMBERS[kind](
        cluster.name_server, group, topic, start="earliest", commit_interval=1.0
    ).start()
    member.seen.wait(lambda seen: len(seen.all) >= 100)
    assert sorted(map(int, member.seen.bodies())) == list(range(100, 200))
    with Reader(cluster.name_server) as reader:
        assert len(list(reader.read(topic))) == 200
    admin = ADMINS[kind](cluster.name_server).start()
    look_at_the_orphan(admin, topic, group)
    cluster.restart(cluster.brokers[0])
    # Long before offsets that did not move are told again once a minute.
    began = time.monotonic()
    assert soon(lambda: lag(admin, group, topic) == 0, 30)
    assert time.monotonic() - began < 30
    fill(cluster, topic, 200, 20)
    member.seen.wait_for_bodies({str(n) for n in range(200, 220)})
    member.stop()
    admin.close()
    assert len(member.seen.all) == 120


def look_at_the_orphan(admin: Any, topic: str, group: str) -> None:
    """What an operator sees of a broker without its master, and is refused."""
    (broker,) = admin.brokers()
    assert broker.master is None
    assert "no master now" in broker.error
    assert admin.topic(topic).messages == 200
    assert admin.group(group).members
    for change in (
        lambda: admin.delete_topic(topic),
        lambda: admin.create_topic(topic),
        lambda: admin.broker_settings("broker-a"),
        lambda: admin.reset(group, topic, "earliest"),
    ):
        with pytest.raises(RouteError, match="no master"):
            change()


def test_a_slave_that_is_away_is_a_result_and_not_an_error(cluster: Replicated):
    topic = unique("topic")
    cluster.create_topic(topic, 1)
    with Producer(cluster.name_server, group="p", send_timeout=20.0) as producer:
        assert producer.send(Message(topic, b"copied")).status is SendStatus.OK
        cluster.slaves[0].kill()
        found = {producer.send(Message(topic, b"alone")).status for _ in range(3)}
    with Reader(cluster.name_server) as reader:
        assert len(soon(lambda: list(reader.read(topic)))) == 4
    # 5.x is content with the master by default (inSyncReplicas=1).
    allowed = {SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.FLUSH_SLAVE_TIMEOUT}
    assert found <= (allowed if cluster.version.startswith("4.") else allowed | {SendStatus.OK})


@pytest.mark.parametrize("kind", list(SHELLS))
def test_what_no_slave_has_is_sent_to_another_broker_if_asked_for(version: str, kind: str):
    # 5.x is content with the master by default.
    strict = {} if version.startswith("4.") else {"inSyncReplicas": "2"}
    with Replicated(version, brokers=2, **strict) as cluster:
        topic = unique("topic")
        cluster.create_topic(topic, 1)
        cluster.slave("broker-a").kill()
        alone = MessageQueue(topic, "broker-a", 0)
        options: dict[str, Any] = {"send_timeout": 30.0, "attempt_timeout": None}
        with SHELLS[kind](cluster.name_server, group="plain", **options) as shell:
            weak = shell.send(Message(topic, b"weak"), queue=alone)
            assert weak.status in {SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.FLUSH_SLAVE_TIMEOUT}
        options["retry_another_broker_when_not_stored"] = True
        with SHELLS[kind](cluster.name_server, group="strict", **options) as shell:
            results = [shell.send(Message(topic, f"{n}")) for n in range(8)]
            assert {(r.status, r.queue.broker) for r in results} == {(SendStatus.OK, "broker-b")}
            # Those that had tried the other one first may be there, too, and say so.
            again = [r for r in results if r.attempts]
            assert again
            assert all(r.maybe_duplicate for r in again)
            assert {a.queue.broker for r in again for a in r.attempts[:-1]} <= {"broker-a"}


@pytest.mark.parametrize("kind", list(SHELLS))
def test_readers_and_spark_read_on_from_the_slave(cluster: Replicated, kind: str, tmp_path: Path):
    topic = unique("topic")
    cluster.create_topic(topic, 2)
    assert fill(cluster, topic, 0, 500) == {SendStatus.OK}
    cluster.wait_copied(topic)
    with SHELLS[kind](cluster.name_server, group="p") as shell:
        queues = shell.ask_reader("queues", topic)
        # They travel in one batch, so that one queue has all of them.
        before, queue = max((shell.ask_reader("max_offset", each), each) for each in queues)
        assert before == 500
        cluster.brokers[0].kill()
        # It has asked the master so far, and notices by itself.
        assert shell.ask_reader("max_offset", queue) == before
        assert len(shell.ask_reader("fetch", queue, 0).messages) > 0
        assert sorted(int(m.text) for m in shell.read(topic)) == list(range(500))
    if kind == "asyncio":
        return
    spark = pytest.importorskip("rocketwire.spark").session("replicas")
    try:
        source = spark.read.format("rocketmq").option("nameServers", cluster.name_server)
        rows = source.option("topic", topic).load().collect()
        assert sorted(int(bytes(row.body)) for row in rows) == list(range(500))
        follow_in_spark(spark, cluster, topic, tmp_path)
    finally:
        spark.stop()


def follow_in_spark(spark: Any, cluster: Replicated, topic: str, folder: Path) -> None:
    """A stream that begins at the slave goes on at the master, and misses nothing."""
    source = spark.readStream.format("rocketmq").option("nameServers", cluster.name_server)
    stream = source.option("topic", topic).option("startingOffsets", "earliest").load()
    query = (
        stream.selectExpr("cast(body as string) as text")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "rows"))
    )
    try:
        query.processAllAvailable()
        cluster.restart(cluster.brokers[0])
        fill(cluster, topic, 500, 100)
        end = time.monotonic() + 120
        while (count := spark.read.parquet(str(folder / "rows")).count()) < 600:
            assert time.monotonic() < end, count
            query.processAllAvailable()
        texts = [row.text for row in spark.read.parquet(str(folder / "rows")).collect()]
        assert sorted(map(int, texts)) == list(range(600))
    finally:
        query.stop()


def test_a_producer_steps_to_another_name_while_a_master_is_away(version: str):
    with Replicated(version, brokers=2) as cluster:
        topic = unique("topic")
        cluster.create_topic(topic, 2)
        with Producer(cluster.name_server, group="p") as producer:
            producer.send(Message(topic, b"warm"))
            cluster.brokers[0].kill()
            found = [producer.send(Message(topic, b"x")).queue.broker for _ in range(50)]
            assert set(found) == {"broker-b"}
            cluster.brokers[1].kill()
            with pytest.raises(SendFailedError):
                producer.send(Message(topic, b"nobody"))
            cluster.restart(cluster.brokers[0])
            began = time.monotonic()
            assert soon(lambda: sends(producer, topic))
            assert time.monotonic() - began < 10


def sends(producer: Producer, topic: str) -> bool:
    with contextlib.suppress(SendFailedError):
        return producer.send(Message(topic, b"x")).queue.broker == "broker-a"
    return False


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_a_storm_of_dying_masters_loses_nothing(version: str, ordered: bool):
    """Masters are killed and restarted under load: nothing stored is missed, and order holds.

    The topic is an ordered one: keys of others go to another broker while theirs is away, and what
    still waits in their old queue comes later.
    """
    seen = Seen()
    with Replicated(version, brokers=2) as cluster:
        topic, group = unique("topic"), unique("group")
        with Admin(cluster.name_server) as admin:
            admin.change_name_server_settings({"orderMessageEnable": ordered})
            admin.create_topic(topic, 2, order=ordered)
        member = MEMBERS["blocking"](
            cluster.name_server, group, topic, seen=seen, start="earliest", ordered=ordered
        ).start()
        stored: list[Any] = []
        stop = threading.Event()
        sender = threading.Thread(
            target=keep_sending, args=(cluster, topic, stored, stop), kwargs={"ordered": ordered}
        )
        sender.start()
        soon(lambda: len(seen.all) > 100)
        cluster.wait_copied(topic)
        for number in range(4):
            master = cluster.brokers[number % 2]
            master.kill()
            time.sleep(4)
            cluster.restart(master)
            # A slave copies what it has missed before its master may die again.
            time.sleep(4)
        # What no slave had yet may be lost with its master: only the others must come.
        assert soon(lambda: len(confirmed(stored)) >= ENOUGH, 300), len(stored)
        stop.set()
        sender.join(60)
        sure = confirmed(stored)
        missing = soon(lambda: sure <= {m.message_id for m in seen.messages()}, 120)
        assert missing, len(sure - {m.message_id for m in seen.messages()})
        member.stop()
    _log.info(
        "%s, ordered %s: %d stored, 4 kills, %d handled", version, ordered, len(sure), len(seen.all)
    )
    if ordered:
        check_order(seen)


ENOUGH = 100_000
"""Messages of a storm."""


def confirmed(stored: list[Any]) -> set[str]:
    return {result.message_id for result in list(stored) if result.status is SendStatus.OK}


def keep_sending(
    cluster: Replicated, topic: str, stored: list[Any], stop: threading.Event, *, ordered: bool
) -> None:
    with Producer(cluster.name_server, group="storm") as producer:
        number = 0
        while not stop.is_set():
            keys = [f"key {n}" if ordered else None for n in range(50)]
            batch = [
                Message(topic, str(number + n), sharding_key=key) for n, key in enumerate(keys)
            ]
            number += 50
            found = producer.send_many(batch, return_errors=True)
            stored += [result for result in found if hasattr(result, "status")]
            time.sleep(0.02)


def check_order(seen: Seen) -> None:
    """Per queue and per key, a message is first handled after all those before it."""
    last: dict[Any, int] = {}
    numbers: dict[Any, int] = {}
    for message in seen.messages():
        before = last.get(message.queue, -1)
        assert message.offset <= before + 1, (message.queue, before, message.offset)
        if message.offset <= before:
            continue  # it comes again, and so do all that follow it
        last[message.queue] = message.offset
        key, number = message.sharding_key, int(message.text)
        assert number > numbers.get(key, -1), (key, numbers[key], number)
        numbers[key] = number
