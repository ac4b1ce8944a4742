"""Messages go from topic to topic, changed, once per checkpoint."""

import json

import pytest
from pyspark.sql import functions as f

from rocketwire.columns import read_table, send_table
from rocketwire.errors import ConfigError
from rocketwire.spark import transform


@pytest.fixture
def target(cluster, topic):
    name = f"{topic}-out"
    cluster.create_topic(name, queues=2)
    return name


@pytest.fixture
def run(spark, cluster, topic, target, tmp_path):
    def call(**options):
        options = {"checkpoint": tmp_path / "checkpoint"} | options
        return transform(spark, topic, target, name_servers=cluster.name_server, **options)

    return call


def fill(producer, topic, *numbers):
    send_table(
        producer,
        {
            "body": [json.dumps({"id": i, "price": i * 2}) for i in numbers],
            "keys": [f"k{i}" for i in numbers],
            "tags": ["even" if i % 2 == 0 else "odd" for i in numbers],
            "shardingKey": [f"s{i % 3}" for i in numbers],
        },
        topic,
    )


def out(reader, target):
    columns = ["body", "keys", "tags", "shardingKey"]
    rows = read_table(reader, target, columns=columns).to_pylist()
    return sorted(rows, key=lambda row: (row["keys"] or "", row["body"]))


def test_a_statement_over_parsed_bodies(run, producer, reader, topic, target):
    fill(producer, topic, 1, 2, 3, 4)
    result = run(
        sql="SELECT data.id, data.price + 1 AS price FROM messages WHERE data.id > 1", body="json"
    )
    assert (result.rows_read, result.rows_written, result.bad_rows) == (4, 3, 0)
    rows = out(reader, target)
    assert [json.loads(row["body"]) for row in rows] == [
        {"id": 2, "price": 5},
        {"id": 3, "price": 7},
        {"id": 4, "price": 9},
    ]
    # What was not selected goes over from the message that was read.
    assert [row["keys"] for row in rows] == ["k2", "k3", "k4"]
    assert [row["tags"] for row in rows] == ["even", "odd", "even"]
    assert [row["shardingKey"] for row in rows] == ["s2", "s0", "s1"]


def test_a_restart_goes_on_where_the_last_run_ended(run, producer, reader, topic, target):
    statement = "SELECT upper(cast(body AS string)) AS body, 'new' AS tags FROM messages"
    fill(producer, topic, 1, 2)
    assert run(sql=statement).rows_written == 2
    assert run(sql=statement).rows_written == 0
    fill(producer, topic, 3)
    assert run(sql=statement).rows_written == 1
    rows = out(reader, target)
    assert len(rows) == 3
    assert {row["tags"] for row in rows} == {"new"}
    assert rows[0]["body"] == b'{"ID": 1, "PRICE": 2}'


def test_a_changed_statement_is_refused_unless_forced(run, producer, topic):
    fill(producer, topic, 1)
    run(sql="SELECT body FROM messages")
    with pytest.raises(ConfigError, match=r"statement 'SELECT body FROM messages', not .*force"):
        run(sql="SELECT body, 'x' AS tags FROM messages")
    run(sql="SELECT body, 'x' AS tags FROM messages", force=True)


def shout(messages):
    return messages.select(f.concat(f.col("body").cast("string"), f.lit("!")).alias("body"), "keys")


def test_a_python_function(run, producer, reader, topic, target):
    fill(producer, topic, 7)
    run(function=shout)
    (row,) = out(reader, target)
    assert row["body"].endswith(b"!")
    assert (row["keys"], row["tags"]) == ("k7", None)


def test_a_dry_run_writes_nothing(run, producer, reader, topic, target):
    fill(producer, topic, *range(20))
    result = run(
        sql="SELECT data.price FROM messages", body="json", schema="price bigint", dry_run=True
    )
    assert len(result.sample) == 10
    assert result.schema.startswith("struct<body:string,keys:string")
    assert out(reader, target) == []


def test_rows_that_cannot_be_written_go_to_the_dead_letters(
    run, producer, reader, topic, target, cluster
):
    dead = f"{topic}-dead"
    cluster.create_topic(dead, queues=1)
    fill(producer, topic, 1, 2, 3)
    statement = "SELECT if(data.id = 2, '', 'fine') AS body FROM messages"
    result = run(sql=statement, body="json", dead_letter=dead)
    assert (result.rows_written, result.bad_rows) == (2, 1)
    assert len(out(reader, target)) == 2
    (letter,) = read_table(reader, dead).to_pylist()
    assert "body is empty" in dict(letter["properties"])["reason"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sql": "SELECT nothing FROM messages"}, "statement can't be run.*nothing"),
        ({"sql": "nonsense"}, "statement can't be run"),
        ({}, "exactly one of sql and function"),
        ({"sql": "SELECT keys FROM messages"}, "no columns to make a body of"),
        ({"sql": "SELECT 1 AS body FROM messages"}, "column body is int32"),
        ({"sql": "SELECT 1", "body": "xml"}, "body is 'xml': raw, text, json, avro or protobuf"),
        ({"sql": "SELECT 1", "body": "avro"}, "give schema=, a file with its schema"),
        (
            {"sql": "SELECT 1", "body": "avro", "schema": "/no/such.avsc"},
            "can't be read: No such file",
        ),
        ({"sql": "SELECT 1", "body": "protobuf", "schema": "x"}, "write FILE:MESSAGE"),
        ({"sql": "SELECT 1", "body": "text", "registry_header": True}, "not for text"),
        ({"sql": "SELECT 1", "body": "json"}, "no schema can be learned"),
        ({"sql": "SELECT 1", "body": "json", "schema": "?"}, "schema '.' can't be read"),
        ({"function": lambda messages: 7}, "returned a int"),
    ],
)
def test_wrong_arguments_are_refused(run, options, words):
    with pytest.raises(ConfigError, match=words):
        run(**options)


def test_a_stream_may_not_feed_itself(spark, cluster, topic):
    with pytest.raises(ConfigError, match="would feed itself"):
        transform(spark, topic, topic, name_servers=cluster.name_server, sql="SELECT 1")


def test_bodies_as_text_and_as_variant(run, producer, reader, topic, target, tmp_path):
    fill(producer, topic, 1, 2)
    send_table(producer, {"body": ["not json"], "keys": ["k9"]}, topic)
    run(
        sql="SELECT keys, upper(data) AS body FROM messages", body="text", checkpoint=tmp_path / "t"
    )
    assert [row["body"] for row in out(reader, target)][2] == b"NOT JSON"
    # Not data:price, which Spark 4.0 does not read.
    price = "variant_get(data, '$.price', 'string')"
    sql = f"SELECT keys, coalesce({price}, _error) AS body FROM messages"
    run(sql=sql, body="json", schema="variant", checkpoint=tmp_path / "v")
    bodies = {row["body"] for row in out(reader, target)}
    assert {b"2", b"4", b"the body is not JSON"} <= bodies


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_session_without_the_package_is_told_its_name(run, producer, topic, tmp_path, kind):
    fill(producer, topic, 1)
    (tmp_path / "schema").write_text('"string"')
    schema = str(tmp_path / "schema") + (":Order" if kind == "protobuf" else "")
    with pytest.raises(
        ConfigError, match=rf"spark\.jars\.packages=org\.apache\.spark:spark-{kind}_2\.13:"
    ):
        run(sql="SELECT body FROM messages", body=kind, schema=schema, registry_header=True)
