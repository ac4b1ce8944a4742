"""Who is told of a reply, and of its end."""

from __future__ import annotations

from threading import Lock
from typing import Any

from rocketwire.core.replies import Replies

REPLY: Any = object()


def test_a_reply_reaches_who_waits_for_it_and_no_other() -> None:
    replies = Replies(Lock())
    waiting, other = replies.expect("1", "a"), replies.expect("2", "a")
    replies.arrived("1", REPLY)
    assert waiting.ready.is_set
    assert waiting.reply is REPLY
    assert not waiting.is_given_up
    assert not other.ready.is_set
    assert replies.late == 0


def test_a_reply_that_comes_twice_or_too_late_is_counted() -> None:
    replies = Replies(Lock())
    replies.expect("1", "a")
    replies.arrived("1", REPLY)
    replies.arrived("1", REPLY)
    replies.expect("2", "a")
    replies.forget("2")
    replies.arrived("2", REPLY)
    assert replies.late == 2


def test_a_client_that_is_shut_down_ends_its_own_waits_only() -> None:
    replies = Replies(Lock())
    mine, other = replies.expect("1", "a"), replies.expect("2", "b")
    replies.give_up("a")
    assert mine.ready.is_set
    assert mine.is_given_up
    assert mine.reply is None
    assert not other.ready.is_set
    assert not other.is_given_up
    replies.arrived("2", REPLY)
    assert other.reply is REPLY
