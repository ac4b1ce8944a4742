"""Hostile and random bytes: they never stop a server nor disturb another connection."""

from __future__ import annotations

import logging
import os
import random
import socket
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire_tools import is_response
from wire_client import WireClient, pull_ext, send_ext

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.command import Command, encode_command
from rocketwire.wire.framing import MAX_FRAME

SLOW_IS_FINE = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def throw(address: str, data: bytes) -> None:
    """Send, and read until the server closes or has nothing more to say."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as plain:
        try:
            plain.sendall(data)
            plain.shutdown(socket.SHUT_WR)
            plain.settimeout(10)
            while plain.recv(65536):
                pass
        except OSError:
            pass


def addresses(cluster: EmbeddedCluster) -> list[str]:
    return [cluster.name_server, cluster.broker("broker-a").address]


@SLOW_IS_FINE
@given(st.binary(max_size=2000))
def test_random_bytes(shared: EmbeddedCluster, data: bytes) -> None:
    for address in addresses(shared):
        throw(address, data)
    _still_fine(shared)


@SLOW_IS_FINE
@given(st.integers(0, 500), st.binary(min_size=4, max_size=60), st.integers(0, 1))
def test_random_headers_under_every_code(
    shared: EmbeddedCluster, code: int, header: bytes, kind: int
) -> None:
    frame = struct.pack(">iI", 4 + len(header), kind << 24 | len(header)) + header
    ext = {"topic": header.hex(), "queueId": "-1", "offset": "x", "brokerName": "b"}
    tidy = encode_command(Command(code, ext, header, header=kind))
    for address in addresses(shared):
        throw(address, frame)
        throw(address, tidy)
    _still_fine(shared)


def test_every_code_with_every_shape_of_body_is_answered(shared: EmbeddedCluster) -> None:
    """Never silence: each request that wants an answer gets one, whatever is in it."""
    chance = random.Random(5)
    codes = [*range(9, 50), *range(98, 108), *range(199, 225), *range(299, 372), 400, 901, 904]
    unanswered = {37, 11, 361, 307, 309, 324, 325, 17}
    for address in addresses(shared):
        with WireClient(address) as client:
            for code in codes:
                for body in (b"", b"{}", b"[]", b"null", b"\xff" * 9, chance.randbytes(50)):
                    if code in unanswered:
                        continue
                    reply = client.call(code, {}, body)
                    assert is_response(reply)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1) * 4,
        struct.pack(">i", MAX_FRAME) + b"x" * 100,
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">iI", 8, 0x00FFFFFF) + b"{}xx",
        struct.pack(">iI", 8, 0x07000004) + b"{}xx",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    ],
)
def test_bytes_that_are_no_frame_close_only_their_connection(
    shared: EmbeddedCluster, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient(shared.broker("broker-a").address) as bystander:
        assert bystander.send_message("bystander").code == 0
        with caplog.at_level(logging.WARNING, "rocketwire.embedded"):
            throw(shared.broker("broker-a").address, data)
        assert bystander.send_message("bystander").code == 0
    lines = [record for record in caplog.records if "is disconnected" in record.getMessage()]
    assert len(lines) <= 1


def test_a_promised_giant_costs_only_what_was_sent(shared: EmbeddedCluster) -> None:
    host, _, port = shared.broker("broker-a").address.rpartition(":")
    _still_fine(shared)
    tracemalloc.start()
    try:
        with socket.create_connection((host, int(port)), 10) as plain:
            plain.sendall(struct.pack(">i", MAX_FRAME - 4) + b"x" * 1000)
            _still_fine(shared)
        assert tracemalloc.get_traced_memory()[1] < MAX_FRAME // 4
    finally:
        tracemalloc.stop()


def test_names_that_would_leave_the_folder_are_refused(shared: EmbeddedCluster) -> None:
    outside = shared.folder.parent / "escaped"
    names = ["../escaped", "/etc/x", "..", ".", "a/b", "a\0b", "%RETRY%../../x", "a\\b", "~"]
    with WireClient(shared.broker("broker-a").address) as client:
        assert client.send_message("a-good-name").code == 0
        for name in names:
            assert client.call(310, send_ext(name), b"x").code != 0
            ext = {
                "topic": name, "defaultTopic": "TBW102", "readQueueNums": 1,
                "writeQueueNums": 1, "perm": 6, "topicFilterType": "x", "order": "false",
            }  # fmt: skip
            assert client.call(17, ext).code != 0
            assert client.call(11, pull_ext(name)).code != 0
            client.call(30, {"topic": name, "queueId": 0})
            client.call(215, {"topic": name})
    assert not outside.exists()
    inside = {p.name for p in (shared.broker("broker-a").folder / "consumequeue").iterdir()}
    assert "a-good-name" in inside
    assert not inside & set(names)


def test_a_peer_that_does_not_read_is_not_read_from(cluster: EmbeddedCluster) -> None:
    handle = cluster.broker("broker-a")
    with WireClient(handle.address) as client:
        client.send_message("t", b"x" * 200_000)
        frame = encode_command(
            Command(11, {k: str(v) for k, v in pull_ext("t").items()}, b"", None, 1)
        )
        client.socket.setblocking(False)
        sent = 0
        with pytest.raises(BlockingIOError):
            # Each small request has a large answer; sooner or later nothing more is taken.
            while sent < 60_000_000:
                sent += client.socket.send(frame * 500)
        with WireClient(handle.address) as other:
            assert other.send_message("t").code == 0
        # What was answered is what fits into the buffers between us, not what was asked for.
        answered = cluster.broker("broker-a").messages_out
        assert answered < sent // len(frame) // 4


def test_too_many_connections_are_turned_away() -> None:
    with EmbeddedCluster(connection_limit=3) as cluster:
        address = cluster.broker("broker-a").address
        kept = [WireClient(address) for _ in range(3)]
        try:
            for client in kept:
                assert client.send_message("t").code == 0
            with WireClient(address) as extra, pytest.raises(OSError):
                extra.send_message("t")
            kept.pop().close()
            _until_sends(address)
        finally:
            for client in kept:
                client.close()


def _until_sends(address: str) -> None:
    for _ in range(200):
        try:
            with WireClient(address) as client:
                assert client.send_message("t").code == 0
                return
        except OSError:
            continue
    raise AssertionError("the place of the closed connection was not given to a new one")


def test_idle_connections_are_closed() -> None:
    with (
        EmbeddedCluster(idle_timeout=0.2) as cluster,
        WireClient(cluster.broker("broker-a").address) as client,
    ):
        client.send_message("t")
        with pytest.raises(OSError):
            client.receive()


def _still_fine(cluster: EmbeddedCluster) -> None:
    with WireClient(cluster.name_server) as client:
        assert client.call(105, {"topic": "TBW102"}).code == 0
    with WireClient(cluster.broker("broker-a").address) as client:
        assert client.call(30, {"topic": "TBW102", "queueId": 0}).code == 0


def test_memory_of_this_process_is_not_eaten_by_promises(shared: EmbeddedCluster) -> None:
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs /proc to see memory")

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    host, _, port = shared.broker("broker-a").address.rpartition(":")
    plains = [socket.create_connection((host, int(port)), 10) for _ in range(50)]
    try:
        for plain in plains:
            plain.sendall(struct.pack(">i", MAX_FRAME - 4) + b"x" * 1000)
        _still_fine(shared)
        assert resident() - before < 64 << 20
    finally:
        for plain in plains:
            plain.close()
