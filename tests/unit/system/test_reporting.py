"""Telemetry, traces and status of whole producers, blocking and asyncio, over a real cluster."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketwire import AsyncProducer, Message, Outcome, Producer, SendFailedError
from rocketwire.embedded import EmbeddedCluster
from rocketwire.system.status import read_statuses
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.trace_record import TRACE_TOPIC, decode_trace


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        yield running


class Blocking:
    """A producer behind plain calls."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.producer = Producer(*arguments, **options)

    def start(self) -> None:
        self.producer.start()

    def send(self, message: Any, **how: Any) -> Any:
        return self.producer.send(message, **how)

    def send_many(self, messages: Any) -> Any:
        return self.producer.send_many(messages)

    def submit(self, message: Any, **how: Any) -> Any:
        return self.producer.submit(message, **how)

    def shutdown(self) -> None:
        self.producer.shutdown()


class Looped:
    """An asyncio producer behind plain calls; its loop runs only during them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.producer = AsyncProducer(*arguments, **options)

    def start(self) -> None:
        self.runner.run(self.producer.start())

    def send(self, message: Any, **how: Any) -> Any:
        return self.runner.run(self.producer.send(message, **how))

    def send_many(self, messages: Any) -> Any:
        return self.runner.run(self.producer.send_many(messages))

    def submit(self, message: Any, **how: Any) -> Any:
        return self.runner.run(self.producer.submit(message, **how))

    def shutdown(self) -> None:
        self.runner.run(self.producer.shutdown())
        self.runner.close()


@pytest.fixture(params=[Blocking, Looped], ids=["blocking", "asyncio"])
def shell(request: pytest.FixtureRequest) -> Any:
    @contextlib.contextmanager
    def opened(*arguments: Any, **options: Any) -> Iterator[Any]:
        made = request.param(*arguments, **options)
        made.start()
        try:
            yield made
        finally:
            made.shutdown()

    return opened


def lines(folder: Path, kind: str | None = "attempt") -> list[dict[str, Any]]:
    paths = sorted(folder.glob("attempts-*.jsonl"))
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [line for line in found if kind is None or line["kind"] == kind]


# -- telemetry --------------------------------------------------------------------------------


def test_every_attempt_is_a_line(cluster: EmbeddedCluster, tmp_path: Path, shell: Any) -> None:
    with shell(cluster.name_server, telemetry=tmp_path) as p:
        results = [p.send(Message("orders", b"x" * n, sharding_key=f"k{n}")) for n in range(1, 50)]
        p.send_many([Message("orders", b"y")] * 30)
        client_id = p.producer.client_id
    found = lines(tmp_path)
    assert sum(line["messages"] for line in found) == 49 + 30
    assert {line["clientId"] for line in found} == {client_id}
    told = [
        (line["messageId"], line["broker"], line["queueId"], line["offset"], line["bytes"])
        for line in found[:49]
    ]
    assert told == [
        (r.message_id, r.queue.broker, r.queue.id, r.offset, n)
        for n, r in enumerate(results, start=1)
    ]
    assert [line["shardingKey"] for line in found[:49]] == [f"k{n}" for n in range(1, 50)]
    assert {line["outcome"] for line in found} == {"stored"}
    assert {(line["pinned"], line["timeout"]) for line in found[:49]} == {(True, 3.0)}
    assert all(0 <= line["time"] - line["sendTime"] < 3.0 for line in found)
    assert {line["version"] for line in lines(tmp_path, "header")} == {2}
    # A file begins with the routes that were known then, so the first one may be told twice.
    queues = dict.fromkeys(("broker-a", "broker-b"), 4)
    assert {(r["topic"], *r["queues"].items()) for r in lines(tmp_path, "route")} == {
        ("orders", *queues.items())
    }
    assert p.producer.stats().telemetry_dropped == 0


def test_a_later_producer_of_an_instance_tells_the_routes_that_were_known(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"client_id": "shared@routes"}
    with Producer(cluster.name_server, group="a", **options) as first:
        first.send(Message("orders", b"x"))
        with Producer(cluster.name_server, group="b", telemetry=tmp_path, **options):
            pass
    assert {line["topic"] for line in lines(tmp_path, "route")} == {"orders"}


def test_a_failing_broker_shows_in_attempts_and_as_an_isolation(
    cluster: EmbeddedCluster, tmp_path: Path, shell: Any
) -> None:
    with shell(cluster.name_server, telemetry=tmp_path) as p:
        for _ in range(8):
            p.send(Message("orders", b"x"))
        cluster.broker("broker-b").refuse()
        for _ in range(8):
            p.send(Message("orders", b"x"))
        (health,) = [h for h in p.producer.health() if h.broker == "broker-b"]
    failed = [line for line in lines(tmp_path) if line["outcome"] != "stored"]
    assert {line["broker"] for line in failed} == {"broker-b"}
    assert all(line["error"] for line in failed)
    assert [line["attempt"] for line in lines(tmp_path) if line["attempt"] > 1] == [2] * len(failed)
    (isolated,) = lines(tmp_path, "isolated")
    assert isolated["broker"] == health.broker
    assert isolated["reason"]


def test_a_cancelled_send_is_a_line_that_says_maybe_stored(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with AsyncProducer(cluster.name_server, telemetry=tmp_path, retries=0) as producer:
            await producer.send(Message("orders", b"x"))
            cluster.journal.clear()
            for broker in cluster.brokers:
                broker.hang()
            task = asyncio.create_task(producer.send(Message("orders", b"gone")))
            await asyncio.to_thread(_wait_for_sends, cluster, 1)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            for broker in cluster.brokers:
                broker.heal()
            await producer.send(Message("orders", b"x"))

    asyncio.run(scenario())
    told = [(line["outcome"], line["error"]) for line in lines(tmp_path)]
    assert told == [("stored", None), ("maybe stored", "cancelled"), ("stored", None)]


def _wait_for_sends(cluster: EmbeddedCluster, count: int) -> None:
    tries = threading.Event()
    while len(cluster.journal.sends(topic="orders")) < count:
        tries.wait(0.005)


def test_what_shutdown_gives_up_is_a_line_too(
    cluster: EmbeddedCluster, tmp_path: Path, shell: Any
) -> None:
    with shell(cluster.name_server, telemetry=tmp_path, shutdown_timeout=0.2) as p:
        p.send(Message("orders", b"x"))
        for broker in cluster.brokers:
            broker.hang()
        delivery = p.submit(Message("orders", b"y"), timeout=30)
    with pytest.raises(SendFailedError) as caught:
        delivery.result(10) if isinstance(p, Blocking) else delivery.result()
    assert caught.value.outcome is Outcome.MAYBE_STORED
    assert [line["outcome"] for line in lines(tmp_path)] == ["stored", "maybe stored"]
    assert p.producer.stats().telemetry_dropped == 0


def test_a_folder_that_can_not_be_written_costs_lines_and_no_message(
    cluster: EmbeddedCluster, tmp_path: Path, shell: Any
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with shell(cluster.name_server, telemetry=tmp_path / "file") as p:
        for _ in range(20):
            p.send(Message("orders", b"x"))
    assert p.producer.stats().sent == 20
    assert p.producer.stats().telemetry_dropped == 21  # the route of the topic, too


def test_producers_that_share_an_instance_have_files_of_their_own(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    options = {"client_id": "shared-1"}
    with (
        Producer(cluster.name_server, group="a", telemetry=tmp_path / "a", **options) as first,
        Producer(cluster.name_server, group="b", telemetry=tmp_path / "b", **options) as second,
    ):
        first.send(Message("orders", b"1"))
        for _ in range(2):
            second.send(Message("orders", b"2"))
        cluster.broker("broker-b").refuse()
        for _ in range(8):  # all queues of both, wherever it begins
            first.send(Message("orders", b"1"))
    assert len({line["messageId"] for line in lines(tmp_path / "a")}) == 9
    assert len(lines(tmp_path / "b")) == 2
    # Both are told of what happens to the brokers that they share.
    assert len(lines(tmp_path / "a", "isolated")) == len(lines(tmp_path / "b", "isolated")) == 1


# -- traces -----------------------------------------------------------------------------------


def traces(cluster: EmbeddedCluster) -> list[Any]:
    return [r for m in cluster.messages(TRACE_TOPIC) for r in decode_trace(m.body)]


def test_every_message_has_a_trace(cluster: EmbeddedCluster, shell: Any) -> None:
    with shell(cluster.name_server, group="shop", trace=True) as p:
        results = [p.send(Message("orders", b"x", keys=f"order-{n}")) for n in range(25)]
        many = p.send_many([Message("orders", b"y")] * 15)
    found = {record.message_id: record for record in traces(cluster)}
    assert set(found) == {r.message_id for r in (*results, *many)}
    assert len(traces(cluster)) == 40
    addresses = {broker.name: broker.address for broker in cluster.brokers}
    for number, result in enumerate(results):
        record = found[result.message_id]
        assert (record.group, record.topic, record.success) == ("shop", "orders", True)
        assert record.keys == f"order-{number}"
        assert record.store_host == addresses[result.queue.broker]
        assert record.offset_message_id == result.offset_message_id
    for result in many:
        assert found[result.message_id].offset_message_id == result.offset_message_id
    assert p.producer.stats().trace_dropped == 0
    # The counters tell of the user's messages only.
    assert p.producer.stats().messages == 40


def test_a_trace_is_found_by_the_id_and_the_keys_of_its_message(
    cluster: EmbeddedCluster, shell: Any
) -> None:
    with shell(cluster.name_server, trace=True) as p:
        result = p.send(Message("orders", b"x", keys=["order-42", "customer-7"]))
    (message,) = cluster.messages(TRACE_TOPIC)
    assert message.keys == f"{result.message_id} order-42 customer-7"


def test_failed_sends_have_a_trace_and_others_go_to_a_topic_of_choice(
    cluster: EmbeddedCluster, shell: Any
) -> None:
    cluster.create_topic("my-traces", queues=1)
    with shell(cluster.name_server, trace="my-traces", retries=0, async_retries=0) as p:
        for broker in cluster.brokers:
            broker.reject(13, topic="orders")
        with pytest.raises(SendFailedError):
            p.send(Message("orders", b"x"))
    found = [r for m in cluster.messages("my-traces") for r in decode_trace(m.body)]
    assert [(r.topic, r.success) for r in found] == [("orders", False)]


def test_traces_have_a_group_of_their_own_that_says_goodbye(
    cluster: EmbeddedCluster, shell: Any
) -> None:
    with shell(cluster.name_server, group="shop", trace=True) as p:
        p.send(Message("orders", b"x"))
    groups = {entry.group for entry in cluster.journal.sends(topic=TRACE_TOPIC)}
    (group,) = groups
    assert group is not None
    assert group.startswith("_INNER_TRACE_PRODUCER-shop-PRODUCE-")
    left = cluster.journal.requests(code=RequestCode.UNREGISTER_CLIENT)
    assert {entry.ext.get("producerGroup") for entry in left} == {"shop", group}


def test_traces_that_find_no_topic_are_counted_and_harm_no_message(shell: Any) -> None:
    with EmbeddedCluster(brokers=1, auto_create_topics=False) as cluster:
        cluster.create_topic("orders")
        with shell(cluster.name_server, trace="nowhere", background=False) as p:
            for _ in range(25):
                p.send(Message("orders", b"x"))
        stats = p.producer.stats()
    assert (stats.sent, stats.failed, stats.trace_dropped) == (25, 0, 25)


# -- status -----------------------------------------------------------------------------------


def test_a_running_producer_shows_its_status(
    cluster: EmbeddedCluster, tmp_path: Path, shell: Any
) -> None:
    path = tmp_path / "status.json"
    with shell(cluster.name_server, group="shop", status=path) as p:
        p.send(Message("orders", b"x"))
        pause = threading.Event()
        while not (found := read_statuses(path)) or not found[0]["health"]:
            pause.wait(0.01)
        assert found[0]["client_id"] == p.producer.client_id
        assert found[0]["group"] == "shop"
        assert found[0]["stats"]["sent"] == 1
        assert {b["broker"] for b in found[0]["health"]} <= {"broker-a", "broker-b"}
    assert list(tmp_path.iterdir()) == []


# -- neither ----------------------------------------------------------------------------------


def test_a_producer_that_nobody_closed_is_noticed_and_loses_no_line(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    producer = Producer(
        cluster.name_server, telemetry=tmp_path, trace=True, status=tmp_path / "status.json"
    )
    producer.start()
    producer.send(Message("orders", b"x"))
    thread = producer._reporting._status._thread
    with pytest.warns(ResourceWarning, match="unclosed producer"):  # noqa: PT031
        del producer
        gc.collect()
    thread.join(10)
    gc.collect()
    pause = threading.Event()
    while not lines(tmp_path):
        pause.wait(0.01)
    assert not list(tmp_path.glob("status.json*"))


def test_a_producer_without_reports_loads_and_starts_nothing_for_them(
    cluster: EmbeddedCluster,
) -> None:
    with Producer(cluster.name_server) as producer:
        producer.send(Message("orders", b"x"))
        names = {thread.name for thread in threading.enumerate()}
        assert not names & {"rocketwire-telemetry", "rocketwire-status"}
        assert producer._sender.hooks.after_attempt == ()
        assert producer._sender.hooks.after_send == ()
