"""Topics as streams, read and written."""

import json
import threading
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from rocketwire.columns import read_table, send_table
from rocketwire.message import Message
from rocketwire.spark import deduplicate, lag
from rocketwire.spark.spark_api import HAS_LIMITS


@pytest.fixture
def read(spark, cluster, topic):
    def load(**options):
        options = {
            "nameServers": cluster.name_server,
            "topic": topic,
            "startingOffsets": "earliest",
        } | options
        return spark.readStream.format("rocketmq").options(**options).load()

    return load


@pytest.fixture
def run(tmp_path):
    """Run a stream until it has read everything that is there now; returns its progress."""

    def start(df, sink="memory", name="checkpoint", **options):
        writer = df.writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        if sink == "memory":
            writer = writer.format("memory").queryName(options.pop("table"))
        else:
            writer = writer.format(sink)
        query = writer.options(**options).start()
        assert query.awaitTermination(120)
        return [json.loads(progress.json) for progress in query.recentProgress]

    return start


def fill(producer, topic, count, first=0):
    rows = range(first, first + count)
    send_table(
        producer,
        {"body": [f"b{i}" for i in rows], "shardingKey": [f"k{i % 9}" for i in rows]},
        topic,
    )


def test_a_stream_reads_everything_once_over_restarts(read, run, producer, topic, tmp_path, spark):
    fill(producer, topic, 500)
    out = str(tmp_path / "out")
    df = read(columns="body,queueOffset")
    run(df, sink="parquet", path=out)
    fill(producer, topic, 300, first=500)
    run(df, sink="parquet", path=out)
    run(df, sink="parquet", path=out)
    bodies = [row.body.decode() for row in spark.read.parquet(out).collect()]
    assert sorted(bodies) == sorted(f"b{i}" for i in range(800))


@pytest.mark.skipif(HAS_LIMITS, reason="a source is told the trigger from 4.2 on")
def test_a_limit_never_ends_a_run_early(read, run, producer, topic, spark):
    fill(producer, topic, 100)
    run(read(maxOffsetsPerTrigger="30"), table="unlimited")
    assert spark.table("unlimited").count() == 100


@pytest.mark.skipif(not HAS_LIMITS, reason="limits need 4.2")
def test_a_limit_makes_several_batches(read, run, producer, topic, spark):
    fill(producer, topic, 100)
    progress = run(read(maxOffsetsPerTrigger="30"), table="limited")
    batches = [p["numInputRows"] for p in progress if p["numInputRows"]]
    assert batches == [30, 30, 30, 10]
    assert spark.table("limited").count() == 100


def test_offsets_are_told_by_topic_broker_and_queue(read, run, producer, topic):
    fill(producer, topic, 50)
    progress = run(read(), table="told")
    end = progress[-1]["sources"][0]["endOffset"]
    end = json.loads(end) if isinstance(end, str) else end
    assert set(end["offsets"]) == {topic}
    total = sum(n for queues in end["offsets"][topic].values() for n in queues.values())
    assert total == 50


def test_lag_is_what_has_not_been_read(read, run, producer, topic):
    fill(producer, topic, 60)
    progress = run(read(maxOffsetsPerTrigger="40"), table="lagging")
    first = lag(progress[0])
    if not HAS_LIMITS:
        assert str(first) == "unknown"
        return
    assert (first.total, lag(progress[-1]).total) == (20, 0)
    assert first.max >= first.avg >= first.min >= 0


