"""What can be told without Spark is told before Spark starts, in one line."""

import pytest

from rocketwire.cli import archive, publish, transform

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("Spark was started")

    for command in (archive, publish, transform):
        monkeypatch.setattr(command, "started_spark", refuse)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["archive", "nowhere", "lake"], "topic nowhere is unknown"),
        (["archive", "known,nowhere", "lake"], "topic nowhere is unknown"),
        (["archive", "known", "file"], "file is a file: name a folder"),
        (["archive", "known", "lake", "--verify"], "there is no archive"),
        (["archive", "known", "lake", "--set", "tag=x"], "did you mean tags"),
        (["archive", "known", "lake", "--set", "subscribe=x"], "is Kafka's: here it is topics"),
        (["archive", "known", "lake", "--set", "readTimeout=soon"], "option readTimeout"),
        (["archive", "known", "lake", "--body", "xml"], "body is 'xml'"),
        (["archive", "known", "lake", "--body", "avro"], "give schema=, a file"),
        (["transform", "nowhere", "x", "--sql", "select 1"], "topic nowhere is unknown"),
        (["transform", "known", "x", "--sql", "s", "--set", "stampRows=1"], "option stampRows"),
        (["publish", "rows.json", "x", "--set", "onBadRow=no"], "option onBadRow"),
        (["publish", "rows.json", "x", "--state", "file"], "file is a file"),
    ],
)
def test_one_fault_is_one_line(rocketwire, cluster, tmp_path, monkeypatch, words, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    cluster.create_topic("known", queues=2)
    done = rocketwire(*words, cluster=cluster)
    assert done.code != 0
    (told,) = done.err.strip().splitlines()
    assert line in told
