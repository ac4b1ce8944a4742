"""A dataset goes through every pipeline, and each row comes out as it should."""

import json

import pytest

from rocketwire.spark import archive, deduplicate, publish, transform, verify_archive

ROWS = 500


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


def test_published_transformed_and_archived_rows_are_all_there(
    spark, cluster, topic, tmp_path, orders
):
    target = f"{topic}-large"
    cluster.create_topic(target, queues=2)
    where = {"name_servers": cluster.name_server}
    published = publish(
        spark, str(orders), topic, key="id", sharding_key="customer", verify_after=True, **where
    )
    assert (published.rows, published.parts) == (ROWS, 4)
    assert published.verification.is_good

    changed = transform(
        spark,
        topic,
        target,
        body="json",
        sql="SELECT data.id, data.amount * 2 AS amount FROM messages WHERE data.amount >= 100",
        checkpoint=tmp_path / "transform",
        **where,
    )
    assert (changed.rows_read, changed.rows_written) == (ROWS, 300)

    lake = tmp_path / "lake"
    archived = archive(
        spark, f"{topic},{target}", lake, body="json", schema="id bigint, amount double", **where
    )
    assert archived.rows == ROWS + 300
    assert verify_archive(spark, lake, **where).is_good

    rows = deduplicate(spark.read.parquet(str(lake))).collect()
    small = {row.data.id: row for row in rows if row.topic == topic}
    large = {row.data.id: row for row in rows if row.topic == target}
    assert {i: row.data.amount for i, row in small.items()} == {i: i * 0.5 for i in range(ROWS)}
    assert {i: row.data.amount for i, row in large.items()} == {
        i: float(i) for i in range(200, ROWS)
    }
    for i, row in {**small, **large}.items():
        assert (row["keys"], row.shardingKey) == (str(i), f"c{i % 11}")
        assert row["_error"] is None
