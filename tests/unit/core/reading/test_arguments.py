from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketwire.core.reading import arguments as check
from rocketwire.errors import InvalidMessageError
from rocketwire.message import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


class Whole:
    """As numpy has it: no int, but one in all that counts."""

    def __index__(self) -> int:
        return 7

    def __lt__(self, other: int) -> bool:
        return other > 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("T", 0, 1, 0.0), "queue is 'T': give a MessageQueue"),
        ((QUEUE, "0", 1, 0.0), "offset is '0'"),
        ((QUEUE, True, 1, 0.0), "offset is True"),
        ((QUEUE, 1.0, 1, 0.0), r"offset is 1\.0"),
        ((QUEUE, 0, 0, 0.0), "max_messages is 0: a whole number, at least 1"),
        ((QUEUE, 0, "8", 0.0), "max_messages is '8'"),
        ((QUEUE, 0, 1, -0.1), r"wait is -0\.1: seconds, 0 or more"),
        ((QUEUE, 0, 1, math.nan), "wait is nan"),
        ((QUEUE, 0, 1, math.inf), "wait is inf"),
        ((QUEUE, 0, 1, "soon"), "wait is 'soon'"),
    ],
)
def test_a_pull_that_no_broker_could_answer_is_refused(arguments: Any, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        check.check_fetch(*arguments)


def test_numbers_that_are_no_int_will_do() -> None:
    check.check_fetch(QUEUE, Whole(), Whole(), 1)
    check.check_position({QUEUE: Whole()}, "start")


@pytest.mark.parametrize(
    ("position", "words"),
    [
        ("begin", "start is 'begin': 'earliest', 'latest'"),
        (datetime(2030, 1, 1), "start is .* without a time zone"),
        (math.nan, "start is nan: seconds since 1970"),
        (1.9e12, "start is .*not milliseconds"),
        (None, "start is None"),
        (True, "start is True"),
        ({"a": 2}, "start has 'a': 2: give offsets by MessageQueue"),
        ({QUEUE: "2"}, "give offsets by MessageQueue"),
    ],
)
def test_a_position_that_means_nothing_is_refused(position: Any, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        check.check_reading("T", position, None, follow=False)


def test_positions_that_mean_something_pass() -> None:
    moments = (datetime(2030, 1, 1, tzinfo=UTC), 1.9e9, 5)
    for position in ("earliest", "latest", *moments, {QUEUE: 2}, {}):
        check.check_reading(QUEUE, position, position, follow=False)
    assert check.epoch_of(moments[0], "moment") == 1893456000.0


@pytest.mark.parametrize("topic", ["", 5, None])
def test_what_is_no_topic_is_refused(topic: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"topic is .*: give the name of a topic"):
        check.check_reading(topic, "earliest", None, follow=False)
    with pytest.raises(InvalidMessageError, match="topic is"):
        check.check_key(topic, "k", 1)


def test_a_reading_has_one_end() -> None:
    with pytest.raises(InvalidMessageError, match="follow and end exclude one another"):
        check.check_reading("T", "earliest", "latest", follow=True)


@pytest.mark.parametrize("key", ["", None, 5])
def test_a_look_up_by_nothing_is_refused(key: Any) -> None:
    with pytest.raises(InvalidMessageError, match="key is"):
        check.check_key("T", key, 1)
    with pytest.raises(InvalidMessageError, match="message_id is"):
        check.check_id(key)
