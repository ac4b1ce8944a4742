"""Settings of consumers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rocketwire import Consumer
from rocketwire.config import from_mapping
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.errors import ConfigError

NS = "127.0.0.1:9876"


def config(**options: object) -> ConsumerConfig:
    return ConsumerConfig(name_servers=NS, group="g", **options)


def test_defaults_are_javas_where_java_has_them():
    c = config()
    assert (c.start, c.ordered, c.broadcast, c.batch) == ("latest", False, False, 1)
    assert (c.commit_interval, c.rebalance_interval, c.lock_interval) == (5.0, 20.0, 20.0)
    assert (c.lock_lifetime, c.handler_timeout, c.retry_pause) == (30.0, 900.0, 1.0)
    assert (c.pull_batch, c.pull_wait, c.max_queue_messages, c.max_queue_span) == (
        32,
        15.0,
        1000,
        2000,
    )
    assert c.max_retries == 16
    assert config(max_attempts=3).max_retries == 2


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("earliest", "earliest"),
        ("Latest", "latest"),
        (datetime(2026, 1, 1, tzinfo=UTC), 1767225600.0),
        ("2026-01-01T00:00:00+00:00", 1767225600.0),
        (1767225600, 1767225600.0),
        ("1767225600.5", 1767225600.5),
    ],
)
def test_a_group_may_begin_anywhere(given, meant):
    assert config(start=given).start == meant


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": datetime(2026, 1, 1)}, "start: .* has no time zone"),
        ({"start": "yesterday"}, "start: 'yesterday' is no position: 'earliest'"),
        ({"workers": 0}, "workers is 0: it must be above zero"),
        ({"batch": 2000}, "batch is 2000: 1 to 1024"),
        ({"max_attempts": 0}, "max_attempts is 0: at least 1, or None"),
        ({"retry_pause": -1}, "retry_pause is -1.0: it can't be negative"),
        ({"pull_wait": 500}, "pull_wait is 500.0: above 0, at most 120"),
        ({"workers": "many"}, "workers: 'many' is no whole number"),
    ],
)
def test_what_is_wrong_is_named(options, words):
    with pytest.raises(ConfigError, match=words):
        config(**options)


def test_a_consumer_needs_a_group():
    with pytest.raises(ConfigError, match="group is missing: name the consumer group"):
        Consumer(NS)
    with pytest.raises(ConfigError, match="'DEFAULT_CONSUMER', which is reserved"):
        Consumer(NS, group="DEFAULT_CONSUMER")


def test_settings_come_from_mappings_and_the_environment_too():
    found = from_mapping(
        ConsumerConfig,
        {"group": "g"},
        mapping={"maxAttempts": "5", "ordered": "true"},
        environ={"NAMESRV_ADDR": NS, "ROCKETWIRE_COMMIT_INTERVAL": "500ms"},
    )
    assert (found.max_attempts, found.ordered, found.commit_interval) == (5, True, 0.5)
    assert found.name_servers == (NS,)
