"""Requests that are answered with a message: both shells on both sides, all clusters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, unique_group
from tests.conformance.shells import SHELLS

from rocketwire import (
    AsyncProducer,
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    Message,
    Outcome,
    Producer,
    Reader,
    Reply,
    ReplyTimeoutError,
    RocketMQError,
    SendFailedError,
)
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture(params=list(MEMBERS))
def serve(request: pytest.FixtureRequest, target: Any) -> Iterator[Callable[..., Any]]:
    """Starts a member that answers requests to a topic."""
    started: list[Any] = []

    def start(topic: str, handler: Callable[[Any], Any], **options: Any) -> Any:
        kind, group = MEMBERS[request.param], unique_group()
        options = {"start": "earliest", "handler": handler} | options
        member = kind(target.name_server, group, topic, **options)
        started.append(member.start())
        return member

    yield start
    for member in started:
        member.stop()


def test_a_handler_answers_with_a_reply(target, shell, serve):
    topic = target.topic(queues=2)
    member = serve(topic, lambda m: Reply(m.body[::-1], properties={"to": m.keys}))
    for number in range(3):
        reply = shell.request(Message(topic, f"ab{number}", keys=f"k{number}"), timeout=20)
        assert reply.text == f"{number}ba"
        assert reply.properties == {"to": f"k{number}"}
        assert reply.topic.endswith("_REPLY_TOPIC")
        assert reply.message_id
    deadline = time.monotonic() + 10
    while member.stats().replies < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (member.stats().replies, member.stats().failed_replies) == (3, 0)


def test_a_handler_answers_by_the_message(target, shell, serve):
    topic = target.topic(queues=1)
    serve(topic, lambda m: m.reply("yes: " + m.text, {"a": "b"}))
    reply = shell.request(Message(topic, "x"), timeout=20)
    assert (reply.text, reply.properties) == ("yes: x", {"a": "b"})


def test_batch_handlers_answer_each(target, shell, serve):
    topic = target.topic(queues=1)
    serve(topic, lambda given: [m.reply(m.text.upper()) for m in given], batch=4)
    assert shell.request(Message(topic, "x"), timeout=20).text == "X"


def test_a_hundred_requests_at_once(target, shell, serve):
    topic = target.topic(queues=4)
    serve(topic, lambda m: Reply(m.text + "!"))
    shell.request(Message(topic, "first"), timeout=20)
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(shell.request, Message(topic, f"{n}"), timeout=30) for n in range(100)]
        assert [one.result(60).text for one in asked] == [f"{n}!" for n in range(100)]


def test_no_reply_says_that_the_request_was_stored(target, shell):
    topic = target.topic()
    with pytest.raises(ReplyTimeoutError, match="the request was stored") as caught:
        shell.request(Message(topic, "x"), timeout=1.0)
    assert caught.value.outcome is Outcome.STORED
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, RocketMQError)


def test_late_replies_are_counted_and_not_delivered(target, shell, serve):
    topic = target.topic(queues=1)
    go_on = threading.Event()

    def slow(message: Any) -> Reply:
        if message.text == "slow":
            go_on.wait(20)
        return Reply(message.text)

    serve(topic, slow)
    with pytest.raises(ReplyTimeoutError):
        shell.request(Message(topic, "slow"), timeout=2.0)
    before = shell.stats().late_replies
    go_on.set()
    assert shell.request(Message(topic, "next"), timeout=20).text == "next"
    deadline = time.monotonic() + 10
    while shell.stats().late_replies == before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert shell.stats().late_replies == before + 1


def test_a_reply_that_can_not_be_sent_is_counted_and_the_handler_not_run_again(
    target, shell, serve, caplog
):
    topic = target.topic(queues=1)
    seen = []

    def handler(message: Any) -> Reply:
        seen.append(message.text)
        return Reply("to nobody")

    member = serve(topic, handler)
    shell.send(Message(topic, "no request"))
    deadline = time.monotonic() + 20
    # It is counted first and told then.
    while "it answers no request" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.02)
    assert member.stats().failed_replies == 1
    assert "it answers no request" in caplog.text
    time.sleep(0.3)
    assert seen == ["no request"]
    assert member.stats().failed == 0


@pytest.mark.parametrize("given", [None, "text", [Message("t", "x")]])
def test_only_one_message_is_a_request(shell, given):
    with pytest.raises(InvalidMessageError, match="one Message"):
        shell.request(given)


def test_bad_input_is_told_before_anything_is_sent(shell):
    with pytest.raises(InvalidMessageError, match="can't be delayed"):
        shell.request(Message("t", "x", delay_level=1))
    with pytest.raises(ConfigError, match="timeout is 0"):
        shell.request(Message("t", "x"), timeout=0)
    with pytest.raises(InvalidMessageError, match="topic"):
        shell.request(Message("a b", "x"))
    with pytest.raises(InvalidMessageError, match="body"):
        Reply(5)  # type: ignore[arg-type]


def test_a_client_without_a_background_can_not_ask():
    with (
        Producer("127.0.0.1:1", background=False) as producer,
        pytest.raises(ConfigError, match="request needs background=True"),
    ):
        producer.request(Message("t", "x"))
    with pytest.raises(ClientClosedError):
        Producer("127.0.0.1:1").request(Message("t", "x"))
    with pytest.raises(ClientClosedError):
        asyncio.run(AsyncProducer("127.0.0.1:1").request(Message("t", "x")))


@pytest.mark.parametrize("name", SHELLS)
def test_broken_brokers(name):
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        with SHELLS[name](cluster.name_server) as shell:
            (broker,) = cluster.brokers
            broker.hang(topic="t")
            with pytest.raises(ReplyTimeoutError, match="may be stored") as caught:
                shell.request(Message("t", "x"), timeout=0.5)
            assert caught.value.outcome is Outcome.MAYBE_STORED
            broker.heal()
            broker.kill()
            # The first may still meet the connection of before, which nobody has seen end yet.
            with pytest.raises((SendFailedError, ReplyTimeoutError)):
                shell.request(Message("t", "x"), timeout=0.5)
            with pytest.raises((SendFailedError, ReplyTimeoutError)) as failed:
                shell.request(Message("t", "x"), timeout=0.5)
            assert failed.value.outcome is Outcome.NOT_SENT


@pytest.mark.parametrize("threads", [1, 20], ids=["one", "many"])
def test_a_shutdown_tells_threads_that_wait_for_replies(threads: int):
    """They waited for all of their time, for what could not come any more."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        producer = Producer(cluster.name_server).start()
        with ThreadPoolExecutor(threads) as pool:
            asked = [
                pool.submit(producer.request, Message("t", f"{n}"), timeout=100)
                for n in range(threads)
            ]
            wait_until_stored(cluster, threads)
            producer.shutdown()
            for one in asked:
                error = one.exception(20)
                assert isinstance(error, ClientClosedError)
                assert "before a reply came: the request was stored" in str(error)


def test_a_shutdown_tells_tasks_that_wait_for_replies():
    async def main(cluster: EmbeddedCluster) -> None:
        producer = await AsyncProducer(cluster.name_server).start()
        asked = [
            asyncio.ensure_future(producer.request(Message("t", f"{n}"), timeout=100))
            for n in range(3)
        ]
        await asyncio.to_thread(wait_until_stored, cluster, 3)
        await producer.shutdown()
        for found in await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20):
            assert isinstance(found, ClientClosedError)

    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        asyncio.run(main(cluster))


def wait_until_stored(cluster: EmbeddedCluster, count: int) -> None:
    deadline = time.monotonic() + 20
    with Reader(cluster.name_server) as reader:
        while len(list(reader.read("t"))) < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    time.sleep(0.1)  # the answers are on their way


@pytest.mark.parametrize("name", SHELLS)
def test_properties_that_leave_no_room_for_those_of_a_request_are_refused(name: str):
    with EmbeddedCluster() as cluster, SHELLS[name](cluster.name_server) as shell:
        cluster.create_topic("t", 1)
        large = Message("t", "x", properties={"p": "v" * 32_650})
        with pytest.raises(InvalidMessageError, match="those of the request included"):
            shell.request(large)
