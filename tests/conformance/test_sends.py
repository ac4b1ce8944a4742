"""Every send form, and what comes back of what was sent."""

from __future__ import annotations

import inspect
import math
import socket
import threading
import time

import pytest
from tests.conformance.shells import read_all
from tests.wire_tools import offset_message_id

from rocketwire import (
    ConfigError,
    InvalidMessageError,
    Message,
    MessageQueue,
    Outcome,
    SendFailedError,
    SendManyError,
    SendResult,
    SendStatus,
    SendTimeoutError,
)
from rocketwire.wire.java_hash import java_string_hash


def one_way_of_sending(shell, form: str, message, **how):
    if form == "send":
        return shell.send(message, **how)
    if form == "submit":
        return shell.submit(message, **how)()
    return shell.send_oneway(message, **how)


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
@pytest.mark.parametrize("place", ["default", "queue", "selector"])
@pytest.mark.parametrize("form", ["send", "submit", "oneway"])
@pytest.mark.parametrize("timeout", [None, 5.0], ids=["default-timeout", "timeout"])
def test_every_form_of_sending(shell, target, form, place, batch, timeout) -> None:
    topic = target.topic()
    bodies = [b"one", b"two", b"three"] if batch else [b"one"]
    messages = [Message(topic, body, tags="t", keys="k") for body in bodies]
    how: dict = {} if timeout is None else {"timeout": timeout}
    queues = shell.publish_queues(topic)
    if place == "queue":
        how["queue"] = queues[3]
    elif place == "selector":
        how |= {"selector": lambda qs, m, argument: qs[argument], "argument": 5}
    result = one_way_of_sending(shell, form, messages if batch else messages[0], **how)
    stored = read_all(shell, topic, len(bodies))
    assert [m.body for m in stored] == bodies
    assert {(m.tags, m.keys) for m in stored} == {("t", "k")}
    assert len({m.queue for m in stored}) == 1
    if place != "default":
        assert stored[0].queue == queues[3 if place == "queue" else 5]
    if form != "oneway":
        assert result.status is SendStatus.OK
        assert [m.message_id for m in stored] == list(result.message_ids)
        assert [m.offset_message_id for m in stored] == list(result.offset_message_ids)
        assert (stored[0].queue, stored[0].offset) == (result.queue, result.offset)
        assert result.attempts == ()


def test_everything_in_a_message_comes_back(shell, target) -> None:
    topic = target.topic()
    message = Message(
        topic,
        "grün 中文 😀".encode(),
        tags="tag-ü",
        keys=["order-42", "中文"],
        properties={"colour": "röt", "size": "  large  ", "emoji": "😀"},
        flag=-5,
        wait_store_ok=False,
    )
    result = shell.send(message)
    (stored,) = read_all(shell, topic, 1)
    assert stored.body == message.body
    assert (stored.tags, stored.keys, stored.flag) == (message.tags, message.keys, -5)
    assert dict(stored.properties) == dict(message.properties)
    assert stored.message_id == result.message_id
    assert stored.reconsume_times == 0
    assert stored.born_at <= stored.stored_at


@pytest.mark.parametrize("size", [1, 4095, 4096, 100_000, 4 * 1024 * 1024])
def test_bodies_of_every_size(shell, target, size) -> None:
    topic = target.topic()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    shell.send(Message(topic, body), timeout=30.0)
    (stored,) = read_all(shell, topic, 1)
    assert stored.body == body


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_every_compression_comes_back(open_shell, target, compression) -> None:
    topic = target.topic()
    shell = open_shell(compression=compression, compress_over=100)
    body = b"abcdefgh" * 1000
    shell.send(Message(topic, body))
    (stored,) = read_all(shell, topic, 1)
    assert stored.body == body


@pytest.mark.parametrize("header", ["binary", "json"])
def test_both_kinds_of_headers(open_shell, target, header) -> None:
    topic = target.topic()
    shell = open_shell(header=header)
    result = shell.send(Message(topic, b"x", properties={"ü": "中"}))
    (stored,) = read_all(shell, topic, 1)
    assert stored.message_id == result.message_id
    assert dict(stored.properties) == {"ü": "中"}


def test_sends_spread_evenly_over_all_queues(open_shell, target) -> None:
    topic = target.topic(3)
    shell = open_shell(fault="off")  # a busy machine may isolate a broker for a moment
    for number in range(60):
        shell.send(Message(topic, b"%d" % number))
    stored = read_all(shell, topic, 60)
    shares: dict[MessageQueue, int] = {}
    for message in stored:
        shares[message.queue] = shares.get(message.queue, 0) + 1
    assert set(shares.values()) == {10}


