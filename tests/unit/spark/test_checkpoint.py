"""What a checkpoint tells, and when a run needs a second query."""

import json

import pytest

pytest.importorskip("pyspark")

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines import checkpoint as checkpoints
from rocketwire.spark.pipelines.checkpoint import Checkpoint, rounds
from rocketwire.spark.pipelines.small_files import LocalFiles


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(str(tmp_path / "progress"), LocalFiles())


@pytest.fixture
def log(tmp_path):
    """Writes entries of Spark's logs; None removes one."""

    def write(name, number, text="v1\n{}\n"):
        path = tmp_path / "progress" / name / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_text(text)

    return write


def test_a_batch_is_open_until_it_is_committed(checkpoint, log):
    assert checkpoint.is_surely_missing
    assert not checkpoint.has_open_batch
    for number in (0, 9, 10):
        log("offsets", number)
        assert checkpoint.has_open_batch
        log("commits", number)
        assert not checkpoint.has_open_batch


def count(checkpoint, work=lambda: None, *, follow=False):
    found = 0
    for _ in rounds(checkpoint, follow=follow):
        found += 1
        work()
    return found


def test_a_run_that_began_with_an_open_batch_starts_twice(checkpoint, log, monkeypatch):
    monkeypatch.setattr(checkpoints, "HAS_LIMITS", False)
    assert count(checkpoint) == 1
    log("offsets", 0)
    assert count(checkpoint) == 1, "it was stopped before the batch was committed"
    assert count(checkpoint, lambda: log("commits", 0)) == 2
    log("commits", 0, None)
    assert count(checkpoint, lambda: log("commits", 0), follow=True) == 1


def test_newer_sparks_need_no_second_start(checkpoint, log, monkeypatch):
    monkeypatch.setattr(checkpoints, "HAS_LIMITS", True)
    log("offsets", 0)
    assert count(checkpoint, lambda: log("commits", 0)) == 1


def test_the_last_committed_offset_counts(checkpoint, log):
    assert checkpoint.last_offsets() is None
    for number in (0, 1, 2):
        log("offsets", number, "v1\n{}\n" + json.dumps({"end": number}) + "\n")
    log("commits", 0)
    log("commits", 1)
    assert checkpoint.last_offsets() == {"end": 1}


def test_a_claim_is_kept_and_compared(checkpoint):
    checkpoint.claim({"topic": "a", "body": "raw"})
    assert checkpoint.note() == {"topic": "a", "body": "raw"}
    checkpoint.claim({"topic": "a", "body": "raw", "stream": "1"})
    with pytest.raises(ConfigError, match="its stream had topic 'a', not 'b'"):
        checkpoint.claim({"topic": "b"})
    checkpoint.claim({"topic": "b"}, force=True)
    assert checkpoint.note() == {"topic": "b"}


def test_a_stream_keeps_its_name(checkpoint, log, tmp_path):
    log("", "metadata", '{"id":"12345678-9abc"}')
    assert checkpoint.stream() == "12345678"
    checkpoint.claim({"stream": "other"})
    assert checkpoint.stream() == "other"
