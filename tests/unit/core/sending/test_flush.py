"""What a flush waits for."""

from __future__ import annotations

from typing import Any

import pytest

from rocketwire.core.sending.flush import FlushGroups, done_callback, left_to_parent, no_room
from rocketwire.errors import Outcome


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


class Delivery:
    """One whose outcome is known."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def exception(self) -> Exception | None:
        return self.outcome if isinstance(self.outcome, Exception) else None

    def result(self) -> Any:
        return self.outcome


@pytest.mark.parametrize("outcome", ["stored", ValueError("not stored")], ids=["good", "bad"])
def test_of_two_callbacks_the_one_of_the_outcome_is_called(outcome: Any) -> None:
    good: list[Any] = []
    bad: list[Any] = []
    done_callback(good.append, bad.append)(Delivery(outcome))
    assert (good, bad) == (([outcome], []) if outcome == "stored" else ([], [outcome]))
    done_callback(None, None)(Delivery(outcome))


def test_errors_of_submitting_tell_what_became_of_the_message() -> None:
    assert left_to_parent().outcome is Outcome.MAYBE_STORED
    error = no_room(12, 3.0)
    assert error.outcome is Outcome.NOT_SENT
    assert "12 messages are in flight and none was answered in 3.0 s" in str(error)


def test_several_leave_a_group_at_once() -> None:
    groups = FlushGroups()
    only = groups.current
    only.count += 3
    groups.close()
    only.leave(2)
    assert not only.over.is_set
    only.leave()
    assert only.over.is_set
