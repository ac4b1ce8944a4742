"""Our brokers register with Apache's name server, and Apache's brokers with ours."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_process import Process
from wire_client import WireClient

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.command import Command
from rocketwire.wire.route import decode_route

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.real import jars
from tests.real.apache import ApacheBroker, ApacheNameServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def wait_for(address: str, ext: dict[str, str], good: Callable[[Command], bool]) -> Command:
    """Ask for a route until the answer is as it should be."""
    deadline = time.monotonic() + 90
    while True:
        try:
            with WireClient(address) as client:
                reply = client.call(105, ext)
                if good(reply):
                    return reply
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_our_broker_is_known_to_apaches_name_server(tmp_path: Path, version: str) -> None:
    jars.require_tools(version)
    server = ApacheNameServer(version, tmp_path / "apache")
    server.start()
    broker = None
    try:
        broker = Process(
            tmp_path, "broker", "--name-server", server.address, "--name", "ours",
            "--folder", str(tmp_path / "store"),
        )  # fmt: skip
        address = broker.addresses()["ours"]
        wait_for(server.address, {"topic": "TBW102"}, lambda reply: reply.code == 0)
        with WireClient(address) as client:
            assert client.send_message("made-by-a-send", d=3).code == 0
        reply = wait_for(server.address, {"topic": "made-by-a-send"}, lambda r: r.code == 0)
        route = decode_route(reply.body)
        assert route.brokers[0].addresses == {0: address}
        assert route.queues[0].write_queues == 3
        assert broker.end(signal.SIGTERM) == 0
        wait_for(server.address, {"topic": "TBW102"}, lambda reply: reply.code == 17)
    finally:
        if broker is not None:
            broker.end(signal.SIGKILL)
        server.kill()


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_apaches_broker_is_known_to_our_name_server(tmp_path: Path, version: str) -> None:
    jars.require_tools(version)
    with EmbeddedCluster(brokers=1) as cluster:
        theirs = ApacheBroker(version, "theirs", tmp_path / "theirs", cluster.name_server)
        theirs.start()
        try:
            reply = wait_for(
                cluster.name_server,
                {"topic": "TBW102"},
                lambda r: len(decode_route(r.body).brokers) == 2,
            )
            route = decode_route(reply.body)
            assert {b.broker for b in route.brokers} == {"broker-a", "theirs"}
            with WireClient(theirs.address) as client:
                assert client.send_message("theirs-alone").code == 0
            wait_for(cluster.name_server, {"topic": "theirs-alone"}, lambda r: r.code == 0)
            theirs.kill()
            wait_for(cluster.name_server, {"topic": "theirs-alone"}, lambda r: r.code == 17)
        finally:
            theirs.kill()
