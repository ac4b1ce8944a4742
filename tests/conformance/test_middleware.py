"""Middleware around sends: both shells. What it does is not the brokers' business."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.conftest import Target
from tests.conformance.layers import Layer, for_shell
from tests.conformance.members import MEMBERS, unique_group
from tests.conformance.shells import SHELLS, read_all

from rocketwire import (
    AsyncProducer,
    ClientClosedError,
    ConfigError,
    FaultPolicy,
    InvalidMessageError,
    Message,
    Outcome,
    Producer,
    Reply,
    RocketMQError,
    SendFailedError,
    SendManyError,
    SendResult,
    SendStatus,
    TransactionState,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.message import MessageQueue


@pytest.fixture
def target(_embedded: EmbeddedCluster) -> Target:
    return Target("embedded", _embedded)


@pytest.fixture(params=list(SHELLS))
def surrounded(request: pytest.FixtureRequest, target: Target) -> Iterator[Callable[..., Any]]:
    """Opens a shell whose sends are surrounded by these layers."""
    opened: list[Any] = []

    def open_one(*layers: Layer, **options: Any) -> Any:
        middleware = [for_shell(request.param, layer) for layer in layers]
        shell = SHELLS[request.param](target.name_server, middleware=middleware, **options)
        shell.__enter__()
        opened.append(shell)
        return shell

    yield open_one
    for shell in reversed(opened):
        shell.__exit__()


def stored(topic: str) -> SendResult:
    return SendResult(SendStatus.OK, "instead", "", MessageQueue(topic, "none", 0), 7)


def stamp(message):
    return (yield message.replace(properties={**message.properties, "stamp": "yes"}))


class Recorder:
    """Notes what goes in and what comes out."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.log: list[Any] = []

    def layer(self, log: list[Any] | None = None) -> Layer:
        notes = self.log if log is None else log

        def record(message):
            notes.append(
                (self.name, "in", message.text if hasattr(message, "text") else message.body)
            )
            try:
                given = yield message
            except BaseException as error:
                notes.append((self.name, "raised", type(error).__name__))
                raise
            notes.append((self.name, "out", type(given).__name__))
            return given

        return record


def test_what_can_not_be_sent_is_refused_in_the_same_words_with_and_without(target, surrounded):
    """An empty list was an IndexError with middleware, and a wrong message its mistake."""
    good, topic = Message(target.topic(), b"x"), target.topic()
    wrong = ([], ["x"], [good, 5], [[good]], [good, Message(topic, b"")], 5, None)
    calls = ("send", "submit", "send_oneway", "send_many", "request")

    def words(shell: Any, call: str, messages: Any) -> str:
        with pytest.raises(InvalidMessageError) as caught:
            getattr(shell, call)(messages)
        return str(caught.value)

    plain, recorder = surrounded(), Recorder()
    with_one = surrounded(recorder.layer())
    for call in calls:
        for messages in wrong[1:] if call == "send_many" else wrong:
            if call == "send_many" or isinstance(messages, list):
                assert words(with_one, call, messages) == words(plain, call, messages)
    assert recorder.log == []


# -- one message -------------------------------------------------------------------------------


def test_the_first_is_the_outermost_and_each_runs_once_per_send(target, surrounded):
    log: list[Any] = []
    shell = surrounded(*(Recorder(name).layer(log) for name in "abc"))
    shell.send(Message(target.topic(), b"x"))
    assert [entry[:2] for entry in log] == [
        ("a", "in"), ("b", "in"), ("c", "in"), ("c", "out"), ("b", "out"), ("a", "out"),
    ]  # fmt: skip


def test_another_message_may_be_passed_on_in_every_way_of_sending(target, surrounded):
    shell = surrounded(stamp)
    topic = target.topic(queues=1)
    shell.send(Message(topic, "send"))
    shell.submit(Message(topic, "submit"))()
    shell.send_oneway(Message(topic, "oneway"))
    shell.send([Message(topic, "list 1"), Message(topic, "list 2")])
    shell.submit([Message(topic, "submitted 1"), Message(topic, "submitted 2")])()
    shell.send_many([Message(topic, "many 1"), Message(topic, "many 2")])
    assert shell.transact(Message(topic, "transaction")).state is TransactionState.COMMITTED
    found = read_all(shell, topic, 10)
    assert {m.text for m in found} == {
        "send", "submit", "oneway", "list 1", "list 2", "submitted 1", "submitted 2", "many 1",
        "many 2", "transaction",
    }  # fmt: skip
    assert {m.properties.get("stamp") for m in found} == {"yes"}


