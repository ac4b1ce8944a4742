"""The server that readers are measured with hands out what a broker would."""

from __future__ import annotations

import socket

import pytest
from bench.acker import built
from bench.floor import connected

from bench import pull_server as pulls
from rocketwire.columns import read_table
from rocketwire.sync.reader import Reader
from rocketwire.wire import headers
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Command, encode_command


@pytest.mark.parametrize("kind", ["C", "Python"])
def test_all_rows_of_all_queues_are_read_in_order(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "Python":
        monkeypatch.setattr(pulls, "built", lambda _source: None)
    elif built(pulls.C_SOURCE) is None:
        pytest.skip("no C compiler")
    with (
        pulls.pull_server(2500, 100, queues=2, size=50) as server,
        Reader(server.name_server) as reader,
    ):
        table = read_table(reader, "bench")
    assert table.num_rows == 5000
    for queue in range(2):
        rows = [row for row in table.to_pylist() if row["queueId"] == queue]
        assert [row["queueOffset"] for row in rows] == list(range(2500))
        assert [row["keys"] for row in rows[98:102]] == [
            "order-000098", "order-000099", "order-000000", "order-000001",
        ]  # fmt: skip
        assert {row["body"] for row in rows} == {b"x" * 50}


@pytest.mark.skipif(built(pulls.C_SOURCE) is None, reason="no C compiler")
def test_a_client_that_leaves_in_the_middle_does_not_end_the_server() -> None:
    fields = headers.pull(
        group="g",
        topic="bench",
        queue_id=0,
        offset=0,
        max_messages=1000,
        system_flag=4,
        broker="broker-a",
    )
    request = encode_command(Command(RequestCode.PULL_MESSAGE, fields, opaque=1))
    with pulls.pull_server(100_000, 1000, queues=2) as server:
        for _ in range(5):
            with connected(server.name_server) as sock:
                sock.sendall(request * 50)
                sock.shutdown(socket.SHUT_WR)  # then what the end causes is EPIPE, not a reset
                sock.recv(1)
        with Reader(server.name_server) as reader:
            assert len(reader.queues("bench")) == 2
