"""Pause, resume, seek, position, committed and stop: both shells, all clusters."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, eventually, unique_group

from rocketwire import (
    AsyncConsumer,
    ClientClosedError,
    ConfigError,
    Consumer,
    Message,
    MessageQueue,
    Producer,
    Reader,
    Retry,
)

MOMENT = 0.3


def one_queue(target, producer: Producer) -> tuple[str, MessageQueue]:
    """A topic, and the queue of it that a test uses."""
    topic = target.topic(1)
    return topic, min(producer.publish_queues(topic))


def send(producer: Producer, queue: MessageQueue, *bodies: str) -> list[Any]:
    return [producer.send(Message(queue.topic, body), queue=queue) for body in bodies]


def not_the_broker(target) -> None:
    """Skip on real brokers what they have no part in."""
    if not target.is_embedded:
        pytest.skip("the broker has no part in it")


def own(one: Any, queue: MessageQueue) -> None:
    eventually(lambda: queue in one.assignment())


def state(one: Any, queue: MessageQueue) -> str:
    return next(state.state for state in one.stats().queues if state.queue == queue)


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_a_paused_topic_hands_out_nothing_until_it_is_resumed(target, producer, member, ordered):
    topic, queue = one_queue(target, producer)
    one = member(unique_group(), topic, ordered=ordered)
    own(one, queue)
    send(producer, queue, "a")
    member.seen.wait_for_bodies({"a"})
    one.consumer.pause(topic)
    send(producer, queue, "b", "c")
    time.sleep(MOMENT)
    assert member.seen.bodies() == ["a"]
    assert state(one, queue) == "paused"
    assert one.ask("position", queue) == 1
    one.consumer.resume(topic)
    member.seen.wait_for_bodies({"b", "c"})
    assert sorted(member.seen.bodies()) == ["a", "b", "c"]
    assert state(one, queue) == "running"


def test_a_paused_queue_does_not_hold_up_others_and_its_topic_resumes_it(target, producer, member):
    not_the_broker(target)
    topic = target.topic(2)
    first, second, *_ = sorted(producer.publish_queues(topic))
    one = member(unique_group(), topic)
    own(one, first)
    one.consumer.pause(first)
    send(producer, first, "held")
    send(producer, second, "free")
    member.seen.wait_for_bodies({"free"})
    time.sleep(MOMENT)
    assert member.seen.bodies() == ["free"]
    one.consumer.resume(topic)
    member.seen.wait_for_bodies({"held"})


def test_the_last_word_about_a_queue_counts(target, producer, member):
    not_the_broker(target)
    topic = target.topic(2)
    first, second, *_ = sorted(producer.publish_queues(topic))
    one = member(unique_group(), topic)
    own(one, first)
    one.consumer.pause(topic)
    one.consumer.resume(first)
    send(producer, first, "free")
    send(producer, second, "held")
    member.seen.wait_for_bodies({"free"})
    time.sleep(MOMENT)
    assert member.seen.bodies() == ["free"]


def test_a_pause_holds_before_joining_and_for_queues_that_come_later(target, producer, member):
    """A rebalance while it is paused brings queues, and hands out nothing of them."""
    topic, group = target.topic(4), unique_group()
    queues = sorted(producer.publish_queues(topic))
    two = member(group, topic)
    one = MEMBERS[member.kind](target.name_server, group, topic, start="earliest", seen=member.seen)
    one.label = "paused"
    one.consumer.pause(topic)
    one.start()
    try:
        eventually(lambda: len(one.assignment()) == len(two.assignment()) == 4)
        two.consumer.stop()
        eventually(lambda: len(one.assignment()) == 8)
        for queue in queues:
            send(producer, queue, str(queue))
        time.sleep(MOMENT)
        assert member.seen.bodies("paused") == []
        one.consumer.resume(topic)
        member.seen.wait_for_bodies({str(queue) for queue in queues})
        assert len(member.seen.bodies("paused")) == 8
    finally:
        one.stop()


def test_what_is_held_of_a_paused_queue_goes_to_others_when_it_is_lost(target, producer, member):
    topic, group = target.topic(1), unique_group()
    queues = sorted(producer.publish_queues(topic))
    one = member(group, topic)
    for queue in queues:
        own(one, queue)
    one.consumer.pause(topic)
    for queue in queues:
        send(producer, queue, str(queue))
    member(group, topic)
    eventually(lambda: len(one.assignment()) == 1)
    (kept,) = one.assignment()
    gone = next(queue for queue in queues if queue != kept)
    member.seen.wait_for_bodies({str(gone)})
    assert member.seen.bodies() == [str(gone)]
    one.consumer.resume(kept)
    member.seen.wait_for_bodies({str(kept)})


def test_retried_messages_of_a_paused_topic_wait_and_those_of_others_do_not(
    target, producer, member
):
    (paused, held), (topic, free) = (one_queue(target, producer) for _ in range(2))
    tries: list[str] = []
    one: Any = None

    def handle(message: Any) -> Retry | None:
        tries.append(message.text)
        if message.reconsume_times:
            return None
        if message.topic == paused:
            one.consumer.pause(paused)
        return Retry(after=1.0)

    one = member(unique_group(), paused, topic, handler=handle)
    own(one, held)
    own(one, free)
    send(producer, held, "held")
    eventually(lambda: tries == ["held"])
    eventually(lambda: one.stats().retried == 1)
    send(producer, free, "free")
    eventually(lambda: tries.count("free") == 2)
    time.sleep(MOMENT)
    assert tries.count("held") == 1
    one.consumer.resume(paused)
    eventually(lambda: tries.count("held") == 2)


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_seek_goes_to_offsets_ends_and_times(target, producer, member, ordered):
    topic, queue = one_queue(target, producer)
    one = member(unique_group(), topic, ordered=ordered)
    own(one, queue)
    send(producer, queue, "a", "b")
    member.seen.wait_for_bodies({"a", "b"})
    time.sleep(0.05)
    middle = datetime.now(UTC)
    time.sleep(0.05)
    send(producer, queue, "c", "d")

    def comes(where: Any, *bodies: str) -> None:
        member.seen.wait_for_bodies({"a", "b", "c", "d"})
        eventually(lambda: one.ask("position", queue) == 4)
        before = len(member.seen.all)
        one.ask("seek", queue, where)
        eventually(lambda: len(member.seen.all) >= before + len(bodies))
        time.sleep(0.1)
        assert sorted(member.seen.bodies()[before:]) == list(bodies)

    comes(1, "b", "c", "d")
    comes("earliest", "a", "b", "c", "d")
    comes(middle, "c", "d")
    comes("latest")
    comes(3, "d")
    comes(middle - timedelta(hours=1), "a", "b", "c", "d")


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_a_handler_that_runs_during_a_seek_counts_no_more(target, producer, member, ordered):
    topic, queue = one_queue(target, producer)
    begun, go_on = threading.Semaphore(0), threading.Event()
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.text)
        begun.release()
        if message.text == "a" and not go_on.is_set():
            go_on.wait(30)

    async def wait_elsewhere(message: Any) -> None:
        await asyncio.to_thread(handle, message)

    handler = handle if member.kind == "blocking" else wait_elsewhere
    one = member(unique_group(), topic, ordered=ordered, handler=handler, commit_interval=0.1)
    own(one, queue)
    send(producer, queue, "a", "b", "c")
    assert begun.acquire(timeout=30)
    one.ask("seek", queue, 1)
    if ordered:
        time.sleep(MOMENT)
        assert seen == ["a"]  # the queue is in a handler's hand
    go_on.set()
    eventually(lambda: one.ask("committed", queue) == 3)
    before = len(seen)
    one.ask("seek", queue, "earliest")
    eventually(lambda: sorted(seen[before:]) == ["a", "b", "c"])
    eventually(lambda: one.ask("committed", queue) == 3)


def test_a_paused_queue_goes_on_where_it_was_sought(target, producer, member):
    topic, queue = one_queue(target, producer)
    one = member(unique_group(), topic)
    own(one, queue)
    send(producer, queue, "a", "b", "c")
    member.seen.wait_for_bodies({"a", "b", "c"})
    one.consumer.pause(queue)
    one.ask("seek", queue, 1)
    time.sleep(MOMENT)
    assert len(member.seen.all) == 3
    assert one.ask("position", queue) == 1
    one.consumer.resume(queue)
    eventually(lambda: sorted(member.seen.bodies()) == ["a", "b", "b", "c", "c"])


def test_committed_follows_what_is_handled(target, producer, member):
    topic, queue = one_queue(target, producer)
    one = member(unique_group(), topic, commit_interval=0.1)
    own(one, queue)
    send(producer, queue, "a", "b")
    member.seen.wait_for_bodies({"a", "b"})
    eventually(lambda: one.ask("committed", queue) == 2)
    assert one.ask("position", queue) == 2


def test_committed_is_none_where_nothing_was(target, producer, member):
    if target.is_4x:
        pytest.skip("a 4.9 broker says 0 for a new group while it still has the first message")
    topic, queue = one_queue(target, producer)
    one = member(unique_group(), topic, commit_interval=60.0)
    own(one, queue)
    assert one.ask("committed", queue) is None


def test_broadcasting_members_are_controlled_alike(target, producer, member, tmp_path):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    one = member(
        unique_group(), topic, broadcast=True, offsets_folder=str(tmp_path), commit_interval=0.1
    )
    own(one, queue)
    assert one.ask("committed", queue) in {None, 0}
    send(producer, queue, "a", "b")
    member.seen.wait_for_bodies({"a", "b"})
    eventually(lambda: one.ask("committed", queue) == 2)
    one.consumer.pause(topic)
    one.ask("seek", queue, 1)
    one.consumer.resume(topic)
    eventually(lambda: member.seen.bodies() == ["a", "b", "b"])


def test_control_refuses_what_makes_no_sense(target, producer, member):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    one = member(unique_group(), topic)
    own(one, queue)
    consumer, ask = one.consumer, one.ask
    for wrong in ("no-such-topic", queue._replace(topic="other"), 7, None):
        with pytest.raises(ConfigError, match=r"not subscribed|neither a topic"):
            consumer.pause(wrong)
        with pytest.raises(ConfigError, match=r"not subscribed|neither a topic"):
            consumer.resume(wrong)
    for where in ("first", 1.5, True, None, datetime(2026, 1, 1)):
        with pytest.raises(ConfigError, match=r"no place in a queue|no time zone"):
            ask("seek", queue, where)
    for where in (-1, 99):
        with pytest.raises(ConfigError, match=f"has no offset {where}: it begins at 0"):
            ask("seek", queue, where)
    strange = queue._replace(id=99)
    for method, args in (("seek", (strange, 0)), ("position", (strange,))):
        with pytest.raises(ConfigError, match="is not ours now"):
            ask(method, *args)
    for method, args in (("seek", (topic, 0)), ("position", (topic,)), ("committed", (topic,))):
        with pytest.raises(ConfigError, match="is no MessageQueue"):
            ask(method, *args)
    for timeout in (-1, "soon", float("nan")):
        with pytest.raises(ConfigError, match=r"timeout|span of time"):
            consumer.stop(timeout)


def test_control_of_a_consumer_that_is_no_member_says_so(target, producer):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    calls = (("seek", (queue, 0)), ("position", (queue,)), ("committed", (queue,)))
    with Consumer(target.name_server, group=unique_group()).subscribe(topic) as consumer:
        for method, args in calls:
            with pytest.raises(ClientClosedError, match="is no member of its group now"):
                getattr(consumer, method)(*args)

    async def main() -> None:
        async with AsyncConsumer(target.name_server, group=unique_group()) as consumer:
            for method, args in calls:
                with pytest.raises(ClientClosedError, match="is no member of its group now"):
                    await getattr(consumer, method)(*args)

    asyncio.run(main())


class Hanging:
    """A handler that hangs until it is let go."""

    def __init__(self, kind: str) -> None:
        self.began, self.let_go = threading.Event(), threading.Event()
        self.handler = self.block if kind == "blocking" else self.wait

    def block(self, message: Any) -> None:
        self.began.set()
        self.let_go.wait(30)

    async def wait(self, message: Any) -> None:
        self.began.set()
        while not self.let_go.is_set():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("limits", [(0.2,), (30.0, 0.2), (None, 0.1, 20.0), (0,)], ids=str)
def test_stop_waits_no_longer_than_it_says_for_a_hanging_handler(
    target, producer, member, ordered, limits, caplog
):
    """Stopping again may only shorten it."""
    if limits != (0.2,):
        not_the_broker(target)
    topic, queue = one_queue(target, producer)
    group, hanging = unique_group(), Hanging(member.kind)
    one = MEMBERS[member.kind](
        target.name_server, group, topic,
        start="earliest", handler=hanging.handler, ordered=ordered, shutdown_timeout=40,
    ).start()  # fmt: skip
    own(one, queue)
    send(producer, queue, "a")
    assert hanging.began.wait(30)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "rocketwire.consumer"):
        for limit in limits:
            one.consumer.stop(limit)
            time.sleep(0.05)
        one._thread.join(30)
    assert not one._thread.is_alive()
    assert time.monotonic() - began < 15, "it waited for the handler all the same"
    assert "a handler was still at work" in caplog.text
    hanging.let_go.set()
    one.stop()
    if not ordered:  # there the broker keeps the lock for a minute
        member(group, topic)
        member.seen.wait_for_bodies({"a"})


def test_stop_lets_a_handler_finish_within_its_time(target, producer, member):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    hanging, group = Hanging(member.kind), unique_group()
    one = member(group, topic, handler=hanging.handler, shutdown_timeout=0.1)
    own(one, queue)
    send(producer, queue, "a")
    assert hanging.began.wait(30)
    one.consumer.stop(30)
    one.consumer.stop("60s")
    time.sleep(MOMENT)
    assert one._thread.is_alive()
    hanging.let_go.set()
    one._thread.join(20)
    assert one.stats().handled == 1
    with Reader(target.name_server) as reader:
        assert reader.max_offset(queue) == 1


class Revocations:
    """Notes what is revoked, and whether it was ours at that moment."""

    def __init__(self) -> None:
        self.member: Any = None
        self.events: list[tuple[set[MessageQueue], bool]] = []

    def queues_revoked(self, event: Any) -> None:
        queues = {queue for queue in event.queues if not queue.topic.startswith("%RETRY%")}
        held = {state.queue for state in self.member.stats().queues if state.state != "leaving"}
        self.events.append((queues, queues <= held))


def test_queues_revoked_is_called_before_queues_go(target, producer, member):
    topic, group = target.topic(2), unique_group()
    told = Revocations()
    one = member(group, topic, hooks=[told])
    told.member = one
    everything = set(producer.publish_queues(topic))
    eventually(lambda: set(one.assignment()) == everything)
    two = member(group, topic)
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2)
    assert any(queues >= set(two.assignment()) and were_ours for queues, were_ours in told.events)
    left = set(one.assignment())
    one.consumer.stop()
    one._thread.join(30)
    assert told.events[-1] == (left, True), "leaving gives queues back, too"
    assert all(were_ours for _, were_ours in told.events)


def test_a_hook_that_would_wait_for_its_own_consumer_is_told_so(target, producer, member):
    not_the_broker(target)
    if member.kind == "asyncio":
        pytest.skip("a hook can't await")
    topic, _ = one_queue(target, producer)
    errors: list[BaseException] = []

    class Asking:
        def queues_revoked(self, event: Any) -> None:
            try:
                one.consumer.lag()
            except ConfigError as error:
                errors.append(error)

    one = member(unique_group(), topic, hooks=[Asking()])
    one.stop()
    assert "on another one" in str(errors[0])
