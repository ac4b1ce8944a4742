"""The replies that a client instance waits for."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from rocketwire.core.effects import Gate
from rocketwire.stored_message import StoredMessage

_log = logging.getLogger("rocketwire.producer")


class Expected:
    """A reply that is waited for."""

    __slots__ = ("gate", "reply")

    def __init__(self) -> None:
        self.gate = Gate()
        self.reply: StoredMessage | None = None


class Replies:
    """The replies that the clients of an instance wait for.

    Args:
        lock: guards the table; replies come on another thread than requests.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._expected: dict[str, Expected] = {}
        #: Replies that nobody waited for any more.
        self.late = 0

    def expect(self, correlation_id: str) -> Expected:
        """Wait for the reply to a request from now on."""
        expected = Expected()
        with self._lock:
            self._expected[correlation_id] = expected
        return expected

    def forget(self, correlation_id: str) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self._expected.pop(correlation_id, None)

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
            expected.gate.open()
