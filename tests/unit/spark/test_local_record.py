"""Brokers that were there minutes ago are remembered, and those of another cluster are not."""

import os

import pytest

from rocketwire.message import MessageQueue
from rocketwire.spark.local_record import KEPT_FOR, LocalRecord, local_folder
from rocketwire.spark.topic_view import BrokerView, TopicView

A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)


def view(**addresses):
    brokers = {name: BrokerView("c", address, (0,)) for name, address in addresses.items()}
    return TopicView(brokers, {})


BOTH = view(a="h:1", b="h:2")


@pytest.fixture
def make(tmp_path):
    def make(now=1000.0, servers=("n:1",)):
        return LocalRecord(str(tmp_path), servers, lambda: now)

    return make


def test_a_broker_that_left_is_known_for_ten_minutes(make):
    assert make().update("t", BOTH, {A: 5, B: 5}) == {A, B}
    alone = view(a="h:1")
    assert make(1000 + KEPT_FOR - 1).update("t", alone, {A: 6}) == {A, B}
    # Being asked for is not being seen: it is forgotten all the same.
    assert make(1000 + KEPT_FOR + 1).update("t", alone, {A: 6}) == {A}


def test_clusters_and_topics_are_told_apart(make):
    make().update("t", BOTH, {A: 5, B: 5})
    other = MessageQueue("u", "a", 0)
    assert make().update("u", view(a="h:1"), {other: 1}) == {other}
    assert make(servers=("n:2",)).update("t", view(a="h:1"), {A: 5}) == {A}


@pytest.mark.parametrize(
    ("now", "ends"),
    [(view(a="h:9"), {A: 5}), (view(a="h:1"), {A: 4})],
    ids=["another address", "an offset that went back"],
)
def test_a_cluster_that_was_started_anew_is_not_refused(make, now, ends):
    make().update("t", BOTH, {A: 5, B: 5})
    assert make().update("t", now, ends) == {A}


def test_a_damaged_record_is_no_record(make, tmp_path):
    make().update("t", BOTH, {A: 5, B: 5})
    (path,) = tmp_path.rglob("*.json")
    path.write_text('{"b": {"seen": "x"}}')
    assert make().update("t", view(a="h:1"), {A: 5}) == {A}


def test_a_folder_that_can_not_be_written_to_is_no_fault(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    record = LocalRecord(str(file), ("n:1",))
    assert record.update("t", BOTH, {A: 1}) == {A}


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("/data/spark-1/blockmgr-2,/other", "/data"),
        ("/data/blockmgr-2", "/data"),
        ("/data/x", "/data/x"),
    ],
)
def test_the_folder_outlives_the_application(monkeypatch, told, wanted):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", told)
    assert local_folder() == os.path.normpath(wanted)


def test_a_stream_that_asks_often_writes_seldom(tmp_path):
    now = [1000.0]
    record = LocalRecord(str(tmp_path), ("n:1",), lambda: now[0])
    record.update("t", BOTH, {A: 5, B: 5})
    (path,) = tmp_path.rglob("*.json")
    first = path.stat().st_ino
    for _ in range(20):
        now[0] += 0.1
        assert record.update("t", BOTH, {A: 6, B: 6}) == {A, B}
    assert path.stat().st_ino == first
    assert record.update("t", view(a="h:1"), {A: 6}) == {A, B}  # at once when a broker leaves
    assert path.stat().st_ino != first
