"""Apache RocketMQ itself, on loopback addresses, as context managers.

``ApacheCluster`` starts one name server and some brokers, each a Java process with a home, a store
and logs of its own in a temporary folder, and says that they are ready only when they answer the
protocol. Brokers can be killed, frozen and restarted; a server that died by itself is reported with
the end of its output. The folder is removed at the end unless ``ROCKETWIRE_KEEP_LOGS`` is set.
"""

import os
import random
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import IO, Self

from tests.real import frames, jars, settings
from tests.real.frames import Answer, RawConnection
from tests.real.settings import CLUSTER, Account, TlsFiles

LAUNCHER = Path(__file__).parent / "java" / "LoopbackServer.java"

#: The second listener of a broker ("VIP") is two below its port; 4.9's for slaves is the next one,
#: whatever its settings say.
BESIDE = (-2, 1)
START_LIMIT = 120.0
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""Starts fast and stays small; benchmarks pass their own options instead."""

OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


class ServerFailedError(RuntimeError):
    """A server process ended, or did not become ready in time."""


class JavaProcess:
    """One Java process which ends with us, its output kept in a file."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.output = folder / f"{name}.out"
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; an error when it was never started."""
        if self._process is None:
            raise ServerFailedError(f"{self.name} was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; its standard input stays open for as long as we live."""
        if self.alive:
            raise ServerFailedError(f"{self.name} is running already")
        self._log = self.output.open("ab")
        environment = os.environ | {"ROCKETMQ_HOME": str(self.folder)}
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=self.folder,
        )

    def kill(self) -> None:
        """End it at once (SIGKILL) and wait until it is gone; nothing if it is gone already."""
        self._end(signal.SIGKILL, 30.0)

    def terminate(self, limit: float = 60.0) -> None:
        """Let it shut down in its own way (SIGTERM), or kill it after ``limit`` seconds."""
        try:
            self._end(signal.SIGTERM, limit)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait(self, limit: float = 60.0) -> int:
        """Wait until it ends by itself; its exit code."""
        if self._process is None:
            raise ServerFailedError(f"{self.name} was not started")
        return self._process.wait(limit)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay, answers stop."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def tail(self, lines: int = 40) -> str:
        """The end of what it printed, and of the warnings and errors it logged."""
        parts = []
        logs = [self.output, *sorted(self.folder.rglob("*.log"))]
        for path in logs:
            text = path.read_text(errors="replace") if path.exists() else ""
            # Chatter: what 5.x says about its logging, and what every release says when all is well.
            kept = [line for line in text.splitlines() if not re.search(r"[ -]INFO ", line)]
            if kept:
                parts.append(f"--- {path.name}\n" + "\n".join(kept[-lines:]))
        return "\n".join(parts)

    def _end(self, number: signal.Signals, limit: float) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            process.wait(limit)
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        if self._log is not None:
            self._log.close()


def _java(version: str, options: Sequence[str], folder: Path, role: str) -> list[str]:
    return [
        "java",
        "-Xms64m",
        "-Xmx256m",
        "-XX:MaxDirectMemorySize=1g",
        *OPENED,
        f"-Duser.home={folder}",
        f"-Djava.io.tmpdir={folder}",
        "-Djava.net.preferIPv4Stack=true",
        *options,
        "-cp",
        jars.compiled(version, [LAUNCHER]),
        "LoopbackServer",
        role,
    ]


class ApacheNameServer(JavaProcess):
    """One name server. ``address`` is where clients find it."""

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        jvm: Sequence[str] = QUICK_JVM,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port(host)
        self.address = f"{host}:{port}"
        settings.write_logging(folder)
        conf = folder / "namesrv.conf"
        values = {"listenPort": str(port), "bindAddress": host} | dict(overrides or {})
        settings.write_properties(conf, values)
        command = _java(version, jvm, folder, "namesrv")
        super().__init__("namesrv", [*command, host, "-c", str(conf)], folder)


