"""Round-robin positions, one set per thread, so that threads never wait for one another."""

from __future__ import annotations

import threading

from rocketwire.core.instance import Instance


class ThreadPositions(threading.local):
    """Positions of the calling thread; a thread starts at random places."""

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        counter = instance.new_positions()
        # Bound methods, not properties: ``next`` is called for every send.
        self.next = counter.next  # type: ignore[method-assign]
        self.reset = counter.reset  # type: ignore[method-assign]

    def next(self, topic: str) -> int:
        """For a signal handler that comes while the positions of its thread are being made."""
        return len(topic)

    def reset(self, topic: str) -> None:
        """There are none yet."""
