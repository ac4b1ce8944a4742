from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from tests.unit.sync.peer import Peer, PeerConnection, echo
from tests.unit.sync.ticking import ticking

from rocketwire.config import Tls
from rocketwire.core.effects import Invoke
from rocketwire.errors import ConfigError, ConnectFailedError, RequestTimeoutError
from rocketwire.sync.connection import Connector, Pool
from rocketwire.sync.driver import Driver
from rocketwire.wire.command import Command


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def serve(authority: trustme.CA) -> Iterator[Callable[..., Peer]]:
    servers: list[Peer] = []

    def start(name: str = "127.0.0.1", *, wants_certificate: bool = False) -> Peer:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(name).configure_cert(context)
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            authority.configure_trust(context)

        def handle(connection: PeerConnection) -> None:
            connection.socket = context.wrap_socket(connection.socket, server_side=True)
            echo(connection)

        server = Peer(handle)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def call(server: Peer, tls: Tls, body: bytes = b"x", times: int = 1) -> list[bytes]:
    connector = Connector(clock=time.monotonic, connect_timeout=5.0, tls=tls, max_frame=1 << 24)
    pool = Pool(connector)

    def operation():
        found = []
        for _ in range(times):
            limit = time.monotonic() + 20
            found.append((yield Invoke(server.address, Command(10, body=body), limit)).body)
        return found

    try:
        return Driver(pool, time.monotonic).run(operation())
    finally:
        pool.close()


def test_a_trusted_server_is_used_and_its_connection_kept(serve, ca_file) -> None:
    server = serve()
    assert call(server, Tls(ca_file=ca_file), times=3) == [b"x"] * 3
    assert len(server.connections) == 1


def test_large_bodies_pass(serve, ca_file) -> None:
    body = bytes(range(256)) * 4000
    assert call(serve(), Tls(ca_file=ca_file), body) == [body]


def test_an_unknown_authority_is_refused(serve) -> None:
    with pytest.raises(ConnectFailedError, match="certificate that is not trusted") as caught:
        call(serve(), Tls())
    assert not caught.value.written


def test_a_wrong_name_is_refused(serve, ca_file) -> None:
    with pytest.raises(ConnectFailedError, match="not trusted"):
        call(serve("broker.example"), Tls(ca_file=ca_file))
    assert call(serve("broker.example"), Tls(ca_file=ca_file, server_name="broker.example"))


def test_verification_can_be_turned_off(serve) -> None:
    assert call(serve(), Tls(verify=False)) == [b"x"]


def test_mutual_tls(serve, authority, ca_file, tmp_path) -> None:
    issued = authority.issue_cert("client@example.org")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    tls = Tls(ca_file=ca_file, cert_file=str(cert), key_file=str(key))
    assert call(serve(wants_certificate=True), tls) == [b"x"]


def test_a_plain_server_fails_the_handshake(ca_file) -> None:
    server = Peer(echo)
    try:
        with pytest.raises(ConnectFailedError):
            call(server, Tls(ca_file=ca_file))
    finally:
        server.close()


@pytest.mark.parametrize(
    ("files", "words"),
    [({"ca_file": "nowhere.pem"}, "ca_file"), ({"cert_file": "nowhere.pem"}, "cert_file")],
)
def test_a_file_that_is_not_there_is_named(serve, files, words) -> None:
    with pytest.raises(ConfigError, match=words):
        call(serve(), Tls(**files))


def test_a_server_that_never_answers_the_handshake_is_left_in_time(ca_file) -> None:
    over = threading.Event()
    server = Peer(lambda _: over.wait(60))
    connector = Connector(
        clock=time.monotonic, connect_timeout=0.2, tls=Tls(ca_file=ca_file), max_frame=1 << 24
    )
    try:
        with pytest.raises(ConnectFailedError, match="no end of the TLS handshake in time"):
            connector.connect(server.address, time.monotonic() + 30)
        assert not over.is_set()
    finally:
        over.set()
        server.close()


def test_signals_do_not_prolong_a_handshake(ca_file) -> None:
    over = threading.Event()
    server = Peer(lambda _: over.wait(60))
    connector = Connector(
        clock=time.monotonic, connect_timeout=0.3, tls=Tls(ca_file=ca_file), max_frame=1 << 24
    )
    try:
        with ticking(2000) as ticks, pytest.raises(ConnectFailedError, match="TLS handshake"):
            connector.connect(server.address, time.monotonic() + 30)
        assert 0 < len(ticks) < 2000
    finally:
        over.set()
        server.close()


@pytest.mark.parametrize("size", [10, 8_000_000], ids=["reading", "writing"])
def test_signals_do_not_prolong_a_request_over_tls(authority, ca_file, size) -> None:
    """A peer that ends the handshake, and then neither reads nor answers."""
    over = threading.Event()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def handle(connection: PeerConnection) -> None:
        connection.socket = context.wrap_socket(connection.socket, server_side=True)
        over.wait(60)

    server = Peer(handle)
    connector = Connector(
        clock=time.monotonic, connect_timeout=5.0, tls=Tls(ca_file=ca_file), max_frame=1 << 24
    )
    connection = connector.connect(server.address, time.monotonic() + 30)
    try:
        with ticking(2000) as ticks, pytest.raises(RequestTimeoutError) as failed:
            connection.call(Command(10, body=b"x" * size), time.monotonic() + 0.3, None)
        assert 0 < len(ticks) < 2000
        assert failed.value.written
    finally:
        connection.close()
        over.set()
        server.close()


def test_the_remedy_of_a_certificate_that_is_not_trusted_is_told(serve) -> None:
    with pytest.raises(ConnectFailedError, match="check tls ca_file and server_name"):
        call(serve(), Tls())
