"""The clock of a cluster, which a test can put forward.

All brokers of a cluster share it. What waits for a time waits by this clock: delays, retries,
timed messages, check-backs of transactions, and messages that were received and not acknowledged.
Records bear its time. What only real time can tell stays with that: who is alive, who holds a lock
on a queue, which connections are idle, and how old files are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from rocketwire import setting_values
from rocketwire.errors import ConfigError


class _Broker(Protocol):
    running: bool

    def seconds_left(self) -> float | None:
        """Until the next thing is due; None when nothing waits."""

    def do_due(self) -> int:
        """Do what is due; returns how much that was."""


class Ahead:
    """How far the clock of a cluster is ahead of the real one, in seconds."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


class ClusterClock:
    """Puts the clock of a running cluster forward.

    Args:
        ahead: what the brokers add to the real time.
        brokers: those that there are now.
        run: calls a function in the cluster's thread and waits for it.
    """

    def __init__(
        self,
        ahead: Ahead,
        brokers: Callable[[], Iterable[_Broker]],
        run: Callable[[Callable[[], None]], object],
    ) -> None:
        self._ahead = ahead
        self._brokers = brokers
        self._run = run

    @property
    def ahead(self) -> float:
        """By how many seconds it is ahead of the real time."""
        return self._ahead.seconds

    def advance(self, span: float | str) -> None:
        """Put the clock forward: by seconds, or by text such as ``"10s"`` or ``"2h"``.

        Everything that becomes due is done before this returns, in the order of its time. There is
        no way back, and ``heal`` is none. What clients wait for by themselves is not touched.

        Raises:
            ConfigError: the span is none, or negative.
        """
        seconds = setting_values.seconds(span)
        if seconds < 0:
            raise ConfigError(f"advance by {span!r}: the clock goes forward only, give 0 or more")
        self._run(lambda: self._advance(seconds))

    def _advance(self, seconds: float) -> None:
        target = self._ahead.seconds + seconds
        while True:
            running = [broker for broker in self._brokers() if broker.running]
            waits = [left for broker in running if (left := broker.seconds_left()) is not None]
            # One moment after the other, so that what is due earlier comes earlier.
            step = min(waits, default=seconds)
            self._ahead.seconds = min(self._ahead.seconds + max(step, 0.0), target)
            done = sum(broker.do_due() for broker in running)
            if not done and self._ahead.seconds >= target:
                return
            if not done and step <= 0:
                # Something is due and can't be done, because a disk is full: it is tried later.
                self._ahead.seconds = target
