"""Whether every master knows a client, so that each of them can ask or tell it something.

Brokers push over the connection of a heartbeat. Most producers only send, and need no more than the
brokers of their topics; those that answer for transactions or wait for replies must be known to all.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from rocketwire.core.effects import Gate


class Presence:
    """The masters that a client instance makes itself known to, beyond those of its topics.

    Args:
        lock: guards the gate.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._gate = Gate()
        self.is_wanted = False
        #: The addresses of all masters, as far as a name server has told.
        self.masters: frozenset[str] = frozenset()

    def want(self) -> Gate:
        """From now on every master shall know us. The gate opens when all were told once."""
        with self._lock:
            self.is_wanted = True
            return self._gate

    def told(self) -> None:
        """A round of heartbeats to all masters is over."""
        with self._lock:
            gate = self._gate
        gate.open()
