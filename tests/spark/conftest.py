"""One Spark session, one embedded cluster and one Spark cluster for all Spark tests of a process."""

import itertools
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.spark import session
from rocketwire.sync.producer import Producer
from rocketwire.sync.reader import Reader

# Test modules are imported by path, so a neighbour is found by its folder.
sys.path.insert(0, str(Path(__file__).parent))
from standalone import StandaloneSpark

_numbers = itertools.count()


def pytest_collection_modifyitems(items):
    for item in items:
        if "/tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    # Workers are new processes, and find the package by this when it is not installed.
    source = os.path.join(os.path.dirname(__file__), "..", "..", "src")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.path.abspath(source), os.environ.get("PYTHONPATH")])
    )
    running = session(
        "tests",
        master="local[2,4]",
        memory="1g",
        fast_start=True,
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    yield running
    running.stop()


@pytest.fixture(scope="session")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="session")
def producer(cluster):
    with Producer(cluster.name_server, group="spark-tests") as running:
        yield running


@pytest.fixture(scope="session")
def reader(cluster):
    with Reader(cluster.name_server) as running:
        yield running


@pytest.fixture(scope="session")
def standalone(tmp_path_factory):
    """A master and two workers; starting them takes longer than most of what is done there."""
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def topic(cluster):
    name = f"spark-{next(_numbers)}"
    cluster.create_topic(name, queues=3)
    return name