class ApacheBroker(JavaProcess):
    """One broker. It listens on ``listen`` and tells clients to come to ``address``."""

    def __init__(
        self,
        version: str,
        name: str,
        folder: Path,
        name_server: str,
        *,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        jvm: Sequence[str] = QUICK_JVM,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shown = advertised_host or host
        port = free_port(host, shown, also=BESIDE)
        self.listen = f"{host}:{port}"
        self.address = f"{shown}:{port}"
        settings.write_logging(folder)
        self._conf = folder / "broker.conf"
        self.values = settings.broker_settings(
            name, self.listen, self.address, name_server, free_port(host), folder / "store"
        ) | dict(overrides or {})
        command = _java(version, jvm, folder, "broker")
        super().__init__(name, [*command, host, "-c", str(self._conf)], folder)

    def settle(self, port: int) -> None:
        """From the next start on, listen on another port."""
        self.listen, self.address = (
            f"{each.rpartition(':')[0]}:{port}" for each in (self.listen, self.address)
        )
        self.values["listenPort"] = str(port)

    def move(self) -> None:
        """Listen on other ports, all of them, from the next start on."""
        hosts = [each.rpartition(":")[0] for each in (self.listen, self.address)]
        self.settle(free_port(*hosts, also=BESIDE))
        self.values["haListenPort"] = str(free_port(hosts[0]))

    def start(self) -> None:
        """Start with the current ``values``, which may be changed between runs."""
        settings.write_properties(self._conf, self.values)
        super().start()


class ApacheCluster:
    """A name server and ``brokers`` masters of one release.

    Args:
        version: One of ``jars.VERSIONS``.
        brokers: How many masters; they are named ``broker-a``, ``broker-b`` and so on.
        acl: Accounts to know; the first admin among them is used by the harness itself.
        tls: Insist on TLS with these files.
        mutual_tls: Refuse clients without a certificate, too.
        advertised_host: Tell clients this address instead of the one listened on, for a proxy
            listening there on the same ports.
        jvm: Options of every Java process.
        overrides: Broker settings that differ from ``settings``.
        name_server_overrides: The same for the name server.
    """

    def __init__(
        self,
        version: str,
        brokers: int = 3,
        *,
        acl: Sequence[Account] = (),
        tls: TlsFiles | None = None,
        mutual_tls: bool = False,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        jvm: Sequence[str] = QUICK_JVM,
        overrides: Mapping[str, str] | None = None,
        name_server_overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self.folder = Path(tempfile.mkdtemp(prefix=f"rocketwire-{version}-"))
        self._accounts = tuple(acl)
        self._tls = tls
        self._mutual = mutual_tls
        self._host = host
        self._advertised_host = advertised_host
        self._jvm = list(jvm)
        if tls is not None:
            self._jvm += settings.tls_options(self.folder, tls, mutual=mutual_tls)
        self._overrides = dict(overrides or {})
        self.server = ApacheNameServer(
            version,
            self.folder / "namesrv",
            host=host,
            jvm=self._jvm,
            overrides=name_server_overrides,
        )
        self.brokers = [self._broker(f"broker-{chr(97 + index)}") for index in range(brokers)]

    @property
    def name_server(self) -> str:
        """The address clients are given."""
        return self.server.address

    @property
    def alive(self) -> bool:
        """Whether every process still runs; false before the start and after the end, too."""
        return all(process.alive for process in self._processes())

    def broker(self, name: str) -> ApacheBroker:
        return next(broker for broker in self.brokers if broker.name == name)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close(keep=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(keep=kind is not None)

    def close(self, *, keep: bool = False) -> None:
        """Kill every process; the folder stays if ``keep`` or ``ROCKETWIRE_KEEP_LOGS`` says so."""
        for process in (*self.brokers, self.server):
            process.kill()
        if not keep and not os.environ.get("ROCKETWIRE_KEEP_LOGS"):
            rmtree(self.folder, ignore_errors=True)

    def add_broker(self, name: str | None = None) -> ApacheBroker:
        """Start one more broker and wait until clients can find it."""
        broker = self._broker(name or f"broker-{chr(97 + len(self.brokers))}")
        self.brokers.append(broker)
        broker.start()
        self.wait_ready(broker)
        return broker

    def restart(self, broker: ApacheBroker) -> None:
        """Start a broker that was killed or stopped, and wait until clients can find it."""
        broker.start()
        self.wait_ready(broker)

    def wait_ready(self, broker: ApacheBroker, limit: float = START_LIMIT) -> None:
        """Wait until the broker answers and the name server tells its address."""

        def ready() -> bool:
            # A topic every broker has; any answer, a refusal by ACL included, shows it serves.
            self.ask(broker.listen, 30, {"topic": "SELF_TEST_TOPIC", "queueId": 0})
            if f'"{broker.address}"'.encode() not in self.ask(self.name_server, 106).body:
                return False
            # It samples its figures every second, and has no answer for who asks before the first.
            status = self.ask(broker.listen, 28)
            return "NoSuchElementException" not in (status.remark or "")

        self._await(ready, broker, limit)

    def wait_unregistered(self, broker: ApacheBroker, limit: float = START_LIMIT) -> None:
        """Wait until the name server has forgotten the broker's address."""
        shown = f'"{broker.address}"'.encode()
        self._await(lambda: shown not in self.ask(self.name_server, 106).body, self.server, limit)

    def connect(self, address: str, timeout: float = 5.0) -> RawConnection:
        """A raw connection, secured and signed as this cluster demands."""
        return RawConnection(
            address, timeout, tls=self._client_tls(), credentials=self._credentials()
        )

    def ask(
        self, address: str, code: int, ext: Mapping[str, object] | None = None, body: bytes = b""
    ) -> Answer:
        """One raw request on a connection of its own."""
        with self.connect(address) as connection:
            return connection.call(code, ext, body)

    def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        brokers: Sequence[ApacheBroker] | None = None,
        perm: int = 6,
        order: bool = False,
        attributes: str = "",
    ) -> None:
        """Create or change a topic and wait until the name server shows it on every broker."""
        ext: dict[str, object] = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": order,
        }
        if attributes:
            ext["attributes"] = attributes
        chosen = self.brokers if brokers is None else brokers
        for broker in chosen:
            # A busy machine's broker writes its files and tells the name server before it answers.
            with self.connect(broker.listen, START_LIMIT) as connection:
                answer = connection.call(17, ext)
            if answer.code != 0:
                raise ServerFailedError(f"{broker.name} refused topic {topic}: {answer.remark}")
        self._await(lambda: self._shown(topic, queues, perm, chosen), self.server, START_LIMIT)

    def route(self, topic: str) -> dict[str, tuple[int, int]]:
        """What the name server tells: broker name to (write queues, permission)."""
        return frames.read_route(self.ask(self.name_server, 105, {"topic": topic}))

    def max_offsets(self, topic: str) -> dict[tuple[str, int], int]:
        """The next offset of every queue of ``topic`` on the brokers that are running."""
        found = {}
        for name, (queues, _) in self.route(topic).items():
            with self.connect(self.broker(name).listen) as connection:
                for queue in range(queues):
                    answer = connection.call(30, {"topic": topic, "queueId": queue})
                    found[name, queue] = int(answer.ext["offset"])
        return found

    def report(self) -> str:
        """The end of the output of every process, for a failing test."""
        parts = [f"===== {process.name}\n{process.tail()}" for process in self._processes()]
        return "\n".join(parts)

    def _processes(self) -> list[JavaProcess]:
        return [self.server, *self.brokers]

    def _shown(self, topic: str, queues: int, perm: int, brokers: Sequence[ApacheBroker]) -> bool:
        route = self.route(topic)
        return all(route.get(broker.name) == (queues, perm) for broker in brokers)

    def _broker(self, name: str) -> ApacheBroker:
        folder = self.folder / name
        overrides = dict(self._overrides)
        if self._accounts:
            overrides |= settings.acl_settings(folder, self.version, self._accounts)
        return ApacheBroker(
            self.version,
            name,
            folder,
            self.name_server,
            host=self._host,
            advertised_host=self._advertised_host,
            jvm=self._jvm,
            overrides=overrides,
        )

    def _start(self) -> None:
        self.server.start()
        self._await(lambda: self.ask(self.name_server, 106).code == 0, self.server, START_LIMIT)
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            try:
                self.wait_ready(broker)
            except ServerFailedError as error:
                # Ports are chosen seconds before they are listened on; another cluster may be first.
                if "Address already in use" not in str(error):
                    raise
                broker.move()
                broker.start()
                self.wait_ready(broker)

    def _await(self, condition: Callable[[], bool], process: JavaProcess, limit: float) -> None:
        deadline = time.monotonic() + limit
        why = "it said no"
        while True:
            try:
                if condition():
                    return
            except (OSError, ValueError) as error:
                why = repr(error)
            if not process.alive:
                raise ServerFailedError(f"{process.name} ended:\n{process.tail()}")
            if time.monotonic() > deadline:
                raise ServerFailedError(
                    f"{process.name} was not ready in {limit:.0f} s ({why}):\n{process.tail()}"
                )
            time.sleep(0.05)

    def _client_tls(self) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        context = ssl.create_default_context(cafile=str(self._tls.ca))
        context.load_cert_chain(self._tls.client_certificate, self._tls.client_key)
        return context

    def _credentials(self) -> tuple[str, str] | None:
        for account in self._accounts:
            if account.admin:
                return account.access_key, account.secret_key
        return None


def free_port(*hosts: str, also: Sequence[int] = ()) -> int:
    """A port nobody listens on at any of ``hosts``, together with the ports at distance ``also``.

    Chosen below the range from which the system takes ports for outgoing connections, so that it
    is still free when a killed broker comes back to it.
    """
    for _ in range(1000):
        port = random.randrange(12_000, 32_000)
        if all(_is_free(host, port + step) for host in set(hosts) for step in (0, *also)):
            return port
    raise ServerFailedError(f"no free port on {', '.join(hosts)}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


__all__ = ["CLUSTER", "ApacheBroker", "ApacheCluster", "ApacheNameServer", "ServerFailedError"]
