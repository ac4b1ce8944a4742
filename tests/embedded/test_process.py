"""Brokers as processes: killed for real, ended properly, and against a foreign name server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.wire_tools import iter_records
from wire_client import WireClient

from rocketwire.embedded import EmbeddedCluster, run_broker
from rocketwire.errors import ConfigError
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.route import decode_route

SOURCE = Path(__file__).parents[2] / "src"


class Process:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ready = folder / f"ready-{len(list(folder.iterdir()))}"
        environment = dict(os.environ, PYTHONPATH=str(SOURCE))
        command = [sys.executable, "-m", "rocketwire.embedded", *arguments]
        command += ["--ready-file", str(self._ready)]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)

    def addresses(self) -> dict[str, str]:
        deadline = time.monotonic() + 60
        while not self._ready.exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return json.loads(self._ready.read_text())

    def end(self, number: int) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def start(tmp_path: Path) -> Iterator:
    started: list[Process] = []

    def make(*arguments: str) -> Process:
        started.append(Process(tmp_path, *arguments))
        return started[-1]

    yield make
    for process in started:
        process.end(signal.SIGKILL)


def broker_arguments(name_server: str, folder: Path, flush: str, port: int = 0) -> list[str]:
    return [
        "broker", "--name-server", name_server, "--name", "broker-x",
        "--folder", str(folder), "--flush", flush, "--port", str(port),
    ]  # fmt: skip


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_process_killed_again_and_again_loses_nothing_acknowledged(
    tmp_path: Path, start, flush: str
) -> None:
    acknowledged: dict[tuple[int, int], bytes] = {}
    port, number = 0, 0
    with EmbeddedCluster(brokers=0) as cluster:
        for _ in range(3):
            process = start(*broker_arguments(cluster.name_server, tmp_path / "s", flush, port))
            address = process.addresses()["broker-x"]
            port = int(address.rpartition(":")[2])
            with WireClient(address) as client:
                for _ in range(100):
                    body = b"%d" % number
                    reply = client.send_message("t", body, queue=number % 4)
                    assert reply.code == 0
                    place = int(reply.ext["queueId"]), int(reply.ext["queueOffset"])
                    assert place not in acknowledged
                    acknowledged[place] = body
                    number += 1
                process.end(signal.SIGKILL)
        process = start(*broker_arguments(cluster.name_server, tmp_path / "s", flush, port))
        with WireClient(process.addresses()["broker-x"]) as client:
            found: dict[tuple[int, int], bytes] = {}
            for queue in range(4):
                offset = 0
                while (reply := client.pull("t", queue, offset)).code == 0:
                    for record in iter_records(reply.body):
                        found[queue, record.queue_offset] = record.body
                    offset = int(reply.ext["nextBeginOffset"])
        assert found == acknowledged
        assert process.end(signal.SIGTERM) == 0
        assert not (tmp_path / "s" / "abort").exists()


def test_a_killed_process_leaves_the_routes_and_comes_back(tmp_path: Path, start) -> None:
    with EmbeddedCluster(brokers=0) as cluster, WireClient(cluster.name_server) as names:
        process = start(*broker_arguments(cluster.name_server, tmp_path / "s", "async"))
        process.addresses()
        route = decode_route(names.call(105, {"topic": "TBW102"}).body)
        assert route.brokers[0].broker == "broker-x"
        process.end(signal.SIGKILL)
        while names.call(105, {"topic": "TBW102"}).code == 0:
            pass
        start(*broker_arguments(cluster.name_server, tmp_path / "s", "async")).addresses()
        assert names.call(105, {"topic": "TBW102"}).code == 0


def test_a_folder_in_use_is_refused_with_one_line(tmp_path: Path, start) -> None:
    with EmbeddedCluster(brokers=0) as cluster:
        start(*broker_arguments(cluster.name_server, tmp_path / "s", "async")).addresses()
        second = start(*broker_arguments(cluster.name_server, tmp_path / "s", "async"))
        _, errors = second.process.communicate(timeout=60)
        assert second.process.returncode == 1
        assert errors.count(b"\n") == 1
        assert b"open in another process" in errors


def test_a_cluster_process_ends_properly_on_sigterm(tmp_path: Path, start) -> None:
    process = start("cluster", "--brokers", "2", "--folder", str(tmp_path / "c"))
    addresses = process.addresses()
    assert {"broker-a", "broker-b", "name-server"} <= set(addresses)
    with WireClient(addresses["broker-b"]) as client:
        assert client.send_message("t").code == 0
    assert process.end(signal.SIGTERM) == 0
    assert not list((tmp_path / "c").glob("*/abort"))


def test_a_broker_starts_before_its_name_server_and_registers_later(tmp_path: Path, start) -> None:
    with EmbeddedCluster(brokers=0) as first:
        port = first.name_servers[0].port
    process = start(*broker_arguments(f"127.0.0.1:{port}", tmp_path / "s", "async"))
    process.addresses()
    with EmbeddedCluster(brokers=0, ports=port) as cluster, WireClient(cluster.name_server) as ns:
        deadline = time.monotonic() + 30
        while ns.call(105, {"topic": "TBW102"}).code == ResponseCode.TOPIC_NOT_EXIST:
            assert time.monotonic() < deadline


def test_wrong_settings_of_a_process_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="colour"):
        run_broker(name_server="127.0.0.1:1", name="b", folder=tmp_path, colour="red")
    with pytest.raises(ConfigError, match="broker name is 'a/b'"):
        run_broker(name_server="127.0.0.1:1", name="a/b", folder=tmp_path)
    with pytest.raises(ConfigError, match="give host:port"):
        run_broker(name_server="nonsense", name="b", folder=tmp_path)


def test_a_forked_child_does_not_end_its_parents_cluster(cluster: EmbeddedCluster) -> None:
    with WireClient(cluster.broker("broker-a").address) as client:
        assert client.send_message("t").code == 0
        # The child has no copy of the cluster's thread, only of its objects.
        child = os.fork()
        if child == 0:
            cluster.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert cluster.folder.exists()
        assert client.send_message("t").code == 0
