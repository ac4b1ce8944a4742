"""Lag from what Spark tells of a query."""

import json

import pytest

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark import Lag, lag
from rocketwire.spark.offsets import StreamOffset

A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 1)


def progress(end, latest):
    offsets = {
        name: json.dumps(StreamOffset(value).to_json())
        for name, value in (("endOffset", end), ("latestOffset", latest))
    }
    return {"sources": [{"description": "x", **offsets}, {"description": "a file source"}]}


def test_lag_per_queue_and_in_all():
    found = lag(progress({A: 10, B: 5}, {A: 14, B: 5}))
    assert found.queues == {A: 4, B: 0}
    assert (found.min, found.max, found.avg, found.total) == (0, 4, 2.0, 4)


def test_progress_may_be_json_or_an_object_with_json():
    class Progress:
        json = json.dumps(progress({A: 1}, {A: 4}))

    assert lag(Progress()).total == 3
    assert lag(Progress.json).total == 3


def test_a_queue_that_was_not_begun_counts_from_zero():
    assert lag(progress({}, {A: 3})).total == 3


@pytest.mark.parametrize("nothing", [None, {}, {"sources": []}, {"sources": [{"endOffset": None}]}])
def test_no_progress_is_no_lag(nothing):
    assert lag(nothing) == Lag({})
    assert (lag(nothing).min, lag(nothing).max, lag(nothing).avg) == (0, 0, 0.0)


@pytest.mark.parametrize("wrong", ["no json", 7, ["x"]])
def test_what_is_no_progress_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"give query\.lastProgress"):
        lag(wrong)


def test_queues_that_can_not_be_read_are_a_figure_of_their_own():
    latest = {"v": 1, "missing": {"t": {"b": {"0": 0, "1": 0}}}, "offsets": {"t": {"a": {"0": 5}}}}
    end = {"v": 1, "offsets": {"t": {"a": {"0": 5}, "b": {"0": 3}}}}
    found = lag({"sources": [{"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}]})
    assert (found.total, found.missing) == (0, 2)
    assert [queue.broker for queue in found.missing_queues] == ["b", "b"]
    assert str(found) == "0 messages, 2 queues can't be read"


def test_without_the_latest_offset_nothing_is_claimed():
    end = {"v": 1, "offsets": {"t": {"a": {"0": 5}}}}
    found = lag({"sources": [{"endOffset": json.dumps(end), "latestOffset": None}]})
    assert not found.is_known
    assert str(found) == "unknown"
