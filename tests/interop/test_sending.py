"""Foreign producers send in every mode, and what they sent is there."""

import random
from typing import Any

import pytest
from tests.interop.driver import DriverError, body_of, message
from tests.interop.targets import max_offsets
from tests.real.running import unique

from rocketwire import Reader


def read_all(meeting: Any, topic: str) -> dict[str, Any]:
    """Every message of a topic by its body, read by our own reader."""
    with Reader(meeting.target.name_server) as reader:
        return {found.body.decode(): found for found in reader.read(topic)}


@pytest.mark.parametrize("mode", ["sync", "async", "oneway"])
@pytest.mark.parametrize("to", ["any", "queue", "key"])
def test_a_message_sent_in_any_way_is_stored(meeting: Any, mode: str, to: str):
    topic = meeting.topic()
    producer = meeting.producer()
    where: dict[str, Any] = {}
    if to == "queue":
        where = {"queue": {"topic": topic, "broker": "broker-b", "queue": 3}}
    elif to == "key":
        where = {"key": {"type": "string", "value": "order-1001"}}
    result = meeting.call(
        "producer.send",
        producer=producer,
        mode=mode,
        message=message(topic, "hello", tags="TagA", keys="k1 k2", flag=7, properties={"p": "ü"}),
        **where,
    )
    if mode == "oneway":
        assert result is None
    else:
        assert result["status"] == "SEND_OK"
        assert result["offset"] == 0
        if to == "queue":
            assert (result["broker"], result["queue"]) == ("broker-b", 3)
    found = wait_for(meeting, topic, 1)["hello"]
    assert (found.tags, found.keys, found.flag) == ("TagA", "k1 k2", 7)
    assert found.properties["p"] == "ü"
    if result is not None:
        assert found.message_id == result["msg_id"]
        assert found.offset_message_id == result["offset_msg_id"]
        assert (found.queue.broker, found.queue.id) == (result["broker"], result["queue"])


def wait_for(meeting: Any, topic: str, count: int) -> dict[str, Any]:
    """Brokers show a message to readers a moment after acknowledging it; oneway even later."""
    for _ in range(2000):
        found = read_all(meeting, topic)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} messages of {topic} were found")


def test_a_batch_lies_together_in_its_order(meeting: Any):
    topic = meeting.topic()
    producer = meeting.producer()
    bodies = [f"item-{number}" for number in range(50)]
    result = meeting.call(
        "producer.batch",
        producer=producer,
        messages=[message(topic, body, tags="T", properties={"n": body}) for body in bodies],
    )
    assert result["status"] == "SEND_OK"
    found = wait_for(meeting, topic, len(bodies))
    stored = sorted(found.values(), key=lambda each: each.offset)
    assert [each.body.decode() for each in stored] == bodies
    assert {(each.queue.broker, each.queue.id) for each in stored} == {
        (result["broker"], result["queue"])
    }
    assert [each.offset for each in stored] == list(range(len(bodies)))
    assert [each.properties["n"] for each in stored] == bodies
    assert len(result["offset_msg_id"].split(",")) == len(bodies)