def test_queue_selector_and_argument_reach_the_send(target, surrounded):
    shell = surrounded(stamp)
    topic = target.topic(queues=4)
    queue = shell.publish_queues(topic)[5]
    assert shell.send(Message(topic, b"x"), queue=queue, timeout=3).queue == queue
    picked = shell.send(Message(topic, b"x"), selector=lambda q, m, a: q[a], argument=3)
    assert picked.queue == shell.publish_queues(topic)[3]


def test_what_it_gets_and_what_it_knows(target, surrounded):
    seen: list[Any] = []

    def look(message, call_next):
        result = call_next(message)
        if call_next.is_async:
            return watch(call_next, result)
        seen.append((call_next.operation, call_next.count, type(result).__name__))
        return result

    async def watch(call_next, waiting):
        result = await waiting
        seen.append((call_next.operation, call_next.count, type(result).__name__))
        return result

    for kind in SHELLS.values():
        seen.clear()
        topic = target.topic()
        with kind(target.name_server, middleware=[look]) as shell:
            shell.send(Message(topic, b"x"))
            shell.submit(Message(topic, b"x"))()
            shell.send_oneway(Message(topic, b"x"))
            shell.send([Message(topic, b"x")] * 2)
            shell.send_many([Message(topic, b"x")])
            shell.transact(Message(topic, b"x"))
        assert [entry[:2] for entry in seen] == [
            ("send", 1), ("submit", 1), ("oneway", 1), ("send", 2), ("send", 2), ("send_many", 1),
            ("transaction", 1),
        ]  # fmt: skip
        assert seen[0][2] == "SendResult"
        assert "Delivery" in seen[1][2]
        assert seen[2][2] == "NoneType"


def test_an_error_is_seen_and_may_be_answered_or_replaced(target, surrounded):
    log: list[Any] = []

    def soften(message):
        try:
            return (yield message)
        except SendFailedError as error:
            if message.tags == "soft":
                return stored(message.topic)
            raise ValueError("in other words") from error

    shell = surrounded(soften, Recorder("in").layer(log), send_timeout=1.0, retries=0)
    queue = MessageQueue(topic := target.topic(), "no-such-broker", 0)
    assert shell.send(Message(topic, b"x", tags="soft"), queue=queue).message_id == "instead"
    with pytest.raises(ValueError, match="in other words") as caught:
        shell.send(Message(topic, b"x"), queue=queue)
    assert isinstance(caught.value.__cause__, SendFailedError)
    assert log[1][1:] == ("raised", "SendFailedError")


def test_what_it_raises_the_caller_gets_and_nothing_is_sent(target, surrounded):
    def refuse(message):
        raise PermissionError("not from here")
        yield

    shell = surrounded(refuse)
    topic = target.topic(queues=1)
    for call in (shell.send, shell.submit, shell.send_oneway, shell.transact):
        with pytest.raises(PermissionError, match="not from here"):
            call(Message(topic, b"x"))
    with pytest.raises(PermissionError):
        shell.send([Message(topic, b"x")] * 3)
    assert read_all(shell, topic, 0) == []


def test_one_that_does_not_call_on_answers_itself(target, surrounded):
    def swallow(message):
        return stored(message.topic)
        yield

    shell = surrounded(swallow)
    topic = target.topic(queues=1)
    assert shell.send(Message(topic, b"x")).message_id == "instead"
    assert shell.send([Message(topic, b"x")] * 2).message_id == "instead"
    assert [r.offset for r in shell.send_many([Message(topic, b"x")] * 2)] == [7, 7]
    with pytest.raises(TypeError, match="needs its half message"):
        shell.transact(Message(topic, b"x"))
    assert read_all(shell, topic, 0) == []


