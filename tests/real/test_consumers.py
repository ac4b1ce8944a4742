"""Our members and Java's in one group, and what operators see of us, on Apache's own brokers."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, Seen, eventually
from tests.interop.driver import body_of
from tests.real.running import unique

from rocketwire import Message, Producer, Reader, Retry, TopicNotFoundError

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def producer(cluster) -> Iterator[Producer]:
    with Producer(cluster.name_server, group="feeder") as producer:
        yield producer


@pytest.fixture
def ours(cluster) -> Iterator[Callable[..., Any]]:
    """Starts our members, blocking and asyncio in turn."""
    started: list[Any] = []
    seen = Seen()

    def start(group: str, topic: str, **options: Any) -> Any:
        kind = list(MEMBERS.values())[len(started) % 2]
        options = {"start": "earliest", "seen": seen, "label": f"ours-{len(started)}"} | options
        started.append(kind(cluster.name_server, group, topic, **options).start())
        return started[-1]

    start.seen = seen
    yield start
    for one in started:
        one.stop()


@pytest.fixture
def theirs(cluster, java) -> Iterator[Callable[..., Any]]:
    """Starts Java push consumers, each an instance of its own."""
    started: list[str] = []

    def start(group: str, topic: str, **options: Any) -> str:
        name = unique("java")
        java.call(
            "push.start",
            consumer=name,
            group=group,
            topic=topic,
            name_server=cluster.name_server,
            options={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "instanceName": name},
            **options,
        )
        started.append(name)
        return name

    def take(name: str, count: int, seconds: float) -> list[dict[str, Any]]:
        wait = int(seconds * 1000)
        return java.call(
            "push.take", consumer=name, count=count, timeout_ms=wait, limit=seconds + 60
        )

    start.take = take
    yield start
    for name in started:
        java.call("consumer.stop", consumer=name)


def send(producer: Producer, topic: str, bodies: list[str]) -> None:
    queues = producer.publish_queues(topic)
    for number, body in enumerate(bodies):
        producer.send(Message(topic, body), queue=queues[number % len(queues)])


def test_two_of_ours_and_two_of_javas_share_the_queues(topic, producer, ours, theirs):
    group = unique("mixed")
    mine = [ours(group, topic) for _ in range(2)]
    java = [theirs(group, topic) for _ in range(2)]
    eventually(lambda: [len(m.assignment()) for m in mine] == [2, 2], 90)
    # Java's members notice within their own rounds; a split is right when no queue is read twice.
    for attempt in range(30):
        bodies = [f"{attempt}-{i}" for i in range(32)]
        send(producer, topic, bodies)
        found: list[tuple[str, tuple[str, int], str]] = []
        for _ in range(10):
            for name in java:
                taken = theirs.take(name, 8, 0.5)
                found += [(name, (m["broker"], m["queue"]), body_of(m).decode()) for m in taken]
            mine_too = [(who, (m.queue.broker, m.queue.id), m.text) for who, m in ours.seen.all]
            # What an earlier round left behind while queues changed hands is not of this one.
            seen = [each for each in found + mine_too if each[2].startswith(f"{attempt}-")]
            if {body for _, _, body in seen} == set(bodies):
                break
        owners: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for who, queue, _ in seen:
            owners[who].add(queue)
        if [len(queues) for queues in owners.values()] == [2, 2, 2, 2]:
            break
    assert len(owners) == 4
    assert len(set().union(*owners.values())) == 8, "a queue has no owner"
    assert sum(map(len, owners.values())) == 8, "a queue has two owners"
    assert Counter(body for _, _, body in seen) == Counter(bodies)


def test_orderly_members_of_both_kinds_respect_each_others_locks(topic, producer, ours, theirs):
    group = unique("orderly")
    mine = [ours(group, topic, ordered=True)]
    keys = [f"key-{i}" for i in range(8)]
    for key in keys:
        for number in range(5):
            producer.send(Message(topic, f"{key}:{number}", sharding_key=key))
    ours.seen.wait(lambda seen: len(seen.all) >= 40)
    java = theirs(group, topic, orderly=True)
    eventually(lambda: len(mine[0].assignment()) == 4, 120)
    for key in keys:
        for number in range(5, 25):
            producer.send(Message(topic, f"{key}:{number}", sharding_key=key))
    handled: list[str] = []
    deadline = time.monotonic() + 90
    while len(handled) + len(ours.seen.all) < 200 and time.monotonic() < deadline:
        handled += [body_of(each).decode() for each in theirs.take(java, 20, 0.5)]
    handled += ours.seen.bodies()
    assert Counter(handled) == Counter(f"{key}:{n}" for key in keys for n in range(25))
    for key in keys:
        by_ours = [int(b.split(":")[1]) for b in ours.seen.bodies() if b.startswith(key + ":")]
        assert by_ours == sorted(by_ours)


def test_a_queue_that_java_holds_is_not_ours_before_java_lets_go(
    topic, producer, ours, theirs, java
):
    group = unique("locks")
    holder = theirs(group, topic, orderly=True)
    queues = producer.publish_queues(topic)
    for queue in queues:
        producer.send(Message(topic, f"first-{queue.broker}-{queue.id}"), queue=queue)
    assert len(theirs.take(holder, len(queues), 60.0)) == len(queues)
    one = ours(group, topic, ordered=True)
    eventually(lambda: len(one.assignment()) == 4, 120)
    states = {q.state for q in one.stats().queues if q.queue.topic == topic}
    assert states == {"running"}
    java.call("consumer.stop", consumer=holder)
    eventually(lambda: len(one.assignment()) == 8, 120)


def test_operators_see_members_progress_retries_and_dead_letters(
    cluster, topic, producer, ours, java
):
    group = unique("seen")

    def handle(message: Any) -> Retry | None:
        ours.seen.add("", message)
        return Retry(after=1.0) if message.text == "bad" else None

    one = ours(group, topic, handler=handle, max_attempts=2, commit_interval=0.5)
    send(producer, topic, ["good", "bad"])
    eventually(lambda: one.stats().dead_lettered == 1, 120)
    connections = java.mqadmin(cluster.name_server, "consumerConnection", "-g", group)
    assert one.consumer.client_id in connections
    assert f"%RETRY%{group}" in connections
    eventually(lambda: not any(one.lag().values()))
    time.sleep(1.0)  # the commit interval: progress is what the broker was told
    progress = java.mqadmin(cluster.name_server, "consumerProgress", "-g", group)
    assert topic[:20] in progress
    status = java.mqadmin(
        cluster.name_server, "consumerStatus", "-g", group, "-i", one.consumer.client_id
    )
    assert "PROP_CONSUMEORDERLY" in status
    with Reader(cluster.name_server) as reader:
        eventually(lambda: _known(reader, f"%DLQ%{group}"), 90)
        assert [m.text for m in reader.read(f"%DLQ%{group}")] == ["bad"]


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_mqadmin_has_one_message_handled_directly(
    cluster, topic, producer, ours, java, version, ordered
):
    group, verdict = unique("direct"), []

    def handle(message: Any) -> None:
        ours.seen.add("", message)
        if verdict:
            raise ValueError("no such order")

    one = ours(group, topic, handler=handle, ordered=ordered)
    sent = producer.send(Message(topic, "again"))
    ours.seen.wait_for_bodies({"again"})
    words = ["-t", topic] if not version.startswith("4.") else []
    words += ["-i", sent.offset_message_id, "-g", group, "-d", one.consumer.client_id]
    printed = java.mqadmin(cluster.name_server, "queryMsgById", *words)
    assert "consumeResult=CR_SUCCESS" in printed, printed
    verdict.append("fail")
    printed = java.mqadmin(cluster.name_server, "queryMsgById", *words)
    assert "consumeResult=CR_THROW_EXCEPTION" in printed, printed
    assert "no such order" in printed
    assert ours.seen.bodies() == ["again"] * 3


def _known(reader: Reader, topic: str) -> bool:
    try:
        return bool(reader.queues(topic))
    except TopicNotFoundError:
        return False


def test_a_java_member_gets_what_ours_sent_back(topic, producer, ours, theirs):
    group = unique("handover")

    def refuse(message: Any) -> Retry:
        ours.seen.add("", message)
        return Retry(after=5.0)

    one = ours(group, topic, handler=refuse)
    producer.send(Message(topic, "for java", tags="T", keys="k"))
    ours.seen.wait_for_bodies({"for java"})
    eventually(lambda: one.stats().retried == 1)
    one.consumer.stop()
    java = theirs(group, topic)
    (found,) = theirs.take(java, 1, 120.0)
    assert body_of(found) == b"for java"
    assert (found["topic"], found["tags"], found["keys"]) == (topic, "T", "k")
    assert found["reconsume_times"] == 1
