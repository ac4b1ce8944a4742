"""A dataset goes through every pipeline, and each row comes out as it should.

On the embedded cluster, and on Apache RocketMQ itself.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import pytest

from rocketwire.spark import archive, deduplicate, publish, report, transform, verify_archive

ROWS = 500
LARGE = range(200, ROWS)
_names = itertools.count()


@pytest.fixture(params=["embedded", pytest.param("5.3.3", marks=pytest.mark.real)])
def place(request):
    """A cluster of two brokers."""
    if request.param == "embedded":
        return request.getfixturevalue("cluster")
    return request.getfixturevalue("apache")


@pytest.fixture(scope="module")
def apache():
    # The harness is imported by name, as its own tests do.
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    from tests.real import jars
    from tests.real.apache import ApacheCluster

    jars.require_tools("5.3.3")
    with ApacheCluster("5.3.3", brokers=2) as running:
        yield running


@pytest.fixture
def topics(place):
    """Where from and where to."""
    number = next(_names)
    names = f"end-to-end-{number}", f"end-to-end-{number}-large"
    for name in names:
        place.create_topic(name, queues=3)
    return names


@pytest.fixture
def orders(tmp_path):
    folder = tmp_path / "orders"
    folder.mkdir()
    for part in range(4):
        lines = [
            json.dumps({"id": i, "customer": f"c{i % 11}", "amount": i * 0.5})
            for i in range(part, ROWS, 4)
        ]
        (folder / f"part-{part}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def recorded(folder, count):
    """The attempts in a folder of telemetry, once they stand for so many messages.

    Workers write them down a moment after the answer, in a thread of their own.
    """
    deadline = time.monotonic() + 60
    while True:
        lines = [json.loads(x) for p in folder.glob("*.jsonl") for x in p.read_text().splitlines()]
        attempts = [line for line in lines if line["kind"] == "attempt"]
        if sum(line["messages"] for line in attempts if line["outcome"] == "stored") >= count:
            return attempts
        assert time.monotonic() < deadline, f"{len(attempts)} attempts were recorded"
        time.sleep(0.05)


def test_a_dataset_goes_through_all_pipelines_and_every_row_is_there(
    spark, place, topics, tmp_path, orders
):
    source, target = topics
    where = {"name_servers": place.name_server}
    telemetry = tmp_path / "telemetry"
    sending = {**where, "options": {"telemetry": str(telemetry)}}

    published = publish(
        spark, str(orders), source, key="id", sharding_key="customer", verify_after=True, **sending
    )
    assert (published.rows, published.parts) == (ROWS, 4)
    assert published.verification.is_good

    changed = transform(
        spark,
        source,
        target,
        body="json",
        sql="SELECT data.id, data.amount * 2 AS amount FROM messages WHERE data.amount >= 100",
        checkpoint=tmp_path / "transform",
        **sending,
    )
    assert (changed.rows_read, changed.rows_written) == (ROWS, len(LARGE))

    lake = tmp_path / "lake"
    archived = archive(
        spark, f"{source},{target}", lake, body="json", schema="id bigint, amount double", **where
    )
    assert archived.rows == ROWS + len(LARGE)
    assert verify_archive(spark, lake, **where).is_good

    rows = deduplicate(spark.read.parquet(str(lake))).collect()
    assert len(rows) == ROWS + len(LARGE)
    small = {row.data.id: row for row in rows if row.topic == source}
    large = {row.data.id: row for row in rows if row.topic == target}
    assert {i: row.data.amount for i, row in small.items()} == {i: i * 0.5 for i in range(ROWS)}
    assert {i: row.data.amount for i, row in large.items()} == {i: float(i) for i in LARGE}
    for i, row in [*small.items(), *large.items()]:
        assert (row["keys"], row.shardingKey) == (str(i), f"c{i % 11}")
        assert row["_error"] is None

    attempts = recorded(telemetry, ROWS + len(LARGE))
    told = report(spark, telemetry, tmp_path / "report.html", time_zone="UTC")
    assert (told.attempts, told.unreadable, told.dropped) == (len(attempts), 0, 0)
    assert (told.failed_sends, told.order_violations) == (0, 0)
    queues = spark.read.parquet(told.tables["queues"]).collect()
    in_table = {(q.topic, q.broker, q.queue): q.messages for q in queues if q.messages}
    # Keys tie rows to queues, so the telemetry and the archive must agree queue by queue.
    in_lake = {}
    for row in rows:
        at = (row.topic, row.broker, row.queueId)
        in_lake[at] = in_lake.get(at, 0) + 1
    assert in_table == in_lake
    assert source in (tmp_path / "report.html").read_text()
