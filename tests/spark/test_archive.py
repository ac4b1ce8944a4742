"""Topics are archived once, visible alike to all engines, and checked."""

import json
import shutil
from datetime import UTC, datetime, timedelta

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rocketwire.columns import send_table
from rocketwire.errors import ConfigError
from rocketwire.message import Message
from rocketwire.spark import archive, verify_archive
from rocketwire.spark.pipelines import compact as compacting
from rocketwire.spark.pipelines.archive import default_checkpoint
from rocketwire.spark.pipelines.compact import compact

try:
    import duckdb
except ImportError:
    duckdb = None


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def run(spark, cluster, topic, folder):
    def call(**options):
        return archive(spark, topic, folder, name_servers=cluster.name_server, **options)

    return call


@pytest.fixture
def check(spark, cluster, folder):
    def call(**options):
        return verify_archive(spark, folder, name_servers=cluster.name_server, **options)

    return call


def fill(producer, topic, *numbers):
    rows = {
        "body": [json.dumps({"id": i}) for i in numbers],
        "shardingKey": [f"{i}" for i in numbers],
    }
    send_table(producer, rows, topic)


def ids_in(folder):
    """What plain Arrow sees (and so pandas); and DuckDB, or what its pattern finds."""
    table = ds.dataset(folder, partitioning="hive").to_table(columns=["body", "topic", "date"])
    bodies = sorted(table.column("body").to_pylist())
    if duckdb is None:
        files = folder.glob("**/*.parquet")
        assert sum(pq.ParquetFile(path).metadata.num_rows for path in files) == table.num_rows
    else:
        pattern = f"read_parquet('{folder}/**/*.parquet', hive_partitioning = true)"
        found = duckdb.sql(f"SELECT body FROM {pattern}").fetchall()
        assert sorted(body for (body,) in found) == bodies
    return sorted(json.loads(body)["id"] for body in bodies)


def test_an_archive_grows_by_what_is_new(run, check, spark, producer, topic, folder):
    fill(producer, topic, *range(100))
    first = run()
    assert (first.rows, first.batches) == (100, 1)
    assert first.files >= 1
    assert run().rows == 0
    fill(producer, topic, *range(100, 130))
    assert run().rows == 30
    assert ids_in(folder) == list(range(130))
    frame = spark.read.parquet(str(folder))
    assert frame.count() == 130
    today = datetime.now(UTC).date()
    assert {row.date for row in frame.select("date").distinct().collect()} <= {
        today,
        today - timedelta(days=1),
    }
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {topic}
    verdict = check()
    assert verdict.is_good
    assert (verdict.rows, verdict.queues) == (130, 6)


def forget_last_commit(folder):
    """As after a crash between the rename of the files and Spark's commit."""
    commits = folder.parent / f".{folder.name}.checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_batch_that_is_repeated_overwrites_itself(run, check, producer, topic, folder):
    fill(producer, topic, *range(50))
    run()
    names = sorted(path.name for path in folder.rglob("*.parquet"))
    forget_last_commit(folder)
    assert run().rows == 50
    assert sorted(path.name for path in folder.rglob("*.parquet")) == names
    assert ids_in(folder) == list(range(50))
    # Cut into other tasks, the same batch has other files; those of before must go.
    forget_last_commit(folder)
    run(options={"joinSmallRanges": "false"})
    assert ids_in(folder) == list(range(50))
    assert check().is_good


def test_a_run_after_a_crash_reads_to_the_end_that_stood_at_its_start(
    run, check, producer, topic, folder
):
    fill(producer, topic, *range(50))
    run()
    forget_last_commit(folder)
    fill(producer, topic, *range(50, 60))
    assert run().rows == 60
    assert ids_in(folder) == list(range(60))
    assert run().rows == 0
    assert check().is_good


def test_drafts_of_a_crashed_task_are_never_seen_and_are_swept(run, producer, topic, folder):
    fill(producer, topic, 1, 2)
    run()
    (day,) = folder.glob("topic=*/date=*")
    batch = min(path.name for path in day.glob("*.parquet"))[: len("b0000000000-12345678-")]
    (day / f".{batch}dead.draft").write_bytes(b"half a file")
    assert ids_in(folder) == [1, 2]
    forget_last_commit(folder)
    run()
    assert list(day.glob(".*.draft")) == []


def test_missing_and_repeated_messages_are_found(run, check, producer, topic, folder):
    queue = producer.publish_queues(topic)[0]
    for i in range(10):
        producer.send(Message(topic, json.dumps({"id": i})), queue=queue)
        if i == 4:
            run()
    run()
    assert check().is_good
    first, last = sorted(folder.rglob("*.parquet"))
    where = f"topic {topic}, broker {queue.broker}, queue {queue.id}"
    shutil.copy(first, first.with_name("copy.parquet"))
    repeated = check()
    assert len(repeated.problems) == 1
    assert f"{where}: 5 repeats, at 0 (2 times)" in repeated.problems[0]
    first.with_name("copy.parquet").unlink()
    last.unlink()
    assert check().problems == (f"{where}: offsets 5 to 9 are missing",)
    table = pq.read_table(first, partitioning=None)
    pq.write_table(table.slice(0, 1), first)
    pq.write_table(table.slice(3), first.with_name("rest.parquet"))
    assert f"{where}: offsets 1 to 2 are missing" in check().problems


