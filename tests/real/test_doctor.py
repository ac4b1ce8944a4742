"""The doctor before real clusters that are set up wrongly: it names the cause, and its remedy works."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.real import jars, running
from tests.real.apache import ApacheCluster
from tests.real.grpc_proxy import GrpcProxy, grpc_proxy
from tests.real.running import unique
from tests.real.settings import ADMIN, TlsFiles

NOWHERE = "127.0.0.77"
"""A loopback address at which nobody listens: to a client it is like any unreachable one."""


@dataclass(frozen=True)
class Diagnosis:
    code: int
    findings: list[dict[str, Any]]

    def of(self, verdict: str) -> list[dict[str, Any]]:
        return [each for each in self.findings if each["verdict"] == verdict]


@pytest.fixture
def doctor(tmp_path: Path) -> Callable[..., Diagnosis]:
    """Runs the command as a user does, with no settings but those given."""
    ours = ("ROCKETWIRE_", "NAMESRV_ADDR")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment = clean | {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def run(name_server: str, *words: str) -> Diagnosis:
        done = subprocess.run(
            [sys.executable, "-m", "rocketwire", "doctor", "--json", "-n", name_server, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment,
            cwd=tmp_path,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Diagnosis(done.returncode, json.loads(done.stdout)["findings"])

    return run


@pytest.fixture
def astray(version: str) -> ApacheCluster:
    """A cluster whose broker advertises an address that leads nowhere, as from inside a container."""
    return running.shared(
        f"astray-{version}", lambda: ApacheCluster(version, brokers=1, advertised_host=NOWHERE)
    )


def test_a_healthy_cluster_is_well(cluster: ApacheCluster, topic: str, doctor: Any, version: str):
    found = doctor(cluster.name_server, topic, "--probe")
    assert (found.code, found.of("ill"), found.of("remark")) == (0, [], [])
    shown = {each["check"]: each["saw"] for each in found.findings}
    assert f"version {version}" in shown["broker-a (master)"]
    assert "read back in" in shown["probe of broker-b"]


def test_an_unreachable_advertised_address_gets_a_map_that_works(
    astray: ApacheCluster, doctor: Any
):
    found = doctor(astray.name_server)
    assert found.code == 1
    (ill,) = found.of("ill")
    (broker,) = astray.brokers
    assert ill["check"] == "broker-a (master)"
    assert broker.address in ill["saw"]
    assert any(broker.listen in line for line in ill["remedy"])
    assert any("brokerIP1" in line for line in ill["remedy"])
    (suggestion,) = [each for each in found.of("remark") if each["check"] == "address_map"]
    here = next(line for line in suggestion["remedy"] if line.startswith("here: -o "))
    mended = doctor(astray.name_server, "-o", here.removeprefix("here: -o ").strip("'"))
    assert (mended.code, mended.of("ill")) == (0, [])


@pytest.mark.parametrize("keys", ["missing", "wrong-secret", "unknown-key"])
def test_missing_and_wrong_keys_are_told_apart(guarded: ApacheCluster, doctor: Any, keys: str):
    known, secret = ADMIN.access_key, ADMIN.secret_key
    given = {
        "missing": (),
        "wrong-secret": ("-o", f"access_key={known}", "-o", "secret_key=not-the-secret"),
        "unknown-key": ("-o", "access_key=somebody-else", "-o", f"secret_key={secret}"),
    }[keys]
    found = doctor(guarded.name_server, *given)
    assert found.code == 1
    ill = found.of("ill")
    assert ill
    assert all(each["check"].startswith("credentials at") for each in ill)
    expected = "secret key is wrong" if keys == "wrong-secret" else "access key is missing"
    assert all(expected in each["means"] for each in ill), ill
    assert all("access_key=" in each["remedy"][0] for each in ill)


def test_with_the_right_keys_the_guarded_cluster_is_well(guarded: ApacheCluster, doctor: Any):
    keys = f"access_key={ADMIN.access_key}", f"secret_key={ADMIN.secret_key}"
    found = doctor(guarded.name_server, "-o", keys[0], "-o", keys[1])
    assert (found.code, found.of("ill")) == (0, [])


def test_a_topic_without_write_permission_is_named_with_its_remedy(
    cluster: ApacheCluster, doctor: Any
):
    topic = unique("read-only")
    cluster.create_topic(topic, perm=4)
    found = doctor(cluster.name_server, topic)
    assert found.code == 1
    (ill,) = found.of("ill")
    assert ill["check"] == f"topic {topic}"
    assert "no queue takes messages" in ill["means"]
    assert f"rocketwire topic alter {topic} --can-write" in ill["remedy"][0]
    words = ill["remedy"][0].partition(",")[0].split()[1:]
    command = [sys.executable, "-m", "rocketwire", *words, "-n", cluster.name_server]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert doctor(cluster.name_server, topic, "--probe").code == 0


def test_one_broker_without_write_permission_is_a_remark(cluster: ApacheCluster, doctor: Any):
    topic = unique("half")
    cluster.create_topic(topic)
    cluster.create_topic(topic, perm=4, brokers=[cluster.broker("broker-b")])
    found = doctor(cluster.name_server, topic)
    assert found.code == 0
    (remark,) = found.of("remark")
    assert remark["check"] == f"topic {topic} on broker-b"


def test_a_broker_given_as_name_server_is_recognised(cluster: ApacheCluster, doctor: Any):
    found = doctor(cluster.broker("broker-a").address)
    assert found.code == 1
    (ill,) = found.of("ill")
    assert ill["saw"] == "it is a broker, not a name server"
    assert "9876" in ill["remedy"][0]


def test_a_guarded_broker_given_as_name_server_is_told_by_its_refusal(
    guarded: ApacheCluster, doctor: Any
):
    found = doctor(guarded.brokers[0].address)
    assert found.code == 1
    assert found.of("ill")


def test_a_cluster_that_wants_tls_is_well_with_the_remedy(
    encrypted: ApacheCluster, tls_files: TlsFiles, doctor: Any
):
    plain = doctor(encrypted.name_server)
    assert plain.code == 1
    (ill,) = plain.of("ill")
    assert ill["saw"].startswith("it wants TLS")
    assert "-o tls=true" in ill["remedy"][0]
    options = ["tls=true", f"tls_ca_file={tls_files.ca}"]
    without = doctor(encrypted.name_server, *(word for o in options for word in ("-o", o)))
    assert without.code == 1
    assert any("tls_cert_file" in line for each in without.of("ill") for line in each["remedy"])
    options += [
        f"tls_cert_file={tls_files.client_certificate}",
        f"tls_key_file={tls_files.client_key}",
    ]
    mended = doctor(encrypted.name_server, *(word for o in options for word in ("-o", o)))
    assert (mended.code, mended.of("ill")) == (0, [])


def test_a_proxy_whose_routes_lead_nowhere_gets_a_map_that_works(doctor: Any):
    release, topic = "5.3.3", unique("topic")
    jars.require_tools(release, jars.PROXY_POM)
    cluster = running.cluster(release)
    cluster.create_topic(topic)
    with grpc_proxy(cluster, "astray-proxy", shown=NOWHERE) as proxy:
        found = doctor(proxy.remoting, topic)
        assert found.code == 1
        (ill,) = found.of("ill")
        assert ill["check"] == "proxy for broker-a, broker-b"
        assert NOWHERE in ill["saw"]
        assert any("remotingAccessAddr" in line for line in ill["remedy"])
        here = next(line for line in ill["remedy"] if line.startswith("here: -o "))
        option = here.removeprefix("here: -o ").strip("'")
        mended = doctor(proxy.remoting, topic, "--probe", "-o", option)
        assert (mended.code, mended.of("ill")) == (0, [])


def test_the_ports_of_a_proxy_are_recognised(proxy: GrpcProxy, doctor: Any):
    grpc = doctor(proxy.grpc)
    assert grpc.code == 1
    (ill,) = grpc.of("ill")
    assert ill["saw"] == "it speaks gRPC"
    assert "proxy" in ill["means"]
    assert "9876" in ill["remedy"][0]
    remoting = doctor(proxy.remoting)
    assert remoting.code == 0
    (remark,) = remoting.of("remark")
    assert "it is a RocketMQ 5 proxy" in remark["saw"]
