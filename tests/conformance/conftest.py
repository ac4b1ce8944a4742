"""The suite runs over {blocking, asyncio} x {embedded, Apache RocketMQ}."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, Seen
from tests.conformance.shells import SHELLS
from tests.real import running

from rocketwire import Producer
from rocketwire.embedded import EmbeddedCluster

_names = itertools.count(1)
REAL = ("4.9.7", "5.3.3")


class Target:
    """A cluster to send to."""

    def __init__(self, name: str, cluster: Any) -> None:
        self.name = name
        self.cluster = cluster
        self.name_server: str = cluster.name_server
        self.is_embedded = name == "embedded"

    @property
    def is_4x(self) -> bool:
        return self.name.startswith("4")

    def topic(self, queues: int = 4, **how: Any) -> str:
        name = f"conf-{os.getpid()}-{next(_names)}"
        self.cluster.create_topic(name, queues, **how)
        return name


@pytest.fixture(scope="session")
def _embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster
        assert cluster.clock.ahead == 0, "a test put the clock forward that all tests share"


@pytest.fixture(
    params=[
        "embedded",
        *(pytest.param(v, marks=[pytest.mark.real, pytest.mark.timeout(600)]) for v in REAL),
    ]
)
def target(request: pytest.FixtureRequest) -> Target:
    """Two brokers, shared by all tests; topics keep them apart."""
    if request.param == "embedded":
        return Target("embedded", request.getfixturevalue("_embedded"))
    return Target(request.param, running.cluster(request.param))


@pytest.fixture(params=list(SHELLS))
def open_shell(request: pytest.FixtureRequest, target: Target) -> Iterator[Callable[..., Any]]:
    """Opens a shell on the target, with options; all are closed in the end."""
    opened: list[Any] = []

    def open_one(**options: Any) -> Any:
        shell = SHELLS[request.param](target.name_server, **options)
        shell.__enter__()
        opened.append(shell)
        return shell

    yield open_one
    for shell in reversed(opened):
        shell.__exit__()


@pytest.fixture
def shell(open_shell: Callable[..., Any]) -> Any:
    """A shell with default settings."""
    return open_shell()


@pytest.fixture
def producer(target: Target) -> Iterator[Producer]:
    with Producer(target.name_server, group="feeder") as producer:
        yield producer


@pytest.fixture(params=list(MEMBERS))
def member(request: pytest.FixtureRequest, target: Target) -> Iterator[Callable[..., Any]]:
    """Starts members of consumer groups; all are stopped in the end."""
    started: list[Any] = []

    def start(group: str, *topics: str, **options: Any) -> Any:
        options = {"start": "earliest", "seen": seen, "label": str(len(started))} | options
        one = MEMBERS[request.param](target.name_server, group, *topics, **options).start()
        started.append(one)
        return one

    seen = Seen()
    start.seen, start.kind = seen, request.param
    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="session", autouse=True)
def _close_real_clusters() -> Iterator[None]:
    yield
    running.close()
