from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketwire.embedded import EmbeddedCluster

sys.path.insert(0, str(Path(__file__).parent))

from wire_client import WireClient

_numbers = itertools.count()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster to break."""
    with EmbeddedCluster() as started:
        yield started


@pytest.fixture
def broker(cluster: EmbeddedCluster) -> Iterator[WireClient]:
    with WireClient(cluster.broker("broker-a").address) as client:
        yield client


@pytest.fixture
def name_server(cluster: EmbeddedCluster) -> Iterator[WireClient]:
    with WireClient(cluster.name_server) as client:
        yield client


@pytest.fixture(scope="session")
def shared() -> Iterator[EmbeddedCluster]:
    """A cluster that no test may break; delays and transactions are quick in it."""
    with EmbeddedCluster(
        delay_levels="0.1s 0.2s 0.3s 0.4s 0.5s",
        transaction_timeout=0.05,
        transaction_check_interval=0.1,
        transaction_check_max=3,
    ) as started:
        yield started


@pytest.fixture
def connect(shared: EmbeddedCluster) -> Iterator[Callable[[], WireClient]]:
    """Makes connections to the shared broker."""
    clients: list[WireClient] = []

    def make() -> WireClient:
        clients.append(WireClient(shared.broker("broker-a").address))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[[], WireClient]) -> WireClient:
    return connect()


@pytest.fixture
def topic(shared: EmbeddedCluster) -> str:
    """A topic of its own, with four queues."""
    name = f"topic-{next(_numbers)}"
    shared.create_topic(name, queues=4)
    return name