def test_a_sharding_key_keeps_its_order_on_java_s_queue(shell, target) -> None:
    topic = target.topic()
    queues = shell.publish_queues(topic)
    answers = [
        shell.submit(Message(topic, f"{key}:{number}", sharding_key=key))
        for number in range(30)
        for key in ("a", "b", "c", "中文")
    ]
    for answer in answers:
        answer()
    stored = read_all(shell, topic, 120)
    for key in ("a", "b", "c", "中文"):
        own = [m for m in stored if m.sharding_key == key]
        assert [m.text for m in own] == [f"{key}:{n}" for n in range(30)]
        assert {m.queue for m in own} == {queues[abs(java_string_hash(key)) % len(queues)]}


def test_send_many_gives_one_result_per_message(shell, target) -> None:
    topic, other = target.topic(), target.topic()
    messages = [
        Message(topic if n % 3 else other, b"%d" % n, sharding_key=f"k{n % 5}" if n % 2 else None)
        for n in range(500)
    ]
    results = shell.send_many(messages)
    assert all(isinstance(r, SendResult) for r in results)
    counts = {topic: 333, other: 167}
    found = [m for t, n in counts.items() for m in read_all(shell, t, n)]
    stored = {(m.queue, m.offset): m for m in found}
    # An attempt that a busy machine made us give up may be stored twice, and the result says so.
    repeats = sum(r.maybe_duplicate for r in results)
    assert 500 <= len(found) <= 500 + repeats
    for message, result in zip(messages, results, strict=True):
        at = stored[result.queue, result.offset]
        assert (at.body, at.message_id) == (message.body, result.message_id)


def test_a_topic_is_created_on_first_use(shell, target) -> None:
    topic = target.topic().replace("conf", "auto")
    result = shell.send(Message(topic, b"first"))
    assert result.status is SendStatus.OK
    assert [m.body for m in read_all(shell, topic, 1)] == [b"first"]


def test_results_are_found_by_id_and_by_key(shell, target) -> None:
    topic = target.topic()
    result = shell.send(Message(topic, b"find me", keys=["needle", "hay"]))
    by_offset = shell.ask_reader("message_by_id", result.offset_message_id)
    assert (by_offset.body, by_offset.queue.id) == (b"find me", result.queue.id)
    for _ in range(100):
        found = shell.ask_reader("messages_by_key", topic, "needle")
        if found:
            break
        time.sleep(0.1)
    assert [m.message_id for m in found] == [result.message_id]
    by_id = shell.ask_reader("message_by_id", result.message_id, topic)
    assert by_id.body == b"find me"


def test_an_offset_id_makes_us_connect_to_brokers_of_the_cluster_only(shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.05)
        port = trap.getsockname()[1]
        evil = offset_message_id(bytes((127, 0, 0, 1)), port, 0)
        with pytest.raises(InvalidMessageError, match=f"127.0.0.1:{port}, which is none of this"):
            shell.ask_reader("message_by_id", evil)
        with pytest.raises(TimeoutError):
            trap.accept()


def test_offsets_and_times(shell, target) -> None:
    topic = target.topic(1)
    queue = shell.publish_queues(topic)[0]
    for number in range(3):
        shell.send(Message(topic, b"%d" % number), queue=queue)
        time.sleep(0.02)
    stored = [m for m in read_all(shell, topic, 3) if m.queue == queue]
    assert [m.offset for m in stored] == [0, 1, 2]
    assert shell.ask_reader("min_offset", queue) == 0
    assert shell.ask_reader("max_offset", queue) == 3
    for message in stored:
        assert shell.ask_reader("offset_for_time", queue, message.stored_at) == message.offset
    assert shell.ask_reader("offset_for_time", queue, 0.0) == 0
    assert shell.ask_reader("offset_for_time", queue, time.time() + 3600) == 3


def test_tags_filter_what_is_read(shell, target) -> None:
    topic = target.topic()
    for tag in ("Aa", "BB", "C"):  # the first two have the same hash
        shell.send(Message(topic, tag, tags=tag))
    read_all(shell, topic, 3)
    assert [m.text for m in shell.read(topic, tags="Aa")] == ["Aa"]
    assert sorted(m.text for m in shell.read(topic, tags="BB || C")) == ["BB", "C"]


def test_a_position_that_is_gone_is_told(shell, target) -> None:
    topic = target.topic(1)
    queue = shell.publish_queues(topic)[0]
    shell.send(Message(topic, b"x"), queue=queue)
    read_all(shell, topic, 1)
    fetched = shell.ask_reader("fetch", queue, 100)
    assert fetched.moved_from == 100
    assert fetched.next_offset == 1


