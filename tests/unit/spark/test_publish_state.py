"""The record of a publishing job survives crashes and refuses another job."""

import json

import pytest

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.state import PublishState

JOB = {"topic": "t", "key": None}
INPUTS = {"a.csv": [10, 1], "b.csv": [20, 2]}


def part(name):
    return {"part": name, "rows": 1}


def test_parts_are_remembered_over_runs(tmp_path):
    first = PublishState.open(tmp_path / "s", JOB, INPUTS)
    first.acknowledge([part("a"), part("b")])
    first.acknowledge([part("a")])
    again = PublishState.open(tmp_path / "s", JOB, INPUTS)
    assert set(again.parts) == {"a", "b"}
    assert len((tmp_path / "s" / "parts.jsonl").read_text().splitlines()) == 2


def test_values_are_kept_as_first_given(tmp_path):
    assert PublishState.open(tmp_path, JOB, INPUTS).remember("name", "one") == "one"
    assert PublishState.open(tmp_path, JOB, INPUTS).remember("name", "two") == "one"


def test_a_job_is_complete_when_it_says_so(tmp_path):
    state = PublishState.open(tmp_path, JOB, INPUTS)
    assert not state.is_complete
    state.remember("complete", value=True)
    assert PublishState.open(tmp_path, JOB, INPUTS).is_complete


def test_a_torn_last_line_is_done_again(tmp_path):
    PublishState.open(tmp_path, JOB, INPUTS).acknowledge([part("a"), part("b")])
    path = tmp_path / "parts.jsonl"
    path.write_text(path.read_text()[:-5])
    assert set(PublishState.open(tmp_path, JOB, INPUTS).parts) == {"a"}


@pytest.mark.parametrize(
    ("job", "inputs", "words"),
    [
        (JOB | {"key": "id"}, INPUTS, "key None, not 'id'"),
        (JOB, INPUTS | {"c.csv": [1, 1]}, r"c\.csv is new"),
        (JOB, {"a.csv": [10, 1]}, r"b\.csv is gone"),
        (JOB, INPUTS | {"a.csv": [11, 1]}, r"a\.csv has changed"),
    ],
)
def test_another_job_or_input_is_refused(tmp_path, job, inputs, words):
    PublishState.open(tmp_path, JOB, INPUTS)
    with pytest.raises(ConfigError, match=words):
        PublishState.open(tmp_path, job, inputs)


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"version": 99})])
def test_a_foreign_record_is_refused(tmp_path, content):
    (tmp_path / "job.json").write_text(content)
    with pytest.raises(ConfigError, match="not a record of this release"):
        PublishState.open(tmp_path, JOB, INPUTS)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = PublishState.open(None, JOB, INPUTS)
    state.acknowledge([part("a")])
    assert state.remember("name", "x") == "x"
    assert list(tmp_path.iterdir()) == []


def test_a_part_acknowledged_after_a_torn_line_is_not_sent_again(tmp_path):
    first = PublishState.open(tmp_path, {"topic": "t"}, {})
    first.acknowledge([{"part": "a"}])
    with (tmp_path / "parts.jsonl").open("a") as file:
        file.write('{"part": "b", "ro')  # the power went
    second = PublishState.open(tmp_path, {"topic": "t"}, {})
    assert set(second.parts) == {"a"}
    second.acknowledge([{"part": "b"}, {"part": "c"}])
    third = PublishState.open(tmp_path, {"topic": "t"}, {})
    assert set(third.parts) == {"a", "b", "c"}


def test_a_whole_line_without_its_end_may_still_be_torn(tmp_path):
    PublishState.open(tmp_path, {"topic": "t"}, {}).acknowledge([{"part": "a"}])
    with (tmp_path / "parts.jsonl").open("a") as file:
        file.write('{"part": "b"}')
    again = PublishState.open(tmp_path, {"topic": "t"}, {})
    again.acknowledge([{"part": "c"}])
    assert set(PublishState.open(tmp_path, {"topic": "t"}, {}).parts) == {"a", "c"}
