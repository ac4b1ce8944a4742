"""What our producers write to a real cluster, Apache's own clients read, find and trace."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.shells import SHELLS
from tests.interop.driver import JavaDriver, body_of
from tests.real.apache import ApacheCluster
from tests.real.running import unique

from rocketwire import Message
from rocketwire.message import MessageQueue


@pytest.fixture(params=list(SHELLS))
def open_shell(
    request: pytest.FixtureRequest, cluster: ApacheCluster
) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def open_one(**options: Any) -> Any:
        shell = SHELLS[request.param](cluster.name_server, **({"group": unique("ours")} | options))
        opened.append(shell.__enter__())
        return shell

    yield open_one
    for shell in reversed(opened):
        shell.__exit__()


@pytest.fixture
def pulled(
    cluster: ApacheCluster, java: JavaDriver
) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Reads a whole queue with Java's pull consumer."""
    consumer = unique("pull")
    java.call("pull.start", consumer=consumer, group=consumer, name_server=cluster.name_server)

    def pull(queue: MessageQueue, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        asked = {"topic": queue.topic, "broker": queue.broker, "queue": queue.id}
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            got = java.call(
                "pull.pull", consumer=consumer, queue=asked, offset=len(found), block=True
            )
            found += got["messages"]
        return found

    yield pull
    java.begin("consumer.stop", consumer=consumer)


def test_every_property_arrives(open_shell: Any, topic: str, pulled: Any):
    shell = open_shell()
    properties = {"größe": "二 😀", "tab": "a\tb", "long": "x" * 2000, "equals": "a=b;c,d"}
    result = shell.send(
        Message(
            topic,
            "grüße".encode(),
            tags="TagÄ",
            keys=["k1", "ключ"],
            properties=properties,
            flag=77,
            sharding_key="order-1001",
        )
    )
    (found,) = pulled(result.queue, 1)
    assert body_of(found) == "grüße".encode()
    assert (found["tags"], found["keys"], found["flag"]) == ("TagÄ", "k1 ключ", 77)
    assert {name: found["properties"][name] for name in properties} == properties
    assert found["properties"]["__SHARDINGKEY"] == "order-1001"
    assert found["msg_id"] == result.message_id
    assert found["offset_msg_id"] == result.offset_message_id
    assert found["offset"] == result.offset


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_arrive_whole(open_shell: Any, topic: str, pulled: Any, compression: str):
    shell = open_shell(compression=compression)
    body = b"the quick brown fox " * 5000
    result = shell.send(Message(topic, body))
    (found,) = pulled(result.queue, 1)
    assert body_of(found) == body


def test_batches_arrive_as_single_messages(open_shell: Any, topic: str, pulled: Any):
    shell = open_shell()
    batch = [
        Message(topic, f"item {number}", tags="B", keys=f"k{number}", properties={"n": str(number)})
        for number in range(40)
    ]
    result = shell.send(batch)
    found = pulled(result.queue, 40)
    assert [body_of(each).decode() for each in found] == [f"item {number}" for number in range(40)]
    assert [each["properties"]["n"] for each in found] == [str(number) for number in range(40)]
    assert [each["keys"] for each in found] == [f"k{number}" for number in range(40)]
    assert tuple(each["msg_id"] for each in found) == result.message_ids
    assert tuple(each["offset_msg_id"] for each in found) == result.offset_message_ids


def test_send_many_arrives_in_order_per_key(open_shell: Any, topic: str, pulled: Any):
    shell = open_shell()
    sent = [Message(topic, f"{number}", sharding_key=f"key-{number % 7}") for number in range(210)]
    results = shell.send_many(sent)
    by_queue: dict[MessageQueue, list[int]] = {}
    for number, result in enumerate(results):
        by_queue.setdefault(result.queue, []).append(number)
    for queue, numbers in by_queue.items():
        found = [int(body_of(each)) for each in pulled(queue, len(numbers))]
        assert sorted(found) == sorted(numbers)
        for key in range(7):
            assert [each for each in found if each % 7 == key] == [
                each for each in numbers if each % 7 == key
            ]


def test_results_are_found_by_the_tools(
    open_shell: Any, topic: str, cluster: ApacheCluster, java: JavaDriver, version: str
):
    key = unique("key")
    result = open_shell().send(Message(topic, b"findable", keys=key))
    server = cluster.name_server
    for identity in (result.message_id, result.offset_message_id):
        viewed = eventually(
            lambda i=identity: java.call("admin.view", name_server=server, topic=topic, id=i)
        )
        assert body_of(viewed) == b"findable"
    (queried,) = eventually(
        lambda: java.call("admin.query", name_server=server, topic=topic, key=key)
    )
    assert queried["msg_id"] == result.message_id
    words = ["-t", topic] if not version.startswith("4.") else []
    printed = java.mqadmin(server, "queryMsgById", *words, "-i", result.offset_message_id)
    assert re.search(rf"Queue ID:\s+{result.queue.id}\b", printed), printed
    assert result.message_id in printed or result.offset_message_id in printed


def eventually(work: Callable[[], Any]) -> Any:
    """Indexes follow a moment after the message."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return work()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_our_traces_are_shown_by_mqadmin(
    open_shell: Any, topic: str, cluster: ApacheCluster, java: JavaDriver, version: str
):
    shell = open_shell(trace=True)
    result = shell.send(Message(topic, b"traced", tags="T", keys="k"))
    shell.flush()

    def shown() -> str:
        printed = java.mqadmin(cluster.name_server, "queryMsgTraceById", "-i", result.message_id)
        if "Pub" not in printed or "Exception" in printed:
            raise AssertionError(printed)
        return printed

    assert "success" in eventually(shown)


def test_delayed_and_timed_messages_arrive_later(
    open_shell: Any, topic: str, cluster: ApacheCluster, java: JavaDriver, version: str
):
    consumer = unique("push")
    java.call(
        "push.start",
        consumer=consumer,
        group=consumer,
        topic=topic,
        name_server=cluster.name_server,
        options={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
    )
    shell = open_shell()
    shell.send(Message(topic, b"delayed", delay_level=1, tags="T"))
    expected = {b"delayed"}
    if not version.startswith("4."):
        shell.send(Message(topic, b"timed", deliver_at=time.time() + 3, tags="T"))
        expected.add(b"timed")
    found = java.call("push.take", consumer=consumer, count=len(expected), timeout_ms=60_000)
    assert {body_of(each) for each in found} == expected
    assert all(each["stored"] - each["born"] >= 900 for each in found)
    java.begin("consumer.stop", consumer=consumer)


@pytest.mark.parametrize("header", ["binary", "json"])
def test_both_kinds_of_headers_are_understood(
    open_shell: Any, topic: str, pulled: Any, header: str
):
    result = open_shell(header=header).send(Message(topic, b"x", properties={"p": "ü"}))
    (found,) = pulled(result.queue, 1)
    assert found["properties"]["p"] == "ü"
