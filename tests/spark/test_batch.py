"""Topics as tables, in batch."""

import json
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f

from rocketwire.columns import read_table, send_table
from rocketwire.columns.schema import READ_COLUMNS
from rocketwire.message import Message
from rocketwire.spark.pipelines.arrow_map import map_in_arrow
from rocketwire.spark.spark_api import HAS_LIMITS


@pytest.fixture
def read(spark, cluster, topic):
    def load(**options):
        reader = spark.read.format("rocketmq").option("nameServers", cluster.name_server)
        if not {"topics", "topicPattern", "assign"} & set(options):
            reader = reader.option("topic", topic)
        return reader.options(**options).load()

    return load


@pytest.fixture
def write(cluster, topic):
    def save(df, mode="append", **options):
        options = {"nameServers": cluster.name_server, "topic": topic} | options
        writer = df.write.format("rocketmq").options(**{k: v for k, v in options.items() if v})
        writer.mode(mode).save()

    return save


def rows_of(count, spark):
    return spark.range(count).selectExpr(
        "concat('body-', id) AS body", "concat('key-', id) AS keys", "'TagA' AS tags"
    )


def test_rows_written_are_read_back_by_spark(spark, read, write):
    sent = spark.range(1000).selectExpr(
        "cast(concat('body-', id) AS binary) AS body",
        "concat('key-', id) AS keys",
        "if(id % 2 = 0, 'even', null) AS tags",
        "concat('shard-', id % 7) AS shardingKey",
        "map('n', cast(id AS string), 'x', 'y') AS properties",
        "cast(id AS int) AS flag",
    )
    write(sent)
    got = read()
    assert got.columns == list(READ_COLUMNS)
    columns = ["body", "keys", "tags", "shardingKey", "properties", "flag"]
    assert sorted(got.select(columns).collect(), key=str) == sorted(
        sent.select(columns).collect(), key=str
    )
    assert got.select("rowId").distinct().count() == 1000


@pytest.mark.skipif(not HAS_LIMITS, reason="before 4.2 each action plans anew")
def test_reading_fixes_its_offsets_at_the_first_action(read, write, spark):
    write(rows_of(10, spark))
    df = read()
    assert df.count() == 10
    write(rows_of(5, spark))
    assert df.count() == 10
    assert read().count() == 15


def test_columns_can_be_chosen_by_option_and_by_schema(read, write, spark, cluster, topic):
    write(rows_of(3, spark))
    narrow = read(columns="keys,body")
    assert narrow.columns == ["keys", "body"]
    assert {row.keys for row in narrow.collect()} == {"key-0", "key-1", "key-2"}
    by_schema = (
        spark.read.format("rocketmq")
        .option("nameServers", cluster.name_server)
        .option("topic", topic)
        .schema("body binary, queueOffset bigint")
        .load()
    )
    assert by_schema.columns == ["body", "queueOffset"]
    assert by_schema.count() == 3


def test_offsets_times_and_assignment(read, producer, topic):
    queue, other = producer.publish_queues(topic)[:2]
    for i in range(10):
        producer.send(Message(topic, f"m{i}"), queue=queue)
    producer.send(Message(topic, "elsewhere"), queue=other)
    place = {topic: {queue.broker: {str(queue.id): 4}}}
    stop = {topic: {queue.broker: {str(queue.id): 6}}}
    assigned = json.dumps({topic: {queue.broker: [queue.id]}})
    some = read(assign=assigned, startingOffsets=json.dumps(place), endingOffsets=json.dumps(stop))
    assert [row.body for row in some.collect()] == [b"m4", b"m5"]
    assert read(assign=assigned).count() == 10
    recent = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert read(startingTimestamp=recent).count() == 11
    assert read(endingTimestamp=recent).count() == 0
    future = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert read(startingTimestamp=future, startingTimestampStrategy="latest").count() == 0
    with pytest.raises(PySparkException, match="no message is as new"):
        read(startingTimestamp=future).count()


