"""What a flush waits for."""

from __future__ import annotations

from rocketwire.core.turns import Turns


def test_a_closed_turn_is_over_when_the_last_of_it_has_left() -> None:
    turns = Turns()
    first = turns.current
    first.count += 2
    assert turns.close() == [first]
    first.leave()
    assert not first.over.is_open
    first.leave()
    assert first.over.is_open


def test_what_comes_after_a_close_belongs_to_another_turn() -> None:
    turns = Turns()
    first = turns.current
    first.count += 1
    turns.close()
    later = turns.current
    assert later is not first
    later.count += 1
    first.leave()
    assert first.over.is_open
    assert not later.over.is_open


def test_a_turn_that_is_not_closed_goes_on_when_it_is_empty() -> None:
    turns = Turns()
    only = turns.current
    only.count += 1
    only.leave()
    assert turns.close() == []
    assert turns.current is only
    only.count += 1
    assert turns.close() == [only]


def test_closing_again_names_the_earlier_ones_that_are_not_over() -> None:
    turns = Turns()
    first = turns.current
    first.count += 1
    turns.close()
    second = turns.current
    second.count += 1
    assert turns.close() == [first, second]
    first.leave()
    assert turns.close() == [second]
