"""The server that readers are measured with hands out what a broker would."""

from __future__ import annotations

import pytest
from bench.acker import built

from bench import pull_server as pulls
from rocketwire.columns import read_table
from rocketwire.sync.reader import Reader


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
