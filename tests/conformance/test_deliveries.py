"""Messages that a program acknowledges itself: both shells, all clusters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.conformance.members import LIMIT, TAKERS, eventually, unique_group
from tests.conformance.test_control import MOMENT, not_the_broker, one_queue, own, send

from rocketwire import (
    AsyncConsumer,
    ClientClosedError,
    ConfigError,
    Consumer,
    InvalidMessageError,
    Reader,
    TopicNotFoundError,
)
from rocketwire.wire.lazy_message import broker_property
from rocketwire.wire.properties import Property


@pytest.fixture(params=list(TAKERS))
def taker(request: pytest.FixtureRequest, target) -> Iterator[Callable[..., Any]]:
    """Starts members that take deliveries; all are stopped in the end."""
    started: list[Any] = []

    def start(group: str, *topics: str, **options: Any) -> Any:
        options = {"start": "earliest", "commit_interval": 0.1} | options
        one = TAKERS[request.param](target.name_server, group, *topics, **options).start()
        started.append(one)
        return one

    start.kind = request.param
    yield start
    for one in started:
        one.stop()


def texts(deliveries: list[Any]) -> list[str]:
    return [delivery.message.text for delivery in deliveries]


def test_acknowledged_out_of_order_nothing_is_committed_past_an_open_one(target, producer, taker):
    topic, queue = one_queue(target, producer)
    one = taker(unique_group(), topic)
    send(producer, queue, *"abcde")
    a, b, c, d, e = one.take(5)
    for delivery in (e, c, b):
        assert one.decide(delivery, "ack")
    time.sleep(MOMENT)
    assert one.ask("committed", queue) in {None, 0}
    assert one.decide(a, "ack")
    eventually(lambda: one.ask("committed", queue) == 3)
    time.sleep(MOMENT)
    assert one.ask("committed", queue) == 3
    assert one.decide(d, "ack")
    eventually(lambda: one.ask("committed", queue) == 5)
    assert one.stats().handled == 5


def test_a_delivery_may_be_acknowledged_after_the_loop_and_leaving_commits_it(
    target, producer, taker
):
    topic, queue = one_queue(target, producer)
    group = unique_group()
    one = taker(group, topic, commit_interval=60.0, shutdown_timeout=40.0)
    own(one, queue)
    send(producer, queue, *"abc")
    a, b, c = one.take(3)
    one.leave_loop()
    assert queue in one.assignment(), "it is a member as long as it lives"
    assert one.decide(a, "ack")
    assert one.decide(b, "ack")
    began = time.monotonic()
    one.stop()
    assert time.monotonic() - began < 15, "it waited for one that nobody acknowledges"
    for decide in (c.ack, c.ack, c.retry, lambda: c.dead_letter("too late")):
        with pytest.raises(ClientClosedError, match="comes again"):
            decide()
    two = taker(group, topic)
    assert texts(two.take(1)) == ["c"]


def test_breaking_out_of_the_loop_and_going_on_later_gives_the_next(target, producer, taker):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    group, seen = unique_group(), []
    send(producer, queue, *"abc")

    def blocking() -> None:
        with Consumer(target.name_server, group=group, start="earliest").subscribe(topic) as one:
            for _ in range(3):
                for delivery in one.deliveries():
                    seen.append(delivery)
                    break
            assert [delivery.ack() for delivery in reversed(seen)] == [True] * 3

    async def asynchronous() -> None:
        async with AsyncConsumer(target.name_server, group=group, start="earliest") as one:
            one.subscribe(topic)
            for _ in range(3):
                async for delivery in one.deliveries():
                    seen.append(delivery)
                    break
            for delivery in reversed(seen):
                delivery.ack()  # holds at once, awaited or not

    if taker.kind == "blocking":
        blocking()
    else:
        asyncio.run(asynchronous())
    assert texts(seen) == ["a", "b", "c"]
    two = taker(group, topic)
    send(producer, queue, "d")
    assert texts(two.take(1)) == ["d"]


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_a_delivery_that_is_retried_comes_again(target, producer, taker, ordered):
    topic, queue = one_queue(target, producer)
    one = taker(unique_group(), topic, ordered=ordered)
    own(one, queue)
    send(producer, queue, "a")
    (first,) = one.take(1)
    assert one.decide(first, "retry", 1)
    eventually(lambda: len(one.taken) == 2)
    again = one.taken[1].message
    assert (again.text, again.topic, again.reconsume_times) == ("a", topic, 1)
    assert one.decide(one.taken[1], "ack")
    eventually(lambda: one.ask("committed", queue) == 1)


def test_in_an_ordered_group_the_next_comes_when_the_one_before_is_decided(target, producer, taker):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    one = taker(unique_group(), topic, ordered=True)
    own(one, queue)
    send(producer, queue, *"abc")
    (a,) = one.take(1)
    time.sleep(MOMENT)
    assert len(one.taken) == 1
    one.decide(a, "ack")
    _, b = one.take(2)
    one.decide(b, "retry", 0.01)
    eventually(lambda: len(one.taken) == 3)
    assert texts(one.taken) == ["a", "b", "b"]
    one.decide(one.taken[-1], "ack")
    eventually(lambda: texts(one.taken) == ["a", "b", "b", "c"])


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_a_dead_letter_tells_why(target, producer, taker, ordered):
    topic, queue = one_queue(target, producer)
    group = unique_group()
    one = taker(group, topic, ordered=ordered)
    own(one, queue)
    send(producer, queue, "a", "b")
    eventually(lambda: one.taken)
    first = one.taken[0]
    with pytest.raises(InvalidMessageError, match="say in words why"):
        one.decide(first, "dead_letter", " ")
    assert one.decide(first, "dead_letter", "no such customer")
    eventually(lambda: len(one.taken) == 2)
    for delivery in one.taken[1:]:
        one.decide(delivery, "ack")
    eventually(lambda: one.ask("committed", queue) == 2)
    (dead,) = dead_letters(target, group)
    assert dead.text == first.message.text
    assert broker_property(dead, Property.ERROR) == "no such customer"
    assert one.stats().dead_lettered == 1


def dead_letters(target, group: str) -> list[Any]:
    found: list[Any] = []

    def read() -> bool:
        nonlocal found
        with Reader(target.name_server) as reader:
            try:
                found = list(reader.read(f"%DLQ%{group}"))
            except TopicNotFoundError:
                return False
        return bool(found)

    eventually(read)
    return found


def test_a_decision_holds_and_another_is_refused(target, producer, taker):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    one = taker(unique_group(), topic)
    own(one, queue)
    send(producer, queue, *"ab")
    a, b = one.take(2)
    assert one.decide(a, "ack")
    assert one.decide(a, "ack")
    for verdict, args in (("retry", ()), ("dead_letter", ("too late",))):
        with pytest.raises(ConfigError, match="was acknowledged: it can't be"):
            one.decide(a, verdict, *args)
    for after in (-1, "soon"):
        with pytest.raises(ConfigError, match=r"after|span of time"):
            one.decide(b, "retry", after)
    assert one.decide(b, "retry", 3600)
    assert one.decide(b, "retry", 3600)
    with pytest.raises(ConfigError, match="given back for a retry: it can't be acknowledged"):
        one.decide(b, "ack")
    eventually(lambda: one.ask("committed", queue) == 2)
    assert one.stats().retried == 1


def test_acknowledging_after_the_queue_was_lost_says_so(target, producer, taker):
    topic, group = target.topic(1), unique_group()
    queues = sorted(producer.publish_queues(topic))
    one = taker(group, topic, drain_timeout=0.1)
    for queue in queues:
        own(one, queue)
        send(producer, queue, str(queue))
    deliveries = {d.message.queue: d for d in one.take(2)}
    two = taker(group, topic, drain_timeout=0.1)
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 1)
    (kept,), (gone,) = one.assignment(), two.assignment()
    assert texts(two.take(1)) == [str(gone)], "what was open comes again elsewhere"
    eventually(lambda: gone not in {state.queue for state in one.stats().queues})
    assert one.decide(deliveries[gone], "ack") is False
    assert one.decide(deliveries[gone], "ack") is False
    assert one.decide(deliveries[kept], "ack")
    eventually(lambda: one.ask("committed", kept) == 1)
    assert one.ask("committed", gone) in {None, 0}
    assert two.decide(two.taken[0], "ack")
    eventually(lambda: two.ask("committed", gone) == 1)
    assert one.stats().held == 0


def test_what_is_acknowledged_when_queues_are_revoked_is_committed(target, producer, taker):
    topic, group = target.topic(1), unique_group()
    queues = sorted(producer.publish_queues(topic))

    class AckAll:
        def queues_revoked(self, event: Any) -> None:
            for delivery in one.taken:
                if delivery.message.queue in event.queues:
                    delivery.ack()

    one = taker(group, topic, commit_interval=60.0, hooks=[AckAll()])
    for queue in queues:
        own(one, queue)
        send(producer, queue, str(queue))
    one.take(2)
    two = taker(group, topic)
    eventually(lambda: len(two.assignment()) == 1)
    (gone,) = two.assignment()
    eventually(lambda: two.ask("committed", gone) == 1)
    one.stop()
    eventually(lambda: len(two.assignment()) == 2)
    send(producer, gone, "next")
    # Two members may read a queue that changes hands at once; one that looked before the commit
    # has what was acknowledged, too.
    eventually(lambda: "next" in texts(two.taken))


def test_acknowledging_after_a_seek_says_so_and_the_message_comes_again(target, producer, taker):
    topic, queue = one_queue(target, producer)
    one = taker(unique_group(), topic)
    own(one, queue)
    send(producer, queue, *"ab")
    a, _ = one.take(2)
    one.ask("seek", queue, "earliest")
    eventually(lambda: len(one.taken) == 4)
    assert one.decide(a, "ack") is False
    assert one.decide(one.taken[1], "retry") is False
    for delivery in one.taken[2:]:
        assert one.decide(delivery, "ack")
    eventually(lambda: one.ask("committed", queue) == 2)
    assert one.stats().in_hand == 0


def test_an_open_delivery_is_reported_and_not_taken_away(target, producer, taker, caplog):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    one = taker(unique_group(), topic, handler_timeout=0.2)
    send(producer, queue, "a")
    (a,) = one.take(1)
    eventually(lambda: one.stats().overdue == 1)
    time.sleep(MOMENT)
    assert one.decide(a, "ack")
    assert len(one.taken) == 1
    assert one.stats().retried == 0


def test_broadcasting_members_acknowledge_and_have_no_dead_letters(
    target, producer, taker, tmp_path
):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    one = taker(unique_group(), topic, broadcast=True, offsets_folder=str(tmp_path))
    own(one, queue)
    send(producer, queue, *"ab")
    a, b = one.take(2)
    with pytest.raises(ConfigError, match="broadcasting consumer has no dead letters"):
        one.decide(a, "dead_letter", "why")
    one.decide(b, "ack")
    assert one.decide(a, "retry", 0.01)
    eventually(lambda: len(one.taken) == 3)
    one.decide(one.taken[2], "ack")
    eventually(lambda: one.ask("committed", queue) == 2)


def test_lists_and_deliveries_do_not_go_together():
    for make in (Consumer, AsyncConsumer):
        consumer: Any = make("127.0.0.1:1", group="g", batch=8).subscribe("t")
        with pytest.raises(ConfigError, match="batch is 8"):
            consumer.deliveries()


def test_threads_acknowledge_while_the_loop_goes_on(target, producer):
    not_the_broker(target)
    topic, group = target.topic(2), unique_group()
    bodies = {str(i) for i in range(200)}
    for number, queue in enumerate(sorted(producer.publish_queues(topic))):
        send(producer, queue, *[body for body in bodies if int(body) % 4 == number])
    done: set[str] = set()
    lock = threading.Lock()
    with Consumer(target.name_server, group=group, start="earliest").subscribe(topic) as consumer:

        def work(delivery: Any) -> None:
            time.sleep(0.001)
            assert delivery.ack()
            with lock:
                done.add(delivery.message.text)
                if done == bodies:
                    consumer.stop()

        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(work, delivery) for delivery in consumer.deliveries()]
        assert all(future.result(LIMIT) is None for future in futures)
        assert consumer.stats().handled == len(futures) == 200
        assert not any(consumer.lag().values())
