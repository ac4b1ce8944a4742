"""The replies that a client instance waits for."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from rocketwire.core.effects import Event
from rocketwire.stored_message import StoredMessage

_log = logging.getLogger("rocketwire.producer")


class Expected:
    """A reply that is waited for."""

    __slots__ = ("is_given_up", "owner", "ready", "reply")

    def __init__(self, owner: object) -> None:
        self.ready = Event()
        self.owner = owner
        self.reply: StoredMessage | None = None
        #: Whether it was set because none can come any more.
        self.is_given_up = False


class Replies:
    """The replies that the clients of an instance wait for.

    Args:
        lock: guards the table; replies come on another thread than requests.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._expected: dict[str, Expected] = {}
        #: Replies that no caller waited for any more.
        self.late = 0

    def expect(self, correlation_id: str, owner: object) -> Expected:
        """Wait for the reply to a request of ``owner`` from now on."""
        expected = Expected(owner)
        with self._lock:
            self._expected[correlation_id] = expected
        return expected

    def forget(self, correlation_id: str) -> None:
        """No caller waits for it any more."""
        with self._lock:
            self._expected.pop(correlation_id, None)

    def give_up(self, owner: object) -> None:
        """A client is shut down: end the waits for what can't come any more."""
        with self._lock:
            given_up = [each for each in self._expected.values() if each.owner is owner]
        for expected in given_up:
            expected.is_given_up = True
            expected.ready.set()

    def arrived(self, correlation_id: str, reply: StoredMessage) -> None:
        """A reply was pushed to us."""
        with self._lock:
            expected = self._expected.pop(correlation_id, None)
            if expected is None:
                self.late += 1
        if expected is None:
            _log.debug("the reply to request %s came too late, or twice", correlation_id)
        else:
            expected.reply = reply
            expected.ready.set()