def test_several_topics_by_list_and_by_pattern(read, write, spark, topic, cluster):
    cluster.create_topic(f"{topic}-more", queues=1)
    write(rows_of(2, spark))
    write(rows_of(3, spark), topic=f"{topic}-more")
    assert read(topics=f"{topic},{topic}-more").count() == 5
    assert read(topicPattern=f"{topic}.*").groupBy("topic").count().count() == 2


def test_tags_are_filtered_at_the_broker(read, write, spark):
    write(spark.range(90).selectExpr("'x' AS body", "elt(id % 3 + 1, 'Aa', 'BB', 'C') AS tags"))
    assert read(tags="Aa").count() == 30
    assert read(tags="Aa || C", columns="body").count() == 60


def test_small_ranges_share_a_task_and_large_ones_are_split(read, write, spark):
    write(rows_of(100, spark).withColumn("shardingKey", f.col("keys")))
    assert read().rdd.getNumPartitions() == 1
    assert read(joinSmallRanges="false").rdd.getNumPartitions() > 1
    assert read(minPartitions="12").rdd.getNumPartitions() >= 12
    assert read(maxRecordsPerPartition="10", columns="body").count() == 100


def test_an_empty_topic_is_an_empty_table(read):
    assert read().count() == 0
    assert read().collect() == []


def test_what_was_read_can_be_written_elsewhere(read, write, spark, topic, cluster):
    write(rows_of(20, spark))
    cluster.create_topic(f"{topic}-copy", queues=2)
    write(read(includeProperties="all"), topic=f"{topic}-copy")
    copy = read(topics=f"{topic}-copy")
    assert {r.keys for r in copy.collect()} == {f"key-{i}" for i in range(20)}
    assert copy.select("rowId").distinct().count() == 20


def test_rows_may_name_their_topic(write, spark, topic, cluster, read):
    other = f"{topic}-b"
    cluster.create_topic(other, queues=1)
    df = spark.range(10).select(
        f.lit("x").alias("body"),
        f.when(f.col("id") < 4, topic).otherwise(other).alias("topic"),
    )
    write(df, topic=None)
    assert read().count() == 4
    assert read(topics=other).count() == 6


def test_bad_rows_fail_are_dropped_or_go_to_the_dead_letters(write, spark, topic, cluster, read):
    bad = spark.sql("SELECT 'fine' AS body UNION ALL SELECT '' UNION ALL SELECT 'good'").coalesce(1)
    with pytest.raises(PySparkException, match="partition 0, row 1: body is empty"):
        write(bad)
    write(bad, onBadRow="drop")
    assert read().count() == 2
    dead = f"{topic}-dead"
    cluster.create_topic(dead, queues=1)
    write(bad, onBadRow="deadletter", deadLetterTopic=dead)
    (letter,) = read(topics=dead).collect()
    assert letter.properties["rowIndex"] == "1"
    assert letter.properties["partition"] == "0"
    assert "body is empty" in letter.properties["reason"]


def test_a_summary_line_is_appended_for_each_write(write, spark, tmp_path):
    path = tmp_path / "out" / "summary.jsonl"
    write(rows_of(7, spark), summaryFile=str(path), writeId="load-1")
    write(rows_of(2, spark), summaryFile=str(path))
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["rows"], first["badRows"], first["writeId"]) == (7, 0, "load-1")
    assert sum(first["brokers"].values()) == 7
    assert second["rows"] == 2


def test_row_ids_are_the_write_id_partition_and_content(write, read, spark):
    write(rows_of(4, spark).coalesce(1), writeId="load-7")
    ids = {row.rowId for row in read(columns="rowId").collect()}
    assert len(ids) == 4
    assert all(re.fullmatch("load-7:0:[0-9a-f]{16}", row_id) for row_id in ids)
    write(rows_of(4, spark).coalesce(1), writeId="load-7")
    assert {row.rowId for row in read(columns="rowId").collect()} == ids
    write(rows_of(1, spark), stampRows="false")
    assert read(columns="rowId").where("rowId IS NULL").count() == 1


