"""Archives where only Hadoop reaches: data, checkpoint, lock and record alike.

Hadoop's ``viewfs`` has a scheme of its own, as an object store has, and keeps its files in a folder.
"""

import itertools
import json
import threading
import time

import pyarrow.dataset as ds
import pytest

from rocketwire.columns import send_table
from rocketwire.errors import ConfigError
from rocketwire.spark import archive, transform, verify_archive
from rocketwire.spark.pipelines.archive_lease import Lease
from rocketwire.spark.pipelines.small_files import HadoopFiles, LocalFiles

_mounts = itertools.count()


@pytest.fixture
def mount(spark, tmp_path):
    """A file system of its own; returns its address and the folder that it is."""
    name = f"store{next(_mounts)}"
    folder = tmp_path / "store"
    folder.mkdir()
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set(f"fs.viewfs.mounttable.{name}.link./bucket", folder.as_uri())
    return f"viewfs://{name}/bucket", folder


def fill(producer, topic, *numbers):
    bodies = [json.dumps({"id": i}) for i in numbers]
    send_table(producer, {"body": bodies, "shardingKey": [str(i) for i in numbers]}, topic)


def ids_in(folder):
    table = ds.dataset(folder, partitioning="hive").to_table(columns=["body", "date", "topic"])
    return sorted(json.loads(body)["id"] for body in table.column("body").to_pylist())


def test_an_archive_and_all_that_belongs_to_it_is_in_the_store(
    spark, cluster, producer, topic, mount
):
    address, store = mount
    servers = cluster.name_server
    fill(producer, topic, *range(50))
    first = archive(spark, topic, f"{address}/lake", name_servers=servers)
    assert (first.rows, first.missing) == (50, 0)
    assert first.files == len(list((store / "lake").rglob("*.parquet")))
    assert first.bytes > 0
    assert archive(spark, topic, f"{address}/lake", name_servers=servers).rows == 0
    fill(producer, topic, *range(50, 60))
    assert archive(spark, topic, f"{address}/lake", name_servers=servers).rows == 10
    assert ids_in(store / "lake") == list(range(60))
    there = {path.name for path in store.iterdir() if not path.name.endswith(".crc")}
    assert there == {"lake", ".lake.checkpoint", ".lake.queues.json", ".lake.drafts"}
    assert not list((store / ".lake.drafts").iterdir())
    verdict = verify_archive(spark, f"{address}/lake", name_servers=servers)
    assert verdict.is_good
    assert (verdict.rows, verdict.queues) == (60, 6)
    # The note in the checkpoint is read there, too.
    with pytest.raises(ConfigError, match="its stream had body 'raw', not 'text'"):
        archive(spark, topic, f"{address}/lake", name_servers=servers, body="text")


def forget_last_commit(checkpoint):
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_batch_that_is_repeated_overwrites_itself_there(spark, cluster, producer, topic, mount):
    address, store = mount
    fill(producer, topic, *range(30))

    def run(**options):
        archive(spark, topic, f"{address}/lake", name_servers=cluster.name_server, **options)

    run()
    # Half of a first try, and its drafts.
    left = store / ".lake.drafts" / min(p.name for p in store.rglob("b*.parquet"))[:21]
    left.mkdir()
    (left / "part-0.parquet").write_bytes(b"half a file")
    for options in ({}, {"options": {"joinSmallRanges": "false"}}):
        forget_last_commit(store / ".lake.checkpoint")
        run(**options)
        assert ids_in(store / "lake") == list(range(30))
    assert verify_archive(spark, f"{address}/lake", name_servers=cluster.name_server).is_good


def test_a_transform_keeps_its_checkpoint_there(spark, cluster, producer, topic, mount):
    address, store = mount
    target = f"{topic}-out"
    cluster.create_topic(target, queues=2)
    fill(producer, topic, 1, 2, 3)

    def run(sql="select body from messages"):
        place = f"{address}/progress"
        given = {"name_servers": cluster.name_server, "checkpoint": place}
        return transform(spark, topic, target, sql=sql, **given).rows_written

    assert run() == 3
    assert run() == 0
    assert (store / "progress" / "rocketwire.json").exists()
    with pytest.raises(ConfigError, match="its stream had statement"):
        run("select keys, body from messages")


