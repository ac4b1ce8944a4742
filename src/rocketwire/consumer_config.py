"""The settings of consumers, in the form of ``config``: one definition for every source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rocketwire.config import (
    ClientConfig,
    _layers,
    _same,
    _trace,
    check_group,
    option,
)
from rocketwire.errors import ConfigError
from rocketwire.setting_values import MIB, flag, seconds, size, text_or_none, whole

#: A message is tried once, and sixteen times more, unless ``max_attempts`` says otherwise.
JAVA_RETRIES: Final = 16


def start_position(value: object) -> str | float:
    """Where a new group begins: ``earliest``, ``latest``, or a moment as epoch seconds.

    Raises:
        ConfigError: it is nothing of the kind.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(f"{value!r} has no time zone: say which, e.g. tzinfo=UTC")
        return value.timestamp()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    if text.lower() in {"earliest", "latest"}:
        return text.lower()
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{value!r} is no position: 'earliest', 'latest', an aware datetime, epoch seconds, "
            "or a time such as 2026-11-15T12:00:00+00:00"
        ) from None
    return start_position(moment)


def _attempts(value: object) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in {"", "none"}):
        return None
    return whole(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """What a consumer needs besides."""

    group: str = option("", str, "consumer group: its members share the queues")
    ordered: bool = option(
        False,  # noqa: FBT003
        flag,
        "one queue, one worker at a time, locked on the broker",
    )
    broadcast: bool = option(
        False,  # noqa: FBT003
        flag,
        "every member gets everything; offsets are kept in a local file",
    )
    start: str | float = option(
        "latest", start_position, "where a new group begins: earliest, latest or a time"
    )
    workers: int = option(4, whole, "handlers that run at a time: threads, or tasks")
    batch: int = option(1, whole, "messages per call; above 1 a handler gets a list")
    max_attempts: int | None = option(
        None, _attempts, "tries before the dead letters; None: 17 as in Java, ordered: no end"
    )
    exact_retries: bool = option(
        False,  # noqa: FBT003
        flag,
        "Retry(after=...) to the second, by timed messages, where brokers have them (5.x)",
    )
    retry_pause: float = option(1.0, seconds, "how long an ordered queue rests after a failure")
    allocation: Any = option(
        "average",
        _same,
        "how queues are split: average, average-by-circle, consistent-hash",
        accepts='Allocation | Literal["average", "average-by-circle", "consistent-hash"]',
    )
    pull_batch: int = option(32, whole, "messages asked for in one pull; brokers give 32 at most")
    pull_wait: float = option(15.0, seconds, "how long a broker may hold a pull that finds nothing")
    pull_timeout: float = option(10.0, seconds, "longest wait for a pull that is not held")
    pipeline: int = option(8, whole, "pulls of one queue under way at once while it is far behind")
    max_queue_messages: int = option(1000, whole, "messages held of one queue at most")
    max_queue_bytes: int = option(16 * MIB, size, "bytes of bodies held of one queue at most")
    max_queue_span: int = option(2000, whole, "distance of the last from the first unhandled")
    max_messages: int = option(10_000, whole, "messages held altogether at most")
    max_bytes: int = option(64 * MIB, size, "bytes of bodies held altogether at most")
    commit_interval: float = option(5.0, seconds, "how often offsets are committed")
    rebalance_interval: float = option(20.0, seconds, "how often queues are shared anew")
    lock_interval: float = option(20.0, seconds, "how often locks of ordered queues are renewed")
    lock_lifetime: float = option(30.0, seconds, "how long a lock is trusted after its renewal")
    handler_timeout: float = option(900.0, seconds, "a handler is reported as hung after this")
    drain_timeout: float = option(5.0, seconds, "how long a lost queue waits for its handlers")
    shutdown_timeout: float = option(10.0, seconds, "how long stopping waits for handlers")
    offsets_folder: str | None = option(
        None, text_or_none, "where broadcasting keeps its offsets", trusted=True
    )
    trace: str | None = option(None, _trace, "send message traces (True, or a trace topic)")
    middleware: tuple[Callable[..., Any], ...] = option(
        (), _layers, "functions (message, call_next) that surround each call of the handler"
    )

    def __post_init__(self) -> None:
        super(ConsumerConfig, self).__post_init__()
        if not self.group:
            raise ConfigError("group is missing: name the consumer group, e.g. group='billing'")
        check_group(self.group)
        if self.group == "DEFAULT_CONSUMER":
            raise ConfigError("group is 'DEFAULT_CONSUMER', which is reserved: choose another")
        for name in _ABOVE_ZERO:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be above zero")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ConfigError(f"max_attempts is {self.max_attempts}: at least 1, or None")
        if self.retry_pause < 0:
            raise ConfigError(f"retry_pause is {self.retry_pause}: it can't be negative")
        if not 0 < self.pull_wait <= 120:
            raise ConfigError(f"pull_wait is {self.pull_wait}: above 0, at most 120 seconds")
        if not 1 <= self.batch <= 1024:
            raise ConfigError(f"batch is {self.batch}: 1 to 1024, as in Java")

    @property
    def max_retries(self) -> int:
        """How often a message comes again at most, as brokers count."""
        return JAVA_RETRIES if self.max_attempts is None else self.max_attempts - 1


_ABOVE_ZERO: Final = (
    "workers",
    "pull_batch",
    "pull_timeout",
    "pipeline",
    "max_queue_messages",
    "max_queue_bytes",
    "max_queue_span",
    "max_messages",
    "max_bytes",
    "commit_interval",
    "rebalance_interval",
    "lock_interval",
    "lock_lifetime",
    "handler_timeout",
    "drain_timeout",
    "shutdown_timeout",
)
