"""The settings of an embedded broker, checked before anything is started."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

from rocketwire.embedded.store import StoreSizes
from rocketwire.embedded.store.disk import Disk
from rocketwire.errors import ConfigError

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULT_DELAYS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def parse_delays(text: str) -> tuple[int, ...]:
    """Delay levels in milliseconds, from Apache's notation.

    >>> parse_delays("1s 5m")
    (1000, 300000)
    """
    found = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        if unit not in _UNITS or not number.replace(".", "", 1).isdigit():
            raise ConfigError(f"delay_levels has {word!r}: write levels like '1s 5s 1m 2h'")
        found.append(int(float(number) * _UNITS[unit]))
    if not found:
        raise ConfigError("delay_levels is empty: give at least one, like '1s'")
    return tuple(found)


class BrokerSettings(TypedDict, total=False):
    """The same for type checkers: what ``EmbeddedCluster`` passes on; a test compares them."""

    cluster: str
    region: str
    flush_interval: float
    sizes: StoreSizes
    max_message_size: int
    delay_levels: str
    pull_messages: int
    pull_bytes: int
    held_pulls: int
    property_filter: bool
    retry_topic_v2: bool
    retention: float | None
    retention_bytes: int | None
    disk_limit: int | None
    transaction_timeout: float
    transaction_check_interval: float
    transaction_check_max: int
    register_interval: float
    make_disk: Callable[[], Disk] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """How a broker behaves. Times are in seconds.

    Attributes:
        cluster: the name of its cluster.
        region: what stored messages say under ``MSG_REGION``.
        queues: of the default topic, and so of topics that sends make.
        auto_create_topics: whether sends to unknown topics make them.
        flush: ``"async"`` acknowledges once the kernel has the message, ``"sync"`` once the
            medium has it.
        flush_interval: between two flushes of everything.
        sizes: of store files.
        max_message_size: of a body.
        delay_levels: in Apache's notation.
        pull_messages: given in one answer at most.
        pull_bytes: likewise.
        held_pulls: pulls that may wait at one time.
        property_filter: whether consumers may filter by SQL92; Apache's ``enablePropertyFilter``,
            which is off there by default.
        retry_topic_v2: whether messages that were not acknowledged go to retry topics of the new
            name, ``%RETRY%group+topic``; both names are read.
        retention: age at which log files are deleted; None keeps them.
        retention_bytes: log files are deleted beyond this; None keeps them.
        disk_limit: bytes after which the disk counts as full; None for the real limit.
        transaction_timeout: age at which a half message is checked first.
        transaction_check_interval: between two checks.
        transaction_check_max: checks before a half message is given up.
        register_interval: between two registrations with the name servers.
        make_disk: makes what writes to store files; for tests that tear writes.
    """

    cluster: str = "DefaultCluster"
    region: str = "DefaultRegion"
    queues: int = 4
    auto_create_topics: bool = True
    flush: Literal["async", "sync"] = "async"
    flush_interval: float = 0.5
    sizes: StoreSizes = field(default_factory=StoreSizes)
    max_message_size: int = 4 * 1024 * 1024
    delay_levels: str = DEFAULT_DELAYS
    pull_messages: int = 32
    pull_bytes: int = 256 * 1024
    held_pulls: int = 10_000
    property_filter: bool = True
    retry_topic_v2: bool = False
    retention: float | None = 72 * 3600.0
    retention_bytes: int | None = None
    disk_limit: int | None = None
    transaction_timeout: float = 6.0
    transaction_check_interval: float = 30.0
    transaction_check_max: int = 15
    register_interval: float = 10.0
    make_disk: Callable[[], Disk] | None = None

    def __post_init__(self) -> None:
        if self.flush not in {"async", "sync"}:
            raise ConfigError(f"flush is {self.flush!r}: give 'async' or 'sync'")
        if not 1 <= self.queues <= 1024:
            raise ConfigError(f"queues is {self.queues}: give 1 to 1024")
        check_name("cluster", self.cluster)
        for name in ("flush_interval", "transaction_check_interval", "register_interval"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: give more than 0 seconds")
        parse_delays(self.delay_levels)


def check_name(what: str, name: str) -> None:
    """Refuse names that can't be topics and folders, which those of brokers and clusters are."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} is {name!r}: give 1 to 127 letters, digits, '%', '|', '_' or '-'"
        )
