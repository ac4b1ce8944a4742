"""What a progress bar needs to know of a publishing job."""

import pytest

pytest.importorskip("pyspark")

from rocketwire.spark.pipelines.publish import PublishProgress


def test_speed_and_time_left_follow_from_what_is_done():
    now = PublishProgress(rows=600, parts=3, parts_in_all=12, seconds=2.0)
    assert now.rows_per_second == 300
    assert now.seconds_left == 6.0


def test_nothing_is_foretold_before_a_part_is_done():
    now = PublishProgress(rows=0, parts=0, parts_in_all=12, seconds=0.0)
    assert now.rows_per_second == 0
    assert now.seconds_left is None


def test_nothing_is_left_in_the_end():
    assert PublishProgress(10, 2, 2, 1.0).seconds_left == 0
