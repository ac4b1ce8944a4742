"""Archives that are Delta or Iceberg tables: each row once, and counted truly."""

import json
from datetime import UTC, datetime

import pytest

from rocketwire.columns import send_table
from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.errors import ConfigError
from rocketwire.message import Message
from rocketwire.spark import archive, verify_archive
from rocketwire.sync.producer import Producer


def fill(producer, topic, *numbers):
    rows = {
        "body": [json.dumps({"id": i}) for i in numbers],
        "shardingKey": [f"{i}" for i in numbers],
    }
    send_table(producer, rows, topic)


def table(spark, folder, kind):
    return spark.read.format(kind).load(str(folder))


def ids_in(spark, folder, kind):
    rows = table(spark, folder, kind).selectExpr("cast(body AS string) AS body").collect()
    return sorted(json.loads(row.body)["id"] for row in rows)


def forget_last_commit(folder):
    """As after a kill between the table's commit and the checkpoint's."""
    commits = folder.parent / f".{folder.name}.checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_table_grows_by_what_is_new(run, check, spark, producer, topic, folder, kind):
    assert run().rows == 0
    assert check().is_good
    fill(producer, topic, *range(100))
    first = run()
    assert (first.rows, first.batches, first.missing) == (100, 1, 0)
    assert first.files >= 1
    assert first.bytes > 100
    again = run()
    assert (again.rows, again.files, again.bytes, again.batches) == (0, 0, 0, 0)
    fill(producer, topic, *range(100, 130))
    assert run().rows == 30
    assert ids_in(spark, folder, kind) == list(range(130))
    verdict = check()
    assert verdict.is_good
    assert (verdict.rows, verdict.queues) == (130, 6)


def test_a_batch_that_the_table_has_is_not_added_again(
    run, check, spark, producer, topic, folder, kind
):
    fill(producer, topic, *range(50))
    run()
    forget_last_commit(folder)
    assert run().rows == 0
    assert ids_in(spark, folder, kind) == list(range(50))
    # Cut into other tasks, and with more messages behind it, the batch is still the same one.
    fill(producer, topic, *range(50, 60))
    forget_last_commit(folder)
    done = run(options={"joinSmallRanges": "false"})
    assert done.rows == 10
    assert ids_in(spark, folder, kind) == list(range(60))
    assert check().is_good


def test_days_are_those_of_utc_wherever_the_session_is(run, spark, producer, topic, folder, kind):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        fill(producer, topic, 1, 2)
        run()
        rows = table(spark, folder, kind).selectExpr(
            "cast(date AS string) AS date", "unix_micros(storeTimestamp) AS at"
        )
        for row in rows.collect():
            assert row.date == datetime.fromtimestamp(row.at / 1e6, UTC).strftime("%Y-%m-%d")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_what_is_lost_or_there_twice_is_found(run, check, spark, producer, topic, folder, kind):
    queue = producer.publish_queues(topic)[0]
    for i in range(10):
        producer.send(Message(topic, json.dumps({"id": i})), queue=queue)
    run()
    table(spark, folder, kind).where("queueOffset = 2").write.format(kind).mode("append").save(
        str(folder)
    )
    where = f"topic {topic}, broker {queue.broker}, queue {queue.id}"
    assert f"{where}: 1 repeats, at 2 (2 times)" in check().problems
    rest = table(spark, folder, kind).where("queueOffset NOT IN (2, 5, 9)")
    kept = spark.createDataFrame(rest.collect(), rest.schema)
    kept.write.format(kind).mode("overwrite").save(str(folder))
    problems = check().problems
    assert f"{where}: offsets 5 to 5 are missing" in problems
    assert f"{where}: offsets 9 to 9 are missing" in problems


def test_bodies_become_data_and_what_does_not_parse_stays(
    run, spark, producer, topic, folder, kind
):
    send_table(producer, {"body": ['{"id": 1}', "not json"]}, topic)
    run(body="json", schema="id bigint")
    rows = table(spark, folder, kind).selectExpr("data.id AS id", "_body", "_error").collect()
    assert {row.id for row in rows} == {1, None}
    (bad,) = (row for row in rows if row.id is None)
    assert (bytes(bad["_body"]), bad["_error"]) == (
        b"not json",
        "the body is not JSON of the schema",
    )


def test_another_format_of_the_same_archive_is_refused(run, producer, topic, kind):
    fill(producer, topic, 1)
    run()
    with pytest.raises(ConfigError, match=f"its stream had format '{kind}', not 'parquet'"):
        run(format="parquet")


def test_queues_that_are_away_are_counted_and_named(spark, tmp_path, kind):
    folder = tmp_path / "table"
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=2)
        with Producer(cluster.name_server, group="lake") as producer:
            fill(producer, "orders", *range(40))
            options = {"failOnDataLoss": "false", "readTimeout": "2s"}
            servers = cluster.name_server

            def run():
                return archive(
                    spark, "orders", folder, name_servers=servers, format=kind, options=options
                )

            assert (run().rows, run().missing) == (40, 0)
            cluster.broker("broker-b").kill()
            assert run().missing == 2
            found = verify_archive(spark, folder, name_servers=servers)
            assert found.rows == 40
            assert not found.is_good
            assert "broker-b" in " ".join(found.problems)


def test_an_iceberg_table_of_a_catalog_is_named(spark, cluster, producer, topic, tmp_path):
    fill(producer, topic, *range(20))
    name = f"lake.shop.{topic.replace('-', '_')}"
    given = {"name_servers": cluster.name_server, "format": "iceberg"}
    with pytest.raises(ConfigError, match=r"checkpoint is missing: lake\.shop\."):
        archive(spark, topic, name, **given)
    place = tmp_path / "progress"
    assert archive(spark, topic, name, checkpoint=place, **given).rows == 20
    assert spark.table(name).count() == 20
    servers = cluster.name_server
    assert verify_archive(spark, name, name_servers=servers, checkpoint=place).is_good
    (place / "commits" / "0").unlink()
    (place / "commits" / ".0.crc").unlink(missing_ok=True)
    assert archive(spark, topic, name, checkpoint=place, **given).rows == 0
    spark.catalog.refreshTable(name)
    assert spark.table(name).count() == 20