def test_what_is_missing_at_the_beginning_or_altogether_is_found(
    run, check, producer, topic, folder
):
    fill(producer, topic, *range(100))
    run()
    first = list(folder.glob("**/*.parquet"))
    fill(producer, topic, *range(100, 200))
    run()
    assert check().problems == ()
    for path in first:
        path.unlink()
    found = check()
    assert found.rows == 100
    assert found.problems
    assert all("offsets 0 to" in text for text in found.problems)
    shutil.rmtree(folder)
    found = check()
    assert (found.rows, found.queues) == (0, 0)
    assert found.problems
    assert all("offsets 0 to" in text for text in found.problems)


def test_json_bodies_become_data_and_what_does_not_parse_stays(run, spark, producer, topic, folder):
    bodies = ['{"id": 1, "name": "a"}', "not json", '{"id": "x"}', '{"id": 4}']
    send_table(producer, {"body": bodies}, topic)
    run(body="json", schema="id bigint, name string")
    rows = spark.read.parquet(str(folder)).collect()
    good = {row.data.id: row for row in rows if row.data is not None}
    assert set(good) == {1, 4}
    assert good[1].data.name == "a"
    assert good[1]["_body"] is None
    bad = {bytes(row["_body"]): row["_error"] for row in rows if row.data is None}
    assert bad == dict.fromkeys((b"not json", b'{"id": "x"}'), "the body is not JSON of the schema")


def test_a_schema_is_learned_from_the_topic(run, spark, producer, topic, folder):
    fill(producer, topic, 1, 2, 3)
    run(body="json")
    assert {row.data.id for row in spark.read.parquet(str(folder)).collect()} == {1, 2, 3}


def test_small_files_of_closed_days_are_joined_in_one_step(run, check, producer, topic, folder):
    for part in range(4):
        fill(producer, topic, *range(part * 10, part * 10 + 10))
        run()
    before = len(list(folder.rglob("*.parquet")))
    assert before >= 4
    assert compact(folder, today=datetime.now(UTC).strftime("%Y-%m-%d")) == 0
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%d")
    saved = compact(folder, today=tomorrow)
    assert saved == before - 1
    assert ids_in(folder) == list(range(40))
    assert [path.name for path in folder.parent.glob(".*.compacting")] == []
    assert check().is_good
    assert compact(folder, today=tomorrow) == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_while_files_are_joined_loses_and_repeats_nothing(
    run, producer, topic, folder, monkeypatch, moment
):
    for part in range(2):
        fill(producer, topic, *range(part * 10, part * 10 + 10))
        run()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%d")
    exchange = compacting._exchange
    found = []

    class Crash(BaseException):
        """As if the process were killed: nothing is tidied up."""

    def crash(one, other):
        if moment == "after":
            assert exchange(one, other)
        assert list(one.glob("*.parquet"))
        found.append(one)
        monkeypatch.setattr(compacting.shutil, "rmtree", lambda *_, **__: None)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(compacting, "_exchange", crash)
        with pytest.raises(Crash):
            compact(folder, today=tomorrow)
        assert found[0].exists()
        assert ids_in(folder) == list(range(20))
    monkeypatch.undo()
    compact(folder, today=tomorrow)
    assert not found[0].exists()
    assert ids_in(folder) == list(range(20))
    assert len(list(folder.glob("**/*.parquet"))) == 1


def test_a_checkpoint_belongs_to_one_archive(run, producer, topic, folder, tmp_path):
    fill(producer, topic, 1)
    run()
    with pytest.raises(ConfigError, match="its stream had body 'raw', not 'json'"):
        run(body="json", schema="id bigint")


def test_files_of_another_checkpoint_are_not_overwritten(run, producer, topic, folder, tmp_path):
    fill(producer, topic, 1, 2, 3)
    run()
    shutil.rmtree(default_checkpoint(folder))
    run()
    assert ids_in(folder) == [1, 1, 2, 2, 3, 3]


def test_an_empty_topic_makes_an_empty_archive(run, check):
    assert run().rows == 0
    assert check().is_good


def test_what_brokers_left_out_is_not_called_missing(spark, cluster, producer, topic, tmp_path):
    send_table(
        producer, {"body": [f"b{i}" for i in range(60)], "tags": ["x", "y", "z"] * 20}, topic
    )
    lake, where = tmp_path / "lake", {"name_servers": cluster.name_server}
    assert archive(spark, topic, lake, options={"tags": "x"}, **where).rows == 20
    found = verify_archive(spark, lake, **where)
    assert (found.rows, found.problems) == (20, ())
    with pytest.raises(ConfigError, match="its stream had filter"):
        archive(spark, topic, lake, options={"tags": "y"}, **where)
    shutil.rmtree(lake)
    found = verify_archive(spark, lake, **where)
    assert sum(int(text.split(": ")[1].split()[0]) for text in found.problems) == 20


def test_a_folder_without_archive_is_not_called_whole(spark, cluster, tmp_path):
    with pytest.raises(ConfigError, match="there is no archive"):
        verify_archive(spark, tmp_path / "mistyped", name_servers=cluster.name_server)


def test_wrong_arguments_are_refused(run):
    with pytest.raises(ConfigError, match="body is 'xml'"):
        run(body="xml")
    with pytest.raises(ConfigError, match="did you mean"):
        run(options={"tag": "x"})
