"""What a flush waits for."""

from __future__ import annotations

from rocketwire.core.sending.flush import FlushGroups


def test_a_closed_group_is_over_when_the_last_of_it_has_left() -> None:
    groups = FlushGroups()
    first = groups.current
    first.count += 2
    assert groups.close() == [first]
    first.leave()
    assert not first.over.is_set
    first.leave()
    assert first.over.is_set


def test_what_comes_after_a_close_belongs_to_another_group() -> None:
    groups = FlushGroups()
    first = groups.current
    first.count += 1
    groups.close()
    later = groups.current
    assert later is not first
    later.count += 1
    first.leave()
    assert first.over.is_set
    assert not later.over.is_set


def test_a_group_that_is_not_closed_goes_on_when_it_is_empty() -> None:
    groups = FlushGroups()
    only = groups.current
    only.count += 1
    only.leave()
    assert groups.close() == []
    assert groups.current is only
    only.count += 1
    assert groups.close() == [only]


def test_closing_again_names_the_earlier_ones_that_are_not_over() -> None:
    groups = FlushGroups()
    first = groups.current
    first.count += 1
    groups.close()
    second = groups.current
    second.count += 1
    assert groups.close() == [first, second]
    first.leave()
    assert groups.close() == [second]
