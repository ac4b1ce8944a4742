"""One message of a sharding key at a time.

A broker stores requests in the order in which its threads take them, which is not always the
order in which they were written. So two messages of one key are never in flight together: each
key has a line, and whoever is first in it may send. Lines exist only while somebody stands in
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from rocketwire.core.effects import Gate
from rocketwire.errors import Outcome, SendFailedError

#: How long a submitted message may stand in the line of its key; each one before it is bounded.
PATIENCE: Final = 3600.0


class Ticket:
    """A place in a line."""

    __slots__ = ("failed_before", "gate", "is_accepted", "key")

    def __init__(self, key: Hashable, *, is_accepted: bool) -> None:
        self.key = key
        #: Whether the message was already taken from the user (by submit or send_many).
        self.is_accepted = is_accepted
        self.gate = Gate()
        #: The failure of a message before this one, if it must not be sent because of that.
        self.failed_before: Exception | None = None


class Lines:
    """All lines of a producer."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._lines: dict[Hashable, deque[Ticket]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def line_up(self, keys: Sequence[Hashable], *, is_accepted: bool) -> tuple[Ticket, ...]:
        """Take a place in the line of every key at once; the gate of who is first is open.

        All at once, so that two batches with the same keys can't wait for one another.
        """
        tickets = tuple(Ticket(key, is_accepted=is_accepted) for key in keys)
        with self._lock:
            for ticket in tickets:
                line = self._lines.get(ticket.key)
                if line is None:
                    line = self._lines[ticket.key] = deque()
                    ticket.gate.is_open = True
                line.append(ticket)
        return tickets

    def is_last(self, ticket: Ticket) -> bool:
        """Whether nobody stands behind."""
        line = self._lines.get(ticket.key)
        return line is not None and line[-1] is ticket

    def leave(self, ticket: Ticket, failure: Exception | None = None) -> None:
        """Done, or given up. After a failure those who were accepted behind it fail, too.

        A message that was accepted after the failed one would otherwise overtake it. Those who
        still stand there with their message in hand (blocking sends) go on: they can decide.
        """
        opened: list[Ticket] = []
        with self._lock:
            line = self._lines.get(ticket.key)
            if line is None or ticket not in line:
                return
            was_first = line[0] is ticket
            line.remove(ticket)
            if failure is not None and was_first:
                opened = [other for other in line if other.is_accepted]
                for other in opened:
                    other.failed_before = failure
                    line.remove(other)
            if not line:
                del self._lines[ticket.key]
            elif was_first:
                opened.append(line[0])
        for other in opened:
            other.gate.open()


def not_sent_after(before: Exception) -> SendFailedError:
    """What a message fails with because one of its key before it has failed."""
    error = SendFailedError(
        f"not sent: an earlier message of its sharding key failed ({before})",
        outcome=Outcome.NOT_SENT,
    )
    error.__cause__ = before
    return error
