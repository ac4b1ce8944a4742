"""Rows one by one become the batches that Arrow writers get from Spark."""

from datetime import UTC, datetime

import pyarrow as pa

from rocketwire.columns.rows import Rows
from rocketwire.spark import gathered_rows
from rocketwire.spark.gathered_rows import gather

SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("queueOffset", pa.int64()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("deliverAt", pa.timestamp("us", tz="UTC")),
        ("flag", pa.int32()),
    ]
)


def test_every_kind_of_value_arrives(monkeypatch):
    monkeypatch.setattr(gathered_rows, "_ROWS", 2)
    local = datetime(2026, 1, 31, 12, 0)  # as Spark gives it: in this process's zone
    rows = [
        (bytearray(b"a"), 7, {"x": "1"}, local, 3),
        (None, 8, None, None, None),
        (b"c", 9, {}, None, 0),
    ]
    first, second = gather(rows, SCHEMA)
    assert (first.num_rows, second.num_rows) == (2, 1)
    assert first.column("body").to_pylist() == [b"a", None]
    assert first.column("properties").to_pylist() == [[("x", "1")], None]
    assert first.column("deliverAt")[0].as_py() == local.astimezone(UTC)
    assert first.column("flag").to_pylist() == [3, None]
    assert Rows.of(first).count == 2
    assert list(gather([], SCHEMA)) == []
