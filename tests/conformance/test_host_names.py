"""Hosts given by name: found in time, or told in time, whatever the resolver does."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.shells import SHELLS
from tests.fork.forking import Child

from rocketwire import Message, Outcome, Producer, SendFailedError
from rocketwire.embedded import EmbeddedCluster

STUCK = "stuck.example"
KNOWN = "brokers.example"


class Resolver:
    """Stands in for the system's: one name hangs, one has the addresses that a test gives it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.addresses: list[tuple[int, Any]] = []
        self.is_over = threading.Event()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: Any, port: Any, *args: Any, **how: Any) -> Any:
        host = host.decode() if isinstance(host, bytes) else host
        if host not in (STUCK, KNOWN) or how.get("flags", 0) & socket.AI_NUMERICHOST:
            return self._real(host, port, *args, **how)
        self.asked.append(host)
        if host == STUCK:
            self.is_over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(family, 1, 6, "", place) for family, place in self.addresses]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver(monkeypatch)
    yield made
    made.is_over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("rocketwire-lookup"):
            thread.join(30)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("T", 4)
        yield cluster


@pytest.fixture(params=list(SHELLS))
def shell_of(request: pytest.FixtureRequest) -> Any:
    return SHELLS[request.param]


def lookups() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("rocketwire-lookup")]


def port_of(cluster: EmbeddedCluster) -> str:
    return cluster.name_server.rpartition(":")[2]


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port of ::1 that accepts nobody and whose queue is full: connecting to it hangs."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_INET6))
        listener.bind(("::1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket(socket.AF_INET6))
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_name_server_whose_name_hangs_keeps_no_send_beyond_its_deadline(
    resolver, shell_of
) -> None:
    with shell_of(f"{STUCK}:9876", send_timeout=0.2) as shell:
        for _ in range(3):
            with pytest.raises(
                SendFailedError, match=r"look-up of the name 'stuck\.example'"
            ) as caught:
                shell.send(Message("T", b"x"))
            assert caught.value.outcome is Outcome.NOT_SENT
        assert not resolver.is_over.is_set()
        assert resolver.asked == [STUCK]
        assert len(lookups()) == 1


def test_another_name_server_is_asked_while_a_name_hangs(resolver, shell_of, cluster) -> None:
    both = f"{STUCK}:9876;{cluster.name_server}"
    with shell_of(both, send_timeout=4.0, request_timeout=0.2) as shell:
        for number in range(8):
            assert shell.send(Message("T", b"%d" % number)).queue.topic == "T"
        assert not resolver.is_over.is_set()
    assert len(cluster.messages("T")) == 8


def test_a_broker_whose_name_hangs_is_stepped_around(resolver, shell_of) -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("T", 4)
        bad = cluster.broker("broker-a").address
        options = {"address_map": {bad: f"{STUCK}:10911"}, "send_timeout": 6.0}
        with shell_of(cluster.name_server, attempt_timeout=0.2, **options) as shell:
            found = [shell.send(Message("T", b"x")).queue.broker for _ in range(10)]
            assert set(found) == {"broker-b"}
            assert not resolver.is_over.is_set()


def test_the_name_is_asked_for_again_when_the_resolver_has_given_up(resolver, shell_of) -> None:
    with shell_of(f"{STUCK}:9876", send_timeout=0.2) as shell:
        with pytest.raises(SendFailedError):
            shell.send(Message("T", b"x"))
        resolver.is_over.set()
        for thread in lookups():
            thread.join(30)
        with pytest.raises(SendFailedError, match="is not known here"):
            shell.send(Message("T", b"x"), timeout=5.0)


def test_the_second_address_of_a_name_is_tried_when_the_first_refuses(
    resolver, shell_of, cluster
) -> None:
    resolver.addresses = [(socket.AF_INET, ("127.0.0.9", 0)), (socket.AF_INET, ("127.0.0.1", 0))]
    with shell_of(f"{KNOWN}:{port_of(cluster)}") as shell:
        assert shell.send(Message("T", b"x")).queue.topic == "T"


def test_an_address_that_never_answers_leaves_time_for_the_others_of_its_name(
    resolver, shell_of, cluster
) -> None:
    with black_hole() as port:
        resolver.addresses = [
            (socket.AF_INET6, ("::1", 0, 0, 0)),
            (socket.AF_INET, ("127.0.0.1", 0)),
        ]
        mapped = {cluster.broker("broker-a").address: f"{KNOWN}:{port}"}
        with (
            forward(port, cluster.broker("broker-a").address),
            shell_of(
                cluster.name_server, address_map=mapped, connect_timeout=1.0, send_timeout=20.0
            ) as shell,
        ):
            assert shell.send(Message("T", b"x")).queue.broker == "broker-a"


@contextlib.contextmanager
def forward(port: int, address: str) -> Iterator[None]:
    """Take connections to 127.0.0.1 at a port that is taken elsewhere, and lead them on."""
    host, _, number = address.rpartition(":")
    with socket.create_server(("127.0.0.1", port)) as listener:
        ends: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near = listener.accept()[0]
                    far = socket.create_connection((host, int(number)))
                    ends.extend((near, far))
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for end in ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_addresses_in_digits_are_never_looked_up(shell_of, cluster, monkeypatch) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    with shell_of(cluster.name_server) as shell:
        shell.send(Message("T", b"x"))
        shell.submit(Message("T", b"x"))()
    assert not [name for name in started if "lookup" in name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_looks_a_name_up_itself(resolver, cluster) -> None:
    with Producer(f"{STUCK}:9876", send_timeout=0.2) as producer:
        with pytest.raises(SendFailedError):
            producer.send(Message("T", b"x"))

        def in_child() -> str:
            resolver.is_over = threading.Event()
            resolver.is_over.set()
            with pytest.raises(SendFailedError) as caught:
                producer.send(Message("T", b"x"), timeout=5.0)
            return str(caught.value)

        assert "is not known here" in Child(in_child).result()
        assert not resolver.is_over.is_set()