def test_a_waiting_fetch_is_answered_when_a_message_comes(shell, target) -> None:
    topic = target.topic(1)
    queue = shell.publish_queues(topic)[0]
    empty = shell.ask_reader("fetch", queue, 0)
    assert (empty.messages, empty.next_offset) == ((), 0)
    timer = threading.Timer(0.3, lambda: shell.send(Message(topic, b"late"), queue=queue))
    timer.start()
    fetched = shell.ask_reader("fetch", queue, 0, wait=20.0)
    timer.join()
    assert [m.body for m in fetched.messages] == [b"late"]


def test_a_delayed_message_comes_later_and_says_so(shell, target) -> None:
    topic = target.topic(1)
    began = time.time()
    shell.send(Message(topic, b"later", delay_level=1))
    early = shell.read(topic)
    if time.time() - began < 0.9:  # a busy machine may take longer than the delay
        assert early == []
    (stored,) = read_all(shell, topic, 1)
    assert stored.body == b"later"
    assert stored.stored_at.timestamp() - began >= 0.9


def test_topics_are_created_and_grow(shell, target) -> None:
    topic = target.topic(2)
    assert len(shell.publish_queues(topic)) == 4
    shell.create_topic(topic, 3)
    for _ in range(100):
        if len(shell.publish_queues(topic)) == 6:
            break
        time.sleep(0.1)
    assert [q.id for q in shell.publish_queues(topic)] == [0, 1, 2, 0, 1, 2]
    result = shell.send(
        Message(topic, b"x"), queue=MessageQueue(topic, shell.publish_queues(topic)[5].broker, 2)
    )
    assert result.queue.id == 2


def test_a_broker_s_refusal_is_rejected(shell, target) -> None:
    topic = target.topic(1)
    broker = shell.publish_queues(topic)[0].broker
    with pytest.raises(SendFailedError, match="rejected") as caught:
        shell.send(Message(topic, b"x"), queue=MessageQueue(topic, broker, 77))
    assert caught.value.outcome is Outcome.REJECTED
    assert caught.value.attempts[0].queue.id == 77
    assert shell.read(topic) == []


def test_bad_messages_never_leave(shell, target) -> None:
    topic = target.topic(1)
    with pytest.raises(InvalidMessageError, match="body is empty"):
        shell.send(Message(topic, b""))
    with pytest.raises(InvalidMessageError, match="body is empty"):
        shell.submit(Message(topic, b""))
    with pytest.raises(InvalidMessageError, match="body is empty"):
        shell.send_oneway(Message(topic, b""))
    with pytest.raises(InvalidMessageError, match="messages is a Message: give a list"):
        shell.send_many(Message(topic, b"x"))
    for field in ("tags", "keys", "sharding_key"):
        with pytest.raises(InvalidMessageError, match=f"{field} has a lone surrogate at 1"):
            shell.send(Message(topic, b"x", **{field: "a\ud800"}))
    with pytest.raises(InvalidMessageError, match="property 'a' has a lone surrogate"):
        shell.send(Message(topic, b"x", properties={"a": "\ud800"}))
    assert shell.read(topic) == []


def test_a_submitted_list_that_is_wrong_never_leaves_and_takes_no_room(shell, target) -> None:
    topic, other = target.topic(1), target.topic(1)
    good = Message(topic, b"x")
    for wrong, why in (
        ([good, Message(topic, b"")], "message 1 of the batch: body is empty"),
        ([good, Message(other, b"x")], "a batch has one topic"),
        ([good, Message(topic, b"x", properties={"KEYS": "x"})], "'KEYS' is reserved"),
        ([good, "x"], "message is a str"),
        ([], "the batch is empty"),
    ):
        with pytest.raises(InvalidMessageError, match=why):
            shell.submit(wrong)
        assert shell.stats().in_flight == 0
    assert shell.read(topic) == []


def test_messages_of_an_iterator_are_a_batch_as_those_of_a_list(shell, target) -> None:
    topic = target.topic(1)
    for hand_over in (shell.send, shell.submit):
        hand_over(Message(topic, text) for text in ("first", "second"))
    shell.flush()
    assert [m.text for m in shell.read(topic)] == ["first", "second"] * 2


@pytest.mark.parametrize(
    "timeout",
    [0, -1, math.nan, math.inf, 1e300, "0s", "soon"],
    ids=lambda timeout: f"timeout={timeout}",
)
def test_a_timeout_that_is_none_is_refused(shell, target, timeout) -> None:
    message = Message(target.topic(1), b"x")
    for form in ("send", "submit", "send_oneway", "send_many"):
        what = [message] if form == "send_many" else message
        with pytest.raises(ConfigError, match=r"seconds"):
            getattr(shell, form)(what, timeout=timeout)


