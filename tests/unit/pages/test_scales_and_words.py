"""Axes, and numbers as people read them."""

import math
from datetime import UTC

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketwire.pages.scales import (
    BUCKETS,
    LinearAxis,
    LogAxis,
    TimeAxis,
    bucket_width,
    round_up,
)
from rocketwire.pages.words import (
    GAP,
    THIN,
    Clock,
    core_time,
    latency,
    share,
    short_number,
    size,
    span,
    times,
)


@given(st.floats(0, 3e9))
def test_time_is_never_cut_into_too_many_stretches(seconds):
    assert math.ceil(seconds / bucket_width(seconds)) + 1 <= BUCKETS


@given(st.lists(st.floats(1e-6, 1e4), min_size=1))
def test_a_latency_axis_holds_its_values(values):
    axis = LogAxis.around(values)
    assert axis.high >= axis.low * 9.99
    for value in values:
        assert axis.low <= value * 1.000001
        assert value <= axis.high * 1.000001
        assert 0.0 <= axis.place(value) <= 1.0
    assert all(0 <= axis.place(tick) <= 1 for tick in axis.ticks())
    assert len(axis.ticks()) >= 1


@given(st.lists(st.floats(1e-6, 1e4), min_size=1))
def test_an_axis_of_decades_holds_its_values_and_ends_at_ticks(values):
    axis = LogAxis.decades(values)
    assert axis.low <= min(values) * 1.000001
    assert max(values) <= axis.high * 1.000001
    assert (axis.ticks()[0], axis.ticks()[-1]) == pytest.approx((axis.low, axis.high))


@example([5e-324])
@example([1e-199])
@given(st.lists(st.floats(0, 1e9), max_size=5))
def test_an_axis_from_zero_holds_its_values_between_its_ticks(values):
    axis = LinearAxis.up_to(values)
    assert all(0 <= axis.place(value) <= 1 for value in values)
    assert axis.high > max(values, default=0)
    assert axis.ticks()[0] == 0
    assert axis.ticks()[-1] == pytest.approx(axis.high)


@given(st.floats(1e-6, 1e12))
def test_rounding_up_never_rounds_down(value):
    assert value <= round_up(value) <= 2.1 * value


@given(st.floats(1e9, 4e9), st.floats(0.1, 1e9))
def test_a_time_axis_has_some_ticks_and_not_too_many(begin, seconds):
    ticks = TimeAxis(begin, seconds).ticks(Clock(UTC, bucket_width(seconds)))
    assert len(ticks) <= 10 or seconds > 9 * 28 * 86_400
    assert all(0 <= place <= 1 for place, _ in ticks)


def test_times_are_round_and_told_as_finely_as_needed():
    axis = TimeAxis(1_760_000_400.0, 36.0)  # 09:00:00
    assert [text for _, text in axis.ticks(Clock(UTC, 0.2))][:3] == [
        "09:00:00",
        "09:00:05",
        "09:00:10",
    ]
    week = TimeAxis(1_760_000_400.0, 7 * 86_400.0)
    assert [text for _, text in week.ticks(Clock(UTC, 1800))][:2] == ["10 Oct", "11 Oct"]
    assert Clock(UTC, 0.2).time(1_760_000_400.25) == "09:00:00.2"
    assert Clock(UTC, 60).time(1_760_000_400.25) == "09:00"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (latency(None), "\u2013"),
        (latency(0.000_24), f"240{GAP}µs"),
        (latency(0.001_42), f"1.42{GAP}ms"),
        (latency(0.9999), f"1{GAP}s"),
        (latency(2.1), f"2.1{GAP}s"),
        (span(0.42), f"0.4{GAP}s"),
        (span(41.2), f"41{GAP}s"),
        (span(192), f"3{GAP}min 12{GAP}s"),
        (span(59.9), f"1{GAP}min"),
        (span(19_200), f"5{GAP}h 20{GAP}min"),
        (span(200_000), f"2{GAP}d 7{GAP}h"),
        (share(1, 3), f"33.3{THIN}%"),
        (share(0, 3), f"0{THIN}%"),
        (share(3, 3), f"100{THIN}%"),
        (share(99_999, 100_000), f"99.999{THIN}%"),
        (share(1, 10**9), f"under 0.001{THIN}%"),
        (share(10**9 - 1, 10**9), f"over 99.999{THIN}%"),
        (share(1, 0), "\u2013"),
        (size(999), f"999{GAP}B"),
        (size(12_345_678), f"12.3{GAP}MB"),
        (short_number(12_400), "12.4k"),
        (short_number(9_999), "9,999"),
        (short_number(0.25), "0.25"),
        (core_time(26.4), "26 core-seconds"),
        (core_time(270), "4.5 core-minutes"),
        (core_time(115_560), "32.1 core-hours"),
        (times(1), "once"),
        (times(12), "12 times"),
    ],
)
def test_numbers_are_written_as_people_read_them(made, expected):
    assert made == expected
