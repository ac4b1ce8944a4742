"""Whatever is done to rows before they are written, ``deduplicate`` drops repeats and nothing else."""

import json
import os
from collections import Counter

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from rocketwire.columns import read_table, send_table
from rocketwire.spark import deduplicate, transform

ROWS = 40


@pytest.fixture
def source(producer, topic):
    send_table(producer, {"body": [f"b{i}" for i in range(ROWS)]}, topic, stamp="source:")
    return topic


@pytest.fixture
def target(cluster, topic):
    cluster.create_topic(f"{topic}-out", queues=2)
    return f"{topic}-out"


@pytest.fixture
def read(spark, cluster):
    def load(topic):
        return (
            spark.read.format("rocketmq")
            .options(nameServers=cluster.name_server, topic=topic)
            .load()
        )

    return load


@pytest.fixture
def written(cluster, target, read, tmp_path):
    """Writes a frame; returns how often each body is there after repeats were dropped."""

    def save(frame, **options):
        options = {"nameServers": cluster.name_server, "topic": target} | options
        options["summaryFile"] = str(tmp_path / "summary")
        frame.write.format("rocketmq").options(**options).mode("append").save()
        return Counter(bytes(row.body).decode() for row in deduplicate(read(target)).collect())

    return save


def expected(copies=1, rows=range(ROWS)):
    return Counter({f"b{i}": copies for i in rows})


def test_three_rows_of_one_message(source, read, written):
    assert written(read(source).withColumn("n", f.explode(f.sequence(f.lit(1), f.lit(3)))).drop("n")) \
        == expected(3)  # fmt: skip


def test_half_of_the_messages(source, read, written):
    assert written(read(source).where("cast(substr(string(body), 2) as int) % 2 = 0")) == expected(
        rows=range(0, ROWS, 2)
    )


def test_a_join(spark, source, read, written):
    twice = spark.range(2).withColumnRenamed("id", "n")
    assert written(read(source).select("body", "rowId").crossJoin(twice).drop("n")) == expected(2)


def test_two_copies(source, read, written):
    assert written(read(source).union(read(source))) == expected(2)


def test_the_id_of_the_source_stays_readable(source, read, written, reader, target):
    written(read(source).select("body", "rowId"))
    rows = read_table(reader, target, columns=["body", "rowId", "sourceRowId"]).to_pylist()
    assert {row["sourceRowId"] for row in rows} == {f"source:{i}" for i in range(ROWS)}
    assert not {row["rowId"] for row in rows} & {row["sourceRowId"] for row in rows}
    # What was read is written again as it is.
    written(read(source).withColumn("sourceRowId", f.lit("ignored")))


def test_own_ids_are_kept_only_when_asked_for(spark, written, reader, target):
    own = spark.createDataFrame([("a", "1"), ("b", "1"), ("c", "2")], "body string, rowId string")
    with pytest.raises(PySparkException, match="column rowId was not read from a topic"):
        written(own)
    assert sum(written(own, stampRows="inherit").values()) == 2
    assert sorted(read_table(reader, target).column("rowId").to_pylist()) == ["1", "1", "2"]


def break_once(folder, how):
    """Ends each task's first attempt after some of its rows went to the writer."""

    def pass_on(batches):
        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 1 and context.attemptNumber() == 0:
                if how == "worker":
                    os._exit(1)
                raise RuntimeError("broken on purpose")
            # In another order the second time, as after a shuffle that was repeated.
            yield (
                batch if context.attemptNumber() == 0 else batch.take(list(range(len(batch)))[::-1])
            )

    return pass_on


@pytest.mark.parametrize("how", ["error", "worker"])
def test_tasks_that_are_repeated_in_another_order(spark, written, reader, target, tmp_path, how):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        frame = spark.range(0, ROWS, 1, 2).selectExpr("concat('b', id % 30) AS body")
        broken = frame.repartition(2).mapInArrow(break_once(tmp_path, how), "body string")
        found = written(broken)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert found == expected() - expected(rows=range(30, ROWS)) + expected(rows=range(10))
    in_topic = read_table(reader, target).num_rows
    summary = json.loads((tmp_path / "summary").read_text())
    assert summary["rows"] == ROWS
    assert summary["repeatsPossible"] == ROWS
    assert in_topic >= ROWS


def test_two_hops_are_effectively_once(spark, cluster, producer, topic, target, read, tmp_path):
    ids = [f"w:0:{i}" for i in range(ROWS)]
    rows = {"body": [f"b{i}" for i in range(ROWS)], "rowId": ids, "shardingKey": ["k"] * ROWS}
    send_table(producer, rows, topic)

    def go():
        return transform(
            spark, topic, target, name_servers=cluster.name_server, checkpoint=tmp_path / "c",
            sql="select upper(string(body)) as body from messages",
        )  # fmt: skip

    first = go()
    assert (first.rows_read, first.rows_written) == (ROWS, ROWS)
    send_table(producer, rows, topic)  # a task that was repeated later
    second = go()
    assert (second.rows_read, second.rows_written) == (ROWS, 0)
    forget_last_commits(tmp_path / "c", 2)  # as after a crash before the commit
    go()
    got = deduplicate(read(target)).orderBy("queueId", "queueOffset").collect()
    assert [bytes(row.body).decode() for row in got] == [f"B{i}" for i in range(ROWS)]


def forget_last_commits(checkpoint, count):
    commits = checkpoint / "commits"
    numbers = sorted(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for number in numbers[-count:]:
        (commits / str(number)).unlink()
        (commits / f".{number}.crc").unlink(missing_ok=True)


def test_what_spark_can_not_do_as_a_stream_is_still_refused(
    spark, cluster, topic, target, tmp_path
):
    with pytest.raises(Exception, match="can't run as a stream"):
        transform(
            spark, topic, target, name_servers=cluster.name_server, checkpoint=tmp_path / "c",
            sql="select string(body) as body, count(*) as n from messages group by body",
        )  # fmt: skip
