"""Joining the files of a day loses nothing, whoever else is at work in the folder."""

import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines import compact as compacting
from rocketwire.spark.pipelines.archive_lock import only_writer
from rocketwire.spark.pipelines.compact import compact


@pytest.fixture
def archive(tmp_path):
    def put(topic, name, *rows):
        day = tmp_path / "lake" / f"topic={topic}" / "date=2020-01-01"
        day.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": list(rows)}), day / name)
        return day

    return put


def ids(day):
    return sorted(
        i for path in day.glob("*.parquet") for i in pq.read_table(path)["id"].to_pylist()
    )


def test_what_comes_while_a_day_is_compacted_is_kept(archive, tmp_path, monkeypatch):
    day = archive("t", "a.parquet", 1)
    archive("t", "b.parquet", 2)
    exchange = compacting._exchange

    def late(one, other):
        archive("t", "late.parquet", 3)
        (day / ".b7-x.draft").write_bytes(b"half")
        return exchange(one, other)

    monkeypatch.setattr(compacting, "_exchange", late)
    assert compact(tmp_path / "lake") == 1
    assert ids(day) == [1, 2, 3]
    assert (day / ".b7-x.draft").exists()
    assert not (tmp_path / ".lake.compacting").exists()


def test_what_came_before_a_crash_is_brought_back_by_the_next_run(archive, tmp_path, monkeypatch):
    day = archive("t", "a.parquet", 1)
    archive("t", "b.parquet", 2)
    exchange = compacting._exchange

    class Crash(BaseException):
        """As if the process were killed."""

    def crash(one, other):
        archive("t", "late.parquet", 3)
        assert exchange(one, other)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(compacting, "_exchange", crash)
        patch.setattr(compacting.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Crash):
            compact(tmp_path / "lake")
    assert ids(day) == [1, 2]  # for the moment
    compact(tmp_path / "lake")
    assert ids(day) == [1, 2, 3]
    assert not (tmp_path / ".lake.compacting").exists()


@pytest.mark.parametrize("error", [OSError("input/output error"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("step", ["bring_to_disk", "_bring_back"])
def test_what_came_late_outlives_whatever_goes_wrong_after_the_exchange(
    archive, tmp_path, monkeypatch, step, error
):
    """The old folder was deleted on the way out, with a file in it that only it had."""
    day = archive("t", "a.parquet", 1)
    archive("t", "b.parquet", 2)
    exchange, is_exchanged = compacting._exchange, []
    usual = getattr(compacting, step)

    def late(one, other):
        archive("t", "late.parquet", 3)
        is_exchanged.append(exchange(one, other))
        return True

    def fail(*given):
        if is_exchanged:
            raise error
        return usual(*given)

    with monkeypatch.context() as patch:
        patch.setattr(compacting, "_exchange", late)
        patch.setattr(compacting, step, fail)
        with pytest.raises(type(error)):
            compact(tmp_path / "lake")
    compact(tmp_path / "lake")
    assert ids(day) == [1, 2, 3]
    assert not (tmp_path / ".lake.compacting").exists()


def test_only_the_days_of_own_topics_are_touched(archive, tmp_path):
    mine = archive("mine", "a.parquet", 1)
    archive("mine", "b.parquet", 2)
    others = archive("other", "a.parquet", 1)
    archive("other", "b.parquet", 2)
    assert compact(tmp_path / "lake", topics=["mine"]) == 1
    assert len(list(mine.glob("*.parquet"))) == 1
    assert len(list(others.glob("*.parquet"))) == 2


def test_the_new_files_are_on_disk_before_the_originals_go(archive, tmp_path, monkeypatch):
    archive("t", "a.parquet", 1)
    archive("t", "b.parquet", 2)
    done, exchange, fsync = [], compacting._exchange, os.fsync

    def note_sync(descriptor):
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def note_exchange(one, other):
        done.append("exchange")
        return exchange(one, other)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(compacting, "_exchange", note_exchange)
    compact(tmp_path / "lake")
    before = done[: done.index("exchange")]
    assert any(name.endswith(".parquet") for name in before)
    assert any(name.endswith("date=2020-01-01") for name in before)
    assert any(name.endswith(".compacted") for name in before)
    assert any(name.endswith("topic=t") for name in done[done.index("exchange") :])


HOLDER = """
import sys
from rocketwire.spark.pipelines.archive_lock import only_writer
with only_writer(sys.argv[1], "archive of orders"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_says_who_holds_it_and_ends_with_its_process(tmp_path):
    folder = tmp_path / "lake"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(ConfigError, match=rf"process {other.pid} on .*archive of orders, since"),
            only_writer(folder, "archive of t"),
        ):
            pass
        other.kill()
    with only_writer(folder, "archive of t"):
        pass
