"""Consumers share queues, miss nothing, and retry what failed: both shells, all clusters."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.conformance.members import eventually, shared, unique_group

from rocketwire import Message, MessageQueue, Producer, Reader, Retry, TopicNotFoundError
from rocketwire.wire.trace_record import SubAfterRecord, SubBeforeRecord, decode_trace


def queues_of(topic: str, brokers: tuple[str, ...], count: int = 4) -> list[MessageQueue]:
    return sorted(MessageQueue(topic, broker, i) for broker in brokers for i in range(count))


def send(producer: Producer, topic: str, bodies: list[str]) -> None:
    queues = producer.publish_queues(topic)
    for number, body in enumerate(bodies):
        producer.send(Message(topic, body), queue=queues[number % len(queues)])


def send_and_see(target, producer: Producer, topic: str, bodies: list[str]) -> None:
    """Send, and wait until the ends of the queues show it.

    Apache's brokers acknowledge a message when it is in the commit log; its queue follows.
    """
    send(producer, topic, bodies)
    queues = producer.publish_queues(topic)
    with Reader(target.name_server) as reader:
        eventually(lambda: sum(map(reader.max_offset, queues)) == len(bodies))


def test_a_member_alone_gets_everything(target, producer, member):
    topic, group = target.topic(), unique_group()
    early = [f"early-{i}" for i in range(50)]
    send(producer, topic, early)
    one = member(group, topic)
    late = [f"late-{i}" for i in range(50)]
    send(producer, topic, late)
    member.seen.wait_for_bodies({*early, *late})
    assert sorted(member.seen.bodies()) == sorted([*early, *late])
    assert len(one.assignment()) == 8


def test_two_members_share_the_queues_without_overlap_or_gap(target, producer, member):
    topic, group = target.topic(), unique_group()
    one, two = member(group, topic), member(group, topic)
    everything = sorted(producer.publish_queues(topic))
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 4)
    assert shared(one, two) == everything
    bodies = [str(i) for i in range(80)]
    send(producer, topic, bodies)
    member.seen.wait_for_bodies(set(bodies))
    assert sorted(member.seen.bodies()) == sorted(bodies)
    assert member.seen.bodies("0")
    assert member.seen.bodies("1")


def test_a_member_that_leaves_hands_its_queues_over(target, producer, member):
    topic, group = target.topic(), unique_group()
    one, two = member(group, topic), member(group, topic)
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 4)
    one.consumer.stop()
    eventually(lambda: len(two.assignment()) == 8)
    bodies = [str(i) for i in range(40)]
    send(producer, topic, bodies)
    member.seen.wait_for_bodies(set(bodies))
    assert sorted(member.seen.bodies("1")) == sorted(bodies)


def test_a_restarted_group_goes_on_where_it_was(target, producer, member):
    topic, group = target.topic(), unique_group()
    send(producer, topic, [f"a{i}" for i in range(40)])
    one = member(group, topic)
    member.seen.wait_for_bodies({f"a{i}" for i in range(40)})
    one.stop()
    send(producer, topic, [f"b{i}" for i in range(40)])
    two = member(group, topic)
    member.seen.wait_for_bodies({f"b{i}" for i in range(40)})
    assert sorted(member.seen.bodies("1")) == sorted(f"b{i}" for i in range(40))
    eventually(lambda: not any(two.lag().values()))


def test_a_new_group_at_latest_gets_only_what_comes(target, producer, member):
    if target.is_4x:
        pytest.skip("a 4.9 broker says 0 for a new group while it still has the first message")
    topic, group = target.topic(), unique_group()
    send_and_see(target, producer, topic, [f"old-{i}" for i in range(16)])
    member(group, topic, start="latest")
    send(producer, topic, [f"new-{i}" for i in range(16)])
    member.seen.wait_for_bodies({f"new-{i}" for i in range(16)})
    assert sorted(member.seen.bodies()) == sorted(f"new-{i}" for i in range(16))


def test_a_queue_that_is_new_to_a_known_group_loses_nothing_at_latest(target, producer, member):
    topic, group = target.topic(2), unique_group()
    one = member(group, topic, start="latest")
    send(producer, topic, ["a", "b", "c", "d"])
    member.seen.wait_for_bodies({"a", "b", "c", "d"})
    one.stop()
    target.cluster.create_topic(topic, 4)
    with Producer(target.name_server, group="feeder-2") as fresh:
        eventually(lambda: len(fresh.publish_queues(topic)) == 8)
        send(fresh, topic, [f"wide-{i}" for i in range(8)])
    member(group, topic, start="latest")
    member.seen.wait_for_bodies({f"wide-{i}" for i in range(8)})


def test_a_new_group_can_begin_at_a_time(target, producer, member):
    topic, group = target.topic(), unique_group()
    send_and_see(target, producer, topic, [f"old-{i}" for i in range(8)])
    time.sleep(0.05)  # stored times are milliseconds: the moment must be one of its own
    moment = datetime.now(UTC)
    time.sleep(0.05)
    send(producer, topic, [f"new-{i}" for i in range(8)])
    member(group, topic, start=moment)
    member.seen.wait_for_bodies({f"new-{i}" for i in range(8)})
    assert sorted(member.seen.bodies()) == sorted(f"new-{i}" for i in range(8))


def test_tags_are_checked_by_their_text(target, producer, member):
    topic, group = target.topic(1), unique_group()
    # "Aa" and "BB" have one hash: the broker lets both through.
    for tag in ("Aa", "BB", "other", None, "C"):
        producer.send(Message(topic, str(tag), tags=tag))
    one = member(group, topic, tags="Aa || C")
    member.seen.wait_for_bodies({"Aa", "C"})
    eventually(lambda: not any(one.lag().values()))
    assert sorted(member.seen.bodies()) == ["Aa", "C"]


def test_several_topics_may_be_subscribed_to(target, producer, member):
    first, second, group = target.topic(2), target.topic(2), unique_group()
    one = member(group, first, second)
    producer.send(Message(first, "1"))
    producer.send(Message(second, "2"))
    member.seen.wait_for_bodies({"1", "2"})
    assert {q.topic for q in one.assignment()} == {first, second}


def test_a_batch_handler_gets_lists_of_one_queue(target, producer, member):
    topic, group = target.topic(2), unique_group()
    queue = producer.publish_queues(topic)[0]
    for number in range(100):
        producer.send(Message(topic, str(number)), queue=queue)
    calls: list[list[str]] = []

    def handle(messages: list[Any]) -> None:
        calls.append([m.text for m in messages])
        for message in messages:
            member.seen.add("", message)

    member(group, topic, handler=handle, batch=16, workers=1)
    member.seen.wait_for_bodies({str(i) for i in range(100)})
    assert [body for call in calls for body in call] == [str(i) for i in range(100)]
    assert max(map(len, calls)) > 1
    assert max(map(len, calls)) <= 16


def test_a_failed_message_comes_again_under_its_own_topic(target, producer, member):
    topic, group = target.topic(), unique_group()
    told = Told()

    def handle(message: Any) -> Retry | None:
        member.seen.add("", message)
        if message.text == "raises" and not message.reconsume_times:
            raise ValueError("not yet")
        if message.text == "asks" and not message.reconsume_times:
            return Retry(after=1.0)
        return None

    one = member(group, topic, handler=handle, hooks=[told])
    for body in ("fine", "raises", "asks"):
        producer.send(Message(topic, body, tags="T", keys=body, properties={"own": "x"}))
    member.seen.wait(lambda seen: sorted(seen.bodies()).count("asks") == 2)
    member.seen.wait(lambda seen: sorted(seen.bodies()).count("raises") == 2)
    again = [m for m in member.seen.messages() if m.reconsume_times]
    assert {m.text for m in again} == {"raises", "asks"}
    for message in again:
        assert message.topic == topic
        assert message.tags == "T"
        assert message.keys == message.text
        assert message.properties == {"own": "x"}
        assert message.reconsume_times == 1
        assert message.queue.topic == f"%RETRY%{group}"
    first = {m.text: m.message_id for m in member.seen.messages() if not m.reconsume_times}
    assert {m.text: m.message_id for m in again}.items() <= first.items()
    assert {e.message.text: e.after for e in told.retried_events} == {"asks": 1.0, "raises": None}
    eventually(lambda: one.stats().handled == 3)
    assert one.stats().failed == one.stats().retried == 2


def test_a_message_that_always_fails_lands_with_the_dead_letters(target, producer, member):
    topic, group = target.topic(), unique_group()
    told = Told()

    def handle(message: Any) -> Retry:
        member.seen.add("", message)
        return Retry(after=1.0)

    one = member(group, topic, handler=handle, max_attempts=2, hooks=[told])
    sent = producer.send(Message(topic, "hopeless", keys="k"))
    # Hooks are told on the consumer's thread, after it has counted.
    eventually(lambda: bool(told.dead_events))
    assert one.stats().dead_lettered == 1
    assert [m.reconsume_times for m in member.seen.messages()] == [0, 1]
    assert [e.message.text for e in told.dead_events] == ["hopeless"]
    dead = dead_letters(target, group)
    assert [m.text for m in dead] == ["hopeless"]
    assert dead[0].message_id == sent.message_id


def dead_letters(target, group: str) -> list[Any]:
    """What lies there as soon as anything does: their topic and queue follow the answer."""
    with Reader(target.name_server) as reader:
        eventually(lambda: _holds_any(reader, f"%DLQ%{group}"))
        return list(reader.read(f"%DLQ%{group}"))


def _holds_any(reader: Reader, topic: str) -> bool:
    try:
        return any(map(reader.max_offset, reader.queues(topic)))
    except TopicNotFoundError:
        return False


class Told:
    """A hook that keeps what it hears."""

    def __init__(self) -> None:
        self.assigned_queues: set[MessageQueue] = set()
        self.revoked_queues: set[MessageQueue] = set()
        self.retried_events: list[Any] = []
        self.dead_events: list[Any] = []
        self.paused_events: list[Any] = []

    def assigned(self, event: Any) -> None:
        self.assigned_queues |= set(event.queues)

    def revoked(self, event: Any) -> None:
        self.revoked_queues |= set(event.queues)

    def retried(self, event: Any) -> None:
        self.retried_events.append(event)

    def dead_lettered(self, event: Any) -> None:
        self.dead_events.append(event)

    def paused(self, event: Any) -> None:
        self.paused_events.append(event)


def test_hooks_hear_of_queues_that_come_and_go(target, producer, member):
    topic, group = target.topic(), unique_group()
    told = Told()
    one = member(group, topic, hooks=[told])
    everything = set(producer.publish_queues(topic))
    eventually(lambda: everything <= told.assigned_queues)
    two = member(group, topic)
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 4)
    eventually(lambda: set(two.assignment()) <= told.revoked_queues)


def test_every_broadcast_member_gets_everything_and_goes_on_later(
    target, producer, member, tmp_path
):
    topic, group = target.topic(), unique_group()
    options = {"broadcast": True, "offsets_folder": str(tmp_path)}
    one, two = member(group, topic, **options), member(group, topic, **options)
    bodies = [str(i) for i in range(24)]
    send(producer, topic, bodies)
    member.seen.wait(lambda seen: len(seen.all) == 48)
    assert sorted(member.seen.bodies("0")) == sorted(member.seen.bodies("1")) == sorted(bodies)
    assert len(one.assignment()) == len(two.assignment()) == 8
    one.stop()
    two.stop()
    send(producer, topic, ["more"])
    member(group, topic, **options)
    member.seen.wait_for_bodies({"more"})
    assert member.seen.bodies("2") == ["more"]


def test_ordered_messages_of_a_key_are_handled_in_their_order(target, producer, member):
    topic, group = target.topic(), unique_group()
    one = member(group, topic, ordered=True)
    two = member(group, topic, ordered=True)
    keys = [f"key-{i}" for i in range(10)]
    for number in range(20):
        for key in keys:
            producer.send(Message(topic, f"{key}:{number}", sharding_key=key))
    member.seen.wait(lambda seen: len(seen.all) >= 200)
    for key in keys:
        own = [b for b in member.seen.bodies() if b.startswith(f"{key}:")]
        assert [int(b.split(":")[1]) for b in own] == list(range(20))
    eventually(lambda: len(one.assignment()) == len(two.assignment()) == 4)


def test_an_ordered_queue_waits_for_the_message_that_failed(target, producer, member):
    topic, group = target.topic(2), unique_group()
    queues = producer.publish_queues(topic)

    def handle(message: Any) -> None:
        member.seen.add("", message)
        if message.text == "bad" and message.reconsume_times < 2:
            raise ValueError("not yet")

    member(group, topic, handler=handle, ordered=True, retry_pause=0.1)
    for body in ("before", "bad", "after"):
        producer.send(Message(topic, body), queue=queues[0])
    producer.send(Message(topic, "elsewhere"), queue=queues[1])
    member.seen.wait_for_bodies({"after", "elsewhere"})
    own = [m for m in member.seen.messages() if m.text != "elsewhere"]
    assert [m.text for m in own] == ["before", "bad", "bad", "bad", "after"]
    assert [m.reconsume_times for m in own] == [0, 0, 1, 2, 0]


def test_an_ordered_message_is_given_up_after_its_last_attempt(target, producer, member):
    topic, group = target.topic(1), unique_group()

    def handle(message: Any) -> None:
        member.seen.add("", message)
        if message.text == "bad":
            raise ValueError("never")

    queue = producer.publish_queues(topic)[0]
    one = member(group, topic, handler=handle, ordered=True, retry_pause=0.05, max_attempts=3)
    for body in ("bad", "after"):
        producer.send(Message(topic, body), queue=queue)
    member.seen.wait_for_bodies({"after"})
    assert member.seen.bodies() == ["bad", "bad", "bad", "after"]
    assert one.stats().dead_lettered == 1
    assert [m.text for m in dead_letters(target, group)] == ["bad"]


def test_a_stopped_handler_does_not_fill_the_memory(target, producer, member):
    topic, group = target.topic(2), unique_group()
    queue = producer.publish_queues(topic)[0]
    producer.send_many(Message(topic, b"x" * 100) for _ in range(10))
    for _ in range(20):
        producer.send([Message(topic, b"x" * 100) for _ in range(100)], queue=queue)
    gate, told = threading.Event(), Told()

    def handle(message: Any) -> None:
        gate.wait(60)
        member.seen.add("", message)

    if member.kind == "asyncio":

        async def wait_and_handle(message: Any) -> None:
            await asyncio.to_thread(handle, message)

    one = member(
        group,
        topic,
        handler=handle if member.kind == "blocking" else wait_and_handle,
        max_queue_messages=200,
        hooks=[told],
    )
    eventually(lambda: bool(told.paused_events))
    assert one.stats().held <= 2 * (200 + 8 * 32)
    assert "paused" in {q.state for q in one.stats().queues}
    gate.set()
    member.seen.wait(lambda seen: len(seen.all) >= 2010)
    assert len(member.seen.all) == 2010


def test_handling_is_traced_as_java_traces_it(target, producer, member):
    if not target.is_embedded:
        pytest.skip("the shared clusters of these tests have no trace topic")
    topic, group, traces = target.topic(1), unique_group(), target.topic(1)
    sent = producer.send(Message(topic, "x", keys="k"))
    one = member(group, topic, trace=traces)
    member.seen.wait_for_bodies({"x"})
    one.stop()
    (message,) = target.cluster.messages(traces)
    before, after = decode_trace(message.body)
    assert isinstance(before, SubBeforeRecord)
    assert isinstance(after, SubAfterRecord)
    assert before.message_id == after.message_id == sent.message_id
    assert before.request_id == after.request_id
    assert (before.group, before.retry_times, before.keys) == (group, 0, "k")
    assert (after.success, after.context_code, after.group) == (True, 0, group)
    assert message.keys == f"{sent.message_id} k"
