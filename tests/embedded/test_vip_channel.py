"""The second port of a broker, and what a name server tells of its own."""

from __future__ import annotations

import socket

import pytest
from wire_client import WireClient

from rocketwire.embedded import EmbeddedCluster


def free_pair() -> int:
    """A port that is free, and free two below it."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return int(port)
    raise AssertionError("no two free ports were found")


def test_messages_come_over_either_port() -> None:
    port = free_pair()
    with EmbeddedCluster(ports={"broker-a": port}) as cluster:
        broker = cluster.broker("broker-a")
        assert broker.fast_port == port - 2
        for address in (broker.address, f"127.0.0.1:{port - 2}"):
            with WireClient(address) as client:
                assert client.send_message("t", address.encode()).code == 0
        assert len(cluster.messages("t")) == 2
        broker.refuse()
        with pytest.raises(ConnectionRefusedError):
            WireClient(f"127.0.0.1:{port - 2}")
        broker.heal()
        broker.restart()
        with WireClient(f"127.0.0.1:{port - 2}") as client:
            assert client.send_message("t", b"again").code == 0
    with pytest.raises(ConnectionRefusedError):
        WireClient(f"127.0.0.1:{port - 2}")


def test_a_port_that_is_taken_is_left_alone() -> None:
    port = free_pair()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port - 2))
        with EmbeddedCluster(ports={"broker-a": port}) as cluster:
            assert cluster.broker("broker-a").fast_port is None


def test_a_port_that_another_server_shall_have_is_left_alone() -> None:
    port = free_pair()
    ports = {"broker-a": port, "broker-b": port - 2}
    with EmbeddedCluster(brokers=2, ports=ports) as cluster:
        assert cluster.broker("broker-a").fast_port is None
        assert cluster.broker("broker-b").port == port - 2


def test_a_name_server_tells_its_configuration() -> None:
    with EmbeddedCluster() as cluster, WireClient(cluster.name_server) as client:
        text = bytes(client.call(319).body).decode()
        assert f"listenPort={cluster.name_servers[0].port}\n" in text
