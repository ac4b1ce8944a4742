"""A real broker of Apache Kafka on this machine, and the jars of Spark's connector.

Jars come by Maven, once, into the cache that the real RocketMQ has, too.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POMS: Final = Path(__file__).parent / "kafka"
_MAVEN_LIMIT: Final = 540.0
_START_LIMIT: Final = 90.0
#: As Kafka's own scripts start it, but small: the machine is shared with Spark.
_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
#: The connector, and what it needs beyond what Spark brings.
_CONNECTOR: Final = (
    "spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2",
)  # fmt: skip
_LOGGING: Final = """<Configuration status="warn">
  <Appenders><Console name="console"><PatternLayout pattern="%d %p %c{1} %m%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True)
class KafkaBroker:
    """Where it listens, and its process."""

    address: str
    pid: int


def connector_jars() -> str:
    """The jars that a Spark session needs, as its setting ``spark.jars`` takes them."""
    folder = _library("connector-pom.xml")
    found = [jar for name in _CONNECTOR for jar in sorted(folder.glob(f"{name}*.jar"))]
    return ",".join(str(jar) for jar in found)


@contextmanager
def kafka_broker() -> Iterator[KafkaBroker]:
    """A broker that is its own controller, with an empty store.

    Its settings are Kafka's own, but for one copy of everything.
    """
    library = _library("broker-pom.xml")
    folder = Path(tempfile.mkdtemp(prefix="rocketwire-kafka-"))
    try:
        port, controller = _free_ports()
        (folder / "log4j2.xml").write_text(_LOGGING)
        (folder / "server.properties").write_text(_settings(folder, port, controller))
        java = [
            "java", *_JVM, "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={folder}/log4j2.xml", "-cp", f"{library}/*",
        ]  # fmt: skip
        with (folder / "kafka.log").open("w") as log:
            yield from _running(java, folder, port, log)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _running(java: list[str], folder: Path, port: int, log: object) -> Iterator[KafkaBroker]:
    settings = str(folder / "server.properties")
    identity = base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", settings],
        check=True, stdout=log, stderr=subprocess.STDOUT, timeout=_START_LIMIT,
    )  # type: ignore[call-overload]  # fmt: skip
    process = subprocess.Popen(
        [*java, "kafka.Kafka", settings], stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )  # type: ignore[call-overload]
    try:
        _wait(process, port, folder)
        yield KafkaBroker(f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def _settings(folder: Path, port: int, controller: int) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": f"{folder}/data",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _wait(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    end = time.monotonic() + _START_LIMIT
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    said = (folder / "kafka.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"Kafka did not start:\n{said}")


def _library(pom: str) -> Path:
    """The folder with the jars that a file names; Maven copies them at the first call."""
    from tests.real import jars

    source = _POMS / pom
    library = jars.cache_folder() / f"kafka-{jars.fingerprint([source])}"
    done = library / ".complete"
    if not done.exists():
        with jars.locked(library.with_suffix(".lock")):
            if not done.exists():
                command = [
                    "mvn", "--quiet", "--batch-mode", f"--file={source}",
                    "dependency:copy-dependencies", "-DincludeScope=runtime",
                    f"-DoutputDirectory={library}",
                ]  # fmt: skip
                jars.run(command, f"the jars of {pom}", _MAVEN_LIMIT)
                done.touch()
    return library
