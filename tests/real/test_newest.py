"""The newest release, in a smaller selection than the others."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, Seen, eventually
from tests.conformance.shells import SHELLS
from tests.interop.driver import JavaDriver, body_of
from tests.real import jars
from tests.real.apache import ApacheCluster
from tests.real.running import unique

from rocketwire import Message, Reply, TransactionState
from rocketwire.wire.java_hash import hash_index

NEWEST = "5.5.0"


@pytest.fixture(params=[NEWEST])
def version(request: pytest.FixtureRequest) -> str:
    jars.require_tools(request.param)
    return str(request.param)


@pytest.fixture(params=list(SHELLS))
def shell_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_form_of_sending_is_read_by_us_and_by_java(
    cluster: ApacheCluster, java: JavaDriver, topic: str, shell_kind: str
):
    with SHELLS[shell_kind](cluster.name_server, group=unique("ours")) as shell:
        first = shell.send(Message(topic, "grüße", tags="T", keys="k", properties={"ä": "二"}))
        shell.submit(Message(topic, "submitted"))()
        shell.send_oneway(Message(topic, "oneway"))
        batch = shell.send([Message(topic, f"batch {number}") for number in range(3)])
        shell.send(Message(topic, "x" * 100_000))
        expected = 7
        found = []
        while len(found) < expected:
            found = shell.read(topic)
    assert len(found) == expected
    viewed = java.call(
        "admin.view", name_server=cluster.name_server, topic=topic, id=first.offset_message_id
    )
    assert body_of(viewed).decode() == "grüße"
    assert viewed["properties"]["ä"] == "二"
    assert len(batch.message_ids) == 3


@pytest.mark.parametrize("header", ["binary", "json"])
def test_both_headers_are_understood(
    cluster: ApacheCluster, topic: str, shell_kind: str, header: str
):
    with SHELLS[shell_kind](cluster.name_server, group=unique("ours"), header=header) as shell:
        assert shell.send(Message(topic, b"x")).offset == 0


def test_mqadmin_shows_our_messages(cluster: ApacheCluster, java: JavaDriver, topic: str):
    with SHELLS["blocking"](cluster.name_server, group=unique("ours")) as shell:
        shell.send(Message(topic, b"x"))
    printed = java.mqadmin(cluster.name_server, "topicStatus", "-t", topic)
    assert "broker-a" in printed


@pytest.fixture
def shell(cluster: ApacheCluster, shell_kind: str) -> Iterator[Any]:
    with SHELLS[shell_kind](cluster.name_server, group=unique("ours")) as shell:
        yield shell


def read_all(shell: Any, topic: str, count: int) -> list[Any]:
    """Brokers show messages a moment after they have acknowledged them."""
    deadline = time.monotonic() + 60
    found: list[Any] = []
    while len(found) < count and time.monotonic() < deadline:
        found = shell.read(topic)
    return found


def test_a_sharding_key_keeps_its_order_on_java_s_queue(shell: Any, topic: str):
    queues = shell.publish_queues(topic)
    for number in range(20):
        for key in ("a", "ключ"):
            shell.send(Message(topic, f"{key}:{number}", sharding_key=key))
    found = read_all(shell, topic, 40)
    for key in ("a", "ключ"):
        own = [message for message in found if message.sharding_key == key]
        assert [message.text for message in own] == [f"{key}:{number}" for number in range(20)]
        assert {message.queue for message in own} == {queues[hash_index(key, len(queues))]}


def test_batches_and_send_many_are_stored_where_their_results_say(shell: Any, topic: str):
    batch = shell.send([Message(topic, f"b{number}") for number in range(10)])
    many = shell.send_many([Message(topic, f"m{number}") for number in range(50)])
    stored = {(each.queue, each.offset): each.text for each in read_all(shell, topic, 60)}
    assert [stored[batch.queue, batch.offset + number] for number in range(10)] == [
        f"b{number}" for number in range(10)
    ]
    assert [stored[each.queue, each.offset] for each in many] == [f"m{n}" for n in range(50)]


def test_messages_are_found_by_offset_time_id_and_key(shell: Any, topic: str):
    key = unique("key")
    result = shell.send(Message(topic, b"findable", keys=key))
    (stored,) = read_all(shell, topic, 1)
    assert shell.ask_reader("max_offset", result.queue) == 1
    assert shell.ask_reader("offset_for_time", result.queue, stored.stored_at) == 0
    assert shell.ask_reader("message_by_id", result.offset_message_id).body == b"findable"
    deadline, found = time.monotonic() + 30, ()
    while not found and time.monotonic() < deadline:  # the index follows
        found = shell.ask_reader("messages_by_key", topic, key)
    assert [each.message_id for each in found] == [result.message_id]


def test_delayed_and_timed_messages_come_later(shell: Any, topic: str):
    began = time.time()
    shell.send(Message(topic, b"delayed", delay_level=1))
    shell.send(Message(topic, b"timed", deliver_at=began + 3))
    found = {each.body: each.stored_at.timestamp() for each in read_all(shell, topic, 2)}
    assert found[b"delayed"] - began >= 0.9
    assert found[b"timed"] - began >= 1.9  # the wheel of timed messages turns by the second


def test_a_trace_is_shown_by_mqadmin(
    cluster: ApacheCluster, java: JavaDriver, topic: str, shell_kind: str
):
    with SHELLS[shell_kind](cluster.name_server, group=unique("ours"), trace=True) as shell:
        result = shell.send(Message(topic, b"traced"))
        shell.flush()
    deadline, printed = time.monotonic() + 30, ""
    while "Pub" not in printed and time.monotonic() < deadline:
        printed = java.mqadmin(cluster.name_server, "queryMsgTraceById", "-i", result.message_id)
    assert "success" in printed


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_two_members_of_a_consumer_group_share_everything(
    cluster: ApacheCluster, shell: Any, topic: str, ordered: bool
):
    seen, group = Seen(), unique("group")
    options = {"start": "earliest", "seen": seen, "ordered": ordered}
    members = [
        make(cluster.name_server, group, topic, label=name, **options).start()
        for name, make in MEMBERS.items()
    ]
    try:
        eventually(lambda: [len(member.assignment()) for member in members] == [4, 4], 90)
        queues = shell.publish_queues(topic)
        bodies = [f"m{number}" for number in range(40)]
        for number, body in enumerate(bodies):
            shell.send(Message(topic, body), queue=queues[number % len(queues)])
        seen.wait(lambda each: set(each.bodies()) >= set(bodies), 60)
        assert {label for label, _ in seen.all} == set(MEMBERS)
    finally:
        for member in members:
            member.stop()


def test_transactions_requests_and_recalls(cluster: ApacheCluster, topic: str, shell_kind: str):
    with SHELLS[shell_kind](cluster.name_server, group=unique("ours")) as shell:
        assert shell.transact(Message(topic, "kept")).state is TransactionState.COMMITTED
        shell.transact(Message(topic, "dropped"), "rollback")
        assert shell.tx.state is TransactionState.ROLLED_BACK
        timed = shell.send(Message(topic, "timed", deliver_at=time.time() + 60))
        assert shell.recall(topic, timed.recall_handle) == timed.message_id
        kind = MEMBERS[shell_kind]
        member = kind(
            cluster.name_server,
            unique("group"),
            topic,
            start="earliest",
            handler=lambda m: Reply(m.body[::-1]) if m.text == "abc" else None,
        ).start()
        try:
            assert shell.request(Message(topic, "abc"), timeout=30).text == "cba"
        finally:
            member.stop()
        assert sorted(m.text for m in shell.read(topic)) == ["abc", "kept"]