def test_a_timeout_may_be_text_as_in_settings(shell, target) -> None:
    message = Message(target.topic(1), b"x")
    assert shell.send(message, timeout="5s").status is SendStatus.OK
    assert shell.submit(message, timeout="5000ms")().status is SendStatus.OK
    shell.send_oneway(message, timeout="5")
    assert len(shell.send_many([message], timeout="5s")) == 1


def test_an_argument_that_no_selector_looks_at_is_refused(shell, target) -> None:
    message = Message(target.topic(1), b"x")
    for form in ("send", "submit", "send_oneway"):
        with pytest.raises(InvalidMessageError, match=r"argument is 42 .*give selector="):
            getattr(shell, form)(message, argument=42)


@pytest.mark.parametrize("form", ["send", "submit"])
def test_a_selector_that_takes_longer_than_the_timeout_has_nothing_sent(
    shell, target, form
) -> None:
    """Blocking sends called it maybe stored and their broker sick; submitted ones were stored."""

    def choose(queues, *_):
        time.sleep(0.3)
        return queues[0]

    topic = target.topic(1)
    sent = shell.send(Message(topic, b"first"))
    before = {name: (health.state, health.failures) for name, health in shell.health().items()}
    with pytest.raises(SendTimeoutError) as late:
        one_way_of_sending(shell, form, Message(topic, b"x"), selector=choose, timeout=0.2)
    assert late.value.outcome is Outcome.NOT_SENT
    assert late.value.attempt_count == 0
    after = {name: (health.state, health.failures) for name, health in shell.health().items()}
    assert after == before
    assert [message.message_id for message in read_all(shell, topic, 1)] == [sent.message_id]


def test_a_queue_whose_id_is_no_number_is_refused(shell, target) -> None:
    topic = target.topic(1)
    with pytest.raises(InvalidMessageError, match="queue has the id '0'"):
        shell.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", "0"))


def test_a_reader_takes_its_arguments_in_the_order_told(shell, target) -> None:
    topic = target.topic(1)
    queue = shell.send(Message(topic, b"x", tags="a")).queue
    fetched = shell.ask_reader("fetch", queue, 0, 8, 1.0)
    assert [m.body for m in fetched.messages] == [b"x"]
    names = list(inspect.signature(shell.reader.read).parameters)
    assert names[:4] == ["topic", "start", "end", "tags"]
    kind = inspect.signature(shell.reader.read).parameters["tags"].kind
    assert kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_a_reader_names_what_is_wrong(shell, target) -> None:
    topic = target.topic(1)
    result = shell.send(Message(topic, b"x"))
    for method, arguments, words in (
        ("queues", (5,), "topic is 5"),
        ("min_offset", ("q",), "queue is 'q'"),
        ("max_offset", ("q",), "queue is 'q'"),
        ("offset_for_time", (result.queue, math.nan), "moment is nan"),
        ("fetch", (result.queue, 0, 0), "max_messages is 0"),
        ("message_by_id", (None,), "message_id is None"),
        ("message_by_id", (result.message_id,), "looked up with topic="),
        ("messages_by_key", (topic, ""), "key is ''"),
    ):
        with pytest.raises(InvalidMessageError, match=words):
            shell.ask_reader(method, *arguments)
    with pytest.raises(InvalidMessageError, match="start is 'begin'"):
        shell.read(topic, start="begin")


def test_stats_and_health_tell_what_was_sent(shell, target) -> None:
    topic = target.topic()
    for _ in range(8):
        shell.send(Message(topic, b"x" * 10))
    stats = shell.stats()
    assert (stats.sent, stats.messages, stats.bytes, stats.failed) == (8, 8, 80, 0)
    assert sum(b.answers for b in stats.brokers) == 8
    health = shell.health()
    assert len(health) == 2
    assert {h.state for h in health.values()} == {"usable"}


def test_send_many_raises_what_failed_unless_a_list_is_asked_for(open_shell, target) -> None:
    shell = open_shell(send_timeout=1.0, default_topic="no-such-topic")
    good, bad = Message(target.topic(1), b"x"), Message("conformance-nowhere", b"x")
    with pytest.raises(SendManyError, match="1 of 3 messages failed, the first one: ") as caught:
        shell.send_many([good, bad, good])
    assert caught.value.failed == 1
    assert [isinstance(r, SendResult) for r in caught.value.results] == [True, False, True]
    assert caught.value.outcome is caught.value.results[1].outcome is Outcome.NOT_SENT
    results = shell.send_many([bad, good], return_errors=True)
    assert [isinstance(r, SendResult) for r in results] == [False, True]
