"""Datasets are published once, whole, in order where asked, and checked afterwards."""

import json
from collections import defaultdict

import pytest

from rocketwire.columns import read_table
from rocketwire.errors import ConfigError
from rocketwire.spark import publish


@pytest.fixture
def send(spark, cluster, topic):
    def call(dataset, to=topic, **options):
        return publish(spark, dataset, to, name_servers=cluster.name_server, **options)

    return call


@pytest.fixture
def folder(tmp_path, spark):
    """Three CSV files of 40 rows each."""
    path = tmp_path / "data"
    path.mkdir()
    for number in range(3):
        lines = [f"{number * 40 + i},c{i % 5},{i * 1.5}" for i in range(40)]
        (path / f"f{number}.csv").write_text("id,customer,amount\n" + "\n".join(lines) + "\n")
    return path


def rows_of(reader, topic, *columns):
    return read_table(reader, topic, columns=columns).to_pylist()


def test_a_folder_of_files_becomes_messages(send, folder, reader, topic):
    result = send(
        str(folder), key="id", tag="customer", properties={"amount": "amount", "kind": "'order'"}
    )
    assert (result.rows, result.parts, result.bad_rows, result.skipped) == (120, 3, 0, 0)
    assert sum(result.by_broker.values()) == 120
    rows = rows_of(reader, topic, "body", "keys", "tags", "properties", "rowId")
    by_key = {row["keys"]: row for row in rows}
    assert set(by_key) == {str(i) for i in range(120)}
    assert json.loads(by_key["7"]["body"]) == {"id": "7", "customer": "c2", "amount": "10.5"}
    assert by_key["7"]["tags"] == "c2"
    assert dict(by_key["7"]["properties"]) == {"amount": "10.5", "kind": "order"}
    assert len({row["rowId"] for row in rows}) == 120


def test_a_restart_repeats_nothing_and_goes_on(send, folder, reader, topic, tmp_path):
    state = tmp_path / "state"
    first = send(str(folder), key="id", state=state)
    assert first.parts == 3
    again = send(str(folder), key="id", state=state)
    assert (again.rows, again.parts, again.skipped) == (0, 0, 3)
    assert len(rows_of(reader, topic, "keys")) == 120


def test_a_job_that_broke_off_sends_the_parts_that_are_missing(
    send, folder, reader, topic, tmp_path
):
    state = tmp_path / "state"
    send(str(folder), key="id", state=state)
    # As after a crash: one part was acknowledged, a second one's line is torn.
    job = json.loads((state / "job.json").read_text())
    del job["complete"]
    (state / "job.json").write_text(json.dumps(job))
    lines = (state / "parts.jsonl").read_text().splitlines()
    (state / "parts.jsonl").write_text(lines[0] + "\n" + lines[1][:20])
    result = send(str(folder), key="id", state=state)
    assert (result.rows, result.parts, result.skipped) == (80, 2, 1)
    rows = rows_of(reader, topic, "keys", "rowId")
    assert len(rows) == 200
    assert len({row["rowId"] for row in rows}) == 120  # repeats have the ids they had before


def test_changed_input_and_changed_settings_are_refused(send, folder, tmp_path):
    state = tmp_path / "state"
    send(str(folder), key="id", state=state)
    with pytest.raises(ConfigError, match="key 'id', not 'customer'"):
        send(str(folder), key="customer", state=state)
    (folder / "f3.csv").write_text("id,customer,amount\n1,2,3\n")
    with pytest.raises(ConfigError, match=r"f3.csv is new .1 in all"):
        send(str(folder), key="id", state=state)


def test_order_per_key_holds_over_the_whole_dataset(send, spark, reader, topic):
    df = spark.range(2000).selectExpr("id", "id % 13 AS customer", "hash(id) AS noise")
    shuffled = df.orderBy("noise")
    result = send(shuffled, body="cast(id AS string)", sharding_key="customer", order_by="id")
    assert result.rows == 2000
    by_key = defaultdict(list)
    for row in rows_of(reader, topic, "shardingKey", "body"):
        by_key[row["shardingKey"]].append(int(row["body"]))
    assert len(by_key) == 13
    for numbers in by_key.values():
        assert numbers == sorted(numbers)


def test_verification_finds_what_is_missing_or_changed(send, folder, spark, cluster, topic):
    good = send(str(folder), key="id", verify_after=True)
    assert good.verification is not None
    assert good.verification.is_good
    assert (good.verification.rows, good.verification.repeats) == (120, 0)

    from rocketwire.spark.pipelines.publish_verify import verify

    settings = {"nameServers": cluster.name_server}
    part = {"part": "f", "mark": "nothing", "rows": 3, "checksum": 1}
    bad = verify(spark, settings, [topic], good.job, {}, [part])
    assert bad.problems == ("f: 3 rows were sent, 0 are in the topic",)


def test_a_dry_run_shows_messages_and_sends_none(send, folder, reader, topic):
    result = send(str(folder), key="id", dry_run=True)
    assert len(result.sample) == 10
    assert set(result.sample[0]) == {"body", "keys"}
    assert rows_of(reader, topic, "keys") == []


def test_rows_find_their_topic_by_an_expression(send, spark, reader, topic, cluster):
    other = f"{topic}-b"
    cluster.create_topic(other, queues=1)
    df = spark.range(10)
    expression = f"if(id < 3, '{topic}', '{other}')"
    result = send(df, to=None, topic_expression=expression, verify_after=True)
    assert result.verification.is_good
    assert len(rows_of(reader, topic, "body")) == 3
    assert len(rows_of(reader, other, "body")) == 7


def test_a_table_is_one_part(send, spark, tmp_path, reader, topic):
    spark.range(50).createOrReplaceTempView("published_view")
    result = send("published_view", body="id", state=tmp_path / "s")
    assert result.rows == 50
    assert send("published_view", body="id", state=tmp_path / "s").rows == 0


def test_progress_is_reported_and_a_rate_is_kept(send, folder):
    seen = []
    result = send(str(folder), rate=200, on_progress=seen.append)
    assert result.seconds > 0.25  # 120 rows at 200 a second, the first ones at once
    assert seen[-1].rows == 120
    assert seen[-1].parts == seen[-1].parts_in_all == 3


def test_parquet_and_json_files_are_known_by_their_names(send, spark, tmp_path, reader, topic):
    spark.range(5).write.parquet(str(tmp_path / "p"))
    spark.range(5).write.json(str(tmp_path / "j"))
    assert send(str(tmp_path / "p")).rows == 5
    assert send(str(tmp_path / "j"), body="id").rows == 5
    bodies = {row["body"] for row in rows_of(reader, topic, "body")}
    assert b'{"id":3}' in bodies
    assert b"3" in bodies


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": "nothing"}, "can't be found.*nothing"),
        ({"order_by": "id"}, "order_by needs a sharding_key"),
        ({"rate": 0}, "rate is 0"),
        ({"to": None}, "exactly one of topic and topic_expression"),
        ({"options": {"onbadrows": "drop"}}, "did you mean onBadRow"),
        ({"format": "nonsense"}, "can't be read as nonsense"),
    ],
)
def test_wrong_arguments_are_refused(send, folder, options, words):
    with pytest.raises(ConfigError, match=words):
        send(str(folder), **options)


def test_a_missing_dataset_is_refused(send, tmp_path):
    with pytest.raises(ConfigError, match="no such file, folder or table"):
        send(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="dataset is a int"):
        send(7)