@pytest.mark.parametrize("size", [1, 4095, 4096, 100_000, 4 * 1024 * 1024])
def test_bodies_of_every_size_survive(meeting: Any, size: int):
    topic = meeting.topic()
    producer = meeting.producer()
    body = random.Random(size).randbytes(size // 2) + b"z" * (size - size // 2)
    result = meeting.call("producer.send", producer=producer, message=message(topic, body))
    assert result["status"] == "SEND_OK"
    queue = {"topic": topic, "broker": result["broker"], "queue": result["queue"]}
    consumer = meeting.consumer("pull", topic)
    pulled = pull_until_found(meeting, consumer, queue)
    assert [body_of(each) for each in pulled] == [body]


def pull_until_found(meeting: Any, consumer: str, queue: dict[str, Any]) -> list[dict[str, Any]]:
    for _ in range(500):
        result = meeting.call("pull.pull", consumer=consumer, queue=queue, offset=0, block=True)
        if result["status"] == "FOUND":
            return list(result["messages"])
    raise AssertionError(f"nothing was found in {queue}")


@pytest.mark.without("go", "java-4.9.7")
@pytest.mark.parametrize("kind", ["LZ4", "ZSTD", "ZLIB"])
def test_every_compression_of_java_is_read(meeting: Any, kind: str):
    topic = meeting.topic()
    producer = meeting.producer(options={"compressType": kind})
    body = b"the quick brown fox " * 1000
    meeting.call("producer.send", producer=producer, message=message(topic, body))
    (found,) = wait_for(meeting, topic, 1).values()
    assert found.body == body


def test_an_unknown_topic_is_made_by_the_first_send(meeting: Any):
    topic = unique("made")
    producer = meeting.producer()
    result = meeting.call("producer.send", producer=producer, message=message(topic, "first"))
    assert result["status"] == "SEND_OK"
    assert set(wait_for(meeting, topic, 1)) == {"first"}


def test_a_delayed_message_comes_later_and_whole(meeting: Any):
    topic = meeting.topic()
    consumer = meeting.consumer("push", topic)
    producer = meeting.producer()
    meeting.call(
        "producer.send",
        producer=producer,
        message=message(topic, "late", tags="T", delay_level=1, properties={"p": "v"}),
    )
    (found,) = meeting.take(consumer, 1)
    assert body_of(found) == b"late"
    assert found["tags"] == "T"
    assert found["properties"]["p"] == "v"
    assert found["properties"]["DELAY"] == "1"
    assert found["properties"]["REAL_TOPIC"] == topic
    # The stored time is that of the delivery, the born time that of the send.
    assert found["stored"] - found["born"] >= 900


@pytest.mark.without("go", "java-4.9.7")
@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_a_timed_message_comes_at_its_time(meeting: Any, name: str):
    topic = meeting.topic()
    consumer = meeting.consumer("push", topic)
    producer = meeting.producer()
    delay = "3000" if name.endswith("MS") else "3"
    meeting.call(
        "producer.send", producer=producer, message=message(topic, "timed", system={name: delay})
    )
    (found,) = meeting.take(consumer, 1)
    assert body_of(found) == b"timed"
    assert found["stored"] - found["born"] >= 1000


@pytest.mark.without("go", "java-4.9.7")
def test_a_recalled_message_never_comes(meeting: Any):
    topic = meeting.topic()
    consumer = meeting.consumer("push", topic)
    producer = meeting.producer()
    sent = {}
    for body in ("recalled", "kept"):
        sent[body] = meeting.call(
            "producer.send",
            producer=producer,
            message=message(topic, body, system={"TIMER_DELAY_MS": "6000"}),
        )
    handle = sent["recalled"]["recall_handle"]
    assert handle
    meeting.call("producer.recall", producer=producer, topic=topic, handle=handle)
    (found,) = meeting.take(consumer, 1)
    assert body_of(found) == b"kept"
    assert meeting.take(consumer, 1, seconds=3.0) == []


def test_a_refused_message_is_refused_alike(meeting: Any):
    producer = meeting.producer()
    with pytest.raises(DriverError):
        meeting.call("producer.send", producer=producer, message=message("no such topic!", "x"))


def test_plain_sends_use_every_broker_and_lose_nothing(meeting: Any):
    topic = meeting.topic(queues=4)
    producer = meeting.producer()
    for number in range(32):
        meeting.call("producer.send", producer=producer, message=message(topic, f"m{number}"))
    counts: dict[tuple[str, int], int] = {}
    for _ in range(500):  # the next offset of a queue follows a moment after the acknowledgement
        counts = max_offsets(meeting.target, topic, 4)
        if sum(counts.values()) >= 32:
            break
    assert sum(counts.values()) == 32
    for broker in meeting.target.addresses:
        assert sum(count for (name, _), count in counts.items() if name == broker) > 0


@pytest.mark.without("go")
def test_a_message_is_sent_over_the_vip_channel(meeting: Any):
    topic = meeting.topic()
    producer = meeting.producer(options={"vipChannelEnabled": True})
    for number in range(4):
        result = meeting.call(
            "producer.send", producer=producer, message=message(topic, f"vip-{number}")
        )
        assert result["status"] == "SEND_OK"
    assert sorted(wait_for(meeting, topic, 4)) == [f"vip-{number}" for number in range(4)]