ERRORS = [
    ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
    ({"topics": "also"}, "topic and topics are given"),
    ({"columns": "bodi"}, "did you mean 'body'"),
    ({"nameServers": "127.0.0.1:1"}, "no name server answered"),
    ({"topic": "nowhere-at-all"}, "topic nowhere-at-all is unknown"),
]


@pytest.mark.parametrize(("options", "words"), ERRORS, ids=[words for _, words in ERRORS])
def test_wrong_reads_are_refused_on_the_driver(spark, cluster, topic, options, words):
    options = {"nameServers": cluster.name_server, "topic": topic} | options
    with pytest.raises((AnalysisException, PySparkException), match=words):
        spark.read.format("rocketmq").options(**options).load().count()


def test_wrong_writes_are_refused_on_the_driver(spark, write):
    with pytest.raises(PySparkException, match="column 'price' is unknown"):
        write(spark.sql("SELECT 'x' AS body, 1.5 AS price"))
    with pytest.raises(PySparkException, match="column body is missing"):
        write(spark.sql("SELECT 'x' AS keys"))
    with pytest.raises(PySparkException, match="column tags is int32: it must be string"):
        write(spark.sql("SELECT 'x' AS body, 1 AS tags"))
    with pytest.raises(PySparkException, match="can't be overwritten: use mode"):
        write(rows_of(1, spark), mode="overwrite")
    with pytest.raises(PySparkException, match="no name server answered"):
        write(rows_of(1, spark), nameServers="127.0.0.1:1")


def test_secrets_are_in_no_plan_and_no_error(spark, cluster, topic, capfd):
    secret = {"accessKey": "AKEY-77", "secretKey": "SKEY-88", "securityToken": "TOKEN-99"}
    options = {"nameServers": cluster.name_server, "topic": topic} | secret
    df = spark.read.format("rocketmq").options(**options).load()
    df.explain(True)
    plan = capfd.readouterr().out
    with pytest.raises(PySparkException) as caught:
        spark.read.format("rocketmq").options(**options, wrong="1").load()
    for value in ("SKEY-88", "TOKEN-99"):
        assert value not in plan
        assert value not in str(caught.value)


def test_tables_of_arrow_and_of_spark_are_the_same(spark, producer, reader, read, topic):
    send_table(producer, {"body": ["a", "b"], "keys": ["1", "2"]}, topic, stamp="s:")
    by_spark = {(bytes(r.body), r.keys, r.messageId, r.rowId) for r in read().collect()}
    table = read_table(reader, topic, columns=["body", "keys", "messageId", "rowId"])
    assert by_spark == {tuple(row.values()) for row in table.to_pylist()}


def test_brokers_filter_by_sql(spark, producer, topic, cluster):
    for price in range(6):
        producer.send(Message(topic, f"p{price}", properties={"price": f"{price}"}))

    def load(sql):
        options = {"nameServers": cluster.name_server, "topic": topic, "sql": sql}
        return spark.read.format("rocketmq").options(**options).load()

    assert sorted(bytes(row.body) for row in load("price > 3").collect()) == [b"p4", b"p5"]
    with pytest.raises(PySparkException, match="price >"):
        load("price > > 3").count()


def test_large_rows_come_to_workers_in_small_batches(spark):
    """Those of 64 MB, as by default, cost a third more CPU of the JVM."""
    assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "4m"
    if not HAS_LIMITS:
        return  # an older Spark may have no such setting

    def sizes(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"size": [batch.nbytes]})

    rows = spark.range(0, 6000, 1, 1).selectExpr("repeat('x', 2000) AS body")
    found = [row["size"] for row in map_in_arrow(rows, sizes, "size long").collect()]
    assert sum(found) >= 12_000_000
    assert max(found) < 8_000_000