def test_one_that_calls_twice_sends_twice(target, surrounded):
    def twice(message):
        yield message
        return (yield message)

    shell = surrounded(twice)
    topic = target.topic(queues=1)
    shell.send(Message(topic, b"x"))
    assert len(read_all(shell, topic, 2)) == 2
    with pytest.raises(RuntimeError, match="called twice"):
        shell.send([Message(topic, b"x")] * 2)
    with pytest.raises(RocketMQError, match="begins once"):
        shell.transact(Message(topic, b"x"))


@pytest.mark.parametrize("what", [None, "text", 5])
def test_one_that_returns_something_else_is_named(what, target, surrounded):
    def forget(message):
        yield message
        return what

    shell = surrounded(stamp, forget)
    topic = target.topic()
    with pytest.raises(TypeError, match="return what call_next gives, a SendResult"):
        shell.send(Message(topic, b"x"))
    with pytest.raises(TypeError, match="for a submit"):
        shell.submit(Message(topic, b"x"))
    with pytest.raises(TypeError):
        shell.send([Message(topic, b"x")])


@pytest.mark.parametrize("what", [None, "text", [Message("t", b"x")]])
def test_one_that_passes_no_message_on_is_told_so(what, target, surrounded):
    def change(message):
        return (yield what)

    shell = surrounded(change)
    with pytest.raises(InvalidMessageError, match="call_next takes one Message"):
        shell.send(Message(target.topic(), b"x"))
    with pytest.raises(InvalidMessageError, match="call_next takes one Message"):
        shell.send([Message(target.topic(), b"x")])


def test_it_runs_once_whatever_the_retries():
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("t", 1)
        calls: list[str] = []

        def record(message, call_next):
            calls.append("in")
            result = call_next(message)
            calls.append(f"out after {result.attempt_count}")
            return result

        with Producer(
            cluster.name_server, middleware=[record], fault=FaultPolicy.off(), retries=3
        ) as producer:
            producer.send(Message("t", b"x"))
            cluster.brokers[0].busy()
            calls.clear()
            for _ in range(4):  # round robin comes to the busy one
                producer.send(Message("t", b"x"))
        assert calls.count("in") == 4
        assert len(calls) == 8
        assert "out after 2" in calls


def test_callbacks_belong_to_what_the_caller_gets(target, surrounded):
    shell = surrounded(stamp)
    told: list[Any] = []
    shell.submit(Message(target.topic(), b"x"), on_success=told.append)()
    shell.flush()
    for _ in range(200):
        if told:
            break
        threading.Event().wait(0.01)
    assert [type(result) for result in told] == [SendResult]


def test_with_auto_batch_it_surrounds_each_submit(target, surrounded):
    shell = surrounded(stamp, auto_batch=True)
    topic = target.topic(queues=1)
    waits = [shell.submit(Message(topic, f"{n}")) for n in range(50)]
    assert len({wait().offset_message_id for wait in waits}) == 50
    assert {m.properties.get("stamp") for m in read_all(shell, topic, 50)} == {"yes"}


def test_a_request_gets_its_reply_through_it(target, surrounded):
    topic, log = target.topic(queues=1), []

    def look(message):
        reply = yield message.replace(body=b"other")
        log.append(reply.text)
        return reply

    member = MEMBERS["blocking"](
        target.name_server, unique_group(), topic, start="earliest", handler=lambda m: Reply(m.body)
    ).start()
    try:
        assert surrounded(look).request(Message(topic, b"x"), timeout=20).text == "other"
    finally:
        member.stop()
    assert log == ["other"]


def test_a_transaction_is_rolled_back_if_it_fails_after_the_half_message(target, surrounded):
    def fail(message):
        yield message
        raise KeyError("after it was stored")

    shell = surrounded(fail)
    topic = target.topic(queues=1)
    with pytest.raises(KeyError):
        shell.transact(Message(topic, b"x"))
    assert read_all(shell, topic, 0) == []


# -- several messages --------------------------------------------------------------------------


def test_all_messages_of_a_list_are_surrounded_while_it_is_under_way(target, surrounded):
    recorder = Recorder()
    shell = surrounded(recorder.layer())
    topic = target.topic(queues=1)
    result = shell.send([Message(topic, f"{n}") for n in range(100)])
    assert len(result.message_ids) == 100
    ways = [entry[1] for entry in recorder.log]
    assert ways == ["in"] * 100 + ["out"] * 100


