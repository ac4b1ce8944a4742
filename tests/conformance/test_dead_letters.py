"""Messages that a group gave up: why, from where, and back again. Both shells, all clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, eventually, unique_group

from rocketwire import Message, Producer, Reader, Retry, TopicNotFoundError
from rocketwire.wire.lazy_message import broker_property


@pytest.fixture(params=list(MEMBERS))
def member(request: pytest.FixtureRequest, target: Any) -> Iterator[Callable[..., Any]]:
    """Starts members of groups, which are stopped in the end."""
    started: list[Any] = []

    def start(group: str, topic: str, **options: Any) -> Any:
        kind = MEMBERS[request.param]
        one = kind(target.name_server, group, topic, **({"start": "earliest"} | options)).start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def producer(target: Any) -> Iterator[Producer]:
    with Producer(target.name_server, group="conformance-letters") as producer:
        yield producer


def stored_letters(target: Any, group: str) -> list[Any]:
    """What lies in the dead-letter topic as soon as anything does."""
    with Reader(target.name_server) as reader:
        found: list[Any] = []

        def look() -> bool:
            try:
                found[:] = reader.read(f"%DLQ%{group}")
            except TopicNotFoundError:
                return False
            return bool(found)

        eventually(look)
        return list(found)


@pytest.mark.parametrize("ordered", [False, True])
def test_the_last_return_of_a_message_tells_its_error(target, producer, member, ordered):
    topic, group = target.topic(queues=1), unique_group()

    def handle(message: Any) -> None:
        raise LookupError(f"no such order: {message.text}")

    # Large enough to be compressed: the body must come through as it was stored.
    body = "42 " * 3000
    sent = producer.send(Message(topic, body, keys="k", tags="t", properties={"own": "1"}))
    one = member(group, topic, handler=handle, max_attempts=1, ordered=ordered)
    eventually(lambda: one.stats().dead_lettered == 1)
    (letter,) = stored_letters(target, group)
    assert (letter.text, letter.keys, letter.tags) == (body, "k", "t")
    assert letter.properties == {"own": "1"}
    assert letter.message_id == sent.message_id
    assert letter.reconsume_times == 1
    assert letter.undecodable is None
    error = broker_property(letter, "ROCKETWIRE_ERROR")
    assert error is not None
    assert error.startswith("LookupError: no such order: 42 42")
    assert broker_property(letter, "RETRY_TOPIC") == topic
    assert broker_property(letter, "ORIGIN_MESSAGE_ID") == sent.offset_message_id


def test_the_dead_letter_of_a_retried_message_has_its_count_and_its_first_origin(
    target, producer, member
):
    topic, group = target.topic(queues=1), unique_group()
    sent = producer.send(Message(topic, "hopeless"))
    one = member(group, topic, handler=lambda _: Retry(after=1.0), max_attempts=2)
    eventually(lambda: one.stats().dead_lettered == 1)
    (letter,) = stored_letters(target, group)
    assert letter.reconsume_times == 2
    assert broker_property(letter, "ROCKETWIRE_ERROR") == "the handler returned Retry"
    assert broker_property(letter, "RETRY_TOPIC") == topic
    assert broker_property(letter, "ORIGIN_MESSAGE_ID") == sent.offset_message_id


def test_an_exact_retry_comes_to_the_second(target, producer, member):
    topic, group = target.topic(queues=1), unique_group()
    seen: list[tuple[float, int, str]] = []

    def handle(message: Any) -> Retry | None:
        seen.append((time.monotonic(), message.reconsume_times, message.topic))
        return None if message.reconsume_times == 2 else Retry(after=0 if len(seen) > 1 else 2)

    producer.send(Message(topic, "again"))
    one = member(group, topic, handler=handle, exact_retries=True)
    eventually(lambda: one.stats().handled == 1)
    assert [(tries, name) for _, tries, name in seen] == [(0, topic), (1, topic), (2, topic)]
    first, second, third = (moment for moment, _, _ in seen)
    if not target.is_4x:  # which has no timed messages, and takes the step
        assert 1.9 <= second - first < 4.5
    assert third - second < 4.5