def test_one_writer_at_a_time_also_there(spark, mount):
    address, store = mount
    files = HadoopFiles(spark)
    folder = f"{address}/lake"

    def lease(work):
        note = {"process": 1, "host": "h", "since": "now", "work": work}
        return Lease(files, folder, note, renew=0.2, lost_after=2.0)

    with lease("first"):
        with pytest.raises(ConfigError, match=r"process 1 on h \(first, since now\) writes it"):
            lease("second").__enter__()
        time.sleep(0.5)
    assert not (store / ".lake.lock").exists()
    with lease("third"):
        pass
    # A crash leaves the file, and nobody renews it.
    files.create(f"{address}/.lake.lock", json.dumps({"process": 1}))
    began = time.monotonic()
    with lease("fourth"):
        assert time.monotonic() - began > 1.0
    assert [path.name for path in store.iterdir() if "lock" in path.name] == []


def take(spark, folder, name, start, told):
    start.wait()
    try:
        with Lease(HadoopFiles(spark), folder, {"work": name}, renew=0.2):
            told.append("held")
            time.sleep(1.5)
    except ConfigError:
        told.append("refused")


@pytest.mark.parametrize("_again", range(4))
def test_of_two_that_come_at_once_one_goes_on(spark, mount, _again):
    address, _ = mount
    told, start = [], threading.Barrier(2)
    threads = [
        threading.Thread(target=take, args=(spark, f"{address}/lake", name, start, told))
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(told) == ["held", "refused"]


@pytest.mark.parametrize(
    ("file", "left"),
    [
        # The words of one and the checksum of the other.
        ("..lake.lock.crc", b"crc\x00\x00\x00\x02\x00\x01\x02\x03\x04"),
        # One cut by the other, with a checksum of its own or with none.
        (".lake.lock", b'{"work": "x", "lea'),
        (".lake.lock", b""),
    ],
)
def test_what_two_have_written_at_the_same_moment_belongs_to_neither(spark, mount, file, left):
    address, store = mount
    told, start = [], threading.Barrier(2)
    taker = threading.Thread(target=take, args=(spark, f"{address}/lake", "a", start, told))
    taker.start()
    start.wait()
    while not (store / "..lake.lock.crc").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    (store / file).write_bytes(left)
    if file == ".lake.lock":
        (store / "..lake.lock.crc").unlink()
    taker.join(20)
    assert told == ["held"]
    assert not (store / ".lake.lock").exists()


@pytest.fixture(params=["local", "file", "viewfs"])
def small(request, spark, tmp_path, mount):
    return {
        "local": (LocalFiles(), str(tmp_path)),
        "file": (HadoopFiles(spark), tmp_path.as_uri()),
        "viewfs": (HadoopFiles(spark), mount[0]),
    }[request.param]


def test_small_files_are_the_same_everywhere(small):
    files, root = small
    path = f"{root}/a/b.json"
    assert files.read(path) is None
    assert not files.has(f"{root}/a")
    assert files.names(f"{root}/a") == []
    for text in ("one", "zwölf, 十二", ""):
        files.write(path, text)
        assert files.read(path) == text
    assert [name for name in files.names(f"{root}/a") if not name.endswith(".crc")] == ["b.json"]


def test_a_crash_between_the_two_steps_of_a_write_leaves_the_new_text(spark, mount):
    address, store = mount
    files = HadoopFiles(spark)
    files.write(f"{address}/x", "old")
    files.write(f"{address}/y", "new")
    (store / "x").unlink()
    (store / "y").rename(store / "x.draft")
    for crc in store.glob(".*.crc"):
        crc.unlink()
    assert files.read(f"{address}/x") == "new"


def test_a_file_system_that_spark_lacks_is_named(spark, cluster, topic):
    with pytest.raises(ConfigError, match=r"s3a://bucket/.* can't reach s3a: .*hadoop-aws"):
        archive(spark, topic, "s3a://bucket/lake", name_servers=cluster.name_server)


def test_a_local_folder_may_be_written_as_a_file_address(spark, cluster, producer, topic, tmp_path):
    fill(producer, topic, 1, 2)
    place = (tmp_path / "lake").as_uri()
    assert archive(spark, topic, place, name_servers=cluster.name_server).rows == 2
    assert ids_in(tmp_path / "lake") == [1, 2]
    assert verify_archive(spark, place, name_servers=cluster.name_server).is_good
    assert (tmp_path / ".lake.lock").exists()
