from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketwire.embedded import EmbeddedCluster

sys.path.insert(0, str(Path(__file__).parent))

from wire_client import WireClient


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
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