def test_each_message_of_a_list_gets_its_own_result(target, surrounded):
    offsets: dict[bytes, int] = {}

    def note(message):
        result = yield message
        offsets[message.body] = result.offset
        return result

    shell = surrounded(note)
    topic = target.topic(queues=1)
    shell.send([Message(topic, f"{n}") for n in range(5)])
    shell.send_many([Message(topic, f"m{n}") for n in range(5)])
    found = {m.body: m.offset for m in read_all(shell, topic, 10)}
    assert offsets == found


def test_one_refused_message_stops_a_list_and_only_itself_in_send_many(target, surrounded):
    errors: list[Any] = []

    def refuse(message):
        if message.tags == "bad":
            raise PermissionError("this one")
        try:
            return (yield message)
        except SendFailedError as error:
            errors.append(error)
            raise

    shell = surrounded(refuse)
    topic = target.topic(queues=1)
    messages = [Message(topic, f"{n}", tags="bad" if n == 3 else "good") for n in range(6)]
    with pytest.raises(PermissionError, match="this one"):
        shell.send(messages)
    assert errors
    assert {(e.outcome, type(e.__cause__)) for e in errors} == {(Outcome.NOT_SENT, PermissionError)}
    assert read_all(shell, topic, 0) == []
    results = shell.send_many(messages, return_errors=True)
    assert [isinstance(r, SendResult) for r in results] == [n != 3 for n in range(6)]
    assert results[3].outcome is Outcome.NOT_SENT
    assert isinstance(results[3].__cause__, PermissionError)
    with pytest.raises(SendManyError) as caught:
        shell.send_many(messages)
    assert caught.value.failed == 1
    assert len(read_all(shell, topic, 10)) == 10


def test_a_message_that_is_left_out_of_a_list_is_not_sent(target, surrounded):
    def leave_out(message):
        if message.tags == "out":
            return stored(message.topic)
        return (yield message)

    shell = surrounded(leave_out)
    topic = target.topic(queues=1)
    result = shell.send([Message(topic, f"{n}", tags="out" if n % 2 else "in") for n in range(5)])
    assert len(result.message_ids) == 3
    assert [m.text for m in read_all(shell, topic, 3)] == ["0", "2", "4"]


def test_send_many_is_surrounded_in_windows_and_keeps_its_order(target, surrounded):
    open_now, most = 0, 0
    lock = threading.Lock()

    def count(message):
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
        result = yield message
        with lock:
            open_now -= 1
        return result

    shell = surrounded(count)
    topic = target.topic(queues=4)
    messages = [Message(topic, f"{n}", sharding_key=f"k{n % 3}") for n in range(2500)]
    results = shell.send_many(messages)
    assert len(results) == 2500
    assert (open_now, most) == (0, 1024)
    for key in range(3):
        mine = [r.offset for n, r in enumerate(results) if n % 3 == key]
        assert mine == sorted(mine)


def test_a_bad_message_in_a_later_window_stops_everything_before(target, surrounded):
    shell = surrounded(stamp)
    topic = target.topic(queues=1)
    messages = [Message(topic, b"x") for _ in range(1100)] + [Message("bad topic!", b"x")]
    with pytest.raises(InvalidMessageError):
        shell.send_many(messages)
    assert read_all(shell, topic, 0) == []


def test_after_a_failure_later_windows_do_not_send_that_key(target, surrounded, monkeypatch):
    shell = surrounded(stamp)
    topic = target.topic(queues=1)
    plain = type(shell.producer).send_many
    failure = SendFailedError("rejected: no", outcome=Outcome.REJECTED)
    asked: list[int] = []

    def blocking(self, messages, **how):
        asked.append(len(messages))
        return [
            failure if m.sharding_key == "a" else r
            for m, r in zip(messages, results(self, messages, how), strict=True)
        ]

    def results(self, messages, how):
        return plain(self, messages, **how)

    async def asynchronous(self, messages, **how):
        asked.append(len(messages))
        given = await plain(self, messages, **how)
        return [
            failure if m.sharding_key == "a" else r for m, r in zip(messages, given, strict=True)
        ]

    monkeypatch.setattr(
        type(shell.producer),
        "send_many",
        blocking if type(shell.producer) is Producer else asynchronous,
    )
    messages = [Message(topic, f"{n}", sharding_key="ab"[n % 2]) for n in range(2048)]
    found = shell.send_many(messages, return_errors=True)
    assert asked == [1024, 512]
    assert all(isinstance(r, SendFailedError) for r in found[::2])
    assert found[1024].outcome is Outcome.NOT_SENT
    assert all(isinstance(r, SendResult) for r in found[1::2])


