"""Messages submitted one by one that travel in batches, over both shells."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.conformance.shells import read_all

from rocketwire import AutoBatch, ConfigError, InvalidMessageError, Message, SendFailedError
from rocketwire.wire.codes import RequestCode


def test_every_message_is_where_its_result_says(open_shell, target) -> None:
    topic = target.topic()
    shell = open_shell(auto_batch=AutoBatch(messages=50))
    answers = [
        shell.submit(Message(topic, b"%d" % n, tags="t", keys=f"key-{n}", properties={"n": str(n)}))
        for n in range(400)
    ]
    shell.flush()
    stored = {(m.queue, m.offset): m for m in read_all(shell, topic, 400)}
    assert len(stored) == 400
    for number, answer in enumerate(answers):
        result = answer()
        message = stored[result.queue, result.offset]
        assert message.body == b"%d" % number
        assert (message.tags, message.keys) == ("t", f"key-{number}")
        assert message.properties == {"n": str(number)}
        assert message.message_id == result.message_id
        assert message.offset_message_id == result.offset_message_id


def test_messages_really_travel_together(open_shell, target) -> None:
    if not target.is_embedded:
        pytest.skip("only the embedded cluster tells what it saw")
    topic = target.topic()
    shell = open_shell(auto_batch=AutoBatch(linger=30.0))
    for broker in target.cluster.brokers:
        broker.slow(0.1)
    try:
        for n in range(300):
            shell.submit(Message(topic, b"%d" % n))
        shell.flush()
    finally:
        for broker in target.cluster.brokers:
            broker.heal()
    codes = [entry.code for entry in target.cluster.journal.sends(topic=topic)]
    assert codes.count(RequestCode.SEND_BATCH_MESSAGE) >= 1
    assert len(codes) < 150


def test_keys_stay_in_order_and_on_java_s_queue(open_shell, target) -> None:
    topic = target.topic()
    shell = open_shell(auto_batch=True)
    plain = open_shell(group="plain")
    queue_of = {
        f"k{n}": plain.send(Message(topic, b"first", sharding_key=f"k{n}")).queue for n in range(10)
    }
    for number in range(500):
        shell.submit(Message(topic, b"%d" % number, sharding_key=f"k{number % 10}"))
    shell.flush()
    seen: dict[str, list[int]] = {}
    for message in read_all(shell, topic, 510):
        if message.body != b"first":
            assert message.queue == queue_of[message.sharding_key]
            seen.setdefault(message.sharding_key, []).append(int(message.body))
    assert seen == {f"k{n}": list(range(n, 500, 10)) for n in range(10)}


def test_what_can_t_be_in_a_batch_goes_beside_them(open_shell, target) -> None:
    topic = target.topic()
    shell = open_shell(auto_batch=True)
    queue = shell.publish_queues(topic)[1]
    large = bytes(20_000)
    answers = [
        shell.submit(Message(topic, b"small")),
        shell.submit(Message(topic, large)),
        shell.submit(Message(topic, b"given"), queue=queue),
        shell.submit(Message(topic, b"chosen"), selector=lambda queues, *_: queues[2]),
        shell.submit([Message(topic, b"two"), Message(topic, b"of them")]),
    ]
    results = [answer() for answer in answers]
    assert results[2].queue == queue
    assert results[3].queue == shell.publish_queues(topic)[2]
    bodies = sorted(m.body for m in read_all(shell, topic, 6))
    assert bodies == sorted([b"small", large, b"given", b"chosen", b"two", b"of them"])
    with pytest.raises(InvalidMessageError, match="topic"):
        shell.submit(Message("not a topic", b"x"))
    with pytest.raises(ConfigError, match="timeout"):
        shell.submit(Message(topic, b"x"), timeout=0)


def test_callbacks_are_called_once_for_each_message(open_shell, target) -> None:
    topic = target.topic()
    shell = open_shell(auto_batch=True)
    offsets: list[tuple[object, int]] = []
    enough = threading.Event()

    def stored(result) -> None:
        offsets.append((result.queue, result.offset))
        if len(offsets) == 100:
            enough.set()

    for _ in range(100):
        shell.submit(Message(topic, b"x"), on_success=stored)
    assert enough.wait(30)
    assert len(set(offsets)) == 100


def test_a_failure_reaches_every_message(open_shell, target) -> None:
    topic = target.topic()
    shell = open_shell(auto_batch=True, max_message_size=200)
    with pytest.raises(InvalidMessageError, match="body has 201 bytes"):
        shell.submit(Message(topic, bytes(201)))
    missing = f"{topic}-missing"
    if target.is_embedded:
        shell = open_shell(auto_batch=True, default_topic="no-such-default", group="other")
        answers = [shell.submit(Message(missing, b"x")) for _ in range(5)]
        for answer in answers:
            with pytest.raises(SendFailedError, match="unknown"):
                answer()


def test_many_threads_may_submit_at_once(open_shell, target) -> None:
    topic = target.topic()
    shell = open_shell(auto_batch=AutoBatch(messages=20), max_in_flight=100)

    def work(number: int) -> None:
        answers = [
            shell.submit(Message(topic, b"%d:%d" % (number, n), sharding_key=f"k{number}"))
            for n in range(100)
        ]
        for answer in answers:
            assert answer().offset >= 0

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    seen: dict[bytes, list[int]] = {}
    for message in read_all(shell, topic, 800):
        who, number = message.body.split(b":")
        seen.setdefault(who, []).append(int(number))
    assert seen == {b"%d" % n: list(range(100)) for n in range(8)}


def test_shutting_down_sends_what_still_waits(open_shell, target) -> None:
    topic = target.topic()
    shell = open_shell(auto_batch=AutoBatch(linger=30.0))
    reader = open_shell(group="reader")
    answers = [shell.submit(Message(topic, b"x")) for _ in range(50)]
    shell.flush()
    assert all(answer().offset >= 0 for answer in answers)
    assert len(read_all(reader, topic, 50)) == 50
    assert shell.stats().in_flight == 0
