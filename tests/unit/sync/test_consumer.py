"""The life of a blocking consumer: running, iterating, stopping, failing."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import eventually, unique_group

from rocketwire import (
    ClientClosedError,
    ConfigError,
    Consumer,
    InvalidMessageError,
    Message,
    Producer,
    Retry,
    TopicNotFoundError,
)
from rocketwire.embedded import EmbeddedCluster

LIMIT = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    name = unique_group().replace("group", "topic")
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def send(cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., None]]:
    with Producer(cluster.name_server, group="feeder") as producer:
        yield lambda *bodies: [producer.send(Message(topic, body)) for body in bodies]


@pytest.fixture
def consumer(cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**options: Any) -> Consumer:
        options = {"group": unique_group(), "start": "earliest"} | options
        made.append(Consumer(cluster.name_server, **options).subscribe(topic))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


def test_run_starts_and_shuts_down_by_itself(consumer, send):
    send("a", "b")
    seen = []
    one = consumer()

    def handle(message):
        seen.append(message.text)
        if len(seen) == 2:
            one.stop()

    one.run(handle)
    assert sorted(seen) == ["a", "b"]
    assert "closed" in repr(one)
    assert not [t for t in threading.enumerate() if t.name.startswith("rocketwire-handler")]
    with pytest.raises(ClientClosedError, match="was shut down"):
        one.run(handle)


def test_a_started_consumer_can_be_run_again(consumer, send):
    seen = []
    with consumer() as one:

        def handle(message):
            seen.append(message.text)
            one.stop()

        send("a")
        one.run(handle)
        send("b")
        one.run(handle)
    assert seen == ["a", "b"]


def test_stop_finishes_what_is_in_hand_and_commits_it(consumer, send, cluster, topic):
    send("slow")
    entered, group = threading.Event(), unique_group()
    one = consumer(group=group)
    done = []

    def handle(message):
        entered.set()
        threading.Event().wait(0.3)
        done.append(message.text)

    thread = threading.Thread(target=one.run, args=(handle,))
    thread.start()
    assert entered.wait(LIMIT)
    one.stop()
    thread.join(LIMIT)
    assert done == ["slow"]
    send("next")
    two = consumer(group=group)
    assert next(iter(two)).text == "next"


def test_a_stop_before_run_ends_it_at_once(consumer):
    one = consumer()
    one.stop()
    one.run(lambda _: None)


def test_a_signal_handler_may_stop_it(consumer, send):
    """The signal comes while the main thread waits, in run() and in an iteration."""
    one = consumer()
    before = signal.signal(signal.SIGALRM, lambda *_: one.stop())
    try:
        with one:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            one.run(lambda _: None)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            assert list(one) == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_exit_in_a_handler_ends_run_and_leaves_the_message(consumer, send):
    group = unique_group()
    send("fatal")
    with pytest.raises(SystemExit):
        consumer(group=group).run(lambda _: sys.exit(3))
    assert next(iter(consumer(group=group))).text == "fatal"


def test_going_on_acknowledges_and_break_does_not(consumer, send):
    group = unique_group()
    send("a", "b", "c")
    with consumer(group=group) as one:
        for message in one:
            if message.text == "b":
                break
    with consumer(group=group) as two:
        seen = []
        for message in two:
            seen.append(message.text)
            if len(seen) == 2:
                two.stop()
    assert seen == ["b", "c"]


def test_a_message_left_by_break_comes_again_in_the_next_loop(consumer, send):
    send("a", "b")
    with consumer() as one:
        first = next(iter(one))
        again = []
        for message in one:
            again.append(message.text)
            if len(again) == 2:
                one.stop()
    assert first.text == "a"
    assert again == ["a", "b"]


def test_iteration_gives_lists_where_batches_are_wanted(consumer, send):
    send("a", "b")
    seen = []
    with consumer(batch=10) as one:
        for messages in one:
            assert isinstance(messages, list)
            seen += [m.text for m in messages]
            if len(seen) == 2:
                one.stop()
    assert seen == ["a", "b"]


def test_handlers_may_be_coroutine_functions(consumer, send):
    import asyncio

    send("a")
    seen = []
    one = consumer()

    async def handle(message):
        await asyncio.sleep(0)
        seen.append(message.text)
        one.stop()

    one.run(handle)
    assert seen == ["a"]


def test_several_workers_handle_at_the_same_time(consumer, send):
    send("a", "b", "c")
    together = threading.Barrier(3)
    one = consumer(workers=3)

    def handle(_):
        together.wait(LIMIT)
        one.stop()

    one.run(handle)
    assert not together.broken


def test_the_class_of_retry_will_do(consumer, send):
    send("a")
    with consumer(ordered=True, retry_pause=0.01) as one:
        seen = []

        def handle(message):
            seen.append(message.reconsume_times)
            if len(seen) < 3:
                return Retry
            one.stop()
            return None

        one.run(handle)
    assert seen == [0, 1, 2]


def test_what_is_wrong_is_said_before_anything_begins(consumer, cluster):
    one = consumer()
    with pytest.raises(ConfigError, match="the handler is 5: give a function"):
        one.run(5)
    with pytest.raises(InvalidMessageError):
        one.subscribe("no blanks please")
    with pytest.raises(InvalidMessageError, match="tags is"):
        one.subscribe("t", " || ")
    nothing = Consumer(cluster.name_server, group="g")
    with pytest.raises(ConfigError, match="nothing is subscribed to"):
        nothing.run(print)


def test_one_client_id_is_one_member(consumer):
    group = unique_group()
    with consumer(group=group, client_id="shared") as one:
        one.join()
        with (
            consumer(group=group, client_id="shared") as two,
            pytest.raises(ConfigError, match="has a member already in client 'shared'"),
        ):
            two.join()
        one.leave()
        with consumer(group=group, client_id="shared") as three:
            assert three.join().assignment()


def test_an_unknown_topic_is_named(cluster):
    with (
        Consumer(cluster.name_server, group="g").subscribe("nowhere") as one,
        pytest.raises(TopicNotFoundError, match="topic nowhere is unknown"),
    ):
        one.run(print)


def test_a_consumer_that_runs_not_says_so(consumer):
    one = consumer()
    assert one.assignment() == ()
    assert one.client_id == ""
    with pytest.raises(ClientClosedError, match="no member of its group"):
        one.stats()
    with pytest.raises(ClientClosedError, match="was not started"):
        one.lag()
    one.shutdown()
    one.shutdown()
    with pytest.raises(ClientClosedError, match="was shut down: make a new one"):
        one.start()


def test_topics_may_be_added_and_dropped_while_it_runs(consumer, send, cluster, topic):
    other = f"{topic}-2"
    cluster.create_topic(other, 1)
    with consumer() as one:
        one.join()
        one.subscribe(other)
        eventually(lambda: {q.topic for q in one.assignment()} == {topic, other})
        one.unsubscribe(topic)
        eventually(lambda: {q.topic for q in one.assignment()} == {other})


def test_shutting_down_ends_a_run_in_another_thread(consumer, send):
    one = consumer().start()
    thread = threading.Thread(target=one.run, args=(lambda _: None,))
    thread.start()
    eventually(lambda: bool(one.assignment()))
    one.shutdown()
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_lost_consumer_warns_and_leaves_the_group(cluster, topic):
    group = unique_group()
    one = Consumer(cluster.name_server, group=group, start="earliest").subscribe(topic).join()
    thread = one._thread._thread
    with pytest.warns(ResourceWarning, match="unclosed consumer"):
        del one
    thread.join(LIMIT)
    assert not thread.is_alive()
    with Consumer(cluster.name_server, group=group).subscribe(topic) as two:
        two.join()
        assert len(two.assignment()) == 1, "the lost one has left the group"