def test_contexts_of_a_list_are_apart(target, surrounded):
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="outside")
    seen: list[tuple[bytes, str, str]] = []

    def set_it(message):
        before = current.get()
        current.set(message.body.decode())
        result = yield message
        seen.append((message.body, before, current.get()))
        return result

    shell = surrounded(set_it)
    topic = target.topic(queues=1)
    shell.send([Message(topic, f"{n}") for n in range(60)])
    assert len(seen) == 60
    assert all(before == "outside" and after == body.decode() for body, before, after in seen)


# -- life --------------------------------------------------------------------------------------


def test_a_producer_that_does_not_run_refuses_as_without_it(target):
    producer = Producer(
        target.name_server, middleware=[lambda message, call_next: call_next(message)]
    )
    message = Message(target.topic(), b"x")
    calls = (
        lambda: producer.send(message),
        lambda: producer.send([message]),
        lambda: producer.send_many([message]),
        lambda: producer.submit(message),
        lambda: producer.transaction(message),
    )
    for call in calls:
        with pytest.raises(ClientClosedError, match="was not started"):
            call()
    producer.start().shutdown()
    for call in calls:
        with pytest.raises(ClientClosedError, match="was shut down"):
            call()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("text", "middleware: 'text' is no list"),
        (5, "middleware: 5 is no list"),
        ([5], "middleware: 5 can't be called"),
        ([Recorder], "middleware: Recorder is a class"),
    ],
)
@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
def test_what_is_no_middleware_is_refused(kind, value, words):
    with pytest.raises(ConfigError, match=words):
        kind("127.0.0.1:1", middleware=value)


async def later(message, call_next):
    return await call_next(message)


def test_a_coroutine_function_around_a_blocking_producer_is_refused():
    with pytest.raises(ConfigError, match="later is a coroutine function"):
        Producer("127.0.0.1:1", middleware=[later])


def test_a_plain_function_in_asyncio_is_told_so(target):
    async def main() -> None:
        plain = [lambda message, call_next: stored(message.topic)]
        async with AsyncProducer(target.name_server, middleware=plain) as producer:
            with pytest.raises(TypeError, match="gave nothing to await"):
                await producer.send(Message("t", b"x"))

    asyncio.run(main())


def test_cancelling_reaches_every_middleware(target):
    seen: list[str] = []
    inside = asyncio.Event()

    async def hold(message, call_next):
        inside.set()
        try:
            return await call_next(message)
        except asyncio.CancelledError:
            seen.append(message.body.decode())
            raise

    async def wait(message, call_next):
        await asyncio.sleep(60)

    async def main() -> None:
        async with AsyncProducer(target.name_server, middleware=[hold, wait]) as producer:
            for given in (Message("t", b"one"), [Message("t", b"a"), Message("t", b"b")]):
                inside.clear()
                task = asyncio.create_task(producer.send(given))
                await inside.wait()
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(main())
    assert seen == ["one", "a", "b"]


def test_a_producer_of_ones_own_class_is_surrounded_too(target):
    class Mine(Producer):
        sent = 0

        def send(self, message, **how):
            self.sent += 1
            return super().send(message, **how)

    topic = target.topic(queues=1)
    names: list[str] = []

    def note(message, call_next):
        names.append(type(call_next.client).__name__)
        return call_next(message)

    with Mine(target.name_server, middleware=[note]) as producer:
        assert producer.send(Message(topic, b"x")).offset == 0
        assert producer.send.__name__ == "send"
        assert producer.sent == 1
    assert names == ["Mine"]
