"""The settings of simple consumers, in the form of ``config``; and what they may be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, SupportsIndex

from rocketwire import setting_values
from rocketwire.config import ClientConfig, check_group, option
from rocketwire.consumer_config import start_position
from rocketwire.errors import ConfigError, InvalidMessageError

#: What one call may ask for.
MOST_MESSAGES: Final = 1024
#: Twelve hours, as Apache's own clients have it.
LONGEST_INVISIBLE: Final = 12 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleConsumerConfig(ClientConfig):
    """What a simple consumer needs besides."""

    group: str = option("", str, "consumer group: its members share the messages")
    start: str | float = option(
        "latest", start_position, "where a new group begins: earliest, latest or a time"
    )

    def __post_init__(self) -> None:
        super(SimpleConsumerConfig, self).__post_init__()
        if not self.group:
            raise ConfigError("group is missing: name the consumer group, e.g. group='billing'")
        check_group(self.group)


def check_count(count: Any) -> int:
    """Refuse a number of messages that is none."""
    is_whole = isinstance(count, SupportsIndex) and not isinstance(count, bool)
    if not is_whole or not 1 <= int(count) <= MOST_MESSAGES:
        raise InvalidMessageError(f"count is {count!r}: a whole number, 1 to {MOST_MESSAGES}")
    return int(count)


def check_span(name: str, value: Any, *, least: float, most: float) -> float:
    """A span of time as seconds or text; refused outside its bounds."""
    try:
        found = setting_values.seconds(value)
    except ConfigError as error:
        raise InvalidMessageError(f"{name}: {error}") from None
    if not least <= found <= most:
        raise InvalidMessageError(f"{name} is {value!r}: give {least:g} to {most:g} seconds")
    return found


def check_receive(count: Any, wait: Any, invisible: Any) -> tuple[int, float, float]:
    """The arguments of ``receive``, as numbers.

    Raises:
        InvalidMessageError: one of them makes no sense.
    """
    return (
        check_count(count),
        check_span("wait", wait, least=0.0, most=setting_values.MAX_SECONDS),
        check_span("invisible", invisible, least=0.001, most=LONGEST_INVISIBLE),
    )
