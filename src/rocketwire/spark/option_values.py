"""The values of the data source's options: each from its text, or a sentence that says what is wrong.

The name of the option is put before that sentence by the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from rocketwire.columns.schema import select_columns
from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.setting_values import seconds

EARLIEST: Final = -2
LATEST: Final = -1


def parse_flag(text: str) -> bool:
    """True or false."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise ConfigError(f"{text!r} is neither true nor false")


def parse_positive(text: str) -> int:
    """A whole number above zero."""
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) == 0:
        raise ConfigError(f"{text!r} is no whole number above zero")
    return int(text)


def parse_span(text: str) -> float:
    """Seconds, from text such as ``120s`` or ``15m``."""
    value = seconds(text)
    if value <= 0:
        raise ConfigError(f"{text!r} is no time above zero, e.g. 120s or 15m")
    return value


def parse_names(text: str) -> tuple[str, ...]:
    """Names between commas, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser of one of these words."""

    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ConfigError(f"{text!r} is none of {', '.join(allowed)}")
        return text.lower()

    return parse


def parse_tags(text: str) -> tuple[str, ...] | None:
    """Tags between ``||``; None for all."""
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||") if part.strip()))
    return None if not tags or "*" in tags else tags


def parse_columns(text: str) -> tuple[str, ...]:
    """Names of read columns."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return tuple(select_columns(names).names)
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("columns: ")) from None


def parse_pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is no regular expression: {error}") from None
    return text


def parse_moment(text: str) -> int:
    """Milliseconds since 1970, from themselves or from ISO-8601 with a time zone."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no moment: give milliseconds since 1970, or ISO-8601 such as "
            "2026-01-31T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ConfigError(f"{text!r} has no time zone: add Z, or an offset such as +02:00")
    return int(moment.timestamp() * 1000)


def _json_object(text: str, shape: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{text!r} is not JSON like {shape}")
    return value


OFFSETS_SHAPE: Final = '{"topic":{"broker":{"0":23}}}'
MOMENTS_SHAPE: Final = '{"topic":{"broker":{"0":1794800000000}}}'
_ASSIGN_SHAPE: Final = '{"topic":{"broker":[0,1]}}'


def parse_offsets(text: str) -> dict[MessageQueue, int]:
    """Offsets by queue; -2 is earliest, -1 latest."""

    def check(value: object) -> str:
        if type(value) is int and value >= EARLIEST:
            return ""
        return f"{value!r} is no offset; give a number from 0, -2 for earliest or -1 for latest"

    return _by_queue(text, OFFSETS_SHAPE, check)


def parse_moments(text: str) -> dict[MessageQueue, int]:
    """Milliseconds since 1970 by queue."""

    def check(value: object) -> str:
        if type(value) is int and value >= 0:
            return ""
        return f"{value!r} is no moment; give milliseconds since 1970"

    return _by_queue(text, MOMENTS_SHAPE, check)


def _by_queue(text: str, shape: str, check: Callable[[object], str]) -> dict[MessageQueue, int]:
    found: dict[MessageQueue, int] = {}
    for topic, brokers in _json_object(text, shape).items():
        for broker, queues in _inner(brokers, text, shape).items():
            for number, value in _inner(queues, text, shape).items():
                fault = check(value) if number.isdecimal() else f"{number!r} is no queue id"
                if fault:
                    raise ConfigError(f"{topic}, {broker}, {number!r}: {fault}")
                found[MessageQueue(topic, broker, int(number))] = value
    return found


def parse_count(text: str) -> int:
    """A whole number from zero."""
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise ConfigError(f"{text!r} is no whole number from zero")
    return int(text)


def _inner(value: object, text: str, shape: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{text!r} is not JSON like {shape}")
    return value


def parse_assignment(text: str) -> tuple[MessageQueue, ...]:
    """Single queues."""
    found: list[MessageQueue] = []
    for topic, brokers in _json_object(text, _ASSIGN_SHAPE).items():
        for broker, numbers in _inner(brokers, text, _ASSIGN_SHAPE).items():
            if not isinstance(numbers, list) or not all(
                type(number) is int and number >= 0 for number in numbers
            ):
                raise ConfigError(f"{text!r} is not JSON like {_ASSIGN_SHAPE}")
            found += [MessageQueue(topic, broker, number) for number in numbers]
    if not found:
        raise ConfigError("it names no queue")
    return tuple(sorted(set(found)))


#: What brokers a topic has: names, or how many; by topic, or under an empty name for every topic.
ExpectedBrokers = Mapping[str, "tuple[str, ...] | int"]

_EXPECTED_SHAPE: Final = '{"topic":["broker-a","broker-b"],"other":2}'


def parse_expected_brokers(text: str) -> ExpectedBrokers:
    """Names between commas or in a list, or a count, for all topics; or JSON with either by topic."""
    if text.startswith("["):
        try:
            listed = json.loads(text)
        except ValueError:
            listed = None
        return {"": _brokers(listed, text)}
    if not text.startswith("{"):
        return {"": _brokers(text, text)}
    found = _json_object(text, _EXPECTED_SHAPE)
    return {topic: _brokers(value, text) for topic, value in found.items()}


def _is_number(name: str) -> bool:
    return re.fullmatch(r"[-+]?[0-9.]+", name) is not None


def _brokers(value: object, text: str) -> tuple[str, ...] | int:
    if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
        return tuple(dict.fromkeys(value))
    if type(value) is int and value > 0:
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,4}", value) and int(value) > 0:
        return int(value)
    if isinstance(value, str) and (names := parse_names(value)) and not any(map(_is_number, names)):
        return names
    raise ConfigError(
        f"{text!r}: give the names of the topic's brokers between commas, how many there are, or "
        f"JSON like {_EXPECTED_SHAPE}"
    )
