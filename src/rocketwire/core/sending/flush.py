"""What was submitted before a moment: before a flush, which waits for it, or before a fork.

Deliveries enter the group that is current when they are handed over, and leave it when their
outcome is known. A flush closes the group; what is submitted from then on belongs to the next one.
So a delivery costs two additions, and there is no list of all that is in flight.

Nothing here locks: the in-flight limit that owns the groups does, where several threads submit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rocketwire.core.effects import Event
from rocketwire.errors import Outcome, SendFailedError
from rocketwire.message import SendResult


class Delivered(Protocol):
    """A delivery of either shell whose outcome is known."""

    def exception(self) -> Exception | None:
        """Why the send failed; None if it did not."""

    def result(self) -> SendResult:
        """Where the message is."""


def done_callback(
    on_success: Callable[[SendResult], Any] | None, on_error: Callable[[Exception], Any] | None
) -> Callable[[Delivered], None]:
    """A callback of a delivery that calls one of two."""

    def tell(delivery: Delivered) -> None:
        error = delivery.exception()
        if error is None:
            if on_success is not None:
                on_success(delivery.result())
        elif on_error is not None:
            on_error(error)

    return tell


class FlushGroup:
    """Deliveries that one flush may wait for. ``over`` opens when a closed group is empty."""

    __slots__ = ("count", "is_closed", "over")

    def __init__(self) -> None:
        self.count = 0
        self.is_closed = False
        self.over = Event()

    def leave(self, count: int = 1) -> None:
        """One of them has its outcome, or so many."""
        self.count -= count
        if self.is_closed and not self.count:
            self.over.set()


class FlushGroups:
    """The groups of one producer: the current one, and closed ones that are not over."""

    __slots__ = ("_closed", "current")

    def __init__(self) -> None:
        self.current = FlushGroup()
        self._closed: list[FlushGroup] = []

    def close(self) -> list[FlushGroup]:
        """Begin a new group; returns all before it that are not over."""
        self._closed = [group for group in self._closed if group.count]
        last = self.current
        if last.count:
            fresh = FlushGroup()
            self._closed.append(last)
            self.current = fresh
            last.is_closed = True  # at the end: an interrupt never leaves a closed one in use
        return list(self._closed)


def left_to_parent() -> SendFailedError:
    """What a forked child is told of a message that was under way when the process forked."""
    return SendFailedError(
        "maybe stored: it was submitted before the process forked, so the parent sends it and "
        "gets the answer",
        outcome=Outcome.MAYBE_STORED,
    )


def no_room(in_flight: int, seconds: float) -> SendFailedError:
    """What a submit fails with that found no room before its deadline."""
    return SendFailedError(
        f"not sent: {in_flight} messages are in flight and none was answered in "
        f"{seconds:.1f} s; raise max_in_flight, or send less"
    )
