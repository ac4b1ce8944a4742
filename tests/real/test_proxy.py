"""The proxies do to a connection what their names say."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.real.apache import free_port
from tests.real.proxy import Proxies, Proxy


@contextmanager
def echo_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.2", 0)) as server:
        server.settimeout(60)

        def serve_one(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(65536):
                        connection.sendall(data)
                except OSError:
                    return

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, port = server.getsockname()
        yield f"{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    listen = f"127.0.0.1:{free_port('127.0.0.1')}"
    with echo_server() as target, Proxies([(listen, target)]) as proxies:
        yield proxies.each[0]


def connect(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.listen.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_passes_bytes_both_ways(proxy: Proxy):
    with connect(proxy) as client:
        payload = bytes(range(256)) * 4096
        threading.Thread(target=client.sendall, args=(payload,), daemon=True).start()
        received = bytearray()
        while len(received) < len(payload):
            received += client.recv(65536)
        assert bytes(received) == payload
    assert proxy.accepted() == 1


def test_slow_holds_an_answer_back_and_heal_ends_it(proxy: Proxy):
    with connect(proxy) as client:
        proxy.slow(3.0)
        client.sendall(b"one")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(3)
        client.settimeout(20)
        assert client.recv(3) == b"one"
        proxy.heal()
        client.sendall(b"two")
        assert client.recv(3) == b"two"


def test_slow_keeps_the_order_of_answers(proxy: Proxy):
    with connect(proxy) as client:
        proxy.slow(0.2)
        client.sendall(b"a" * 10)
        proxy.slow(0.0)
        client.sendall(b"b" * 10)
        received = b""
        while len(received) < 20:
            received += client.recv(20)
        assert received == b"a" * 10 + b"b" * 10


def test_blackhole_accepts_and_says_nothing_until_healed(proxy: Proxy):
    with connect(proxy) as old:
        proxy.blackhole()
        with connect(proxy) as new:
            for client in (old, new):
                client.sendall(b"held")
                client.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    client.recv(4)
            proxy.heal()
            for client in (old, new):
                client.settimeout(20)
                assert client.recv(4) == b"held"


def test_refuse_resets_connections_and_closes_the_port(proxy: Proxy):
    with connect(proxy) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as client:
        client.sendall(b"y")
        assert client.recv(1) == b"y"


def test_reset_ends_connections_but_not_the_port(proxy: Proxy):
    with connect(proxy) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as client:
        client.sendall(b"y")
        assert client.recv(1) == b"y"


def test_flap_refuses_and_works_in_turn(proxy: Proxy):
    proxy.flap(0.05, 0.05)
    seen = set()
    for _ in range(100_000):
        try:
            connect(proxy).close()
            seen.add("worked")
        except ConnectionRefusedError:
            seen.add("refused")
        if len(seen) == 2:
            break
    assert seen == {"worked", "refused"}
    proxy.heal()
    with connect(proxy) as client:
        client.sendall(b"y")
        assert client.recv(1) == b"y"


def test_an_unknown_state_of_the_process_is_an_error_not_a_hang():
    proxies = Proxies([("127.0.0.1:1", "127.0.0.1:2")])
    with pytest.raises(RuntimeError, match="with statement"):
        proxies.each[0].heal()
