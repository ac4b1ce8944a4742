"""What a foreign client is let loose on: our embedded cluster, or Apache's as the control.

Every scenario of this folder runs on both where it can. What holds on Apache and not on the embedded
cluster is a bug of the embedded cluster; what fails on both is a bug of the test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.interop.driver import Driver, GoDriver, JavaDriver, require_go
from tests.real import jars, running
from tests.real.apache import ApacheCluster
from tests.real.frames import ask

from rocketwire.embedded import EmbeddedCluster


class Target(Protocol):
    """The part of a cluster that the scenarios need."""

    label: str
    cluster_name: str

    @property
    def name_server(self) -> str: ...

    @property
    def addresses(self) -> dict[str, str]:
        """Broker name to address."""
        ...

    def create_topic(self, topic: str, queues: int = 4) -> None: ...


@dataclass
class EmbeddedTarget:
    cluster: EmbeddedCluster
    label: str = "embedded"
    cluster_name: str = "DefaultCluster"

    @property
    def name_server(self) -> str:
        return self.cluster.name_server

    @property
    def addresses(self) -> dict[str, str]:
        return {broker.name: broker.address for broker in self.cluster.brokers}

    def create_topic(self, topic: str, queues: int = 4) -> None:
        self.cluster.create_topic(topic, queues)


@dataclass
class ApacheTarget:
    cluster: ApacheCluster
    label: str = "apache"
    cluster_name: str = "RocketwireCluster"

    @property
    def name_server(self) -> str:
        return self.cluster.name_server

    @property
    def addresses(self) -> dict[str, str]:
        return {broker.name: broker.address for broker in self.cluster.brokers}

    def create_topic(self, topic: str, queues: int = 4) -> None:
        self.cluster.create_topic(topic, queues)


def embedded() -> EmbeddedTarget:
    """The shared embedded cluster, with the same delays and checks as the shared real ones."""
    cluster = running.shared(
        "embedded",
        lambda: EmbeddedCluster(
            brokers=2,
            delay_levels=running.DELAYS,
            transaction_timeout=2.0,
            transaction_check_interval=3.0,
        ),
    )
    return EmbeddedTarget(cluster)


def target(name: str) -> Target:
    """``embedded``, or a release of Apache RocketMQ."""
    return embedded() if name == "embedded" else ApacheTarget(running.cluster(name))


def client(name: str) -> Driver:
    """``go``, or ``java-`` and a release."""
    if name == "go":
        require_go()
        return running.shared("go", GoDriver)
    version = name.removeprefix("java-")
    jars.require_tools(version)
    return running.shared(name, lambda: JavaDriver(version))


def max_offsets(chosen: Target, topic: str, queues: int) -> dict[tuple[str, int], int]:
    """The next offset of every queue, asked from each broker by hand."""
    found = {}
    for name, address in chosen.addresses.items():
        for queue in range(queues):
            answer = ask(address, 30, {"topic": topic, "queueId": queue})
            found[name, queue] = int(answer.ext["offset"])
    return found


def pairs(*, go: bool = True, older: bool = True) -> Sequence[tuple[str, str]]:
    """Which target meets which client."""
    found = [("embedded", "java-5.3.3"), ("5.3.3", "java-5.3.3")]
    if older:
        found.append(("embedded", "java-4.9.7"))
    if go:
        found += [("embedded", "go"), ("5.3.3", "go")]
    return found
