"""Whether every master knows a client, so that each of them can ask or tell it something.

Brokers push over the connection of a heartbeat. Most producers only send, and need no more than the
brokers of their topics; those that answer for transactions or wait for replies must be known to all.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from rocketwire.core.effects import Event
from rocketwire.errors import UnsupportedRequestError


class Presence:
    """The masters that a client instance makes itself known to, beyond those of its topics.

    Args:
        lock: guards the event.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._event = Event()
        self.is_wanted = False
        #: The addresses of all masters, as far as a name server has told.
        self.masters: frozenset[str] = frozenset()
        #: What a proxy said that stands in the place of name servers: brokers see it, and not us.
        self.proxy: UnsupportedRequestError | None = None
        #: Whether a name server has answered as only name servers do.
        self.is_direct = False

    def want(self) -> Event:
        """From now on every master shall know us. The event is set when all were told once."""
        with self._lock:
            self.is_wanted = True
            return self._event

    def told(self) -> None:
        """A round of heartbeats to all masters is over, and some of them answered."""
        with self._lock:
            event = self._event
        event.set()
