"""Clusters and foreign clients started once per test process and shared by all its tests.

Starting a cluster costs more than most tests, so tests share one per release and keep out of each
other's way by the names of their topics and groups. A test that breaks a cluster starts its own.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.real import jars
from tests.real.apache import ApacheCluster

T = TypeVar("T")

DELAYS = "1s 2s 2s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""As by default, but for the third: the first retry of a consumer waits for that one."""

_LIMIT = 600
_names = itertools.count(1)
_stack = ExitStack()
_started: dict[str, Any] = {}


def shared(key: str, make: Callable[[], AbstractContextManager[T]], *, revive: bool = True) -> T:
    """What ``make`` gives, entered at the first call with this key and left when the run ends.

    A cluster or client that has died in the meantime is made anew: the test in which it died has
    failed and told why, and all that follow would only fail after it. Without ``revive`` it is not,
    for tests that end servers themselves.
    """
    if key not in _started or (revive and not getattr(_started[key], "alive", True)):
        _started[key] = _stack.enter_context(make())
    found: T = _started[key]
    return found


def cluster(version: str) -> ApacheCluster:
    """The shared plain cluster of ``version``: two brokers, nothing secured."""
    jars.require_tools(version)
    overrides = {"messageDelayLevel": DELAYS, "recallMessageEnable": "true"}
    return shared(
        f"cluster-{version}", lambda: ApacheCluster(version, brokers=2, overrides=overrides)
    )


def unique(word: str) -> str:
    """A topic or group name no other test uses, nor another worker on the same cluster."""
    return f"{word}-{os.getpid()}-{next(_names)}"


def close() -> None:
    """End everything shared; called when the run ends, and harmless a second time."""
    _started.clear()
    _stack.close()


def reports() -> Sequence[tuple[str, str]]:
    """The end of the output of every running cluster."""
    found = [each for each in _started.values() if isinstance(each, ApacheCluster)]
    return [(f"Apache RocketMQ {each.version}", each.report()) for each in found]


def mark(items: Sequence[pytest.Item], folder: Path, marker: str) -> None:
    """Give the tests below ``folder`` their marker and a long limit.

    The first test to need a release waits for its jars, which may have to be downloaded.
    """
    for item in items:
        if not item.path.is_relative_to(folder):
            continue
        item.add_marker(getattr(pytest.mark, marker))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LIMIT))
