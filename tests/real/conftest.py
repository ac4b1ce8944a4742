"""Fixtures of the tests against Apache RocketMQ, and what every such test is marked with."""

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# Test modules are imported by file, not by package; the harness is imported by name from everywhere.
_ROOT = str(Path(__file__).parents[2])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.interop.driver import JavaDriver  # noqa: E402  (needs the path above)
from tests.real import jars, running, settings  # noqa: E402
from tests.real.apache import ApacheCluster  # noqa: E402
from tests.real.grpc_proxy import GrpcProxy, grpc_proxy  # noqa: E402
from tests.real.settings import ADMIN, WRITER, TlsFiles  # noqa: E402

#: Masters that die and come back, proxies with keys, and whole pages take minutes: ``make test-full``.
_SLOW = [
    "test_replicas.py",
    "test_controller.py",
    "test_secured_proxy.py",
    "test_operators_walk.py",
]
collect_ignore = [] if os.environ.get("ROCKETWIRE_REPLICAS") else _SLOW


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    running.mark(items, Path(__file__).parent, "real")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.get_closest_marker("real") is not None:
        report.sections.extend(running.reports())
    return report


@pytest.fixture(scope="session", autouse=True)
def _shared_until_the_end() -> Iterator[None]:
    yield
    running.close()


@pytest.fixture(params=["4.9.7", "5.3.3"])
def version(request: pytest.FixtureRequest) -> str:
    """The releases every test runs against; the newest is tried in ``test_newest.py``."""
    jars.require_tools(request.param)
    return str(request.param)


@pytest.fixture
def cluster(version: str) -> ApacheCluster:
    return running.cluster(version)


@pytest.fixture
def java(version: str) -> JavaDriver:
    return running.shared(f"java-{version}", lambda: JavaDriver(version))


@pytest.fixture
def topic(cluster: ApacheCluster) -> str:
    """A topic of its own with four queues on each broker."""
    name = running.unique("topic")
    cluster.create_topic(name)
    return name


@pytest.fixture
def proxy() -> GrpcProxy:
    """A proxy of RocketMQ 5 before the shared cluster."""
    release = "5.3.3"
    jars.require_tools(release, jars.PROXY_POM)
    return running.shared(f"proxy-{release}", lambda: grpc_proxy(running.cluster(release)))


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return settings.make_tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def guarded(version: str) -> ApacheCluster:
    """A cluster with ACL."""
    # Through a proxy one topic takes all types of messages only so.
    mixed = {"enableMixedMessageType": "true"}
    return running.shared(
        f"acl-{version}",
        lambda: ApacheCluster(version, brokers=1, acl=[ADMIN, WRITER], overrides=mixed),
    )


@pytest.fixture
def encrypted(version: str, tls_files: TlsFiles) -> ApacheCluster:
    """A cluster that insists on TLS and on the client's certificate."""
    return running.shared(
        f"tls-{version}",
        lambda: ApacheCluster(version, brokers=1, tls=tls_files, mutual_tls=True),
    )