def test_latest_starts_with_what_comes_after(read, producer, topic, spark, tmp_path):
    fill(producer, topic, 20)
    query = (
        read(startingOffsets="latest", columns="body")
        .writeStream.format("memory")
        .queryName("newest")
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        _wait_until(lambda: query.lastProgress is not None or query.status["message"] != "")
        # The query has its start once it has made a first plan.
        _wait_until(lambda: "Waiting" in query.status["message"] or query.lastProgress)
        fill(producer, topic, 5, first=100)
        _wait_until(lambda: spark.table("newest").count() >= 5)
        assert {row.body.decode() for row in spark.table("newest").collect()} == {
            f"b{i}" for i in range(100, 105)
        }
    finally:
        query.stop()


def test_a_new_queue_starts_at_its_beginning(read, run, producer, topic, cluster):
    fill(producer, topic, 10)
    df = read(columns="body,queueId")
    run(df, sink="noop")
    cluster.create_topic(topic, queues=5)
    for queue in cluster_queues(producer, topic):
        if queue.id == 4:
            producer.send(Message(topic, "new"), queue=queue)
    progress = run(df, sink="noop")
    assert sum(p["numInputRows"] for p in progress) == 2


def cluster_queues(producer, topic):
    def grown():
        return len(producer.publish_queues(topic)) == 10

    producer._instance.routes.forget(topic)
    _wait_until(grown)
    return producer.publish_queues(topic)


def test_a_stream_writes_a_topic(spark, run, producer, reader, topic, cluster, read):
    fill(producer, topic, 200)
    target = f"{topic}-out"
    cluster.create_topic(target, queues=2)
    df = read(columns="body,shardingKey").select(
        f.upper(f.col("body").cast("string")).alias("body"), "shardingKey"
    )
    options = {"nameServers": cluster.name_server, "topic": target}
    run(df, sink="rocketmq", **options)
    got = read_table(reader, target, columns=["body", "rowId"]).to_pylist()
    assert {row["body"].decode() for row in got} == {f"B{i}" for i in range(200)}
    ids = {row["rowId"] for row in got}
    assert len(ids) == 200
    query, batch, partition, content = next(iter(ids)).split(":")
    assert len(query) == 16
    assert (batch, partition) == ("0", "0")
    assert len(bytes.fromhex(content)) == 8


def test_repeats_are_dropped_by_their_row_id(spark, cluster, producer, topic, read, run, tmp_path):
    rows = {"body": ["a", "b", "a", "c", "d"], "rowId": ["1", "2", "1", None, None]}
    send_table(producer, rows, topic)
    batch = spark.read.format("rocketmq").options(nameServers=cluster.name_server, topic=topic)
    kept = deduplicate(batch.load())
    assert sorted(row.body for row in kept.collect()) == [b"a", b"b", b"c", b"d"]
    run(deduplicate(read(), within="10 minutes"), table="kept")
    assert sorted(row.body for row in spark.table("kept").collect()) == [b"a", b"b", b"c", b"d"]


@pytest.mark.skipif(not HAS_LIMITS, reason="told when the next batch begins, before 4.2")
def test_progress_shows_as_consumer_offsets(read, run, producer, topic, cluster):
    fill(producer, topic, 40)
    run(read(groupId="spark-group"), table="grouped")
    stored = {}
    for name in ("broker-a", "broker-b"):
        broker = cluster.broker(name)
        for queue in range(3):
            stored[name, queue] = committed(cluster, producer, "spark-group", topic, name, queue)
        assert broker is not None
    assert sum(stored.values()) == 40


def committed(cluster, producer, group, topic, broker, queue_id):
    from rocketwire.core.effects import invoke
    from rocketwire.wire.codes import RequestCode
    from rocketwire.wire.headers import decode_offset, query_consumer_offset

    instance = producer._instance
    fields = query_consumer_offset(group, topic, queue_id, broker=broker)
    request = instance.request(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    address = instance.routes.addresses_of(broker)[0]
    reply = producer._run(invoke(address, request, instance.clock() + 5))
    return decode_offset(reply.ext) if reply.code == 0 else 0


def test_an_ending_option_is_refused(read, run):
    with pytest.raises(StreamingQueryException, match="endingOffsets ends a batch"):
        run(read(endingOffsets="latest"), table="never")


def test_a_deleted_range_stops_the_stream_or_is_skipped(read, run, producer, topic, spark):
    queue = producer.publish_queues(topic)[0]
    for i in range(3):
        producer.send(Message(topic, f"m{i}"), queue=queue)
    beyond = json.dumps({topic: {queue.broker: {str(queue.id): 50}}})
    with pytest.raises(StreamingQueryException, match="offsets 3 to 49 are not there"):
        run(read(startingOffsets=beyond), table="lost", name="lost")
    run(read(startingOffsets=beyond, failOnDataLoss="false"), table="kept_going", name="kept")
    assert spark.table("kept_going").count() == 0


def test_a_stream_follows_what_is_sent(read, producer, topic, spark, tmp_path):
    query = (
        read(columns="body", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
        .writeStream.format("memory")
        .queryName("followed")
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        fill(producer, topic, 6)
        fill(producer, topic, 6, first=6)
        _wait_until(lambda: spark.table("followed").count() == 12)
    finally:
        query.stop()


def _wait_until(holds, seconds=60):
    limit = time.monotonic() + seconds
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < limit
        pause.wait(0.05)
