"""Middleware around handlers and iterations: both shells."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.conftest import Target
from tests.conformance.layers import Layer, for_shell
from tests.conformance.members import MEMBERS, unique_group

from rocketwire import (
    AsyncConsumer,
    ConfigError,
    Consumer,
    Message,
    Producer,
    Reply,
    Retry,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.middleware import install, uninstall


@pytest.fixture
def target(_embedded: EmbeddedCluster) -> Target:
    return Target("embedded", _embedded)


@pytest.fixture
def topic(target: Target) -> str:
    return target.topic(queues=1)


@pytest.fixture
def producer(target: Target) -> Iterator[Producer]:
    with Producer(target.name_server) as producer:
        yield producer


@pytest.fixture(params=list(MEMBERS))
def handle(
    request: pytest.FixtureRequest, target: Target, topic: str
) -> Iterator[Callable[..., Any]]:
    """Starts a member whose handler is surrounded by these layers."""
    started: list[Any] = []

    def start(handler: Any, *layers: Layer, **options: Any) -> Any:
        middleware = [for_shell(request.param, layer) for layer in layers]
        member = MEMBERS[request.param](
            target.name_server,
            unique_group(),
            topic,
            start="earliest",
            middleware=middleware,
            handler=handler,
            **options,
        )
        started.append(member.start())
        return member

    yield start
    for member in started:
        member.stop()


#: An ordered queue tries again by itself, without the broker's delay.
AT_ONCE = {"ordered": True, "retry_pause": 0.05}


def wait_until(condition: Callable[[], Any], limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def test_it_surrounds_each_call_of_the_handler_the_first_outermost(handle, producer, topic):
    log: list[str] = []

    def named(name: str) -> Layer:
        def layer(message):
            log.append(f"{name} in {message.text}")
            result = yield message
            log.append(f"{name} out {result}")
            return result

        return layer

    handle(lambda message: log.append(f"handled {message.text}"), named("a"), named("b"))
    producer.send(Message(topic, "x"))
    wait_until(lambda: len(log) == 5)
    assert log == ["a in x", "b in x", "handled x", "b out None", "a out None"]


def test_an_error_of_the_handler_passes_through_and_the_message_comes_again(
    handle, producer, topic
):
    seen: list[Any] = []

    def watch(message):
        try:
            return (yield message)
        except ValueError as error:
            seen.append(str(error))
            raise

    def handler(message):
        if not seen:
            raise ValueError("first time")
        seen.append("handled")

    handle(handler, watch, **AT_ONCE)
    producer.send(Message(topic, "x"))
    wait_until(lambda: len(seen) == 2)
    assert seen == ["first time", "handled"]


def test_its_own_error_is_a_failure_of_the_handler(handle, producer, topic):
    tries: list[int] = []

    def fail(message):
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("in the middleware")
        return (yield message)

    handled: list[str] = []
    handle(lambda message: handled.append(message.text), fail, **AT_ONCE)
    producer.send(Message(topic, "x"))
    wait_until(lambda: handled)
    assert len(tries) == 2


def test_one_that_does_not_call_on_is_done_with_the_message(handle, producer, topic):
    def skip(message):
        if message.tags == "skip":
            return None
        return (yield message)

    handled: list[str] = []
    member = handle(lambda message: handled.append(message.text), skip)
    for n in range(6):
        producer.send(Message(topic, f"{n}", tags="skip" if n % 2 else "take"))
    wait_until(lambda: member.stats().handled == 6)
    assert sorted(handled) == ["0", "2", "4"]


def test_one_that_calls_twice_handles_twice_and_may_pass_another_message(handle, producer, topic):
    def again(message):
        yield message
        return (yield message.replace(body=b"other"))

    handled: list[str] = []
    member = handle(lambda message: handled.append(message.text), again)
    producer.send(Message(topic, "x"))
    wait_until(lambda: member.stats().handled == 1)
    assert handled == ["x", "other"]


def test_a_retry_and_a_reply_pass_through(handle, producer, topic):
    def through(message):
        return (yield message)

    def handler(message):
        if message.tags == "again" and not message.reconsume_times:
            return Retry(after=1.0)
        return Reply(message.body)

    member = handle(handler, through)
    assert producer.request(Message(topic, "x"), timeout=20).text == "x"
    producer.send(Message(topic, "y", tags="again"))
    wait_until(lambda: member.stats().retried == 1)


def test_a_retry_that_is_forgotten_is_no_loss(handle, producer, topic, caplog):
    def forget(message):
        yield message

    tries: list[int] = []

    def handler(message):
        tries.append(message.reconsume_times)
        return Retry(after=1.0) if len(tries) == 1 else None

    handle(handler, forget, **AT_ONCE)
    producer.send(Message(topic, "x"))
    wait_until(lambda: len(tries) == 2)
    assert "returned None, but the handler returned Retry" in caplog.text


def test_one_may_say_that_all_is_well_although_the_handler_wants_a_retry(handle, producer, topic):
    def enough(message):
        yield message
        return True

    member = handle(lambda message: Retry(), enough)
    producer.send(Message(topic, "x"))
    wait_until(lambda: member.stats().handled == 1)
    assert member.stats().failed == 0


def test_with_batch_it_gets_the_list(handle, producer, topic):
    sizes: list[int] = []

    def count(messages):
        sizes.append(len(messages))
        return (yield messages)

    handled: list[str] = []
    for n in range(20):
        producer.send(Message(topic, f"{n}"))
    handle(lambda messages: handled.extend(m.text for m in messages), count, batch=8)
    wait_until(lambda: len(handled) == 20)
    assert sum(sizes) == 20
    assert max(sizes) > 1


def test_a_coroutine_function_may_handle_in_both_shells(handle, producer, topic):
    log: list[str] = []

    def note(message):
        result = yield message
        log.append("out")
        return result

    async def handler(message):
        await asyncio.sleep(0)
        log.append(message.text)

    handle(handler, note)
    producer.send(Message(topic, "x"))
    wait_until(lambda: len(log) == 2)
    assert log == ["x", "out"]


def test_a_consumer_refuses_what_is_no_middleware():
    async def later(message, call_next):
        return await call_next(message)

    for kind in (Consumer, AsyncConsumer):
        with pytest.raises(ConfigError, match="middleware: 5 can't be called"):
            kind("127.0.0.1:1", group="g", middleware=[5])
    with pytest.raises(ConfigError, match="later is a coroutine function"):
        Consumer("127.0.0.1:1", group="g", middleware=[later])


# -- iteration ---------------------------------------------------------------------------------

current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="outside")


class Loop:
    """One ``for`` over a consumer of either shell."""

    def __init__(self, shell: str, name_server: str, topic: str, *layers: Layer) -> None:
        self.shell = shell
        self.middleware = [for_shell(shell, layer) for layer in layers]
        self.how = {"group": unique_group(), "start": "earliest"}
        self.name_server = name_server
        self.topic = topic

    def run(self, body: Callable[[Any], bool]) -> None:
        """Go on while ``body`` says so."""
        if self.shell == "blocking":
            kind = Consumer(self.name_server, middleware=self.middleware, **self.how)
            with kind.subscribe(self.topic) as consumer:
                for message in consumer:
                    if not body(message):
                        break
        else:
            asyncio.run(self._run(body))

    async def _run(self, body: Callable[[Any], bool]) -> None:
        consumer = AsyncConsumer(self.name_server, middleware=self.middleware, **self.how)
        async with consumer.subscribe(self.topic):
            async for message in consumer:
                if not body(message):
                    break


@pytest.fixture(params=list(MEMBERS))
def loop(request: pytest.FixtureRequest, target: Target, topic: str) -> Callable[..., Loop]:
    return lambda *layers: Loop(request.param, target.name_server, topic, *layers)


def send(producer: Producer, topic: str, *texts: str) -> None:
    queue = producer.publish_queues(topic)[0]
    for text in texts:
        producer.send(Message(topic, text), queue=queue)


def test_in_a_loop_it_is_open_while_the_body_runs(loop, producer, topic):
    log: list[str] = []

    def around(message):
        log.append(f"open {message.text}")
        result = yield message
        log.append(f"close {message.text}")
        return result

    send(producer, topic, "1", "2", "3")
    numbers = itertools.count(1)

    def body(message):
        log.append(f"body {message.text}")
        return next(numbers) < 3

    loop(around).run(body)
    assert log == [
        "open 1", "body 1", "close 1", "open 2", "body 2", "close 2", "open 3", "body 3",
    ]  # fmt: skip


def test_in_a_loop_its_context_variables_hold_for_the_body(loop, producer, topic):
    seen: list[str] = []

    def set_it(message):
        token = current.set(message.text)
        try:
            return (yield message)
        finally:
            current.reset(token)

    def body(message):
        seen.append(current.get())
        return len(seen) < 2

    send(producer, topic, "1", "2")
    loop(set_it).run(body)
    assert seen == ["1", "2"]
    assert current.get() == "outside"


def test_a_loop_that_is_left_ends_it_and_leaves_the_message(loop, producer, topic):
    log: list[str] = []

    def around(message):
        try:
            return (yield message)
        except Exception:
            log.append("an error")
            raise
        finally:
            log.append(f"ended {message.text}")

    send(producer, topic, "1", "2")
    over = loop(around)
    over.run(lambda message: False)
    wait_until(lambda: log)
    assert log == ["ended 1"]
    again: list[str] = []
    over.run(lambda message: bool(again.append(message.text)))
    assert again == ["1"]


def test_in_a_loop_what_is_not_passed_on_is_acknowledged_unseen(loop, producer, topic):
    def skip(message):
        if message.text == "1":
            return None
        return (yield message)

    send(producer, topic, "1", "2", "3")
    over, seen = loop(skip), []
    over.run(lambda message: seen.append(message.text) or len(seen) < 2)
    assert seen == ["2", "3"]
    seen.clear()
    over.run(lambda message: bool(seen.append(message.text)))
    assert seen == ["3"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_in_a_loop_its_error_ends_the_loop_and_the_message_comes_again(when, loop, producer, topic):
    def fail(message):
        if when == "before" and message.text == "2":
            raise KeyError("no")
        result = yield message
        if when == "after" and message.text == "2":
            raise KeyError("no")
        return result

    send(producer, topic, "1", "2", "3")
    over, seen = loop(fail), []
    with pytest.raises(KeyError, match="no"):
        over.run(lambda message: seen.append(message.text) or True)
    assert seen == (["1"] if when == "before" else ["1", "2"])
    over.middleware, seen = [], []
    over.run(lambda message: bool(seen.append(message.text)))
    assert seen == ["2"]


@pytest.mark.parametrize("result", [Retry(after=1.0), Retry])
def test_in_a_loop_a_retry_is_refused_with_the_remedy(result, loop, producer, topic):
    def retry(message):
        yield message
        return result

    send(producer, topic, "1")
    with pytest.raises(TypeError, match=r"use run\(handler\)"):
        loop(retry).run(lambda message: True)


def test_in_a_loop_calling_on_twice_is_refused(loop, producer, topic):
    def twice(message):
        yield message
        return (yield message)

    send(producer, topic, "1", "2")
    with pytest.raises(RuntimeError, match="called on twice"):
        loop(twice).run(lambda message: True)


def test_no_thread_stays_behind_a_loop(loop, producer, topic):
    send(producer, topic, "1")
    loop(lambda message: (yield message)).run(lambda message: False)
    wait_until(lambda: "rocketwire-middleware" not in [t.name for t in threading.enumerate()])


# -- installed ---------------------------------------------------------------------------------


def test_what_is_installed_surrounds_every_client_made_afterwards(target, topic):
    seen: list[tuple[str, bool]] = []

    def everywhere(message, call_next):
        seen.append((call_next.operation, call_next.is_async))
        return call_next(message)

    before = Producer(target.name_server)
    install(everywhere)
    try:
        after = Producer(target.name_server)
        loops = Consumer(target.name_server, group=unique_group(), start="earliest")
    finally:
        uninstall(everywhere)
    with before, after, loops.subscribe(topic):
        before.send(Message(topic, "1"))
        after.send(Message(topic, "2"))
        next(iter(loops))
    assert seen[0] == ("send", False)
    assert ("process", False) in seen
    assert Producer(target.name_server)._config.middleware == ()
